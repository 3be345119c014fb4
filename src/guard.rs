//! What a leader holds in its hands: the guard, handles for its workers, and the news that it is over.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::lease::Fence;
use crate::store::StoreError;
use crate::term::{AtomicTerm, LossCause};
use crate::time::{Clock, Time};

/// System waits stop while the machine is suspended; none is longer than this before the clock is read again.
pub(crate) const WAIT_SLICE: Duration = Duration::from_millis(200);

/// A term is over: this participant is not the leader any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The fence of the term that ended.
    pub fence: Fence,
    /// Why it ended.
    pub cause: LossCause,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the term with fence {} is over: {}", self.fence, self.cause)
    }
}

impl std::error::Error for Lost {}

/// Why a payload was not published.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PublishError {
    /// The term is over.
    Lost(Lost),
    /// The store failed; whether the payload was published is unknown. Later renewals publish it.
    Store(StoreError),
    /// More bytes than a payload may have.
    TooLarge {
        /// The payload's size in bytes.
        size: usize,
        /// The largest size in bytes.
        limit: usize,
    },
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PublishError::Lost(_) => f.write_str("not published, the term is over"),
            PublishError::Store(_) => {
                f.write_str("the store failed while publishing; later renewals publish the payload")
            }
            PublishError::TooLarge { size, limit } => {
                write!(f, "payload of {size} bytes is larger than the limit of {limit}")
            }
        }
    }
}

impl std::error::Error for PublishError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PublishError::Lost(lost) => Some(lost),
            PublishError::Store(error) => Some(error),
            PublishError::TooLarge { .. } => None,
        }
    }
}

/// One term, for the threads that work under it. Cheap to clone; keeping one does not prolong the term.
///
/// ```
/// use tenure::{Config, Elector, MemoryStore};
///
/// let elector = Elector::start(MemoryStore::new(), Config::builder("billing").build()?)?;
/// let guard = elector.wait_for_leadership()?;
/// let term = guard.term();
/// let worker = std::thread::spawn(move || {
///     let mut batches = 0;
///     while let Ok(fence) = term.check() {
///         assert!(fence.get() > 0);
///         batches += 1;
///         if batches == 3 {
///             break;
///         }
///     }
///     batches
/// });
/// assert_eq!(worker.join().unwrap(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Term {
    live: Arc<AtomicTerm>,
    entry: Arc<Entry>,
    clock: Arc<dyn Clock>,
    lost: Receiver<Lost>,
    over: Receiver<Infallible>,
}

/// Where a term is written down, for those who have to look it up inside a transaction of their own.
#[derive(Debug)]
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only the fenced commit reads it"))]
pub(crate) struct Entry {
    /// [`Store::lease_table`](crate::Store::lease_table).
    pub(crate) table: Option<String>,
    pub(crate) election: String,
    pub(crate) holder: String,
    /// How long the database may take.
    pub(crate) patience: Duration,
}

/// The ends by which the watchdog wakes whoever waits for a term's end.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) live: Arc<AtomicTerm>,
    lost: Sender<Lost>,
    /// Never sends; it is dropped when the term is over.
    over: Sender<Infallible>,
}

impl Watched {
    /// Wakes every waiter. Never blocks: the channel has room for the only message.
    pub(crate) fn wake(self, cause: LossCause) -> Lost {
        let lost = Lost { fence: self.live.fence(), cause };
        drop(self.over);
        let _ = self.lost.try_send(lost);
        lost
    }
}

impl Term {
    pub(crate) fn begin(
        fence: Fence,
        deadline: Time,
        entry: Arc<Entry>,
        clock: Arc<dyn Clock>,
    ) -> (Term, Watched) {
        let live = Arc::new(AtomicTerm::new(fence, deadline));
        let (lost_sender, lost) = bounded(1);
        let (over_sender, over) = bounded(0);
        let watched = Watched { live: live.clone(), lost: lost_sender, over: over_sender };
        (Term { live, entry, clock, lost, over }, watched)
    }

    /// The fence, if the term is live at this very moment by the local clock (rule 4).
    ///
    /// Call it before every step that only a leader may take, and hand the fence to whatever you write to.
    /// Never blocks, takes no lock and allocates nothing.
    ///
    /// # Errors
    /// The term is over; once anybody was told so, everybody is, for ever (rule 5).
    pub fn check(&self) -> Result<Fence, Lost> {
        match self.live.check(|| self.clock.now()) {
            Ok(_) => Ok(self.live.fence()),
            Err(cause) => Err(Lost { fence: self.live.fence(), cause }),
        }
    }

    /// Whether [`check`](Term::check) succeeds.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.check().is_ok()
    }

    /// The term's fence, live or over.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.live.fence()
    }

    /// How long the term lives if it is not renewed; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.live.check(|| self.clock.now()) {
            Ok(deadline) => deadline.saturating_since(self.clock.now()),
            Err(_) => Duration::ZERO,
        }
    }

    /// Sleeps for `duration`, or until the term is over if that comes first.
    ///
    /// # Errors
    /// The term is over.
    pub fn sleep(&self, duration: Duration) -> Result<(), Lost> {
        let until = self.clock.now() + duration;
        loop {
            self.check()?;
            let left = until.saturating_since(self.clock.now());
            if left.is_zero() {
                return Ok(());
            }
            match self.over.recv_timeout(left.min(WAIT_SLICE)) {
                Ok(never) => match never {},
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // The watchdog is done with this term. A term that nobody watches must not go on.
                    let _ = self.seal(LossCause::Failed);
                }
            }
        }
    }

    /// Becomes ready when the term ends, for `select!`: the news once, then disconnected. All handles of a term
    /// share the one message, so with several receivers one gets it and the others see the disconnection; both
    /// mean the same.
    #[must_use]
    pub fn lost(&self) -> &Receiver<Lost> {
        &self.lost
    }

    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only the fenced commit reads it"))]
    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Whether somebody has ended it or found it over. Reads no clock.
    pub(crate) fn is_sealed(&self) -> bool {
        self.live.is_sealed()
    }

    pub(crate) fn extend(&self, deadline: Time) -> Result<(), LossCause> {
        self.live.extend(|| self.clock.now(), deadline)
    }

    pub(crate) fn seal(&self, cause: LossCause) -> Result<(), LossCause> {
        self.live.seal(|| self.clock.now(), cause)
    }
}

/// Counts a guard for as long as it exists. It is made before the term is handed over and dropped with the
/// guard, not when the renewal thread hears of that: the thread may be waiting for the store.
#[derive(Debug)]
pub(crate) struct Hold(Arc<AtomicUsize>);

impl Hold {
    pub(crate) fn new(guards: &Arc<AtomicUsize>) -> Hold {
        guards.fetch_add(1, Ordering::AcqRel);
        Hold(guards.clone())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a guard asks of the elector that won its term.
pub(crate) trait Owner: Send + Sync {
    /// Ends the term for everybody, unless it is over already, and says how it ended. Never blocks.
    fn end(&self, term: &Term, cause: LossCause) -> LossCause;

    /// Ends the term for everybody, then has the lease released, then lets go of it. Never blocks.
    fn resign(&self, term: &Term, hold: Hold);

    /// As `resign`, and waits for the release, for an operation timeout and a little at most.
    fn resign_and_wait(&self, term: &Term, hold: Hold) -> Result<(), StoreError>;

    /// Publishes with a renewal made now.
    fn publish(&self, term: &Term, payload: Vec<u8>) -> Result<(), PublishError>;
}

/// Leadership, held. Dropping it ends the term at once and releases the lease without blocking.
///
/// The guard keeps the elector's threads alive, so the elector itself may be dropped first. Leaking the guard
/// (`std::mem::forget`) leaves the lease held and renewed until [`Elector::shutdown`](crate::Elector::shutdown)
/// or the end of the process.
///
/// ```
/// use std::time::Duration;
/// use tenure::{Config, Elector, MemoryStore};
///
/// let elector = Elector::start(MemoryStore::new(), Config::builder("invoice-reconciler").build()?)?;
/// let guard = elector.wait_for_leadership()?;
/// let fence = guard.check()?;
/// assert_eq!(fence, guard.fence());
/// assert!(guard.remaining() > Duration::ZERO);
/// guard.resign()?;
/// assert!(!elector.is_leader());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A guard that nobody holds protects nothing, so the compiler warns where one is dropped on the spot:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use tenure::{Config, Elector, MemoryStore};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let elector = Elector::start(MemoryStore::new(), Config::builder("billing").build()?)?;
/// elector.wait_for_leadership()?; // error: dropping the guard ends the term
/// # Ok(())
/// # }
/// ```
///
/// ```
/// #![deny(unused_must_use)]
/// # use tenure::{Config, Elector, MemoryStore};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let elector = Elector::start(MemoryStore::new(), Config::builder("billing").build()?)?;
/// let _guard = elector.wait_for_leadership()?; // held to the end of the scope
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the guard ends the term at once: bind it to a name (`_guard`, not `_`) for as long as you lead"]
pub struct LeaderGuard {
    term: Term,
    /// Taken when the lease is given up.
    hold: Option<Hold>,
    owner: Arc<dyn Owner>,
}

impl LeaderGuard {
    pub(crate) fn new(term: Term, hold: Hold, owner: Arc<dyn Owner>) -> LeaderGuard {
        LeaderGuard { term, hold: Some(hold), owner }
    }

    /// Ends the term, unless it is over already, and says how it ended. The lease is kept.
    pub(crate) fn end(&self, cause: LossCause) -> Lost {
        let cause = self.owner.end(&self.term, cause);
        Lost { fence: self.fence(), cause }
    }

    /// The fence, if the term is live at this very moment; see [`Term::check`].
    ///
    /// # Errors
    /// The term is over, for ever.
    pub fn check(&self) -> Result<Fence, Lost> {
        self.term.check()
    }

    /// Whether [`check`](LeaderGuard::check) succeeds.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.term.is_leader()
    }

    /// The term's fence, live or over.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.term.fence()
    }

    /// How long the term lives if it is not renewed; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.term.remaining()
    }

    /// A handle on the same term for another thread.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term.clone()
    }

    /// Sleeps for `duration`, or until the term is over if that comes first.
    ///
    /// # Errors
    /// The term is over.
    pub fn sleep(&self, duration: Duration) -> Result<(), Lost> {
        self.term.sleep(duration)
    }

    /// Becomes ready when the term ends; see [`Term::lost`].
    #[must_use]
    pub fn lost(&self) -> &Receiver<Lost> {
        self.term.lost()
    }

    /// Publishes a new payload with a renewal made now; later renewals of this term repeat it. Blocks for about
    /// an operation timeout at most, two where a renewal is under way already.
    ///
    /// # Errors
    /// The term is over, the payload is too large, or the store failed.
    pub fn publish(&self, payload: impl Into<Vec<u8>>) -> Result<(), PublishError> {
        self.term.check().map_err(PublishError::Lost)?;
        self.owner.publish(&self.term, payload.into())
    }

    /// Ends the term at once, releases the lease and waits until that is done: an operation timeout at most.
    ///
    /// With [`release_on_exit`](crate::ConfigBuilder::release_on_exit) off the lease is left to expire.
    ///
    /// # Errors
    /// Whether the lease was released is unknown; it expires by itself. The term is over in any case.
    pub fn resign(mut self) -> Result<(), StoreError> {
        // There until now: only this and the drop take it.
        self.hold.take().map_or(Ok(()), |hold| self.owner.resign_and_wait(&self.term, hold))
    }
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            if std::thread::panicking() {
                // Not given up on purpose; the lease is released all the same.
                self.owner.end(&self.term, LossCause::Failed);
            }
            self.owner.resign(&self.term, hold);
        }
    }
}

impl fmt::Debug for LeaderGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderGuard").field("term", &self.term.live).finish_non_exhaustive()
    }
}
