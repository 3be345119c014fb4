//! The callback form: leads whenever it can, calls back, and never campaigns while a callback still works.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, Scope};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, select};
use parking_lot::Mutex;

use crate::elector::{CampaignError, Elector};
use crate::event::Leader;
use crate::guard::{Lost, Term};
use crate::term::LossCause;

/// What [`Elector::run`] calls. Any of them may call the elector, [`Elector::stop`] included.
///
/// A closure `Fn(Term)` is the short form with only `started_leading`.
///
/// ```
/// use tenure::{Callbacks, Config, Elector, Leader, Lost, MemoryStore, Term};
///
/// struct Report(Elector);
///
/// impl Callbacks for Report {
///     fn started_leading(&self, term: Term) {
///         println!("leading with fence {}", term.fence());
///         self.0.stop(); // enough for an example
///     }
///     fn stopped_leading(&self, lost: Lost) {
///         println!("{lost}");
///     }
///     fn new_leader(&self, leader: &Leader) {
///         println!("{} leads", leader.holder);
///     }
/// }
///
/// let elector = Elector::start(MemoryStore::new(), Config::builder("report").build()?)?;
/// elector.run(Report(elector.clone()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Callbacks: Send + Sync {
    /// This participant leads. Runs in a thread of its own, one term at a time. Do the work here, as long as
    /// [`Term::check`] succeeds; when this returns, the term ends and the lease is released.
    ///
    /// Once the term is over, return soon: somebody else may lead. Nothing is campaigned for until then.
    fn started_leading(&self, term: Term);

    /// The term is over and `started_leading` has returned. Called exactly once for each of its calls.
    fn stopped_leading(&self, lost: Lost) {
        let _ = lost;
    }

    /// An observation showed another term than before, this participant's own included. Runs in a thread of its
    /// own; while it blocks, changes are not lost but summed up: it is called again with the latest.
    fn new_leader(&self, leader: &Leader) {
        let _ = leader;
    }
}

impl<F: Fn(Term) + Send + Sync> Callbacks for F {
    fn started_leading(&self, term: Term) {
        self(term);
    }
}

/// Why [`Elector::run`] ended before it was stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// A callback panicked. Its term is over and the lease was released.
    Panicked {
        /// Which one.
        callback: &'static str,
        /// What it said.
        message: String,
    },
    /// A thread for a callback could not be spawned. No term is left behind.
    Thread(std::io::Error),
    /// The elector's own thread broke. That is a bug in this crate; please report it.
    Failed,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Panicked { callback, message } => write!(f, "{callback} panicked: {message}"),
            RunError::Thread(_) => f.write_str("a thread for a callback could not be spawned"),
            RunError::Failed => f.write_str("the elector's renewal thread broke"),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Thread(error) => Some(error),
            _ => None,
        }
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no message".to_owned(),
    }
}

pub(crate) fn run(elector: &Elector, callbacks: &impl Callbacks) -> Result<(), RunError> {
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
        let events = self.elector.events();
        let mut told = None;
        loop {
            let leader = self.elector.observed_leader();
            if let Some(leader) = leader.filter(|l| told != Some(l.fence)) {
                told = Some(leader.fence);
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
                recv(events) -> event => if event.is_err() { return },
                recv(finish) -> _ => return,
            }
        }
    }
}
