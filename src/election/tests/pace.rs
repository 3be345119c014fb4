//! Calls come at the pace of the settings, whatever the answers are, and no wake-up is for nothing.

use super::*;

#[test]
fn a_failed_renewal_is_tried_again_after_the_retry_delay() {
    let mut driven = holding();
    driven.after(5_000, Input::Tick);
    let step = driven.after(3_000, Input::Renewed(Err(Trouble::Error)));
    assert_eq!((step.call, step.term), (None, None));
    let again = driven.next_call(step.wake_at);
    assert_eq!(again, Some((Call::Renew { fence: fence(1) }, 1_250)));
    // It lands, and the rhythm counts from its send.
    let step = driven.feed(Input::Renewed(Ok(Some(driven.mine(1)))));
    assert_eq!(driven.next_call(step.wake_at).map(|(_, after)| after), Some(5_000));
}

#[test]
fn after_a_slow_renewal_the_driver_is_let_go() {
    let mut driven = holding();
    driven.after(5_000, Input::Tick);
    let step = driven.after(6_000, Input::Renewed(Ok(Some(driven.mine(1)))));
    assert_eq!(step.call, None, "whoever asked meanwhile is heard first");
    assert_eq!(driven.next_call(step.wake_at), Some((Call::Renew { fence: fence(1) }, 0)));
}

#[test]
fn failures_are_paced_by_the_retry_period() {
    let mut driven = candidate();
    for _ in 0..5 {
        let step = driven.feed(Input::Observed(Err(Trouble::Error)));
        assert_eq!(step.call, None);
        assert_eq!(driven.next_call(step.wake_at), Some((Call::Observe, 3_000)));
    }
    let mut driven = bidding();
    for _ in 0..5 {
        let step = driven.feed(Input::Acquired(Err(Trouble::Error)));
        assert_eq!(step.call, None);
        let (call, after) = driven.next_call(step.wake_at).unwrap();
        assert_eq!((call, after), (Call::Observe, 3_000), "it looks before it bids again");
        let step = driven.feed(vacant());
        assert!(matches!(step.call, Some(Call::Acquire { .. })), "{step:?}");
    }
}

#[test]
fn one_lost_bid_looks_again_at_once_and_further_ones_are_paced() {
    let mut driven = bidding();
    let step = driven.feed(Input::Acquired(Ok(None)));
    assert_eq!(step.call, Some(Call::Observe));
    for _ in 0..5 {
        let step = driven.feed(seen(released("other", 1, driven.db())));
        assert!(matches!(step.call, Some(Call::Acquire { .. })), "{step:?}");
        let step = driven.feed(Input::Acquired(Ok(None)));
        assert_eq!(step.call, None);
        assert_eq!(driven.next_call(step.wake_at), Some((Call::Observe, 3_000)));
    }
    // A row that has to be waited for forgets that, since the race is over.
    driven.feed(Input::Tick);
    driven.feed(seen(lease("other", 2, driven.db(), driven.db())));
    driven.now += 60_000;
    driven.feed(Input::Tick);
    let step = driven.feed(seen(released("other", 2, driven.db())));
    assert!(matches!(step.call, Some(Call::Acquire { .. })), "{step:?}");
    assert_eq!(driven.feed(Input::Acquired(Ok(None))).call, Some(Call::Observe));
    // So does a win.
    let step = driven.feed(seen(released("other", 3, driven.db())));
    assert!(step.call.is_some());
    driven.feed(Input::Acquired(Ok(Some(driven.mine(4)))));
    driven.feed(Input::Ended(fence(4)));
    driven.now += 60_000;
    driven.feed(seen(released("other", 5, driven.db())));
    assert_eq!(driven.feed(Input::Acquired(Ok(None))).call, Some(Call::Observe));
}

#[test]
fn whoever_resigned_lets_others_bid_first() {
    let mut driven = holding();
    driven.feed(Input::Campaign);
    driven.feed(Input::Resign { fence: fence(1), release: true });
    let resigned = driven.now;
    let mut step = driven.feed(Input::Released);
    loop {
        let call = match step.call.take() {
            Some(call) => call,
            None => driven.next_call(step.wake_at).unwrap().0,
        };
        if matches!(call, Call::Acquire { .. }) {
            break;
        }
        step = driven.feed(seen(released(ME, 1, 100_000)));
    }
    assert_eq!(driven.now - resigned, 5_000, "1.25 retry periods");
}

#[test]
fn a_wake_up_is_never_for_nothing_whatever_happens() {
    for seed in 0..400 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut driven = Driven::new(settings());
        let (started, mut calls) = (driven.now, 0);
        let mut open: Option<Call> = None;
        for _ in 0..300 {
            let input = match open.take() {
                Some(call) if rng.u32(..4) > 0 => answer(&mut rng, &driven, &call),
                kept => {
                    open = kept;
                    request(&mut rng)
                }
            };
            driven.now += if rng.bool() { 0 } else { rng.u64(..4_000) };
            let mut step = driven.feed(input);
            // Follows every wake-up that is due: there may be one or two, not a thousand.
            for round in 0.. {
                assert!(round < 3, "seed {seed}: {:?}", driven.election);
                calls += u64::from(step.call.is_some());
                open = step.call.or(open);
                match step.wake_at {
                    Some(at) if at <= driven.time() && open.is_none() => step = driven.feed(Input::Tick),
                    _ => break,
                }
            }
        }
        // Not a bound of the machine's own, as requests can come at any pace; but no flood either.
        assert!(calls <= 300 + (driven.now - started) / 1_000, "seed {seed}: {calls} calls");
    }
}

fn request(rng: &mut fastrand::Rng) -> Input {
    match rng.u32(..9) {
        0 => Input::Withdraw,
        1 => Input::RenewNow,
        2 => Input::Resign { fence: fence(rng.i64(1..20)), release: rng.bool() },
        3 => Input::Ended(fence(rng.i64(1..20))),
        4..=6 => Input::Campaign,
        _ => Input::Tick,
    }
}

fn answer(rng: &mut fastrand::Rng, driven: &Driven, call: &Call) -> Input {
    let now = driven.db();
    let holder = if rng.bool() { ME } else { "other" };
    let row = lease(holder, rng.i64(1..20), now - rng.i64(0..20_000), now);
    match (call, rng.u32(..3)) {
        (Call::Observe, 0) => Input::Observed(Err(Trouble::Error)),
        (Call::Observe, 1) => vacant(),
        (Call::Observe, _) => seen(row),
        (Call::Acquire { .. }, 0) => Input::Acquired(Ok(None)),
        (Call::Acquire { .. }, 1) => Input::Acquired(Err(Trouble::Panic)),
        (Call::Acquire { above, .. }, _) => Input::Acquired(Ok(Some(driven.mine(above + 1)))),
        (Call::Renew { .. }, 0) => Input::Renewed(Ok(None)),
        (Call::Renew { .. }, 1) => Input::Renewed(Err(Trouble::Error)),
        (Call::Renew { fence }, _) => Input::Renewed(Ok(Some(driven.mine(fence.get())))),
        (Call::Release { .. }, _) => Input::Released,
    }
}

/// Of two renewals, 4 s apart, the second was half a second ago.
fn after_two_renewals_by(holder: &str) -> (Driven, Step) {
    let mut driven = Driven::new(Settings { retry_period: ms(6_000), ..settings() });
    assert_eq!(driven.feed(Input::Campaign).call, Some(Call::Observe));
    let begun = driven.db();
    let step = driven.feed(seen(lease(holder, 1, begun, begun)));
    assert_eq!(driven.next_call(step.wake_at), Some((Call::Observe, 4_500)));
    let step = driven.feed(seen(lease(holder, 1, begun + 4_000, begun + 4_500)));
    (driven, step)
}

#[test]
fn a_candidate_looks_behind_the_next_renewal_of_somebody_else() {
    let (driven, step) = after_two_renewals_by("other");
    let wake_at = step.wake_at.unwrap();
    assert!(driven.in_ms(3_500) < wake_at && wake_at < driven.in_ms(4_000), "{wake_at:?}");
    // What it wrote itself, and has given up, has no next renewal.
    let (driven, step) = after_two_renewals_by(ME);
    assert_eq!(step.wake_at, Some(driven.in_ms(4_500)));
}

/// A row that is gone has no next renewal to look behind.
#[test]
fn no_renewal_is_due_where_there_is_no_row() {
    let mut driven = Driven::new(Settings { retry_period: ms(2_000), ..settings() });
    assert_eq!(driven.feed(Input::Campaign).call, Some(Call::Observe));
    let begun = driven.db();
    let row = |renewed| move |now| seen(lease("other", 1, begun + renewed, begun + now));
    let (first, second) = (row(0), row(5_000));
    // It is due at 10 s. The row goes at 7.5 s.
    let answers = [first(0), first(1_500), first(3_000), first(4_500), second(6_000), vacant(), vacant()];
    for answer in answers {
        let step = driven.feed(answer);
        assert_eq!(driven.next_call(step.wake_at), Some((Call::Observe, 1_500)), "at {}", driven.now);
    }
}
