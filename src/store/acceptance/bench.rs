//! What every check needs: an election of its own, and calls that turn surprises into failures.

use std::sync::Arc;
use std::time::Duration;

use super::{Failure, Subject};
use crate::identity::Identity;
use crate::lease::{Bid, Fence, Lease, Observation, Renewal};
use crate::store::Store;
use crate::time::{Clock, SystemClock, Time};

/// A lease that does not end during a check.
pub(super) const LONG: Duration = Duration::from_secs(60);
/// A lease that ends soon.
pub(super) const SHORT: Duration = Duration::from_millis(100);

/// The holders of most checks.
pub(super) const A: &str = "host-a-1";
pub(super) const B: &str = "host-b-2";

/// One election of one subject.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) subject: &'a dyn Subject,
    pub(super) store: Arc<dyn Store>,
    pub(super) name: String,
}

impl<'a> Bench<'a> {
    pub(super) fn new(subject: &'a dyn Subject) -> Result<Bench<'a>, Failure> {
        let name = Identity::generate("acceptance")?.to_string();
        Ok(Bench { subject, store: subject.store(), name })
    }

    /// Another election of the same subject.
    pub(super) fn election(&self, name: String) -> Bench<'a> {
        Bench { subject: self.subject, store: Arc::clone(&self.store), name }
    }

    /// Another election with a name that never was.
    pub(super) fn fresh(&self) -> Result<Bench<'a>, Failure> {
        Ok(self.election(Identity::generate("acceptance")?.to_string()))
    }

    pub(super) fn bid<'b>(&'b self, holder: &'b str) -> Bid<'b> {
        Bid::new(&self.name, holder, LONG)
    }

    pub(super) fn acquire(&self, bid: &Bid<'_>) -> Result<Option<Lease>, Failure> {
        Ok(self.store.acquire(bid, self.subject.timeout())?)
    }

    /// An acquire that must succeed.
    pub(super) fn won(&self, bid: &Bid<'_>) -> Result<Lease, Failure> {
        match self.acquire(bid)? {
            Some(lease) => Ok(lease),
            None => Err(Failure::new(format!("an acquire was refused that names the row as it is: {bid:?}"))),
        }
    }

    pub(super) fn create(&self, holder: &str) -> Result<Lease, Failure> {
        self.won(&self.bid(holder))
    }

    pub(super) fn take(&self, holder: &str, over: &Lease) -> Result<Lease, Failure> {
        self.won(&self.bid(holder).over(Some(over.version())))
    }

    /// An acquire that must be refused, and leave the row as it is.
    pub(super) fn refused(&self, bid: &Bid<'_>, what: &str) -> Result<(), Failure> {
        let before = self.observe()?;
        if let Some(lease) = self.acquire(bid)? {
            return Err(Failure::new(format!("{what} was granted fence {}", lease.fence())));
        }
        self.unchanged(&before, what)
    }

    pub(super) fn renew(&self, holder: &str, fence: Fence) -> Result<Option<Lease>, Failure> {
        self.renew_as(&Renewal::new(&self.name, holder, fence, LONG))
    }

    pub(super) fn renew_as(&self, renewal: &Renewal<'_>) -> Result<Option<Lease>, Failure> {
        Ok(self.store.renew(renewal, self.subject.timeout())?)
    }

    /// A renewal that must succeed.
    pub(super) fn renewed(&self, renewal: &Renewal<'_>) -> Result<Lease, Failure> {
        match self.renew_as(renewal)? {
            Some(lease) => Ok(lease),
            None => Err(Failure::new("the leader's own renewal of a live lease was refused".into())),
        }
    }

    /// A renewal that must be refused, and leave the row as it is.
    pub(super) fn renew_refused(&self, holder: &str, fence: Fence, what: &str) -> Result<(), Failure> {
        let before = self.observe()?;
        ensure!(self.renew(holder, fence)?.is_none(), "{what} was granted");
        self.unchanged(&before, what)
    }

    pub(super) fn release(&self, holder: &str, fence: Fence) -> Result<(), Failure> {
        Ok(self.store.release(&self.name, holder, fence, self.subject.timeout())?)
    }

    pub(super) fn observe(&self) -> Result<Observation, Failure> {
        Ok(self.store.observe(&self.name, self.subject.timeout())?)
    }

    pub(super) fn row(&self) -> Result<Lease, Failure> {
        match self.observe()?.into_lease() {
            Some(lease) => Ok(lease),
            None => Err(Failure::new("the row is gone".into())),
        }
    }

    /// Nothing was written since: the same version, the same payload, or still no row.
    pub(super) fn unchanged(&self, before: &Observation, what: &str) -> Result<(), Failure> {
        let after = self.observe()?;
        let same = match (before.lease(), after.lease()) {
            (None, None) => true,
            (Some(before), Some(after)) => same_row(before, after),
            _ => false,
        };
        ensure!(same, "{what} changed the row: {before:?} became {after:?}");
        Ok(())
    }

    /// The row once its lease is over.
    pub(super) fn expired(&self) -> Result<Lease, Failure> {
        let started = now();
        while since(started) < self.subject.timeout() {
            let row = self.row()?;
            if row.is_expired() {
                return Ok(row);
            }
            std::thread::sleep((row.ttl() + Duration::from_millis(1)).min(Duration::from_millis(200)));
        }
        Err(Failure::new("a lease does not end".into()))
    }
}

/// Whether two answers show the same state of the row; the clock of the answer may differ.
pub(super) fn same_row(one: &Lease, other: &Lease) -> bool {
    one.name() == other.name()
        && one.version() == other.version()
        && one.acquired_at() == other.acquired_at()
        && one.payload() == other.payload()
}

pub(super) fn now() -> Time {
    SystemClock::new().now()
}

pub(super) fn since(started: Time) -> Duration {
    now().saturating_since(started)
}
