//! The elector: one participant in one election, as a cheap handle on two threads.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvError, after, bounded, never, select};

use crate::config::Config;
use crate::event::{Event, Leader};
use crate::guard::{Hold, LeaderGuard, Term, WAIT_SLICE};
use crate::identity::Identity;
use crate::lease::Fence;
use crate::status::Status;
use crate::store::{Store, StoreError};
use crate::term::LossCause;
use crate::time::{Clock, SystemClock, Time};

mod books;
mod engine;
mod error;
mod renewal;
mod run;
mod shared;
#[cfg(test)]
mod tests;
mod watchdog;

use engine::Engine;
pub use error::{CampaignError, ShutdownError, StartError};
use shared::{Message, Settled, Waiter};

/// What a waiter is told.
type Answer = Result<(Term, Hold), StoreError>;

/// One participant in one election. A cheap handle: clones share the participant, its two threads and its term.
///
/// It wants the lease only while somebody waits for leadership, holds a [`LeaderGuard`] or runs
/// [`run`](Elector::run); otherwise it is silent, unless it is an [observer](crate::ConfigBuilder::observer), which
/// looks at the lease all the time and never wants it.
///
/// Dropping the last handle ends the threads. If no guard is held it waits, for about an operation timeout at most,
/// until a release that is under way is done, so that a program which drops its guard and returns from `main` does
/// hand over at once. (A program that leaves through `std::process::exit`, or keeps its guard in a `static`, hands
/// over as if it had crashed.)
///
/// ```
/// use std::time::Duration;
/// use tenure::{Config, Elector, MemoryStore};
///
/// let elector = Elector::start(MemoryStore::new(), Config::builder("nightly-report").build()?)?;
/// let guard = elector.wait_for_leadership()?;
/// let mut sent = 0;
/// while let Ok(fence) = guard.check() {
///     sent += 1; // one batch, written with the fence
///     assert!(fence.get() >= 1);
///     if sent == 3 {
///         break;
///     }
///     guard.sleep(Duration::from_millis(1)).ok(); // wakes early when the term ends
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "dropping the last handle of an elector stops it"]
pub struct Elector {
    handle: Arc<Handle>,
}

/// Shared by the clones of an elector, and by nothing else.
struct Handle {
    engine: Arc<Engine>,
    /// A shutdown has waited already.
    waited: AtomicBool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // With a guard outstanding the threads go on; the guard's own end ends them.
        if Arc::strong_count(&self.engine) == 1 && !self.waited.load(Ordering::Relaxed) {
            self.engine.stop();
            self.engine.await_end(self.engine.patience());
        }
    }
}

impl Elector {
    /// Starts a participant: two threads and an identity of its own. Sends nothing to the store, unless it is an
    /// [observer](crate::ConfigBuilder::observer): that begins to look, on a thread of its own.
    ///
    /// # Errors
    /// A thread could not be spawned, or the operating system gave no randomness.
    pub fn start(store: impl Store, config: Config) -> Result<Elector, StartError> {
        Elector::start_with_clock(store, config, SystemClock::new())
    }

    /// As [`start`](Elector::start), with a clock of the caller's, for tests.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_with_clock(
        store: impl Store,
        config: Config,
        clock: impl Clock,
    ) -> Result<Elector, StartError> {
        let engine = Engine::start(Arc::new(store), config, Arc::new(clock))?;
        let handle = Handle { engine: Arc::new(engine), waited: AtomicBool::new(false) };
        Ok(Elector { handle: Arc::new(handle) })
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// Campaigns, and blocks until this participant leads. Rides out whatever may pass by itself: a database
    /// that is down, a pooler that restarts. With several waiting threads each term goes to one of them.
    ///
    /// # Errors
    /// [`CampaignError::Stopped`] after [`stop`](Elector::stop), also from another thread meanwhile;
    /// [`CampaignError::Store`] where a person must mend something first; [`CampaignError::Observer`] at once where
    /// it never campaigns.
    pub fn wait_for_leadership(&self) -> Result<LeaderGuard, CampaignError> {
        self.campaign(None, false, &never())
    }

    /// As [`wait_for_leadership`](Elector::wait_for_leadership), for `timeout` at most. A zero timeout
    /// gives no time to ask the store: nothing is sent and it always fails.
    ///
    /// # Errors
    /// As there, and [`CampaignError::TimedOut`]; nothing is left half-held then.
    pub fn wait_for_leadership_timeout(&self, timeout: Duration) -> Result<LeaderGuard, CampaignError> {
        let until = self.engine().shared.clock.now() + timeout;
        self.campaign(Some(until), false, &never())
    }

    /// The one way to leadership. Ends early, as if stopped, when `interrupt` is disconnected.
    pub(crate) fn campaign(
        &self,
        until: Option<Time>,
        rides_out_fatal: bool,
        interrupt: &Receiver<std::convert::Infallible>,
    ) -> Result<LeaderGuard, CampaignError> {
        static TICKETS: AtomicU64 = AtomicU64::new(0);
        let engine = self.engine();
        if self.config().observer() {
            return Err(CampaignError::Observer);
        }
        if engine.shared.is_stopped() {
            return Err(CampaignError::Stopped);
        }
        if until.is_some_and(|until| until <= engine.shared.clock.now()) {
            return Err(CampaignError::TimedOut);
        }
        let ticket = TICKETS.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = bounded(1);
        let settled = Settled::default();
        let waiter = Waiter { ticket, reply, settled: settled.clone(), rides_out_fatal };
        let _ = engine.inbox().send(Message::Campaign(waiter));
        let give_up = |why| self.give_up(ticket, &settled, &answer, why);
        loop {
            let left = until.map(|until| until.saturating_since(engine.shared.clock.now()));
            let slice = left.map_or_else(never, |left| after(left.min(WAIT_SLICE)));
            select! {
                recv(answer) -> outcome => break self.answered(outcome),
                recv(engine.stop_seen()) -> _ => break give_up(CampaignError::Stopped),
                recv(interrupt) -> _ => break give_up(CampaignError::Stopped),
                recv(slice) -> _ => {}
            }
            if left.is_some_and(|left| left.is_zero()) {
                break give_up(CampaignError::TimedOut);
            }
        }
    }

    /// What the renewal thread made of a campaign.
    fn answered(&self, outcome: Result<Answer, RecvError>) -> Result<LeaderGuard, CampaignError> {
        let stopped = self.engine().shared.is_stopped();
        match outcome {
            Ok(Ok((term, hold))) => {
                let guard = LeaderGuard::new(term, hold, self.engine().clone());
                // A term that was won while the elector was stopped is over already; the guard gives it back.
                if stopped { Err(CampaignError::Stopped) } else { Ok(guard) }
            }
            Ok(Err(error)) => Err(CampaignError::Store(error)),
            Err(_) if stopped => Err(CampaignError::Stopped),
            Err(_) => Err(CampaignError::Failed),
        }
    }

    /// Withdraws, unless the answer is on its way already: that is waited for, a moment at most.
    fn give_up(
        &self,
        ticket: u64,
        settled: &Settled,
        answer: &Receiver<Answer>,
        why: CampaignError,
    ) -> Result<LeaderGuard, CampaignError> {
        if settled.settle() {
            let _ = self.engine().inbox().send(Message::Withdraw { ticket });
            return Err(why);
        }
        self.answered(answer.recv())
    }

    /// Tells that something was reported since it was last read.
    pub(crate) fn news(&self) -> Receiver<Event> {
        self.engine().shared.reporter.wake_ups()
    }

    /// Who led by the last answer.
    pub(crate) fn observed_leader(&self) -> Option<Leader> {
        self.engine().shared.snapshot.lock().leader.clone()
    }

    /// Ends a term because something in this process broke; its lease is kept until the guard goes.
    pub(crate) fn fail(&self, term: &Term) {
        self.engine().shared.end(term, LossCause::Failed);
    }

    /// Whether this participant leads at this very moment (rule 4). Never blocks, takes no lock.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.fence().is_some()
    }

    /// The fence, if this participant leads at this very moment (rule 4). Never blocks, takes no lock.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.engine().shared.current.load().as_ref().and_then(|term| term.check().ok())
    }

    /// This participant's identity: the label and a random part of this very run (rule 11).
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.engine().shared.identity
    }

    /// The configuration that the participant was started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.engine().shared.config
    }

    /// What the participant knows and does. Does not ask the store, and waits for nobody who does.
    #[must_use]
    pub fn status(&self) -> Status {
        self.engine().status()
    }

    /// Reports from now on; see [`Event`], which has an example. Each call makes a reader of its own, which may lag 256
    /// events behind before it misses some; they are counted in [`Status::events_dropped`]. (Of
    /// [renewals](Event::Renewed) it misses some earlier, uncounted.) Readers never hold the elector up. One that is dropped
    /// is forgotten with the next event, for which a participant that only looks may wait for days: take one, and not one
    /// for each request. The channel is disconnected when the elector's threads have ended, after [`stop`](Self::stop)
    /// or with the last handle, and what was reported before has been read.
    #[must_use]
    pub fn events(&self) -> Receiver<Event> {
        self.engine().shared.reporter.subscribe()
    }

    /// Asks for the end, for good; returns at once. Idempotent, from any thread, callbacks included.
    ///
    /// Whoever waits for leadership gets [`CampaignError::Stopped`]. A term under way is over at once, so work
    /// that checks winds down; its **lease is kept and renewed** until the guard is dropped or the callback has
    /// returned, and only then released, so that nobody else starts before the work has ended.
    pub fn stop(&self) {
        self.engine().stop();
    }

    /// [`stop`](Elector::stop), then waits up to `grace` for the work to end, and for an operation timeout more
    /// at most for the release. Other clones of the elector are stopped with it.
    ///
    /// # Errors
    /// [`ShutdownError::WorkStillRunning`] past the grace: renewals have ended, the lease was not released, and
    /// nobody else leads before it expires. [`ShutdownError::Release`]: the release failed.
    pub fn shutdown(self, grace: Duration) -> Result<(), ShutdownError> {
        let engine = self.engine().clone();
        self.handle.waited.store(true, Ordering::Relaxed);
        engine.stop();
        let clean = || match engine.shared.unreleased() {
            Some(error) => Err(ShutdownError::Release(error)),
            None => Ok(()),
        };
        if engine.await_end(grace) {
            return clean();
        }
        if engine.shared.is_held() {
            let _ = engine.inbox().send(Message::Abandon);
            return Err(ShutdownError::WorkStillRunning);
        }
        if engine.await_end(engine.patience()) {
            return clean();
        }
        Err(ShutdownError::Release(StoreError::timeout("the release did not end within operation_timeout")))
    }
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector")
            .field("election", &self.config().name())
            .field("identity", self.identity())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}
