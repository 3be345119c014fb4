//! The renewal thread's books: what it counts for the snapshot, and what it reports of the store's answers.
//!
//! Written after a call and before the machine hears of its answer, so nothing here may take long: a lock that
//! nobody holds while foreign code runs, and channels that have room.

use std::sync::Arc;
use std::time::Duration;

use crate::election::{Disturbance, Note};
use crate::event::{Event, Leader, Operation};
use crate::lease::{Fence, Lease};
use crate::status::Snapshot;
use crate::store::StoreError;
use crate::time::Time;

use super::shared::Shared;
use super::watchdog::Watch;

#[derive(Debug)]
pub(super) struct Books {
    shared: Arc<Shared>,
    /// The run of failures that goes on.
    failing: Option<Failing>,
    /// The term whose renewals fail, as far as the watchdog was told.
    unrenewed: Option<Fence>,
    /// How long the last renewal took.
    took: Duration,
}

/// A run of failures, reported once for each kind.
#[derive(Debug)]
struct Failing {
    since: Time,
    count: u64,
    kind: Option<(Option<String>, String)>,
}

impl Books {
    pub(super) fn new(shared: Arc<Shared>) -> Books {
        Books { shared, failing: None, unrenewed: None, took: Duration::ZERO }
    }

    fn report(&self, event: Event) {
        self.shared.reporter.report(event);
    }

    /// Changes the snapshot. What the change takes out of it is to be returned, and is dropped after the lock.
    fn write<T>(&self, change: impl FnOnce(&mut Snapshot) -> T) -> T {
        change(&mut self.shared.snapshot.lock())
    }

    /// Somebody waits for leadership from now on, or nobody any more.
    pub(super) fn campaign(&self, wanted: bool) {
        self.campaigning(wanted);
        if !self.shared.config.observer() {
            self.report(if wanted { Event::CampaignStarted {} } else { Event::CampaignEnded {} });
        }
    }

    /// Whether somebody waits, without a report.
    pub(super) fn campaigning(&self, wanted: bool) {
        self.write(|snapshot| snapshot.campaigning = wanted);
    }

    /// Writes down the role where it has changed.
    pub(super) fn look_at_role(&self) {
        let now = self.shared.clock.now();
        let leads = self.shared.current.load().as_ref().is_some_and(|term| term.is_leader());
        self.write(|snapshot| snapshot.seen_as(self.shared.role(leads, snapshot), now));
    }

    /// A term is about to begin.
    pub(super) fn elected(&self, fence: Fence, sent: Time) {
        self.report(Event::Elected { fence });
        drop(self.write(|snapshot| {
            snapshot.terms += 1;
            snapshot.renewed_at = Some(sent);
            snapshot.release_error.take()
        }));
    }

    /// A term was extended, with so much left of it.
    pub(super) fn extended(&self, fence: Fence, headroom: Duration, deadline: Time) {
        let remaining = deadline.saturating_since(self.shared.clock.now());
        self.write(|snapshot| snapshot.extended(headroom));
        self.report(Event::Renewed { fence, took: self.took, headroom, remaining });
    }

    /// A term is over that somebody still holds.
    pub(super) fn overruns(&self) {
        let now = self.shared.clock.now();
        self.write(|snapshot| *snapshot.overrun_since.get_or_insert(now));
    }

    pub(super) fn overruns_no_more(&self) {
        self.write(|snapshot| snapshot.overrun_since = None);
    }

    /// An answer showed the row, or that there is none.
    pub(super) fn saw(&self, lease: Option<&Lease>) {
        let leader = lease.filter(|l| !l.is_expired()).map(Leader::of);
        let now = self.shared.clock.now();
        let shown = leader.clone();
        let before = self.write(|snapshot| {
            snapshot.answered_at = Some(now);
            std::mem::replace(&mut snapshot.leader, shown)
        });
        let other = |l: &Leader| l.holder != self.shared.identity.as_str();
        match (before, leader) {
            (_, Some(leader)) if !other(&leader) => {}
            (Some(before), Some(leader)) if before == leader => {}
            (Some(before), Some(leader)) if before.same_term(&leader) => {
                self.report(Event::Published { leader });
            }
            (_, Some(leader)) => self.report(Event::Observed { leader }),
            (Some(last), None) if other(&last) => self.report(Event::Vacant { last }),
            _ => {}
        }
    }

    /// A renewal of the term was granted.
    pub(super) fn renewed(&mut self, fence: Fence, sent: Time, took: Duration) {
        self.took = took;
        self.write(|snapshot| snapshot.renewed(sent, took));
        if self.unrenewed.take().is_some() {
            let _ = self.shared.watchdog.send(Watch::Renewed(fence));
        }
    }

    /// A renewal of the term failed. The watchdog says why, if the term ends by that.
    pub(super) fn not_renewed(&mut self, fence: Fence, error: &StoreError) {
        self.unrenewed = Some(fence);
        let _ = self.shared.watchdog.send(Watch::Failing(fence, error.without_source()));
    }

    /// How the release of a lease ended.
    pub(super) fn released(&self, fence: Fence, failure: Option<StoreError>, took: Duration) {
        let kept = failure.clone().map(|error| (self.shared.clock.now(), error));
        let identity = self.shared.identity.as_str();
        // Somebody else may lead by now.
        let own = |leader: &mut Leader| leader.fence == fence && leader.holder == identity;
        drop(self.write(|snapshot| {
            let leader = if kept.is_none() { snapshot.leader.take_if(own) } else { None };
            (leader, std::mem::replace(&mut snapshot.release_error, kept))
        }));
        self.report(match failure {
            None => Event::Released { fence, took },
            Some(error) => Event::ReleaseFailed { fence, error },
        });
    }

    /// The store answered.
    pub(super) fn answered(&mut self, operation: Operation, took: Duration) {
        self.shared.reporter.answered(operation, took);
        if let Some(failing) = self.failing.take() {
            let after = self.shared.clock.now().saturating_since(failing.since);
            self.report(Event::Recovered { failures: failing.count, after });
        }
        drop(self.write(|snapshot| snapshot.last_error.take()));
    }

    /// The store failed.
    pub(super) fn failed(&mut self, operation: Operation, error: &StoreError, sent: Time, took: Duration) {
        drop(self.write(|snapshot| {
            snapshot.failures += 1;
            snapshot.failures_by_kind.count(error);
            snapshot.failures_by_operation.count(operation);
            snapshot.last_error.replace(error.clone())
        }));
        let failing = self.failing.get_or_insert(Failing { since: sent, count: 0, kind: None });
        failing.count += 1;
        let kind = Some((error.sqlstate().map(str::to_owned), error.to_string()));
        // A release that failed is told as that.
        if operation != Operation::Release && failing.kind != kind {
            failing.kind = kind;
            self.report(Event::Failed { operation, error: error.clone(), took });
        }
    }

    pub(super) fn note(&self, note: Note) {
        self.write(|snapshot| match &note {
            Note::ClockStep(_) => snapshot.clock_steps += 1,
            Note::Disturbance(_) => snapshot.disturbances += 1,
            Note::UselessGrant { .. } => {}
        });
        self.report(match note {
            Note::ClockStep(step) => Event::ClockStepped { forward: step.forward, by: step.by },
            Note::UselessGrant { fence } => Event::UselessGrant { fence },
            Note::Disturbance(Disturbance::RowGone) => Event::RowGone {},
            Note::Disturbance(Disturbance::FenceRegressed { seen, found }) => {
                Event::FenceRegressed { seen, found }
            }
            Note::Disturbance(Disturbance::TimelineChanged { from, to }) => {
                Event::TimelineChanged { from, to }
            }
        });
    }
}
