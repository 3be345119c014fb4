//! What a participant remembers of the election, and until when it holds off (rules 10 and 15).

use crate::Ticks;
use crate::database::{Row, Seen, matches};
use crate::rules::{Own, Rules, Timelines, Wait};

/// An instant that has passed, whatever the clock shows.
const PAST: Ticks = Ticks::MIN;

/// The state that a bid would name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Premise {
    /// Nothing was observed yet.
    Unknown,
    /// There is no row.
    Vacant,
    /// This version.
    Row(Row),
}

/// An own write whose answer is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pending {
    /// It has landed if fence and time of renewal are above these.
    above: (u16, Ticks),
    /// Nobody can have taken over what it left, and lost it again, before that.
    until: Ticks,
}

/// One participant's memory. Instants are by its own clock, which always shows 0: time passes by moving every
/// instant into the past.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    /// What a bid would name.
    pub(crate) premise: Premise,
    /// The timeline of the last answer; `None` before the first.
    pub(crate) timeline: Option<u8>,
    /// The highest fence seen.
    pub(crate) highest: u16,
    /// Whose term that was.
    highest_holder: u8,
    /// A row was seen.
    pub(crate) row_seen: bool,
    mismatch_waited: Option<u8>,
    own: Option<Row>,
    pending: Option<Pending>,
    until: Ticks,
    floor: Ticks,
    /// When the last answer came, and what the database's clock showed; only two drafts look at it.
    last: Option<(Ticks, Ticks)>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            premise: Premise::Unknown,
            timeline: None,
            highest: 0,
            highest_holder: 0,
            row_seen: false,
            mismatch_waited: None,
            own: None,
            pending: None,
            until: PAST,
            floor: PAST,
            last: None,
        }
    }
}

/// The rules, the participant's identity and the configured lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Views<'a> {
    /// The rules.
    pub(crate) rules: &'a Rules,
    /// Who it is.
    pub(crate) identity: u8,
    /// Everybody's lease duration.
    pub(crate) lease: Ticks,
}

impl Memory {
    /// Whether a bid may be sent.
    pub(crate) fn may_bid(&self) -> bool {
        self.premise != Premise::Unknown && self.until <= 0 && self.floor <= 0
    }

    /// Time passes: so much on the own clock, so much on the database's.
    pub(crate) fn shift(&mut self, own: Ticks, database: Ticks, oldest: Ticks) {
        for instant in [&mut self.until, &mut self.floor] {
            *instant = instant.saturating_sub(own);
        }
        if let Premise::Row(row) = &mut self.premise {
            row.shift(database, oldest);
        }
        if let Some(row) = &mut self.own {
            row.shift(database, oldest);
        }
        if let Some(Pending { above: (_, renewed), until }) = &mut self.pending {
            *until -= own;
            if *renewed != Ticks::MAX {
                *renewed = (*renewed - database).max(oldest);
            }
        }
        if let Some((then, database_then)) = &mut self.last {
            let too_old = (oldest - (*then - own)).max(0);
            *then += too_old - own;
            *database_then += too_old - database;
        }
        self.settle();
    }

    /// Forgets instants that have passed: two memories that behave alike are one state.
    pub(crate) fn settle(&mut self) {
        for instant in [&mut self.until, &mut self.floor] {
            if *instant <= 0 {
                *instant = PAST;
            }
        }
        self.pending = self.pending.filter(|pending| pending.until > 0);
    }

    /// Every mark that it knows.
    pub(crate) fn marks(&mut self) -> impl Iterator<Item = &mut u8> {
        let premise = if let Premise::Row(row) = &mut self.premise { Some(row) } else { None };
        premise.into_iter().chain(&mut self.own).map(|row| &mut row.mark)
    }

    /// A bid leaves.
    pub(crate) fn bid_sent(&mut self, views: Views<'_>) {
        let until = views.lease - views.rules.margin;
        self.pending = Some(Pending { above: (self.highest, Ticks::MAX), until });
    }

    /// A renewal leaves.
    pub(crate) fn renewal_sent(&mut self, views: Views<'_>) {
        let until = views.lease - views.rules.margin;
        self.pending = self.own.map(|own| Pending { above: (own.fence, own.renewed), until });
    }

    /// An own write was answered.
    pub(crate) fn wrote(&mut self, row: Row, timeline: u8, views: Views<'_>) {
        self.see_timeline(timeline, views);
        self.remember(&row);
        (self.own, self.pending) = (Some(row), None);
        self.premise = Premise::Row(row);
        self.until = PAST;
        self.last = None;
    }

    /// An observation was answered.
    pub(crate) fn observed(&mut self, seen: &Seen, views: Views<'_>) {
        let first = self.timeline.is_none();
        let moved = self.see_timeline(seen.timeline, views);
        match seen.row {
            None => self.see_no_row(first, views),
            Some(row) => self.see_row(first, moved, row, seen.now, views),
        }
        if matches!(views.rules.wait, Wait::PlausibleAge | Wait::AgeUnlessStepped) {
            self.last = Some((0, seen.now));
        }
    }

    fn see_timeline(&mut self, timeline: u8, views: Views<'_>) -> bool {
        let moved = self.timeline.is_some_and(|last| match views.rules.timelines {
            Timelines::Differ => timeline != last,
            Timelines::Rise => timeline > last,
        });
        if moved {
            self.disturbed(views);
        }
        self.timeline = Some(timeline);
        moved
    }

    fn see_no_row(&mut self, first: bool, views: Views<'_>) {
        let new = self.premise != Premise::Vacant;
        if self.row_seen && new {
            if !views.rules.waits_for_lost_records {
                self.premise = Premise::Vacant; // The old hold-off goes on.
                return;
            }
            self.disturbed(views);
        }
        if first && views.rules.strict {
            self.until = views.lease;
        } else if new {
            self.until = PAST;
        }
        self.premise = Premise::Vacant;
    }

    fn see_row(&mut self, first: bool, moved: bool, row: Row, db_now: Ticks, views: Views<'_>) {
        let rules = views.rules;
        let known = matches!(&self.premise, Premise::Row(seen) if seen.is(&row, rules));
        let by_database = rules.wait == Wait::DatabaseClock || !rules.released_at_epoch;
        if known && !moved && !by_database {
            return;
        }
        if row.holder != views.identity {
            (self.own, self.pending) = (None, None);
        }
        let went_back = self.went_back(&row, rules);
        let own_term_ended = row.is_released(db_now, rules)
            && matches!(self.premise, Premise::Row(seen) if (seen.holder, seen.fence) == (row.holder, row.fence));
        let mismatched = self.is_mismatched(row, views) && self.mismatch_waited != self.timeline;
        let before = self.until;
        self.remember(&row);
        if (went_back && !own_term_ended && rules.waits_for_lost_records) || mismatched {
            self.disturbed(views);
        }
        if mismatched {
            self.mismatch_waited = self.timeline;
        }
        self.until = if row.is_released(db_now, rules) || self.is_own(row, views) {
            PAST
        } else if went_back && !rules.waits_for_lost_records || known && rules.wait == Wait::Length {
            before
        } else if first && !rules.strict {
            row.remaining(db_now).min(row.length())
        } else {
            self.wait(&row, db_now, rules)
        };
        if rules.own == Own::ByName && self.is_own(row, views) {
            self.floor = PAST;
        }
        self.premise = Premise::Row(row);
    }

    /// For how long a version that was not seen before is held off for.
    fn wait(&self, row: &Row, db_now: Ticks, rules: &Rules) -> Ticks {
        let length = row.length();
        let age = db_now.saturating_sub(row.renewed).clamp(0, length);
        let believed = match (rules.wait, self.last) {
            (Wait::DatabaseClock, _) => return row.remaining(db_now),
            (Wait::Uncapped, _) => return length.max(row.remaining(db_now)),
            (Wait::PlausibleAge, Some((then, _))) => age.min(-then),
            (Wait::AgeUnlessStepped, Some((then, db_then))) if -then == db_now - db_then => age,
            _ => 0,
        };
        length - believed
    }

    /// Somebody unknown may lead.
    fn disturbed(&mut self, views: Views<'_>) {
        self.floor = self.floor.max(views.lease);
    }

    fn remember(&mut self, row: &Row) {
        self.row_seen = true;
        if row.fence > self.highest {
            (self.highest, self.highest_holder) = (row.fence, row.holder);
        }
    }

    /// A lower fence than one that was seen, or the same one in other hands.
    fn went_back(&self, row: &Row, rules: &Rules) -> bool {
        let other = rules.same_fence_in_other_hands && row.holder != self.highest_holder;
        row.fence < self.highest || row.fence == self.highest && other
    }

    fn is_mismatched(&self, row: Row, views: Views<'_>) -> bool {
        views.rules.timelines == Timelines::Differ && self.timeline.is_some_and(|t| !matches(row.fence, t))
    }

    fn is_own(&self, row: Row, views: Views<'_>) -> bool {
        if row.holder != views.identity {
            return false;
        }
        if views.rules.own == Own::ByName {
            return true;
        }
        let landed = |pending: Pending| (row.fence, row.renewed) > pending.above;
        !self.went_back(&row, views.rules)
            && (self.own.is_some_and(|own| own.is(&row, views.rules)) || self.pending.is_some_and(landed))
    }
}
