//! A snapshot of what a participant knows, for health pages and log lines. Nothing decides by it.

use std::time::Duration;

use crate::event::Leader;
use crate::identity::Identity;
use crate::lease::Fence;
use crate::store::StoreError;
use crate::time::Time;

/// What a participant is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Neither leads nor wants to.
    Idle,
    /// Wants to lead and does not.
    Candidate,
    /// Leads, by the local clock at the moment of the snapshot.
    Leader,
}

/// A participant's state at one moment; see [`Elector::status`](crate::Elector::status).
///
/// ```
/// use tenure::{Config, Elector, MemoryStore, Role};
///
/// let elector = Elector::start(MemoryStore::new(), Config::builder("billing").build()?)?;
/// assert_eq!(elector.status().role, Role::Idle);
/// let guard = elector.wait_for_leadership()?;
/// let status = elector.status();
/// assert_eq!(status.role, Role::Leader);
/// assert_eq!(status.fence, Some(guard.fence()));
/// assert_eq!(status.leader.as_deref(), Some(status.identity.as_str()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// What the participant is doing.
    pub role: Role,
    /// Its identity, unique to this run of the process.
    pub identity: Identity,
    /// The fence of its term while it leads.
    pub fence: Option<Fence>,
    /// Who led by the last answer of the store; `None` where nobody did.
    pub leader: Option<String>,
    /// The fence of that term.
    pub leader_fence: Option<Fence>,
    /// What that leader published.
    pub leader_payload: Option<Vec<u8>>,
    /// How long ago the store last answered; `None` before the first answer.
    pub observed_age: Option<Duration>,
    /// How long the term lives if it is not renewed, while it leads.
    pub remaining: Option<Duration>,
    /// The store's last failure, until it answers again.
    pub last_error: Option<StoreError>,
    /// For how long a guard or a callback has gone on since its term ended. It should be short: somebody else
    /// may lead by now.
    pub overrun: Option<Duration>,
    /// Terms led so far.
    pub terms: u64,
    /// Renewals that succeeded so far.
    pub renewals: u64,
    /// Calls to the store that failed so far.
    pub failures: u64,
    /// Events that a reader of [`Elector::events`](crate::Elector::events) missed because it lagged behind.
    pub events_dropped: u64,
}

/// What the renewal thread writes down for the snapshot.
///
/// No foreign code runs under its lock. An error carries the store's own cause, so one that is replaced is dropped
/// after the lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) campaigning: bool,
    pub(crate) leader: Option<Leader>,
    pub(crate) answered_at: Option<Time>,
    pub(crate) last_error: Option<StoreError>,
    pub(crate) overrun_since: Option<Time>,
    pub(crate) terms: u64,
    pub(crate) renewals: u64,
    pub(crate) failures: u64,
    /// How the last release ended.
    pub(crate) release_error: Option<StoreError>,
}
