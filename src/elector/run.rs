//! The callback form: leads whenever it can, calls back, and never campaigns while a callback still works.

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, Scope};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, select};
use parking_lot::Mutex;

use crate::callbacks::{Callbacks, RunError, panic_text};
use crate::event::Leader;
use crate::guard::Term;
use crate::term::LossCause;

use super::{CampaignError, Elector};

impl Elector {
    /// Leads whenever it can, and calls back; blocks until [`stop`](Elector::stop). Terms follow each other: see
    /// [`Callbacks`].
    ///
    /// The lease of a term is released when its `started_leading` has returned. Database errors never come back
    /// from here; they are ridden out, also those that a person must mend, and show in
    /// [`status`](Elector::status), in [`events`](Elector::events) and in the log: install a sink for the `log`
    /// crate, or a wrong password is a program that quietly never leads.
    ///
    /// # Errors
    /// A callback panicked (its term is over, the lease released), or a thread could not be spawned. An
    /// [observer](crate::ConfigBuilder::observer) is refused at once: what it is for comes through `events`.
    pub fn run(&self, callbacks: impl Callbacks) -> Result<(), RunError> {
        if self.config().observer() {
            return Err(RunError::Observer);
        }
        run(self, &callbacks)
    }
}

fn run(elector: &Elector, callbacks: &impl Callbacks) -> Result<(), RunError> {
    let (finished, finish) = bounded::<Infallible>(0);
    let (intact, broken) = bounded::<Infallible>(0);
    let (panicked, leading) = (Mutex::new(None), Mutex::new(None));
    let outcome = std::thread::scope(|scope| {
        let announcer = Announcer { elector, callbacks, panicked: &panicked, leading: &leading };
        Builder::new()
            .name("tenure-new-leader".to_owned())
            .spawn_scoped(scope, move || announcer.run(&finish, intact))
            .map_err(RunError::Thread)?;
        let outcome = lead(scope, elector, callbacks, &broken, &leading);
        drop(finished);
        outcome
    });
    match panicked.into_inner() {
        Some(error) => Err(error),
        None => outcome,
    }
}

/// One term after the other.
fn lead<'scope, 'env, C: Callbacks>(
    scope: &'scope Scope<'scope, 'env>,
    elector: &Elector,
    callbacks: &'env C,
    broken: &Receiver<Infallible>,
    leading: &Mutex<Option<Term>>,
) -> Result<(), RunError> {
    loop {
        let guard = match elector.campaign(None, true, broken) {
            Ok(guard) => guard,
            Err(CampaignError::Failed) => return Err(RunError::Failed),
            Err(_) => return Ok(()),
        };
        let term = guard.term();
        // Shown first, looked second; a broken announcer does it the other way round, so one sees the other.
        *leading.lock() = Some(term.clone());
        if broken.try_recv() == Err(TryRecvError::Disconnected) {
            return Ok(());
        }
        let work = Builder::new()
            .name("tenure-leading".to_owned())
            .spawn_scoped(scope, move || callbacks.started_leading(term));
        let work = match work {
            Ok(work) => work,
            Err(error) => {
                let _ = guard.resign();
                return Err(RunError::Thread(error));
            }
        };
        let worked = work.join();
        // The work has returned. How the release goes shows in the status; the lease expires by itself.
        let lost = guard.end(if worked.is_ok() { LossCause::Resigned } else { LossCause::Failed });
        let _ = guard.resign();
        let told = catch_unwind(AssertUnwindSafe(|| callbacks.stopped_leading(lost)));
        worked.map_err(|panic| panicked("started_leading", &*panic))?;
        told.map_err(|panic| panicked("stopped_leading", &*panic))?;
    }
}

fn panicked(callback: &'static str, panic: &(dyn Any + Send)) -> RunError {
    RunError::Panicked { callback, message: panic_text(panic) }
}

/// Calls `new_leader`, apart from everything else, so that it delays nothing.
struct Announcer<'a, C> {
    elector: &'a Elector,
    callbacks: &'a C,
    panicked: &'a Mutex<Option<RunError>>,
    /// The term that `started_leading` was, or is about to be, called with.
    leading: &'a Mutex<Option<Term>>,
}

impl<C: Callbacks> Announcer<'_, C> {
    /// Ends when `finish` is disconnected. Drops `intact` when the callback panicked.
    fn run(&self, finish: &Receiver<Infallible>, intact: Sender<Infallible>) {
        let news = self.elector.news();
        let mut told: Option<Leader> = None;
        loop {
            let leader = self.elector.observed_leader();
            if let Some(leader) = leader.filter(|l| !told.as_ref().is_some_and(|told| told.same_term(l))) {
                told = Some(leader.clone());
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.callbacks.new_leader(&leader))) {
                    *self.panicked.lock() = Some(panicked("new_leader", &*panic));
                    drop(intact);
                    if let Some(term) = &*self.leading.lock() {
                        self.elector.fail(term);
                    }
                    return;
                }
            }
            select! {
                recv(news) -> event => if event.is_err() { return },
                recv(finish) -> _ => return,
            }
        }
    }
}
