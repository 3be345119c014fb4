//! The database: one row, a clock that steps, a timeline, and a backup or standby that lags behind.
//!
//! The database's clock always shows 0: time passes by moving every time in the row into the past.

use crate::Ticks;
use crate::rules::{Names, Rules, Timelines};

/// `expires` of a released row.
pub(crate) const EPOCH: Ticks = Ticks::MIN;
/// The fence's high part starts here; the real one starts at the 40th bit.
const HIGH: u16 = 32;
/// High parts are compared modulo this; the real modulus is 1024.
const MODULUS: i32 = 4;

/// The row in one exact state. Times are the database's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    /// Whose lease it is.
    pub(crate) holder: u8,
    /// The fence of the holder's term.
    pub(crate) fence: u16,
    /// When it was acquired or renewed last.
    pub(crate) renewed: Ticks,
    /// When it ends; [`EPOCH`] once released.
    pub(crate) expires: Ticks,
    /// Changes with every write.
    pub(crate) mark: u8,
}

impl Row {
    /// Whether both are one version, as far as the rules tell versions apart.
    pub(crate) fn is(&self, other: &Row, rules: &Rules) -> bool {
        self.holder == other.holder
            && self.fence == other.fence
            && self.renewed == other.renewed
            && (!rules.released_at_epoch || self.expires == other.expires)
            && (!rules.version_has_mark || self.mark == other.mark)
    }

    /// Whether it was given up on purpose; `now` is the database's.
    pub(crate) fn is_released(&self, now: Ticks, rules: &Rules) -> bool {
        if rules.released_at_epoch { self.expires == EPOCH } else { self.expires <= now }
    }

    /// For how long it was granted.
    pub(crate) fn length(&self) -> Ticks {
        self.expires.saturating_sub(self.renewed).max(0)
    }

    /// The database's clock moves on. Beyond `oldest` the past is all alike; the length stays.
    pub(crate) fn shift(&mut self, by: Ticks, oldest: Ticks) {
        let by = by.min(self.renewed - oldest);
        self.renewed -= by;
        if self.expires != EPOCH {
            self.expires -= by;
        }
    }

    /// How long it still runs on the database's clock.
    pub(crate) fn remaining(&self, now: Ticks) -> Ticks {
        self.expires.saturating_sub(now).max(0)
    }
}

/// What an observation shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    /// The row, if there is one.
    pub(crate) row: Option<Row>,
    /// The database's clock.
    pub(crate) now: Ticks,
    /// The server's timeline.
    pub(crate) timeline: u8,
}

/// A statement on its way to the database, or waiting there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Statement {
    /// A bid.
    Acquire {
        /// The version to take over; `None` creates.
        over: Option<Row>,
        /// The timeline on which that was observed.
        timeline: u8,
        /// The new fence must be above this.
        above: u16,
    },
    /// A renewal of one's own term.
    Renew {
        /// The term.
        fence: u16,
    },
    /// The end of one's own term.
    Release {
        /// The term.
        fence: u16,
    },
}

impl Statement {
    /// The version that it names, if any.
    pub(crate) fn rows(&mut self) -> impl Iterator<Item = &mut Row> {
        if let Statement::Acquire { over, .. } = self { over.as_mut() } else { None }.into_iter()
    }
}

/// The database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Database {
    /// The election's row.
    pub(crate) row: Option<Row>,
    /// The server's timeline.
    pub(crate) timeline: u8,
    /// The row as the standby or the last backup has it, and the mark that was given last there.
    pub(crate) kept: (Option<Row>, u8),
    /// The mark of the last write.
    pub(crate) marks: u8,
    /// The highest fence that was ever granted.
    highest: u16,
    /// How many terms were granted.
    pub(crate) grants: u8,
    /// A fence was granted that was not above all earlier ones.
    pub(crate) fence_fell: bool,
    /// The record was rolled back or deleted on one timeline: fences rise only above what the new leader has seen.
    rolled_back: bool,
}

impl Default for Database {
    fn default() -> Database {
        Database {
            row: None,
            grants: 0,
            timeline: 1,
            kept: (None, 0),
            marks: 0,
            highest: 0,
            fence_fell: false,
            rolled_back: false,
        }
    }
}

impl Database {
    /// Reads the row.
    pub(crate) fn observe(&self) -> Seen {
        Seen { row: self.row, now: 0, timeline: self.timeline }
    }

    /// Carries a statement out. What it wrote, if it wrote.
    pub(crate) fn carry_out(&mut self, rules: &Rules, lease: Ticks, who: u8, what: Statement) -> Option<Row> {
        let now = 0;
        match what {
            Statement::Acquire { over, timeline, above } => {
                if rules.names_timeline && timeline != self.timeline || !self.accepts(rules, now, over) {
                    return None;
                }
                let stored = self.row.map_or(0, |row| row.fence);
                let fence = fence_after(stored.max(above), self.timeline, rules.timelines);
                self.fence_fell |= fence <= self.highest && !self.rolled_back;
                self.highest = self.highest.max(fence);
                self.grants += 1;
                let row =
                    Row { holder: who, fence, renewed: now, expires: now + lease, mark: self.next_mark() };
                self.row = Some(row);
            }
            Statement::Renew { fence } => {
                let mut row = self.row.filter(|row| row.holder == who && row.fence == fence)?;
                if row.expires <= now {
                    return None;
                }
                (row.renewed, row.expires, row.mark) = (now, now + lease, self.next_mark());
                self.row = Some(row);
            }
            Statement::Release { fence } => {
                let mut row = self.row.filter(|row| row.holder == who && row.fence == fence)?;
                row.expires = if rules.released_at_epoch { EPOCH } else { now };
                row.mark = self.next_mark();
                self.row = Some(row);
            }
        }
        self.row
    }

    fn accepts(&self, rules: &Rules, now: Ticks, over: Option<Row>) -> bool {
        match (rules.names, self.row, over) {
            (Names::Nothing, ..) | (Names::Expiry, None, _) => true,
            (Names::Expiry, Some(row), _) => row.expires <= now,
            (_, None, None) | (Names::VersionOrNothing, None, Some(_)) => true,
            (_, Some(row), Some(over)) => row.is(&over, rules),
            _ => false,
        }
    }

    /// Its clock moves on.
    pub(crate) fn shift(&mut self, by: Ticks, oldest: Ticks) {
        self.row.iter_mut().chain(&mut self.kept.0).for_each(|row| row.shift(by, oldest));
    }

    /// Every mark that it knows.
    pub(crate) fn marks(&mut self) -> impl Iterator<Item = &mut u8> {
        let rows = self.row.iter_mut().chain(&mut self.kept.0).map(|row| &mut row.mark);
        rows.chain([&mut self.kept.1, &mut self.marks])
    }

    fn next_mark(&mut self) -> u8 {
        self.marks += 1;
        self.marks
    }

    /// A backup is taken, or the standby catches up.
    pub(crate) fn keep(&mut self) {
        self.kept = (self.row, self.marks);
    }

    /// Somebody deletes the row.
    pub(crate) fn delete(&mut self) {
        self.row = None;
        self.rolled_back = true;
    }

    /// Somebody loads the row from the backup: a write like any other.
    pub(crate) fn restore(&mut self) {
        let mark = self.next_mark();
        self.row = self.kept.0.map(|row| Row { mark, ..row });
        self.rolled_back = true;
    }

    /// The standby takes over; what it never received is lost, and its marks go on from where they were there.
    pub(crate) fn fail_over(&mut self, timeline: u8) {
        (self.row, self.marks) = self.kept;
        self.timeline = timeline;
    }
}

/// Whether a fence's high part is that of a timeline.
pub(crate) fn matches(fence: u16, timeline: u8) -> bool {
    (i32::from(timeline) - 1 - i32::from(fence / HIGH)).rem_euclid(MODULUS) == 0
}

/// Rule 15's next fence.
fn fence_after(highest: u16, timeline: u8, timelines: Timelines) -> u16 {
    let (high, target) = (i32::from(highest / HIGH), i32::from(timeline) - 1);
    let ahead = match timelines {
        Timelines::Differ => (target - high).rem_euclid(MODULUS),
        Timelines::Rise => (target - high).max(0),
    };
    if ahead == 0 { highest + 1 } else { (high + ahead) as u16 * HIGH + 1 }
}
