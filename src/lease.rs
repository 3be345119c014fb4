//! The lease and the requests about it: plain data that a store and the election exchange.
//!
//! Every timestamp in here is the database's own (rule 1). Nothing in this module knows a local clock.

use std::fmt;
use std::num::NonZeroI64;
use std::time::{Duration, SystemTime};

/// How far the server's timeline is shifted into a fence (rule 15).
const TIMELINE_SHIFT: u32 = 40;
/// Timelines are told apart modulo this.
const TIMELINE_MODULUS: i64 = 1024;

/// The fencing token of a term: positive, strictly increasing over the whole life of an election.
///
/// Hand it to every resource that the leader writes to, and let the resource refuse anything below the highest
/// that it has seen. Two terms never share a fence, whoever held them.
///
/// ```
/// use tenure::Fence;
///
/// let fence = Fence::try_from(7)?;
/// assert_eq!(fence.get(), 7);
/// assert!(fence < Fence::try_from(8)?);
/// assert_eq!(fence.to_string(), "7");
/// assert!(Fence::try_from(0).is_err());
/// # Ok::<(), tenure::InvalidFence>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(NonZeroI64);

impl Fence {
    /// The number itself: 1 or more.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0.get()
    }

    /// The fence of the next term, for authors of stores (rule 15).
    ///
    /// `highest` is the larger of the stored fence and [`Bid::above`] (0 where neither exists). Without a
    /// timeline it is the next number. With one, the bits from the 40th up follow the timeline modulo 1024, so
    /// that a server which was promoted and lost acknowledged writes still issues higher fences than every lost
    /// one. `None` when the numbers are exhausted.
    ///
    /// ```
    /// use tenure::Fence;
    ///
    /// assert_eq!(Fence::after(0, Some(1)).map(Fence::get), Some(1));
    /// assert_eq!(Fence::after(7, None).map(Fence::get), Some(8));
    /// assert_eq!(Fence::after(7, Some(2)).map(Fence::get), Some((1 << 40) + 1));
    /// assert_eq!(Fence::after(i64::MAX, None), None);
    /// ```
    #[must_use]
    pub fn after(highest: i64, timeline: Option<u32>) -> Option<Fence> {
        let highest = highest.max(0);
        let next = match timeline {
            Some(timeline) if !high_part_matches(highest, timeline) => {
                let high = highest >> TIMELINE_SHIFT;
                let ahead = (i64::from(timeline) - 1 - high).rem_euclid(TIMELINE_MODULUS);
                (high + ahead).checked_mul(1 << TIMELINE_SHIFT)?.checked_add(1)?
            }
            _ => highest.checked_add(1)?,
        };
        Fence::try_from(next).ok()
    }

    /// Whether this fence was issued on that timeline of the server, as far as its high part tells (rule 15).
    #[must_use]
    pub fn matches_timeline(self, timeline: u32) -> bool {
        high_part_matches(self.get(), timeline)
    }
}

fn high_part_matches(fence: i64, timeline: u32) -> bool {
    let high = fence >> TIMELINE_SHIFT;
    (i64::from(timeline) - 1 - high).rem_euclid(TIMELINE_MODULUS) == 0
}

impl TryFrom<i64> for Fence {
    type Error = InvalidFence;

    /// Fails for numbers below 1.
    fn try_from(fence: i64) -> Result<Fence, InvalidFence> {
        NonZeroI64::new(fence).filter(|f| f.get().is_positive()).map(Fence).ok_or(InvalidFence(fence))
    }
}

impl From<Fence> for i64 {
    fn from(fence: Fence) -> i64 {
        fence.get()
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({})", self.0)
    }
}

/// A number that is no fence: fences start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidFence(i64);

impl fmt::Display for InvalidFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a fence: fences start at 1", self.0)
    }
}

impl std::error::Error for InvalidFence {}

/// An instant of the database's clock: microseconds since 1970-01-01 UTC.
///
/// Only differences between timestamps of one answer mean anything to a participant (rule 1).
///
/// ```
/// use std::time::Duration;
/// use tenure::Timestamp;
///
/// let renewed_at = Timestamp::from_micros(1_000_000);
/// let expires_at = renewed_at + Duration::from_secs(15);
/// assert_eq!(expires_at.saturating_since(renewed_at), Duration::from_secs(15));
/// assert_eq!(renewed_at.saturating_since(expires_at), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01 UTC. As `expires_at` it marks a released lease.
    pub const EPOCH: Timestamp = Timestamp(0);

    /// From microseconds since 1970-01-01 UTC; `i64::MIN` and `i64::MAX` stand for the infinities.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Timestamp {
        Timestamp(micros)
    }

    /// Microseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub fn saturating_since(self, earlier: Timestamp) -> Duration {
        // The difference of two i64 needs up to 64 bits without sign.
        let micros = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }

    /// For display; `None` where the system's time type cannot hold it.
    #[must_use]
    pub fn to_system_time(self) -> Option<SystemTime> {
        let distance = Duration::from_micros(self.0.unsigned_abs());
        if self.0.is_negative() {
            SystemTime::UNIX_EPOCH.checked_sub(distance)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(distance)
        }
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;

    /// Saturates; parts below a microsecond are dropped.
    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// The four timestamps of an answer, all read from the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "stores build it; a fifth timestamp would change the protocol")]
pub struct LeaseTimes {
    /// When the term began.
    pub acquired_at: Timestamp,
    /// When the lease was last acquired or renewed.
    pub renewed_at: Timestamp,
    /// When the lease ends unless renewed; [`Timestamp::EPOCH`] once released.
    pub expires_at: Timestamp,
    /// The database's clock when the answer was made, in the same statement.
    pub now: Timestamp,
}

/// The lease: an election's row, read together with the database's clock.
///
/// ```
/// use std::time::Duration;
/// use tenure::{Config, Elector, MemoryStore, Store};
///
/// let store = MemoryStore::new();
/// let elector = Elector::start(store.clone(), Config::builder("billing").build()?)?;
/// let guard = elector.wait_for_leadership()?;
/// let seen = store.observe("billing", Duration::from_secs(2))?;
/// let lease = seen.lease().expect("somebody led");
/// assert!(lease.held_by(elector.identity().as_str()) && !lease.is_expired());
/// assert_eq!((lease.fence(), lease.length()), (guard.fence(), Duration::from_secs(15)));
/// guard.resign()?;
/// let seen = store.observe("billing", Duration::from_secs(2))?;
/// assert!(seen.lease().is_some_and(|lease| lease.is_released()), "the row is kept, with its fence");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    name: String,
    holder: String,
    fence: Fence,
    times: LeaseTimes,
    payload: Option<Vec<u8>>,
    mark: u64,
    timeline: Option<u32>,
}

impl Lease {
    /// 1,000: how many leases [`Store::list`](crate::Store::list) gives at the most.
    pub const MAX_LISTED: usize = 1_000;

    /// For authors of stores: the lease as the store has it, without payload, mark and timeline.
    #[must_use]
    pub fn new(name: impl Into<String>, holder: impl Into<String>, fence: Fence, times: LeaseTimes) -> Lease {
        Lease {
            name: name.into(),
            holder: holder.into(),
            fence,
            times,
            payload: None,
            mark: 0,
            timeline: None,
        }
    }

    /// The published bytes, if any.
    #[must_use]
    pub fn with_payload(mut self, payload: Option<Vec<u8>>) -> Lease {
        self.payload = payload;
        self
    }

    /// The store's own mark, which must change with every write to the row (rule 8).
    #[must_use]
    pub fn with_mark(mut self, mark: u64) -> Lease {
        self.mark = mark;
        self
    }

    /// The server's timeline, where the store has such a thing (rule 15).
    #[must_use]
    pub fn with_timeline(mut self, timeline: Option<u32>) -> Lease {
        self.timeline = timeline;
        self
    }

    /// The election.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The identity of the participant that holds, or last held, the lease.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// The fence of the holder's term.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// What the holder published with the lease.
    #[must_use]
    pub fn payload(&self) -> Option<&[u8]> {
        self.payload.as_deref()
    }

    /// When the term began, by the database's clock.
    #[must_use]
    pub fn acquired_at(&self) -> Timestamp {
        self.times.acquired_at
    }

    /// When the lease was last acquired or renewed, by the database's clock.
    #[must_use]
    pub fn renewed_at(&self) -> Timestamp {
        self.times.renewed_at
    }

    /// When the lease ends unless renewed, by the database's clock; [`Timestamp::EPOCH`] once released.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        self.times.expires_at
    }

    /// The database's clock when this was read.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.times.now
    }

    /// The server's WAL timeline, where the store exposes one.
    #[must_use]
    pub fn timeline(&self) -> Option<u32> {
        self.timeline
    }

    /// How long the lease still runs on the database's clock; zero once it is over.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.times.expires_at.saturating_since(self.times.now)
    }

    /// Whether the lease is over on the database's clock. Released leases are.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.times.expires_at <= self.times.now
    }

    /// Whether the holder gave the lease up on purpose.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.times.expires_at == Timestamp::EPOCH
    }

    /// Whether `holder` is the one named in the row.
    #[must_use]
    pub fn held_by(&self, holder: &str) -> bool {
        self.holder == holder
    }

    /// For how long the lease was granted at its last renewal; zero for a released one.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.times.expires_at.saturating_since(self.times.renewed_at)
    }

    /// What a take-over must name (rule 8).
    #[must_use]
    pub fn version(&self) -> Version {
        Version {
            holder: self.holder.clone(),
            fence: self.fence,
            renewed_at: self.times.renewed_at,
            expires_at: self.times.expires_at,
            mark: self.mark,
        }
    }
}

/// One exact state of an election's row: it differs after every write, also after one that wrote the same values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    holder: String,
    fence: Fence,
    renewed_at: Timestamp,
    expires_at: Timestamp,
    mark: u64,
}

impl Version {
    /// The holder in that state.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// The fence in that state.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// `renewed_at` in that state.
    #[must_use]
    pub fn renewed_at(&self) -> Timestamp {
        self.renewed_at
    }

    /// `expires_at` in that state.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// The store's write mark in that state.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.mark
    }
}

/// What an observation saw: the row, or that there is none, and on which timeline of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    lease: Option<Lease>,
    timeline: Option<u32>,
}

impl Observation {
    /// There is a row; the timeline is the lease's.
    #[must_use]
    pub fn of(lease: Lease) -> Observation {
        Observation { timeline: lease.timeline, lease: Some(lease) }
    }

    /// There is no row: nobody ever led, or it was deleted.
    #[must_use]
    pub fn vacant(timeline: Option<u32>) -> Observation {
        Observation { lease: None, timeline }
    }

    /// The row, if there is one.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// The row, if there is one.
    #[must_use]
    pub fn into_lease(self) -> Option<Lease> {
        self.lease
    }

    /// The server's WAL timeline, where the store exposes one.
    #[must_use]
    pub fn timeline(&self) -> Option<u32> {
        self.timeline
    }
}

/// A request to become leader: a compare-and-swap on the observed state of the row (rule 8).
///
/// ```
/// use std::time::Duration;
/// use tenure::{Bid, MemoryStore, Store};
///
/// let store = MemoryStore::new();
/// let second = Duration::from_secs(1);
/// let create = Bid::new("backup", "host-1", Duration::from_secs(15));
/// let lease = store.acquire(&create, second)?.expect("the first bid creates the row");
/// assert_eq!(store.acquire(&create, second)?, None, "there is a row now");
///
/// let take_over = create.over(Some(lease.version()));
/// let next = store.acquire(&take_over, second)?.expect("the row is still what the bid names");
/// assert!(next.fence() > lease.fence());
/// # Ok::<(), tenure::StoreError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bid<'a> {
    /// The election.
    pub name: &'a str,
    /// The candidate's identity.
    pub holder: &'a str,
    /// How long the lease shall run from the moment of the write, on the database's clock; whole microseconds.
    pub lease_duration: Duration,
    /// What to publish with the lease.
    pub payload: Option<&'a [u8]>,
    /// The new fence must be above this as well as above the stored one.
    pub above: i64,
    /// The state that the row must still be in; `None` succeeds only where there is no row.
    pub over: Option<Version>,
    /// The timeline on which that state was observed; the bid must fail on any other (rule 15).
    pub timeline: Option<u32>,
}

impl<'a> Bid<'a> {
    /// A bid that creates the row, without payload, floor and timeline.
    #[must_use]
    pub fn new(name: &'a str, holder: &'a str, lease_duration: Duration) -> Bid<'a> {
        Bid { name, holder, lease_duration, payload: None, above: 0, over: None, timeline: None }
    }

    /// Sets [`Bid::payload`].
    #[must_use]
    pub fn payload(mut self, payload: Option<&'a [u8]>) -> Bid<'a> {
        self.payload = payload;
        self
    }

    /// Sets [`Bid::above`].
    #[must_use]
    pub fn above(mut self, above: i64) -> Bid<'a> {
        self.above = above;
        self
    }

    /// Sets [`Bid::over`].
    #[must_use]
    pub fn over(mut self, over: Option<Version>) -> Bid<'a> {
        self.over = over;
        self
    }

    /// Sets [`Bid::timeline`].
    #[must_use]
    pub fn timeline(mut self, timeline: Option<u32>) -> Bid<'a> {
        self.timeline = timeline;
        self
    }
}

/// A request to prolong a lease that one holds (rule 9).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Renewal<'a> {
    /// The election.
    pub name: &'a str,
    /// The leader's identity.
    pub holder: &'a str,
    /// The fence of the leader's term.
    pub fence: Fence,
    /// How long the lease shall run from the moment of the write, on the database's clock; whole microseconds.
    pub lease_duration: Duration,
    /// What to publish with the lease from now on; `None` clears it.
    pub payload: Option<&'a [u8]>,
}

impl<'a> Renewal<'a> {
    /// A renewal without payload.
    #[must_use]
    pub fn new(name: &'a str, holder: &'a str, fence: Fence, lease_duration: Duration) -> Renewal<'a> {
        Renewal { name, holder, fence, lease_duration, payload: None }
    }

    /// Sets [`Renewal::payload`].
    #[must_use]
    pub fn payload(mut self, payload: Option<&'a [u8]>) -> Renewal<'a> {
        self.payload = payload;
        self
    }
}

#[cfg(test)]
mod tests;
