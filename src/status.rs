//! A snapshot of what a participant knows, for health pages and log lines. Nothing decides by it.

use std::time::Duration;

use crate::event::{Leader, Losses, Operation};
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
    /// Watches and never wants to lead; see [`ConfigBuilder::observer`](crate::ConfigBuilder::observer).
    Observer,
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
    /// Who led by the last answer of the store, perhaps this participant; `None` where nobody did, or nothing was
    /// answered yet. It is as old as `observed_age` says: an idle participant does not look.
    pub leader: Option<String>,
    /// The fence of that term.
    pub leader_fence: Option<Fence>,
    /// What that leader published.
    pub leader_payload: Option<Vec<u8>>,
    /// How long ago an answer last showed the record, or that there is none; `None` before the first of those.
    pub observed_age: Option<Duration>,
    /// How long the term lives if it is not renewed, while it leads.
    pub remaining: Option<Duration>,
    /// The store's last failure, until it answers again.
    pub last_error: Option<StoreError>,
    /// For how long a guard or a callback has gone on since its term ended. It should be short: somebody else
    /// may lead by now.
    pub overrun: Option<Duration>,
    /// For how long the participant has had its role, as far as that was noticed: the end of a term is at the
    /// latest when a status is asked for, or when the call to the store that is under way then returns.
    pub in_role: Duration,
    /// How long ago the request was sent that the term last lived by, the bid or a renewal; while it leads.
    pub renewed_age: Option<Duration>,
    /// Terms led so far.
    pub terms: u64,
    /// Terms that have ended so far, by cause. A term is counted when the watchdog has reported its end.
    pub losses: Losses,
    /// Renewals that succeeded so far, also those that keep the lease while the work of a stopped term winds down.
    pub renewals: u64,
    /// From the request to its answer, for the renewal that last succeeded.
    pub round_trip: Option<Duration>,
    /// The longest of those.
    pub worst_round_trip: Option<Duration>,
    /// What was left of the term when it was last extended: how close the renewal came to the deadline.
    pub headroom: Option<Duration>,
    /// The shortest of those.
    pub least_headroom: Option<Duration>,
    /// Calls to the store that failed so far.
    pub failures: u64,
    /// The same by what the failures were.
    pub failures_by_kind: FailuresByKind,
    /// The same by what was asked of the store.
    pub failures_by_operation: FailuresByOperation,
    /// Steps of the database's clock that were noticed so far.
    pub clock_steps: u64,
    /// Records that went back, rows that vanished and timelines that changed so far.
    pub disturbances: u64,
    /// Events that a reader of [`Elector::events`](crate::Elector::events) missed because it lagged behind.
    pub events_dropped: u64,
    /// Log lines of this participant that were lost because the log's sink was too slow.
    pub log_lines_dropped: u64,
}

/// How many calls to the store failed, by what the failures were; see [`StoreError`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailuresByKind {
    /// The call did not end in the time it was given.
    pub timeout: u64,
    /// Anything else that may pass by itself.
    pub retryable: u64,
    /// A person has to mend something.
    pub fatal: u64,
}

impl FailuresByKind {
    pub(crate) fn count(&mut self, error: &StoreError) {
        if error.is_fatal() {
            self.fatal += 1;
        } else if error.is_timeout() {
            self.timeout += 1;
        } else {
            self.retryable += 1;
        }
    }
}

/// How many calls to the store failed, by what was asked of it; see [`Operation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailuresByOperation {
    /// Looks.
    pub observe: u64,
    /// Bids.
    pub acquire: u64,
    /// Renewals.
    pub renew: u64,
    /// Releases.
    pub release: u64,
}

impl FailuresByOperation {
    pub(crate) fn count(&mut self, operation: Operation) {
        match operation {
            Operation::Observe => self.observe += 1,
            Operation::Acquire => self.acquire += 1,
            Operation::Renew => self.renew += 1,
            Operation::Release => self.release += 1,
        }
    }
}

/// What the renewal thread writes down for the snapshot.
///
/// No foreign code runs under its lock. An error carries the store's own cause, so one that is replaced is dropped
/// after the lock.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) campaigning: bool,
    /// The role that was last seen, and when it was first seen.
    pub(crate) role: (Role, Time),
    pub(crate) leader: Option<Leader>,
    pub(crate) answered_at: Option<Time>,
    pub(crate) last_error: Option<StoreError>,
    pub(crate) overrun_since: Option<Time>,
    /// When the bid or the renewal was sent that was granted last.
    pub(crate) renewed_at: Option<Time>,
    pub(crate) terms: u64,
    pub(crate) renewals: u64,
    pub(crate) round_trip: Option<Duration>,
    pub(crate) worst_round_trip: Option<Duration>,
    pub(crate) headroom: Option<Duration>,
    pub(crate) least_headroom: Option<Duration>,
    pub(crate) failures: u64,
    pub(crate) failures_by_kind: FailuresByKind,
    pub(crate) failures_by_operation: FailuresByOperation,
    pub(crate) clock_steps: u64,
    pub(crate) disturbances: u64,
    /// The failure of the last release, and when that was.
    pub(crate) release_error: Option<(Time, StoreError)>,
}

impl Snapshot {
    /// Of a participant that starts.
    pub(crate) fn new(role: Role, now: Time) -> Snapshot {
        Snapshot {
            campaigning: false,
            role: (role, now),
            leader: None,
            answered_at: None,
            last_error: None,
            overrun_since: None,
            renewed_at: None,
            terms: 0,
            renewals: 0,
            round_trip: None,
            worst_round_trip: None,
            headroom: None,
            least_headroom: None,
            failures: 0,
            failures_by_kind: FailuresByKind::default(),
            failures_by_operation: FailuresByOperation::default(),
            clock_steps: 0,
            disturbances: 0,
            release_error: None,
        }
    }

    /// The participant was seen in this role.
    pub(crate) fn seen_as(&mut self, role: Role, now: Time) {
        if self.role.0 != role {
            self.role = (role, now);
        }
    }

    /// A renewal was granted.
    pub(crate) fn renewed(&mut self, sent: Time, took: Duration) {
        self.renewals += 1;
        self.renewed_at = Some(sent);
        self.round_trip = Some(took);
        self.worst_round_trip = self.worst_round_trip.max(Some(took));
    }

    /// A term was extended with so much left of it.
    pub(crate) fn extended(&mut self, headroom: Duration) {
        self.headroom = Some(headroom);
        self.least_headroom = Some(self.least_headroom.map_or(headroom, |least| least.min(headroom)));
    }
}
