//! The two threads, and how handles and guards talk to them.
//!
//! Everything asked of the renewal thread goes through its inbox; nothing here waits for it without a bound.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use parking_lot::Mutex;

use crate::config::Config;
use crate::event::Reporter;
use crate::guard::{Hold, Lost, Owner, PublishError, Term};
use crate::identity::Identity;
use crate::status::{Role, Snapshot, Status};
use crate::store::{Store, StoreError};
use crate::term::LossCause;
use crate::time::{Clock, Time};

use super::error::StartError;
use super::renewal::Renewing;
use super::shared::{Message, Shared};
use super::watchdog::Watchdog;

/// What a bounded wait may take beyond the operation it waits for.
const SLACK: Duration = Duration::from_millis(250);
/// How long the end of an elector waits for a log sink.
const FLUSH: Duration = Duration::from_millis(100);

/// The two threads, as their users see them. When the last handle and the last guard are gone, the inbox closes
/// and the threads end.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    inbox: Sender<Message>,
    /// Disconnected when both threads have ended.
    done: Receiver<Infallible>,
}

impl Engine {
    pub(crate) fn start(
        store: Arc<dyn Store>,
        config: Config,
        clock: Arc<dyn Clock>,
    ) -> Result<Engine, StartError> {
        let identity = Identity::generate(config.label()).map_err(StartError::Identity)?;
        let reporter = Reporter::new(config.name(), identity.as_str()).map_err(StartError::Thread)?;
        let reporter = Arc::new(reporter);
        let role = if config.observer() { Role::Observer } else { Role::Idle };
        let snapshot = Mutex::new(Snapshot::new(role, clock.now()));
        let (watchdog, watchdog_inbox) = unbounded();
        let (stop, stop_seen) = bounded(0);
        let shared = Arc::new(Shared {
            config,
            identity,
            clock: clock.clone(),
            reporter: reporter.clone(),
            current: ArcSwapOption::empty(),
            guards: Arc::default(),
            snapshot,
            watchdog,
            stopped: AtomicBool::new(false),
            stop: Mutex::new(Some(stop)),
            stop_seen,
        });
        // If the second thread can't be had, the first ends by itself: its inbox is dropped.
        let dog = Watchdog { inbox: watchdog_inbox, clock, reporter: reporter.clone() };
        let (still_running, done) = bounded::<Infallible>(0);
        let also_running = still_running.clone();
        spawn("tenure-watchdog", move || {
            dog.run();
            // The renewal thread ends first, and nobody else reports anything.
            reporter.close();
            drop(also_running);
        })?;
        let (inbox, messages) = unbounded();
        let renewing = Renewing::new(store, shared.clone(), messages);
        spawn("tenure-renewal", move || {
            renewing.run_to_the_end();
            drop(still_running);
        })?;
        Ok(Engine { shared, inbox, done })
    }

    pub(crate) fn inbox(&self) -> &Sender<Message> {
        &self.inbox
    }

    /// Waits for the end of both threads, for `limit` at most, and then a moment for what they had to say. Says
    /// whether they have ended.
    pub(crate) fn await_end(&self, limit: Duration) -> bool {
        let ended = self.done.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected);
        if ended {
            self.shared.reporter.flush(FLUSH);
        }
        ended
    }

    pub(crate) fn stop_seen(&self) -> &Receiver<Infallible> {
        &self.shared.stop_seen
    }

    /// How long a caller waits for one operation of the renewal thread.
    pub(crate) fn patience(&self) -> Duration {
        self.shared.config.operation_timeout() + SLACK
    }

    pub(crate) fn current(&self) -> Option<Arc<Term>> {
        self.shared.current.load_full()
    }

    fn end_and_tell(&self, term: &Term, reply: Option<Sender<Result<(), StoreError>>>) {
        let release = self.shared.end(term, LossCause::Resigned);
        let _ = self.inbox.send(Message::Resign { fence: term.fence(), release, reply });
    }

    /// Asks for the end: no campaign any more, and a term under way is over at once. Never blocks.
    pub(crate) fn stop(&self) {
        // Ordered against a term that begins just now: it looks at this after it is visible to us.
        self.shared.stopped.store(true, Ordering::SeqCst);
        if let Some(term) = self.current() {
            self.shared.end(&term, LossCause::Stopped);
        }
        self.shared.stop.lock().take();
        let _ = self.inbox.send(Message::Stop);
    }

    pub(crate) fn status(&self) -> Status {
        let shared = &self.shared;
        // In this order, so that a term that is told of as live is not among the ended ones, and none has ended that
        // is not told of.
        let losses = shared.reporter.losses();
        let term = self.current().filter(|term| term.is_leader());
        let now = shared.clock.now();
        let known = {
            let mut known = shared.snapshot.lock();
            // The renewal thread writes these down, too, but it may be waiting for a store that never answers.
            // Asked again, and without the clock: a term may have begun since.
            let over = shared.current.load().as_ref().is_some_and(|term| term.is_sealed());
            if over && shared.is_held() {
                known.overrun_since.get_or_insert(now);
            }
            let role = shared.role(term.is_some(), &known);
            known.seen_as(role, now);
            known.clone()
        };
        let since = |at: Time| now.saturating_since(at);
        let (leader, leader_fence, leader_payload) = match known.leader {
            Some(leader) => (Some(leader.holder), Some(leader.fence), leader.payload),
            None => (None, None, None),
        };
        Status {
            role: known.role.0,
            identity: shared.identity.clone(),
            fence: term.as_ref().map(|t| t.fence()),
            leader,
            leader_fence,
            leader_payload,
            observed_age: known.answered_at.map(since),
            remaining: term.as_ref().map(|t| t.remaining()),
            last_error: known.last_error,
            overrun: known.overrun_since.filter(|_| shared.is_held()).map(since),
            in_role: since(known.role.1),
            renewed_age: known.renewed_at.filter(|_| term.is_some()).map(since),
            terms: known.terms,
            losses,
            renewals: known.renewals,
            round_trip: known.round_trip,
            worst_round_trip: known.worst_round_trip,
            headroom: known.headroom,
            least_headroom: known.least_headroom,
            failures: known.failures,
            failures_by_kind: known.failures_by_kind,
            failures_by_operation: known.failures_by_operation,
            clock_steps: known.clock_steps,
            disturbances: known.disturbances,
            events_dropped: shared.reporter.dropped(),
            log_lines_dropped: shared.reporter.lines_dropped(),
        }
    }
}

impl Owner for Engine {
    fn resign(&self, term: &Term, hold: Hold) {
        self.end_and_tell(term, None);
        drop(hold);
    }

    fn resign_and_wait(&self, term: &Term, hold: Hold) -> Result<(), StoreError> {
        let (reply, answer) = bounded(1);
        self.end_and_tell(term, Some(reply));
        drop(hold);
        match answer.recv_timeout(self.patience()) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(StoreError::timeout(
                "the lease was not seen released within operation_timeout; it expires by itself",
            )),
            // It does not end by itself while a term is held.
            Err(RecvTimeoutError::Disconnected) => {
                Err(StoreError::retryable("the elector's renewal thread broke; the lease expires by itself"))
            }
        }
    }

    fn end(&self, term: &Term, cause: LossCause) -> LossCause {
        self.shared.end(term, cause);
        term.check().err().map_or(cause, |lost| lost.cause)
    }

    fn publish(&self, term: &Term, payload: Vec<u8>) -> Result<(), PublishError> {
        let limit = Config::MAX_PAYLOAD_LEN;
        if payload.len() > limit {
            return Err(PublishError::TooLarge { size: payload.len(), limit });
        }
        let (reply, answer) = bounded(1);
        let _ = self.inbox.send(Message::Publish { fence: term.fence(), payload, reply });
        match answer.recv_timeout(self.patience() * 2) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(PublishError::Store(StoreError::timeout(
                "the payload was not seen published within two operation timeouts",
            ))),
            Err(RecvTimeoutError::Disconnected) => {
                // Nobody renews this term any more. Whoever is told so is not the only one (rule 5).
                let cause = self.end(term, LossCause::Failed);
                Err(PublishError::Lost(Lost { fence: term.fence(), cause }))
            }
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
    match std::thread::Builder::new().name(name.to_owned()).spawn(body) {
        Ok(_) => Ok(()),
        Err(error) => Err(StartError::Thread(error)),
    }
}
