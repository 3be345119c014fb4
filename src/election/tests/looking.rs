//! Who looks without wanting to lead: an observer, and a leader whose lease was taken away.

use super::*;

#[test]
fn rule_14_an_observer_looks_for_ever_and_makes_no_other_call() {
    let mut driven = Driven::new(Settings { observer: true, ..settings() });
    let mut step = driven.feed(Input::Campaign);
    for round in 0..200_u32 {
        let (call, _) = match step.call.take() {
            Some(call) => (call, 0),
            None => driven.next_call(step.wake_at).unwrap(),
        };
        assert_eq!(call, Call::Observe, "in round {round}");
        // Everything that would make a candidate bid, at one time or another.
        let answer = match round % 5 {
            0 => vacant(),
            1 => seen(released("other", 3, driven.db())),
            2 => seen(lease("other", 4, driven.db() - 60_000, driven.db())),
            3 => Input::Observed(Err(Trouble::Error)),
            _ => seen(lease(ME, 5, driven.db() - 60_000, driven.db())),
        };
        step = driven.feed(answer);
        for input in [Input::RenewNow, Input::Resign { fence: fence(5), release: true }] {
            step = driven.feed(input);
            assert_eq!((&step.call, &step.term), (&None, &None));
        }
    }
    driven.feed(Input::Stop);
    let step = driven.feed(Input::Tick);
    assert_eq!((driven.phase(), step.wake_at), ("idle", None));
}

/// A term that was just found taken away, while nobody waits for the next one.
fn superseded() -> (Driven, Step) {
    let mut driven = holding();
    driven.after(5_000, Input::Tick);
    let step = driven.feed(Input::Renewed(Ok(None)));
    let cause = LossCause::Superseded;
    assert_eq!((&step.term, &step.call), (&Some(TermChange::End { fence: fence(1), cause }), &None));
    (driven, step)
}

#[test]
fn whoever_lost_its_lease_to_somebody_looks_once_at_whom() {
    let (mut driven, step) = superseded();
    assert_eq!(driven.next_call(step.wake_at), Some((Call::Observe, 0)));
    let step = driven.feed(seen(driven.theirs(2)));
    assert_eq!((driven.phase(), step.call, step.wake_at), ("idle", None, None));
    let (mut driven, _) = superseded();
    driven.feed(Input::Tick);
    let step = driven.feed(Input::Observed(Err(Trouble::Error)));
    assert_eq!((driven.phase(), step.call, step.wake_at), ("idle", None, None), "once");
    // What it finds is not its own to release, even where it bears its name.
    let (mut driven, _) = superseded();
    driven.feed(Input::Tick);
    let step = driven.feed(seen(driven.mine(2)));
    assert_eq!((driven.phase(), step.call), ("idle", None));
}

#[test]
fn the_look_is_in_nobodys_way() {
    let (mut driven, _) = superseded();
    assert_eq!(driven.feed(Input::Campaign).call, Some(Call::Observe));
    assert_eq!(driven.phase(), "candidate");
    let (mut driven, _) = superseded();
    let step = driven.feed(Input::Stop);
    assert_eq!((driven.phase(), step.call, step.wake_at), ("idle", None, None));
    assert!(driven.election.is_idle());
    // Under way already: its answer is waited for, as any other's.
    let (mut driven, _) = superseded();
    driven.feed(Input::Tick);
    driven.feed(Input::Stop);
    assert!(!driven.election.is_idle());
    driven.feed(vacant());
    assert!(driven.election.is_idle());
    // A resignation of a term that expired earlier still releases it.
    let mut driven = holding();
    driven.after(13_500, Input::Tick);
    driven.feed(Input::Campaign);
    driven.feed(vacant());
    let mut step = driven.feed(Input::Tick);
    while step.call.is_none() {
        step = driven.after(1_000, Input::Tick);
        if step.call == Some(Call::Observe) {
            step = driven.feed(vacant());
        }
    }
    driven.feed(Input::Acquired(Ok(Some(driven.mine(2)))));
    driven.feed(Input::Withdraw);
    driven.after(5_000, Input::Tick);
    driven.feed(Input::Renewed(Ok(None)));
    assert_eq!(driven.phase(), "looking");
    let resign = Input::Resign { fence: fence(1), release: true };
    assert_eq!(driven.feed(resign).call, Some(Call::Release { fence: fence(1) }));
    // After its work has wound down there is nothing to look at: it is being stopped.
    let mut driven = winding_down();
    driven.after(5_000, Input::Tick);
    driven.feed(Input::Renewed(Ok(None)));
    assert_eq!(driven.phase(), "idle");
}
