//! Where one thing stops and the next begins: withdrawn bids, late resignations, who is idle and who waits.

use super::*;

#[test]
fn a_bid_that_was_withdrawn_is_tidied_up_only_where_its_outcome_is_unknown() {
    let withdrawn = || {
        let mut driven = bidding();
        assert_eq!(driven.feed(Input::Withdraw).call, None, "the bid is under way");
        assert_eq!(driven.phase(), "tidying");
        driven
    };
    let mut driven = withdrawn();
    let step = driven.feed(Input::Acquired(Ok(None)));
    assert_eq!((driven.phase(), step.call, step.wake_at), ("idle", None, None), "it was lost for certain");
    let mut driven = withdrawn();
    let step = driven.feed(Input::Acquired(Err(Trouble::Error)));
    assert_eq!((driven.phase(), step.call), ("tidying", Some(Call::Observe)));
}

#[test]
fn idle_is_who_wants_nothing_and_waits_for_no_answer() {
    assert!(Driven::new(settings()).election.is_idle());
    for make in [candidate, bidding, holding, winding_down, releasing, tidying, waiting] {
        let driven = make();
        assert!(!driven.election.is_idle(), "{}", driven.phase());
    }
    // Given up, but the answer is still to come.
    let mut driven = candidate();
    driven.feed(Input::Withdraw);
    assert_eq!((driven.phase(), driven.election.is_idle()), ("idle", false));
    driven.feed(vacant());
    assert!(driven.election.is_idle());
}

#[test]
fn what_tests_may_see_of_the_hold_off_is_what_holds() {
    let mut driven = candidate();
    assert_eq!((driven.election.premise(), driven.election.free_at()), (None, None), "nothing is known");
    let theirs = driven.theirs(1);
    driven.feed(seen(theirs.clone()));
    assert_eq!(driven.election.premise(), Some(theirs.version()));
    assert_eq!(driven.election.free_at(), Some(driven.in_ms(15_000)));
}

/// A resignation is the end of the term, however late the step comes; the expiry is not reported as well.
#[test]
fn a_term_that_was_resigned_does_not_expire_too() {
    let mut driven = holding();
    let step = driven.after(13_500, Input::Resign { fence: fence(1), release: true });
    assert_eq!((step.term, step.call), (None, Some(Call::Release { fence: fence(1) })));
    let mut driven = holding();
    let step = driven.after(13_500, Input::Resign { fence: fence(2), release: true });
    let cause = LossCause::Expired;
    assert_eq!(step.term, Some(TermChange::End { fence: fence(1), cause }), "it was another term");
}

/// An answer wakes it; of its own accord only a deadline does.
#[test]
fn who_waits_for_an_answer_is_woken_by_a_deadline_only() {
    let mut driven = Driven::new(settings());
    let step = driven.feed(Input::Campaign);
    assert_eq!((step.call, step.wake_at), (Some(Call::Observe), None));
    let step = driven.feed(vacant());
    assert!(matches!(step.call, Some(Call::Acquire { .. })));
    assert_eq!(step.wake_at, None);
    let mut driven = holding();
    let deadline = driven.in_ms(13_500);
    let step = driven.after(5_000, Input::Tick);
    assert_eq!((step.call, step.wake_at), (Some(Call::Renew { fence: fence(1) }), Some(deadline)));
    let step = driven.feed(Input::Resign { fence: fence(1), release: true });
    assert_eq!((step.call, step.wake_at), (None, None));
}

#[test]
fn rule_10_a_grant_that_shows_somebody_elses_lease_is_no_write_of_ones_own() {
    // As bids and renewals are answered by a store that is not as it must be.
    let answers: [fn() -> (Driven, Input); 2] = [
        || {
            let driven = bidding();
            let theirs = driven.theirs(1);
            (driven, Input::Acquired(Ok(Some(theirs))))
        },
        || {
            let mut driven = holding();
            driven.feed(Input::Campaign);
            driven.after(5_000, Input::Tick);
            let theirs = driven.theirs(2);
            (driven, Input::Renewed(Ok(Some(theirs))))
        },
    ];
    for answer in answers {
        let (mut driven, input) = answer();
        let (since, shown) = (driven.now, driven.db());
        let number = if matches!(input, Input::Renewed(_)) { 2 } else { 1 };
        let mut step = driven.feed(input);
        loop {
            match step.call.take().or_else(|| driven.next_call(step.wake_at).map(|(call, _)| call)) {
                Some(Call::Observe) => {}
                Some(Call::Acquire { .. }) => break,
                other => panic!("{other:?}"),
            }
            step = driven.feed(seen(lease("other", number, shown, driven.db())));
        }
        assert!(driven.now - since >= 14_625, "bids for a live lease after {} ms", driven.now - since);
    }
}
