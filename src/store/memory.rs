//! A store in this process's memory: the reference for what the others have to do.
//!
//! Everything is decided under one mutex that is held for a few comparisons and copies; the clock is the only
//! code from outside that runs under it, and a panic there leaves the rows as they were.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::{Store, StoreError};
use crate::lease::{Bid, Fence, Lease, LeaseTimes, Observation, Renewal, Timestamp, Version};
use crate::time::{Clock, SystemClock};

#[cfg(any(test, feature = "testing"))]
mod hooks;
#[cfg(any(test, feature = "testing"))]
pub use hooks::{RowHold, RowSnapshot};
#[cfg(test)]
mod tests;

/// What the store's clock shows at the zero of the clock that drives it: 2001-09-09. Far enough from the epoch
/// that no live lease ever ends there; the epoch as expiry means released.
const CLOCK_OFFSET_MICROS: i64 = 1_000_000_000_000_000;
/// The store's clock stays within these, however far it is stepped: the sum with any lease stays exact.
const CLOCK_RANGE_MICROS: (i64, i64) = (1, i64::MAX / 2);

/// Leases in memory: real elections between participants of one process, without a database.
///
/// Clones share the rows. Use it in tests, in examples, and where the participants are threads of one program;
/// it tells two processes nothing about each other.
///
/// A call returns within its timeout plus the moment that other threads need under the store's mutex.
///
/// ```
/// use std::time::Duration;
/// use tenure::{Bid, MemoryStore, Store};
///
/// let store = MemoryStore::new();
/// let other = store.clone();
/// let second = Duration::from_secs(1);
///
/// let bid = Bid::new("backup", "host-1", Duration::from_secs(15));
/// let lease = store.acquire(&bid, second)?.expect("nobody led before");
/// assert_eq!(lease.length(), Duration::from_secs(15));
/// assert_eq!(other.observe("backup", second)?.lease().map(|l| l.fence()), Some(lease.fence()));
///
/// store.release("backup", "host-1", lease.fence(), second)?;
/// assert!(other.observe("backup", second)?.lease().is_some_and(|l| l.is_released()));
/// # Ok::<(), tenure::StoreError>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Shared>);

struct Shared {
    clock: Box<dyn Clock>,
    state: Mutex<State>,
    /// Signalled when a hold ends.
    #[cfg(any(test, feature = "testing"))]
    freed: parking_lot::Condvar,
}

#[derive(Default)]
struct State {
    rows: HashMap<String, Row>,
    /// The last mark given to a write; never given twice, to no row.
    marks: u64,
    /// How far the store's clock was moved against the clock that drives it.
    stepped_micros: i64,
    timeline: Option<u32>,
    #[cfg(any(test, feature = "testing"))]
    hooks: hooks::Hooks,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    holder: String,
    fence: Fence,
    acquired_at: Timestamp,
    renewed_at: Timestamp,
    expires_at: Timestamp,
    payload: Option<Vec<u8>>,
    mark: u64,
}

impl MemoryStore {
    /// An empty store on the system's boot clock.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(SystemClock::new())
    }

    /// An empty store whose clock follows `clock`.
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use std::time::Duration;
    /// use tenure::{Bid, ManualClock, MemoryStore, Store, Time};
    ///
    /// let clock = ManualClock::new(Time::ZERO);
    /// let store = MemoryStore::with_clock(clock.clone());
    /// let second = Duration::from_secs(1);
    /// store.acquire(&Bid::new("backup", "host-1", 3 * second), second)?;
    /// clock.advance(3 * second);
    /// assert!(store.observe("backup", second)?.lease().is_some_and(|l| l.is_expired()));
    /// # }
    /// # Ok::<(), tenure::StoreError>(())
    /// ```
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> MemoryStore {
        MemoryStore(Arc::new(Shared {
            clock: Box::new(clock),
            state: Mutex::default(),
            #[cfg(any(test, feature = "testing"))]
            freed: parking_lot::Condvar::new(),
        }))
    }

    /// The store's state, for reading.
    fn state(&self, timeout: Duration) -> Result<MutexGuard<'_, State>, StoreError> {
        self.0.state.try_lock_for(timeout).ok_or_else(|| StoreError::timeout("the store was busy"))
    }

    /// The store's state, once nobody holds the row `name` any more.
    fn state_for_write(&self, name: &str, timeout: Duration) -> Result<MutexGuard<'_, State>, StoreError> {
        #[cfg(any(test, feature = "testing"))]
        return self.wait_for_holds(name, timeout);
        #[cfg(not(any(test, feature = "testing")))]
        {
            let _ = name;
            self.state(timeout)
        }
    }

    /// The store's clock. Read it after every wait, once per call (rule 17).
    fn now(&self, state: &State) -> Timestamp {
        let driven = i64::try_from(self.0.clock.now().as_nanos() / 1_000).unwrap_or(i64::MAX);
        let micros = CLOCK_OFFSET_MICROS.saturating_add(driven).saturating_add(state.stepped_micros);
        let (first, last) = CLOCK_RANGE_MICROS;
        Timestamp::from_micros(micros.clamp(first, last))
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("MemoryStore");
        // Never waits: a program that prints its state must not hang on it.
        if let Some(state) = self.0.state.try_lock() {
            shown.field("elections", &state.rows.len()).field("timeline", &state.timeline);
        }
        shown.finish_non_exhaustive()
    }
}

impl State {
    fn next_mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }

    fn lease(&self, name: &str, row: &Row, now: Timestamp) -> Lease {
        let Row { acquired_at, renewed_at, expires_at, .. } = *row;
        Lease::new(name, &row.holder, row.fence, LeaseTimes { acquired_at, renewed_at, expires_at, now })
            .with_payload(row.payload.clone())
            .with_mark(row.mark)
            .with_timeline(self.timeline)
    }
}

impl Row {
    fn is(&self, version: &Version) -> bool {
        self.holder == version.holder()
            && self.fence == version.fence()
            && self.renewed_at == version.renewed_at()
            && self.expires_at == version.expires_at()
            && self.mark == version.mark()
    }

    fn belongs_to(&self, holder: &str, fence: Fence) -> bool {
        self.holder == holder && self.fence == fence
    }
}

impl Store for MemoryStore {
    fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        let mut state = self.state_for_write(bid.name, timeout)?;
        if bid.timeline.is_some() && bid.timeline != state.timeline {
            return Ok(None);
        }
        let stored = match (state.rows.get(bid.name), &bid.over) {
            (None, None) => 0,
            (Some(row), Some(over)) if row.is(over) => row.fence.get(),
            _ => return Ok(None),
        };
        let fence = Fence::after(stored.max(bid.above), state.timeline)
            .ok_or_else(|| StoreError::fatal("the fences of this election are exhausted"))?;
        let now = self.now(&state);
        let row = Row {
            holder: bid.holder.to_owned(),
            fence,
            acquired_at: now,
            renewed_at: now,
            expires_at: now + bid.lease_duration,
            payload: bid.payload.map(<[u8]>::to_vec),
            mark: state.next_mark(),
        };
        let lease = state.lease(bid.name, &row, now);
        #[cfg(any(test, feature = "testing"))]
        state.hooks.record(bid.name, fence, bid.holder);
        state.rows.insert(bid.name.to_owned(), row);
        Ok(Some(lease))
    }

    fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        let mut state = self.state_for_write(renewal.name, timeout)?;
        let now = self.now(&state);
        let mark = state.next_mark();
        let Some(row) = state.rows.get_mut(renewal.name) else { return Ok(None) };
        if !row.belongs_to(renewal.holder, renewal.fence) || row.expires_at <= now {
            return Ok(None);
        }
        row.renewed_at = now;
        row.expires_at = now + renewal.lease_duration;
        row.payload = renewal.payload.map(<[u8]>::to_vec);
        row.mark = mark;
        Ok(state.rows.get(renewal.name).map(|row| state.lease(renewal.name, row, now)))
    }

    fn release(&self, name: &str, holder: &str, fence: Fence, timeout: Duration) -> Result<(), StoreError> {
        let mut state = self.state_for_write(name, timeout)?;
        let mark = state.next_mark();
        if let Some(row) = state.rows.get_mut(name).filter(|row| row.belongs_to(holder, fence)) {
            // A second release finds nothing left to do.
            if row.expires_at != Timestamp::EPOCH {
                row.expires_at = Timestamp::EPOCH;
                row.mark = mark;
            }
        }
        Ok(())
    }

    fn observe(&self, name: &str, timeout: Duration) -> Result<Observation, StoreError> {
        let state = self.state(timeout)?;
        let now = self.now(&state);
        Ok(match state.rows.get(name) {
            Some(row) => Observation::of(state.lease(name, row, now)),
            None => Observation::vacant(state.timeline),
        })
    }

    fn list(&self, timeout: Duration) -> Result<Vec<Lease>, StoreError> {
        let state = self.state(timeout)?;
        let now = self.now(&state);
        let mut rows: Vec<_> = state.rows.iter().collect();
        rows.sort_unstable_by_key(|(name, _)| *name);
        rows.truncate(Lease::MAX_LISTED);
        Ok(rows.into_iter().map(|(name, row)| state.lease(name, row, now)).collect())
    }
}
