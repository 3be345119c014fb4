//! The place that holds the lease: a small blocking trait, and the stores that come with the crate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::lease::{Bid, Fence, Lease, Observation, Renewal};

#[cfg(any(test, feature = "testing"))]
pub mod acceptance;
mod any;
mod error;
mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod worker;
pub use any::AnyStore;
pub use error::StoreError;
pub use memory::MemoryStore;
#[cfg(any(test, feature = "testing"))]
pub use memory::{RowHold, RowSnapshot};

/// "Feature not supported": what a store answers that can't list.
pub(crate) const NOT_SUPPORTED: &str = "0A000";

/// A database that can hold a lease.
///
/// Each call may block for about `timeout` and not longer: the whole of it, waiting for a connection included.
/// A result means that the store has decided. **An error means that the outcome is unknown**: the write may have
/// happened, or may still happen later, so every operation must be harmless when it lands late. Losing a race is
/// a result, never an error.
///
/// All timestamps come from one clock of the store's, and each answer carries that clock's `now`, read in the
/// same atomic step as the row (after any wait for the row).
///
/// The acceptance suite (feature `testing`) pins all of this; a store that passes it can carry an election. No call
/// panics; one that does costs the term.
///
/// A store that wraps another one passes on what it does not change:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
/// use tenure::{Bid, Config, Elector, Fence, Lease, MemoryStore, Observation, Renewal, Store, StoreError};
///
/// /// Counts the looks.
/// #[derive(Debug, Default)]
/// struct Counting {
///     inner: MemoryStore,
///     looks: AtomicU64,
/// }
///
/// impl Store for Counting {
///     fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
///         self.inner.acquire(bid, timeout)
///     }
///     fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
///         self.inner.renew(renewal, timeout)
///     }
///     fn release(&self, name: &str, holder: &str, fence: Fence, timeout: Duration) -> Result<(), StoreError> {
///         self.inner.release(name, holder, fence, timeout)
///     }
///     fn observe(&self, name: &str, timeout: Duration) -> Result<Observation, StoreError> {
///         self.looks.fetch_add(1, Ordering::Relaxed);
///         self.inner.observe(name, timeout)
///     }
///     fn list(&self, timeout: Duration) -> Result<Vec<Lease>, StoreError> {
///         self.inner.list(timeout)
///     }
///     fn lease_table(&self) -> Option<String> {
///         self.inner.lease_table()
///     }
/// }
///
/// let store = std::sync::Arc::new(Counting::default());
/// let elector = Elector::start(store.clone(), Config::builder("billing").build()?)?;
/// elector.wait_for_leadership()?.resign()?;
/// assert!(store.looks.load(Ordering::Relaxed) >= 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Takes the lease if the row is still exactly in the state that the bid names (rule 8); nothing else, no
    /// clock and no identity, decides. The new fence is [`Fence::after`] the larger of the stored one and
    /// [`Bid::above`]. `None`: it was not in that state; look again.
    ///
    /// # Errors
    /// The outcome is unknown.
    fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError>;

    /// Prolongs the lease if holder and fence are still the stored ones and it has not expired on the store's
    /// clock (rule 9). `None`: superseded, released, expired or gone.
    ///
    /// # Errors
    /// The outcome is unknown.
    fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError>;

    /// Gives the lease up if holder and fence are still the stored ones: sets `expires_at` to
    /// [`Timestamp::EPOCH`](crate::Timestamp::EPOCH) and keeps the row, its fence and its payload. Does nothing,
    /// successfully, otherwise.
    ///
    /// # Errors
    /// The outcome is unknown.
    fn release(&self, name: &str, holder: &str, fence: Fence, timeout: Duration) -> Result<(), StoreError>;

    /// Reads the row without writing anything (rule 14).
    ///
    /// # Errors
    /// Nothing was learned.
    fn observe(&self, name: &str, timeout: Duration) -> Result<Observation, StoreError>;

    /// Reads the rows of all elections without writing anything, for people and tools: in the order of their names,
    /// byte by byte, and not more than the first [`Lease::MAX_LISTED`]. All carry the same `now`.
    ///
    /// An election never decides by it. A store that wraps another passes its answer on.
    ///
    /// # Errors
    /// Nothing was learned. Unless overridden: fatal, with the SQLSTATE `0A000`, since this store can't list.
    fn list(&self, timeout: Duration) -> Result<Vec<Lease>, StoreError> {
        let _ = timeout;
        Err(StoreError::fatal("this store can't list its elections").with_sqlstate(NOT_SUPPORTED))
    }

    /// The table that the lease is in, where that is one of a PostgreSQL database with the columns that
    /// `PostgresStore` gives it: as SQL, with its schema, quoted. Terms of such a store can be looked up inside a
    /// transaction of the caller's (`Term::commit`). A store that wraps another passes its answer on.
    fn lease_table(&self) -> Option<String> {
        None
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        (**self).acquire(bid, timeout)
    }

    fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        (**self).renew(renewal, timeout)
    }

    fn release(&self, name: &str, holder: &str, fence: Fence, timeout: Duration) -> Result<(), StoreError> {
        (**self).release(name, holder, fence, timeout)
    }

    fn observe(&self, name: &str, timeout: Duration) -> Result<Observation, StoreError> {
        (**self).observe(name, timeout)
    }

    fn list(&self, timeout: Duration) -> Result<Vec<Lease>, StoreError> {
        (**self).list(timeout)
    }

    fn lease_table(&self) -> Option<String> {
        (**self).lease_table()
    }
}
