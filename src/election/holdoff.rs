//! When a candidate may take the lease over, decided on its own clock (rules 10 and 15).
//!
//! The database's clock may step in either direction, its record may be rolled back, deleted or lost in a
//! fail-over. What a candidate knows for certain is when it received an answer. So each *state* of the row is
//! waited for from the moment it was first seen, for as long as its holder may have been promised, and nothing
//! that the database says about time can shorten that. What can't be excluded is waited out; nothing is waited
//! for longer than one lease, so no clock can block an election either.

use std::time::Duration;

use crate::lease::{Lease, Observation, Timestamp, Version};
use crate::time::Time;

/// The age of a version may be credited up to this part of its length. `safety_margin >= lease_duration / 20`
/// covers it together with clocks whose rates differ.
const CREDIT_DIVISOR: u32 = 40;

/// What of the configuration rule 10 needs.
#[derive(Clone, Debug)]
pub(crate) struct HoldOffSettings {
    pub(crate) identity: String,
    /// The participant's own lease duration, used where no row tells another.
    pub(crate) lease_duration: Duration,
    pub(crate) safety_margin: Duration,
    /// No row is believed to have been granted for longer than anybody may configure.
    pub(crate) longest_lease: Duration,
    /// Do not believe the database's clock even for the very first answer.
    pub(crate) strict: bool,
}

/// Something unusual that an answer showed. It is reported; the rule already allows for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Disturbance {
    /// The row carries a lower fence than one that was seen: rolled back, or a fail-over that lost writes.
    FenceRegressed { seen: i64, found: i64 },
    /// There was a row and now there is none.
    RowGone,
    /// The server's timeline is another one: a fail-over, a restore or an upgrade.
    TimelineChanged { from: Option<u32>, to: Option<u32> },
}

/// The state that a bid names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Premise {
    Unknown,
    Vacant,
    Row(Version),
}

/// The participant's own writes, as far as it can recognise them in the row.
#[derive(Clone, Debug, Default)]
struct Own {
    /// The exact state that the last answered write left behind.
    known: Option<Version>,
    /// What is known of the writes whose answers are still missing.
    pending: Option<Pending>,
}

#[derive(Clone, Debug)]
struct Pending {
    /// The write has landed if the row's fence and `renewed_at` are above these.
    above: (i64, Timestamp),
    /// Until then nobody can have taken over what the write may have left, and lost it again.
    recognised_until: Time,
}

/// A candidate's memory of the election, kept for the participant's whole life, its own terms included.
#[derive(Clone, Debug)]
pub(crate) struct HoldOff {
    settings: HoldOffSettings,
    answered: bool,
    row_seen: bool,
    timeline: Option<u32>,
    /// The timeline for which a row with another high part has been waited out.
    mismatch_waited: Option<u32>,
    highest: i64,
    /// Whose term the highest fence was.
    highest_holder: String,
    /// The record that went back and was reported last: its fence and holder.
    told_back: Option<(i64, String)>,
    longest: Duration,
    premise: Premise,
    own: Own,
    /// Until when the premise itself is held off for.
    until: Time,
    /// Until when the last disturbance is waited out; only time lifts it.
    floor: Time,
    /// Until when whoever saw the premise waits for it, where it is this participant's own and not released.
    ours_until: Time,
}

impl HoldOff {
    pub(crate) fn new(settings: HoldOffSettings) -> HoldOff {
        HoldOff {
            settings,
            answered: false,
            row_seen: false,
            timeline: None,
            mismatch_waited: None,
            highest: 0,
            highest_holder: String::new(),
            told_back: None,
            longest: Duration::ZERO,
            premise: Premise::Unknown,
            own: Own::default(),
            until: Time::ZERO,
            floor: Time::ZERO,
            ours_until: Time::ZERO,
        }
    }

    /// When a bid may be made; `None` as long as there is nothing that it could name.
    pub(crate) fn free_at(&self) -> Option<Time> {
        match self.premise {
            Premise::Unknown => None,
            _ => Some(self.until.max(self.floor)),
        }
    }

    /// Until when all others have to wait for the state of the row, since this participant wrote it and has not
    /// released it. No decision about safety: it says for how long nobody else could use what is left to them.
    pub(crate) fn ours_until(&self) -> Time {
        self.ours_until
    }

    /// What a bid names: the observed state, or `None` for no row.
    pub(crate) fn over(&self) -> Option<Version> {
        match &self.premise {
            Premise::Row(version) => Some(version.clone()),
            Premise::Vacant | Premise::Unknown => None,
        }
    }

    /// The timeline on which that state was observed.
    pub(crate) fn timeline(&self) -> Option<u32> {
        self.timeline
    }

    /// The highest fence seen in this election; 0 before the first.
    pub(crate) fn highest(&self) -> i64 {
        self.highest
    }

    /// A bid is about to be sent.
    pub(crate) fn bid_sent(&mut self, now: Time, above: i64) {
        let above = (above, Timestamp::from_micros(i64::MAX));
        self.own.pending = Some(Pending { above, recognised_until: self.recognised_until(now) });
    }

    /// A renewal is about to be sent. Of a run of unanswered ones any may be what landed, so the first one's time
    /// counts.
    pub(crate) fn renewal_sent(&mut self, now: Time) {
        if let (Some(known), None) = (&self.own.known, &self.own.pending) {
            let above = (known.fence().get(), known.renewed_at());
            self.own.pending = Some(Pending { above, recognised_until: self.recognised_until(now) });
        }
    }

    fn recognised_until(&self, now: Time) -> Time {
        now + self.settings.lease_duration.saturating_sub(self.settings.safety_margin)
    }

    /// One of the participant's own writes was answered with the state that it left.
    pub(crate) fn wrote(&mut self, received: Time, lease: &Lease) -> Vec<Disturbance> {
        if !lease.held_by(&self.settings.identity) {
            // No store may answer so. Where one does, it shows what somebody else wrote.
            return self.observed(received, &Observation::of(lease.clone()));
        }
        let mut found = Vec::new();
        self.see_timeline(received, lease.timeline(), &mut found);
        self.remember(lease);
        self.own = Own { known: Some(lease.version()), pending: None };
        self.premise = Premise::Row(lease.version());
        self.until = received;
        self.ours_until = received + self.believable_length(lease);
        found
    }

    /// An observation was answered.
    pub(crate) fn observed(&mut self, received: Time, seen: &Observation) -> Vec<Disturbance> {
        let first = !self.answered;
        let mut found = Vec::new();
        let moved = self.see_timeline(received, seen.timeline(), &mut found);
        match seen.lease() {
            None => self.see_no_row(received, first, &mut found),
            Some(lease) => self.see_row(received, first, moved, lease, &mut found),
        }
        found
    }

    /// Whether the timeline is another one than that of the last answer.
    fn see_timeline(&mut self, received: Time, timeline: Option<u32>, found: &mut Vec<Disturbance>) -> bool {
        let moved = self.answered && timeline != self.timeline;
        if moved {
            found.push(Disturbance::TimelineChanged { from: self.timeline, to: timeline });
            self.disturbed(received);
        }
        self.answered = true;
        self.timeline = timeline;
        moved
    }

    fn see_no_row(&mut self, received: Time, first: bool, found: &mut Vec<Disturbance>) {
        if self.row_seen && self.premise != Premise::Vacant {
            found.push(Disturbance::RowGone);
            self.disturbed(received);
        }
        if first && self.settings.strict {
            self.until = received + self.settings.lease_duration;
        } else if self.premise != Premise::Vacant {
            self.until = received;
        }
        self.premise = Premise::Vacant;
        self.ours_until = Time::ZERO;
    }

    fn see_row(
        &mut self,
        received: Time,
        first: bool,
        moved: bool,
        lease: &Lease,
        found: &mut Vec<Disturbance>,
    ) {
        let version = lease.version();
        if !moved && self.premise == Premise::Row(version.clone()) {
            return; // The version that is already held off for: as before.
        }
        if !lease.held_by(&self.settings.identity) {
            // Whatever of this participant's turns up after that is something newer or something late.
            self.own = Own::default();
        }
        let went_back = self.went_back(lease);
        if went_back {
            self.tell_back(lease, found);
        }
        let released_meanwhile = lease.is_released() && self.holds_off_for_term(lease);
        let mismatched = self.mismatched(lease) && self.mismatch_waited != self.timeline;
        self.remember(lease);
        if (went_back && !released_meanwhile) || mismatched {
            self.disturbed(received);
        }
        if mismatched {
            self.mismatch_waited = self.timeline;
        }
        self.ours_until = Time::ZERO;
        self.until = if lease.is_released() {
            received // Where it is an older record, the floor still holds.
        } else if self.is_own(received, lease) {
            self.ours_until = received + lease.ttl().min(self.believable_length(lease));
            received
        } else {
            let length = self.believable_length(lease);
            if first && !self.settings.strict {
                received + lease.ttl().min(length)
            } else {
                received + (length - credit(lease, length, first))
            }
        };
        self.premise = Premise::Row(version);
    }

    /// Somebody unknown may lead: waits out the longest lease that anybody is known to have had.
    fn disturbed(&mut self, received: Time) {
        self.floor = self.floor.max(received + self.longest.max(self.settings.lease_duration));
    }

    fn remember(&mut self, lease: &Lease) {
        self.row_seen = true;
        if lease.fence().get() > self.highest {
            self.highest = lease.fence().get();
            lease.holder().clone_into(&mut self.highest_holder);
        }
        self.longest = self.longest.max(self.believable_length(lease));
    }

    /// A lower fence than one that was seen, or the same one in other hands: since no fence is issued twice on one
    /// record, that too tells of a record that went back and was followed by another term.
    fn went_back(&self, lease: &Lease) -> bool {
        let fence = lease.fence().get();
        fence < self.highest || fence == self.highest && !lease.held_by(&self.highest_holder)
    }

    /// Reports a record that went back, once for each term that it shows and not for each of its renewals.
    fn tell_back(&mut self, lease: &Lease, found: &mut Vec<Disturbance>) {
        let term = (lease.fence().get(), lease.holder().to_owned());
        if self.told_back.as_ref() != Some(&term) {
            found.push(Disturbance::FenceRegressed { seen: self.highest, found: term.0 });
            self.told_back = Some(term);
        }
    }

    fn believable_length(&self, lease: &Lease) -> Duration {
        lease.length().min(self.settings.longest_lease)
    }

    fn mismatched(&self, lease: &Lease) -> bool {
        self.timeline.is_some_and(|timeline| !lease.fence().matches_timeline(timeline))
    }

    fn holds_off_for_term(&self, lease: &Lease) -> bool {
        matches!(&self.premise, Premise::Row(v) if v.fence() == lease.fence() && lease.held_by(v.holder()))
    }

    /// Whether the row is what this participant itself left, with nothing newer seen since. (A disturbance since
    /// is waited out by the floor, own rows or not.)
    fn is_own(&self, received: Time, lease: &Lease) -> bool {
        if !lease.held_by(&self.settings.identity) || self.went_back(lease) {
            return false;
        }
        let landed = |p: &Pending| {
            received < p.recognised_until && (lease.fence().get(), lease.renewed_at()) > p.above
        };
        self.own.known == Some(lease.version()) || self.own.pending.as_ref().is_some_and(landed)
    }
}

/// What may be taken off for the age of a version. "Could have been renewed then" is not "was", so it is capped
/// far below what the safety margin covers.
fn credit(lease: &Lease, length: Duration, first: bool) -> Duration {
    if first {
        return Duration::ZERO;
    }
    lease.now().saturating_since(lease.renewed_at()).min(length / CREDIT_DIVISOR)
}

#[cfg(test)]
mod tests;
