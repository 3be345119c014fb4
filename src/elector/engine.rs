//! What the elector's handles, guards and threads share, and how a handle talks to the threads.
//!
//! Everything asked of the renewal thread goes through its inbox; nothing here waits for it without a bound.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use parking_lot::Mutex;

use crate::config::Config;
use crate::event::Reporter;
use crate::guard::{Lost, PublishError, Term};
use crate::identity::Identity;
use crate::lease::Fence;
use crate::status::{Role, Snapshot, Status};
use crate::store::{Store, StoreError};
use crate::term::LossCause;
use crate::time::Clock;

use super::StartError;
use super::renewal::Renewing;
use super::watchdog::{Watch, Watchdog};

/// What a bounded wait may take beyond the operation it waits for.
const SLACK: Duration = Duration::from_millis(250);

/// What is asked of the renewal thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// Somebody waits for leadership.
    Campaign(Waiter),
    /// It gave up waiting.
    Withdraw {
        ticket: u64,
    },
    /// The holder of the term is done. `release`: the lease is still this participant's to release.
    Resign {
        fence: Fence,
        release: bool,
        reply: Option<Sender<Result<(), StoreError>>>,
    },
    Publish {
        fence: Fence,
        payload: Vec<u8>,
        reply: Sender<Result<(), PublishError>>,
    },
    Stop,
    Abandon,
}

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) ticket: u64,
    pub(crate) reply: Sender<Result<(Term, Hold), StoreError>>,
    /// Errors that a person must mend are waited out, too.
    pub(crate) rides_out_fatal: bool,
}

/// What the threads and the handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reporter: Arc<Reporter>,
    /// The term of this participant that began last.
    pub(crate) current: ArcSwapOption<Term>,
    /// Terms that somebody still holds a guard of, or is about to.
    guards: AtomicUsize,
    pub(crate) snapshot: Mutex<Snapshot>,
    pub(crate) watchdog: Sender<Watch>,
    stopped: AtomicBool,
    /// Dropped when the elector is stopped; whoever waits sees the disconnection.
    stop: Mutex<Option<Sender<Infallible>>>,
    stop_seen: Receiver<Infallible>,
}

/// Counts a guard for as long as it exists. It is made before the term is handed over and dropped with the
/// guard, not when the renewal thread hears of that: the thread may be waiting for the store.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Shared>);

impl Hold {
    pub(crate) fn new(shared: &Arc<Shared>) -> Hold {
        shared.guards.fetch_add(1, Ordering::AcqRel);
        Hold(shared.clone())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.guards.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    pub(crate) fn is_held(&self) -> bool {
        self.guards.load(Ordering::Acquire) > 0
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Ends a term for everybody, then has the waiters woken (rule 18). Says whether the lease is still this
    /// participant's to release: after a loss it is not, after an end of its own making it is.
    pub(crate) fn end(&self, term: &Term, cause: LossCause) -> bool {
        let ended = term.seal(cause);
        let _ = self.watchdog.send(Watch::Look);
        !matches!(ended, Err(LossCause::Expired | LossCause::Superseded))
    }
}

/// The two threads, as their users see them. When the last handle and the last guard are gone, the inbox closes
/// and the threads end.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    inbox: Sender<Message>,
    /// Disconnected when the renewal thread has ended.
    done: Receiver<Infallible>,
}

impl Engine {
    pub(crate) fn start(
        store: Arc<dyn Store>,
        config: Config,
        clock: Arc<dyn Clock>,
    ) -> Result<Engine, StartError> {
        let identity = Identity::generate(config.label()).map_err(StartError::Identity)?;
        let reporter = Arc::new(Reporter::new(config.name()).map_err(StartError::Thread)?);
        let (watchdog, watchdog_inbox) = unbounded();
        let (stop, stop_seen) = bounded(0);
        let shared = Arc::new(Shared {
            config,
            identity,
            clock: clock.clone(),
            reporter: reporter.clone(),
            current: ArcSwapOption::empty(),
            guards: AtomicUsize::new(0),
            snapshot: Mutex::default(),
            watchdog,
            stopped: AtomicBool::new(false),
            stop: Mutex::new(Some(stop)),
            stop_seen,
        });
        // If the second thread can't be had, the first ends by itself: its inbox is dropped.
        let dog = Watchdog { inbox: watchdog_inbox, clock, reporter };
        spawn("tenure-watchdog", move || dog.run())?;
        let (inbox, messages) = unbounded();
        let (still_running, done) = bounded::<Infallible>(0);
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

    pub(crate) fn done(&self) -> &Receiver<Infallible> {
        &self.done
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

    /// Ends the term for everybody, then tells the threads (rule 18), then lets go of it. Never blocks.
    pub(crate) fn resign(&self, term: &Term, hold: Hold) {
        self.end_and_tell(term, None);
        drop(hold);
    }

    pub(crate) fn resign_and_wait(&self, term: &Term, hold: Hold) -> Result<(), StoreError> {
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

    /// Ends the term, unless it is over already, and says how it ended.
    pub(crate) fn end(&self, term: &Term, cause: LossCause) -> LossCause {
        self.shared.end(term, cause);
        term.check().err().map_or(cause, |lost| lost.cause)
    }

    fn end_and_tell(&self, term: &Term, reply: Option<Sender<Result<(), StoreError>>>) {
        let release = self.shared.end(term, LossCause::Resigned);
        let _ = self.inbox.send(Message::Resign { fence: term.fence(), release, reply });
    }

    pub(crate) fn publish(&self, term: &Term, payload: Vec<u8>) -> Result<(), PublishError> {
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
                let cause = term.check().err().map_or(LossCause::Failed, |lost| lost.cause);
                Err(PublishError::Lost(Lost { fence: term.fence(), cause }))
            }
        }
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
        let term = self.current().filter(|term| term.is_leader());
        let now = shared.clock.now();
        let known = {
            let mut known = shared.snapshot.lock();
            // The renewal thread writes it down, too, but it may be waiting for a store that never answers.
            if term.is_none() && shared.is_held() {
                known.overrun_since.get_or_insert(now);
            }
            known.clone()
        };
        let role = match &term {
            Some(_) => Role::Leader,
            None if known.campaigning => Role::Candidate,
            None => Role::Idle,
        };
        let (leader, leader_fence, leader_payload) = match known.leader {
            Some(leader) => (Some(leader.holder), Some(leader.fence), leader.payload),
            None => (None, None, None),
        };
        Status {
            role,
            identity: shared.identity.clone(),
            fence: term.as_ref().map(|t| t.fence()),
            leader,
            leader_fence,
            leader_payload,
            observed_age: known.answered_at.map(|at| now.saturating_since(at)),
            remaining: term.as_ref().map(|t| t.remaining()),
            last_error: known.last_error,
            overrun: known.overrun_since.filter(|_| shared.is_held()).map(|at| now.saturating_since(at)),
            terms: known.terms,
            renewals: known.renewals,
            failures: known.failures,
            events_dropped: shared.reporter.dropped(),
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
    match std::thread::Builder::new().name(name.to_owned()).spawn(body) {
        Ok(_) => Ok(()),
        Err(error) => Err(StartError::Thread(error)),
    }
}
