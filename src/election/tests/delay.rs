//! The takeover delay: a lease that is free is left to others first, and nothing that has to be waited out is
//! shortened by it.

use super::*;

const DELAY: u64 = 7_000;

fn delayed() -> Driven {
    let mut driven = Driven::new(Settings { takeover_delay: ms(DELAY), ..settings() });
    assert_eq!(driven.feed(Input::Campaign).call, Some(Call::Observe));
    driven
}

/// Answers every look with what `row` says, and tells how long it takes until a bid is made.
fn bids_after(driven: &mut Driven, mut step: Step, row: impl Fn(&Driven) -> Input) -> u64 {
    let started = driven.now;
    for _ in 0..100 {
        let call = match step.call.take() {
            Some(call) => call,
            None => driven.next_call(step.wake_at).expect("a candidate goes on").0,
        };
        if matches!(call, Call::Acquire { .. }) {
            return driven.now - started;
        }
        step = driven.feed(row(driven));
    }
    panic!("never bids: {:?}", driven.election);
}

#[test]
fn a_free_lease_is_left_to_others_for_the_delay_and_no_longer() {
    let free: [fn(&Driven) -> Input; 2] = [|_| vacant(), |_| seen(released("other", 4, 100_000))];
    for row in free {
        let mut driven = delayed();
        let step = driven.feed(row(&driven));
        assert_eq!(bids_after(&mut driven, step, row), DELAY, "{:?}", row(&driven));
    }
}

#[test]
fn rule_10_the_delay_comes_after_the_hold_off_and_not_in_its_place() {
    // The very first answer is believed: 15 s remain.
    let mut driven = delayed();
    let row = |_: &Driven| seen(lease("other", 4, 100_000, 100_000));
    let step = driven.feed(row(&driven));
    assert_eq!(bids_after(&mut driven, step, row), 15_000 + DELAY);
    // A row that is gone is waited out first.
    let mut driven = delayed();
    driven.feed(seen(driven.theirs(4)));
    driven.now += 4_000;
    driven.feed(Input::Tick);
    let step = driven.feed(vacant());
    assert_eq!(bids_after(&mut driven, step, |_| vacant()), 15_000 + DELAY);
}

#[test]
fn a_lease_that_others_took_in_time_is_not_bid_for() {
    let mut driven = delayed();
    driven.feed(seen(released("other", 4, 100_000)));
    driven.now += DELAY - 1;
    assert_eq!(driven.feed(Input::Tick).call, Some(Call::Observe));
    let step = driven.feed(seen(driven.theirs(5)));
    assert_eq!(step.call, None);
    assert!(bids_after(&mut driven, step, |_| seen(lease("other", 5, 106_999, 106_999))) >= 14_000 + DELAY);
}

#[test]
fn a_lease_that_has_been_free_for_that_long_is_taken_at_once() {
    let mut driven = delayed();
    driven.feed(seen(released("other", 4, 100_000)));
    driven.feed(Input::Withdraw);
    driven.now += 60_000;
    assert_eq!(driven.feed(Input::Campaign).call, Some(Call::Observe));
    let step = driven.feed(seen(released("other", 4, 100_000)));
    assert_eq!(bids_after(&mut driven, step, |_| unreachable!()), 0);
}

/// A leader of fence 1 with a delay, whose renewal was just answered.
fn leading() -> Driven {
    let mut driven = delayed();
    let step = driven.feed(vacant());
    bids_after(&mut driven, step, |_| vacant());
    let step = driven.feed(Input::Acquired(Ok(Some(driven.mine(1)))));
    assert!(matches!(step.term, Some(TermChange::Begin { .. })));
    driven
}

#[test]
fn what_is_still_ones_own_is_taken_again_at_once() {
    // The database's clock leapt: its row is over for the database, and everybody else waits for it.
    let mut driven = leading();
    let row = driven.mine(1);
    let renewed = driven.db();
    driven.feed(Input::Campaign);
    driven.after(5_000, Input::Tick);
    let step = driven.feed(Input::Renewed(Ok(None)));
    assert!(matches!(step.term, Some(TermChange::End { cause: LossCause::Superseded, .. })));
    let leapt = |_: &Driven| seen(lease(ME, 1, renewed, renewed + 3_600_000).with_mark(row.version().mark()));
    assert_eq!(bids_after(&mut driven, step, leapt), 0);
    // A bid whose answer was lost.
    let mut driven = delayed();
    let step = driven.feed(vacant());
    bids_after(&mut driven, step, |_| vacant());
    let landed = driven.db();
    let step = driven.feed(Input::Acquired(Err(Trouble::Error)));
    let waits = bids_after(&mut driven, step, |d| seen(lease(ME, 1, landed, d.db())));
    assert_eq!(waits, 3_000, "the pause after a failure");
}

#[test]
fn what_was_ones_own_long_ago_is_free_for_everybody() {
    // Nobody wanted it for the rest of the lease, or for half of the delay after it.
    for later in [0, DELAY / 2] {
        let mut driven = leading();
        driven.feed(Input::Withdraw);
        let row = driven.mine(1);
        let renewed = driven.db();
        let over = driven.after(13_500, Input::Tick).term;
        assert!(matches!(over, Some(TermChange::End { cause: LossCause::Expired, .. })));
        driven.now += 1_500 + later;
        let step = driven.feed(Input::Campaign);
        let unchanged = |d: &Driven| seen(lease(ME, 1, renewed, d.db()).with_mark(row.version().mark()));
        assert_eq!(bids_after(&mut driven, step, unchanged), DELAY - later, "{later} ms after the lease");
    }
}

#[test]
fn whoever_resigned_waits_for_the_delay_like_everybody() {
    let mut driven = leading();
    driven.feed(Input::Campaign);
    driven.feed(Input::Resign { fence: fence(1), release: true });
    let at = driven.db();
    let step = driven.feed(Input::Released);
    assert_eq!(bids_after(&mut driven, step, |_| seen(released(ME, 1, at))), DELAY);
}

#[test]
fn absurd_delays_end_nowhere_near_an_overflow() {
    let mut driven = Driven::new(Settings { takeover_delay: Duration::MAX, ..settings() });
    driven.feed(Input::Campaign);
    let step = driven.feed(vacant());
    assert_eq!(driven.next_call(step.wake_at), Some((Call::Observe, 3_000)), "it goes on looking");
}
