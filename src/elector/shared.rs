//! What the elector's handles, guards and threads share, and what can be asked of the renewal thread.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;

use crate::config::Config;
use crate::event::Reporter;
use crate::guard::{Hold, PublishError, Term};
use crate::identity::Identity;
use crate::lease::Fence;
use crate::status::{Role, Snapshot};
use crate::store::StoreError;
use crate::term::LossCause;
use crate::time::Clock;

use super::watchdog::Watch;

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
    pub(crate) settled: Settled,
    /// Errors that a person must mend are waited out, too.
    pub(crate) rides_out_fatal: bool,
}

/// Settles who comes first: the renewal thread with a term, or the waiter that gives up. Whoever is second leaves it
/// to the other, so no term begins for somebody who has gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled(Arc<AtomicBool>);

impl Settled {
    /// Whether the caller is the first.
    pub(crate) fn settle(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
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
    pub(crate) guards: Arc<AtomicUsize>,
    pub(crate) snapshot: Mutex<Snapshot>,
    pub(crate) watchdog: Sender<Watch>,
    pub(super) stopped: AtomicBool,
    /// Dropped when the elector is stopped; whoever waits sees the disconnection.
    pub(super) stop: Mutex<Option<Sender<Infallible>>>,
    pub(super) stop_seen: Receiver<Infallible>,
}

impl Shared {
    pub(crate) fn is_held(&self) -> bool {
        self.guards.load(Ordering::Acquire) > 0
    }

    /// The failure of the last release, for as long as what was not released may still be held.
    pub(crate) fn unreleased(&self) -> Option<StoreError> {
        let (failed, error) = self.snapshot.lock().release_error.clone()?;
        let since = self.clock.now().saturating_since(failed);
        (since < self.config.lease_duration()).then_some(error)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// What the participant is doing, where `leads` says whether its term is live.
    pub(crate) fn role(&self, leads: bool, known: &Snapshot) -> Role {
        if leads {
            Role::Leader
        } else if self.config.observer() && !self.is_stopped() {
            Role::Observer
        } else if known.campaigning && !self.config.observer() {
            Role::Candidate
        } else {
            Role::Idle
        }
    }

    /// Ends a term for everybody, then has the waiters woken (rule 18). Says whether the lease is still this
    /// participant's to release: after a loss it is not, after an end of its own making it is.
    pub(crate) fn end(&self, term: &Term, cause: LossCause) -> bool {
        let ended = term.seal(cause);
        let _ = self.watchdog.send(Watch::Look);
        !matches!(ended, Err(LossCause::Expired | LossCause::Superseded))
    }
}
