//! A table for each bullet of rule 10.

use super::*;
use crate::lease::{Fence, LeaseTimes};

const ME: &str = "me";
const LENGTH: u64 = 15_000;
/// The most that a version's age may be credited.
const CREDIT: u64 = LENGTH / 40;

fn settings() -> HoldOffSettings {
    HoldOffSettings {
        identity: ME.to_owned(),
        lease_duration: ms(15_000),
        safety_margin: ms(1_500),
        longest_lease: Duration::from_secs(31 * 86_400),
        strict: false,
    }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn db(ms: i64) -> Timestamp {
    Timestamp::from_micros((1_000_000_000 + ms) * 1_000)
}

#[derive(Clone, Copy)]
struct Row {
    holder: &'static str,
    fence: i64,
    renewed: i64,
    length: i64,
    /// The database's clock when it is seen.
    now: i64,
    mark: u64,
    timeline: Option<u32>,
}

const ROW: Row =
    Row { holder: "other", fence: 5, renewed: 0, length: 15_000, now: 0, mark: 1, timeline: None };

impl Row {
    fn lease(self) -> Lease {
        let expires_at =
            if self.length == 0 { Timestamp::EPOCH } else { db(self.renewed.saturating_add(self.length)) };
        let times = LeaseTimes {
            acquired_at: db(self.renewed),
            renewed_at: db(self.renewed),
            expires_at,
            now: db(self.now),
        };
        Lease::new("e", self.holder, Fence::try_from(self.fence).unwrap(), times)
            .with_mark(self.mark)
            .with_timeline(self.timeline)
    }

    fn seen(self) -> Observation {
        Observation::of(self.lease())
    }
}

const fn released(row: Row) -> Row {
    Row { length: 0, mark: row.mark + 1, ..row }
}

/// One that has had its first answer, `ROW`, at 0.
fn watching() -> HoldOff {
    let mut hold_off = HoldOff::new(settings());
    assert!(hold_off.free_at().is_none(), "nothing is known, nothing is bid for");
    assert!(hold_off.observed(at(0), &ROW.seen()).is_empty());
    hold_off
}

/// One whose own term with that fence began at 0.
fn led(fence: i64) -> (HoldOff, Row) {
    let mut hold_off = HoldOff::new(settings());
    hold_off.observed(at(0), &Observation::vacant(None));
    hold_off.bid_sent(at(0), 0);
    let row = Row { holder: ME, fence, ..ROW };
    assert!(hold_off.wrote(at(0), &row.lease()).is_empty());
    (hold_off, row)
}

#[test]
fn rule_10_released_by_a_version_not_below_the_highest_at_once() {
    for fence in [5, 6, 1_000] {
        let mut hold_off = watching();
        hold_off.observed(at(100), &released(Row { fence, now: 100, ..ROW }).seen());
        assert_eq!(hold_off.free_at(), Some(at(100)), "{fence}");
    }
    let mut hold_off = HoldOff::new(HoldOffSettings { strict: true, ..settings() });
    hold_off.observed(at(100), &released(ROW).seen());
    assert_eq!(hold_off.free_at(), Some(at(100)), "also as the very first answer");
}

#[test]
fn rule_10_the_own_version_at_once() {
    // A term given up locally: exactly what the last answered write left.
    let (mut hold_off, row) = led(6);
    hold_off.observed(at(100_000), &row.seen());
    assert_eq!(hold_off.free_at(), Some(at(0)), "held off for as before: not at all");
    // Renewals whose answers were lost.
    let (mut hold_off, row) = led(6);
    for renewal in 1..4 {
        hold_off.renewal_sent(at(renewal * 1_000));
    }
    hold_off.observed(at(4_000), &Row { renewed: 3_000, now: 4_000, mark: 4, ..row }.seen());
    assert_eq!(hold_off.free_at(), Some(at(4_000)));
    // A bid whose answer was lost.
    let mut hold_off = watching();
    hold_off.bid_sent(at(20_000), 5);
    let landed = Row { holder: ME, fence: 6, renewed: 20_000, now: 21_000, mark: 2, ..ROW };
    hold_off.observed(at(21_000), &landed.seen());
    assert_eq!(hold_off.free_at(), Some(at(21_000)));
}

#[test]
fn rule_10_an_own_version_is_none_once_anything_newer_was_seen() {
    let bid = || {
        let mut hold_off = watching();
        hold_off.bid_sent(at(20_000), 5);
        hold_off
    };
    let landed = Row { holder: ME, fence: 6, renewed: 20_000, now: 21_000, mark: 2, ..ROW };
    // Somebody with a higher fence in between.
    let mut hold_off = bid();
    hold_off.observed(at(20_500), &Row { fence: 7, renewed: 20_400, now: 20_500, mark: 3, ..ROW }.seen());
    hold_off.observed(at(21_000), &landed.seen());
    assert!(hold_off.free_at().unwrap() >= at(21_000 + LENGTH));
    // Another timeline in between.
    let mut hold_off = bid();
    hold_off.observed(at(21_000), &Row { timeline: Some(2), ..landed }.seen());
    assert!(hold_off.free_at().unwrap() >= at(21_000 + LENGTH));
    // No row in between.
    let mut hold_off = bid();
    hold_off.observed(at(20_500), &Observation::vacant(None));
    hold_off.observed(at(21_000), &landed.seen());
    assert!(hold_off.free_at().unwrap() >= at(20_500 + LENGTH));
    // So late that somebody may have taken it over, and lost it again, unseen.
    let mut hold_off = bid();
    hold_off.observed(at(20_000 + 13_500), &Row { now: 33_500, ..landed }.seen());
    assert_eq!(hold_off.free_at(), Some(at(33_500 + LENGTH - CREDIT)));
    // A fence that the bid cannot have been given.
    let mut hold_off = bid();
    hold_off.observed(at(21_000), &Row { fence: 5, ..landed }.seen());
    assert_eq!(hold_off.free_at(), Some(at(21_000 + LENGTH)));
    // The same label is not the same identity.
    let mut hold_off = bid();
    hold_off.observed(at(21_000), &Row { holder: "mee", ..landed }.seen());
    assert_eq!(hold_off.free_at(), Some(at(21_000 + LENGTH - CREDIT)));
}

#[test]
fn rule_10_an_unanswered_renewal_is_recognised_by_a_later_time_only() {
    // The same fence and the same time with another mark: the clock went back, or the record did. Not certainly ours.
    let (mut hold_off, row) = led(6);
    hold_off.renewal_sent(at(5_000));
    hold_off.observed(at(6_000), &Row { mark: 9, now: 6_000, ..row }.seen());
    assert_eq!(hold_off.free_at(), Some(at(6_000 + LENGTH - CREDIT)));
    let (mut hold_off, row) = led(6);
    hold_off.renewal_sent(at(5_000));
    hold_off.observed(at(6_000), &Row { renewed: 1, mark: 9, now: 6_000, ..row }.seen());
    assert_eq!(hold_off.free_at(), Some(at(6_000)));
}

/// Whoever was seen first with a fence stays the one that it was given to.
#[test]
fn rule_10_the_same_fence_in_other_hands_went_back_however_often_it_is_seen() {
    let mut hold_off = watching();
    for seen in [1_000, 5_000, 9_000] {
        let age = 375;
        let third = Row { holder: "third", renewed: seen, now: seen + age, mark: 2, ..ROW };
        let received = u64::try_from(seen + age).unwrap();
        hold_off.observed(at(received), &third.seen());
        assert_eq!(hold_off.free_at(), Some(at(received + LENGTH)), "the whole length, no credit");
    }
}

#[test]
fn rule_10_a_run_of_lost_renewals_is_recognised_for_no_longer_than_its_first() {
    // The renewal at 5 s landed, those after it did not. Somebody who saw it land may lead from 19.6 s on; if the
    // row comes back after that as the renewal had left it, it is nobody's own.
    let (mut hold_off, row) = led(6);
    for sent in [5_000, 9_250, 13_000] {
        hold_off.renewal_sent(at(sent));
    }
    let landed = Row { renewed: 5_000, mark: 9, ..row };
    let mut before = hold_off.clone();
    before.observed(at(18_400), &Row { now: 18_400, ..landed }.seen());
    assert_eq!(before.free_at(), Some(at(18_400)), "nobody can have taken it over yet");
    hold_off.observed(at(20_000), &Row { now: 20_000, ..landed }.seen());
    assert_eq!(hold_off.free_at(), Some(at(20_000 + LENGTH - CREDIT)));
}

#[test]
fn rule_10_the_version_held_off_for_as_before() {
    let mut hold_off = watching();
    let before = hold_off.free_at();
    for later in [1, 100, 14_999, 15_000, 1_000_000] {
        let again = Row { now: later, ..ROW };
        assert!(hold_off.observed(at(later.unsigned_abs()), &again.seen()).is_empty());
        assert_eq!(hold_off.free_at(), before, "{later}");
    }
    // Whatever the database's clock says meanwhile.
    for now in [-1_000_000, 1_000_000_000] {
        hold_off.observed(at(2_000), &Row { now, ..ROW }.seen());
        assert_eq!(hold_off.free_at(), before, "{now}");
    }
}

#[test]
fn rule_10_any_other_version_for_its_length() {
    let next = |row: Row| Row { renewed: 1_000, now: 1_000, mark: 2, ..row };
    let table: [(&str, Row, u64); 8] = [
        ("a renewal seen at once", next(ROW), LENGTH),
        ("credit for a little age", Row { now: 1_100, ..next(ROW) }, LENGTH - 100),
        ("and for no more", Row { now: 9_000, ..next(ROW) }, LENGTH - CREDIT),
        ("an age that a step feigned", Row { now: 86_400_000, ..next(ROW) }, LENGTH - CREDIT),
        ("a clock that went back", Row { now: -86_400_000, ..next(ROW) }, LENGTH),
        ("the same times, another mark", Row { mark: 9, ..ROW }, LENGTH),
        ("a longer lease", Row { length: 60_000, ..next(ROW) }, 60_000),
        ("a shorter lease", Row { length: 2_000, ..next(ROW) }, 2_000),
    ];
    for (what, row, expected) in table {
        let mut hold_off = watching();
        assert!(hold_off.observed(at(500), &row.seen()).is_empty(), "{what}");
        assert_eq!(hold_off.free_at(), Some(at(500 + expected)), "{what}");
    }
}

#[test]
fn a_record_that_went_back_is_reported_once_for_each_term_that_it_shows() {
    let mut hold_off = watching();
    let older = |renewed, fence| Row { fence, renewed, now: renewed, mark: renewed as u64, ..ROW }.seen();
    assert_eq!(hold_off.observed(at(100), &older(100, 4)).len(), 1);
    for renewal in 2..9 {
        assert!(hold_off.observed(at(renewal as u64 * 100), &older(renewal * 100, 4)).is_empty());
        assert_eq!(hold_off.free_at(), Some(at(renewal as u64 * 100 + LENGTH)), "waited out all the same");
    }
    assert_eq!(hold_off.observed(at(1_000), &older(1_000, 3)).len(), 1);
}

#[test]
fn rule_10_a_record_that_went_back_or_is_gone_for_the_longest_length_seen() {
    let mut long = watching();
    long.observed(at(0), &Row { fence: 6, length: 40_000, mark: 2, ..ROW }.seen());
    long.observed(at(0), &Row { fence: 7, length: 15_000, mark: 3, ..ROW }.seen());
    let older = Row { fence: 6, mark: 9, now: 1_000, ..ROW };
    let other = Row { holder: "third", fence: 7, mark: 9, now: 1_000, ..ROW };
    let again = Disturbance::FenceRegressed { seen: 7, found: 7 };
    let table: [(&str, Observation, Disturbance); 6] = [
        ("the same fence in other hands", other.seen(), again),
        ("the same fence in other hands, released", released(other).seen(), again),
        ("a lower fence", older.seen(), Disturbance::FenceRegressed { seen: 7, found: 6 }),
        (
            "a lower fence, released",
            released(older).seen(),
            Disturbance::FenceRegressed { seen: 7, found: 6 },
        ),
        ("no row", Observation::vacant(None), Disturbance::RowGone),
        (
            "another timeline",
            Observation::vacant(Some(2)),
            Disturbance::TimelineChanged { from: None, to: Some(2) },
        ),
    ];
    for (what, seen, disturbance) in table {
        let mut hold_off = long.clone();
        assert!(hold_off.observed(at(1_000), &seen).contains(&disturbance), "{what}");
        assert_eq!(hold_off.free_at(), Some(at(41_000)), "{what}");
        // Seeing it again neither prolongs nor shortens it; nor does a release.
        hold_off.observed(at(3_000), &seen);
        assert_eq!(hold_off.free_at(), Some(at(41_000)), "{what}, again");
    }
    // The own lease is the least.
    let mut hold_off = HoldOff::new(settings());
    hold_off.observed(at(0), &Row { length: 1_000, ..ROW }.seen());
    hold_off.observed(at(100), &Observation::vacant(None));
    assert_eq!(hold_off.free_at(), Some(at(100 + LENGTH)));
}

#[test]
fn rule_10_no_release_lengthens_a_hold_off() {
    // An older record appears and is waited out; then its holder gives it up.
    let mut hold_off = watching();
    let older = Row { fence: 4, mark: 7, ..ROW };
    hold_off.observed(at(1_000), &older.seen());
    assert_eq!(hold_off.free_at(), Some(at(1_000 + LENGTH)));
    hold_off.observed(at(9_000), &released(older).seen());
    assert_eq!(hold_off.free_at(), Some(at(1_000 + LENGTH)));
    // The wait for another version ends with its release.
    let mut hold_off = watching();
    hold_off.observed(at(1_000), &Row { renewed: 1_000, now: 1_000, mark: 2, ..ROW }.seen());
    hold_off.observed(at(2_000), &released(Row { renewed: 1_000, now: 2_000, mark: 2, ..ROW }).seen());
    assert_eq!(hold_off.free_at(), Some(at(2_000)));
}

#[test]
fn rule_10_the_very_first_answer() {
    let cases: [(bool, Option<Row>, u64); 8] = [
        (false, None, 0),
        (true, None, LENGTH),
        (false, Some(Row { now: 5_000, ..ROW }), 10_000),
        (true, Some(Row { now: 5_000, ..ROW }), LENGTH),
        (false, Some(Row { now: 20_000, ..ROW }), 0),
        (true, Some(Row { now: 20_000, ..ROW }), LENGTH),
        // A clock that went back does not stretch it.
        (false, Some(Row { now: -3_600_000, ..ROW }), LENGTH),
        (true, Some(Row { now: -3_600_000, length: 7_000, ..ROW }), 7_000),
    ];
    for (strict, row, expected) in cases {
        let mut hold_off = HoldOff::new(HoldOffSettings { strict, ..settings() });
        let seen = row.map_or(Observation::vacant(None), Row::seen);
        assert!(hold_off.observed(at(100), &seen).is_empty());
        assert_eq!(hold_off.free_at(), Some(at(100 + expected)), "{strict} {seen:?}");
    }
}

#[test]
fn rule_10_no_hold_off_is_longer_than_anybody_may_configure() {
    let longest = ms(31 * 86_400_000);
    let mut hold_off = watching();
    hold_off.observed(at(0), &Row { length: i64::MAX / 4_000_000, mark: 2, ..ROW }.seen());
    assert_eq!(hold_off.free_at(), Some(at(0) + longest));
    hold_off.observed(at(5), &Observation::vacant(None));
    assert_eq!(hold_off.free_at(), Some(at(5) + longest));
}

#[test]
fn rule_15_a_row_of_another_timeline_is_waited_out_once() {
    let mut hold_off = HoldOff::new(settings());
    // A fence without high part belongs to timeline 1; the server says 3.
    let row = Row { timeline: Some(3), ..released(ROW) };
    hold_off.observed(at(0), &row.seen());
    assert_eq!(hold_off.free_at(), Some(at(LENGTH)), "also the first, also released");
    hold_off.observed(at(1_000), &Row { mark: 9, ..row }.seen());
    assert_eq!(hold_off.free_at(), Some(at(LENGTH)), "waited out, not again and again");
    assert_eq!(hold_off.timeline(), Some(3));
    // A fence of the server's own timeline is nothing special.
    let mut hold_off = HoldOff::new(settings());
    hold_off.observed(at(0), &Row { fence: (2 << 40) + 1, ..row }.seen());
    assert_eq!(hold_off.free_at(), Some(at(0)));
    // Own rows are no exception.
    let (mut hold_off, own) = led(6);
    hold_off.observed(at(1_000), &Row { timeline: Some(2), now: 1_000, ..own }.seen());
    assert_eq!(hold_off.free_at(), Some(at(1_000 + LENGTH)));
}

#[test]
fn rule_8_a_bid_names_what_was_seen() {
    let mut hold_off = watching();
    assert_eq!((hold_off.over(), hold_off.highest()), (Some(ROW.lease().version()), 5));
    hold_off.observed(at(1), &Row { fence: 3, mark: 2, ..ROW }.seen());
    assert_eq!(hold_off.over(), Some(Row { fence: 3, mark: 2, ..ROW }.lease().version()));
    assert_eq!(hold_off.highest(), 5, "the highest ever");
    hold_off.observed(at(2), &Observation::vacant(Some(4)));
    assert_eq!((hold_off.over(), hold_off.timeline(), hold_off.highest()), (None, Some(4), 5));
}
