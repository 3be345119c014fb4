//! The machine by itself: every input in every phase, and the ways out of a bid.

use std::time::Duration;

use super::*;
use crate::lease::{LeaseTimes, Timestamp};

mod delay;
mod edges;
mod looking;
mod pace;

const ME: &str = "me";

fn settings() -> Settings {
    Settings {
        identity: ME.to_owned(),
        lease_duration: ms(15_000),
        renew_interval: ms(5_000),
        retry_period: ms(4_000),
        retry_delay: ms(1_250),
        takeover_delay: ms(0),
        safety_margin: ms(1_500),
        longest_lease: Duration::from_secs(31 * 86_400),
        min_fence: 0,
        strict: false,
        release_on_exit: true,
        observer: false,
    }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn fence(fence: i64) -> Fence {
    Fence::try_from(fence).unwrap()
}

/// A row renewed at `renewed`, for 15 s, seen at `now`; both in milliseconds of the database's clock.
fn lease(holder: &str, number: i64, renewed: i64, now: i64) -> Lease {
    let at = |ms: i64| Timestamp::from_micros((1_000_000_000 + ms) * 1_000);
    let times = LeaseTimes {
        acquired_at: at(renewed),
        renewed_at: at(renewed),
        expires_at: at(renewed + 15_000),
        now: at(now),
    };
    Lease::new("e", holder, fence(number), times).with_mark(u64::try_from(renewed).unwrap_or(0) + 1)
}

fn released(holder: &str, number: i64, now: i64) -> Lease {
    let at = |ms: i64| Timestamp::from_micros((1_000_000_000 + ms) * 1_000);
    let times =
        LeaseTimes { acquired_at: at(now), renewed_at: at(now), expires_at: Timestamp::EPOCH, now: at(now) };
    Lease::new("e", holder, fence(number), times)
}

fn seen(lease: Lease) -> Input {
    Input::Observed(Ok(Observation::of(lease)))
}

fn vacant() -> Input {
    Input::Observed(Ok(Observation::vacant(None)))
}

/// A machine and a clock; the database's clock shows the same.
struct Driven {
    election: Election,
    now: u64,
}

impl Driven {
    fn new(settings: Settings) -> Driven {
        Driven { election: Election::new(settings), now: 100_000 }
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now * 1_000_000)
    }

    fn in_ms(&self, later: u64) -> Time {
        self.time() + ms(later)
    }

    fn db(&self) -> i64 {
        i64::try_from(self.now).unwrap()
    }

    /// The least jitter: three quarters of a period.
    fn feed(&mut self, input: Input) -> Step {
        self.election.step(self.time(), 0, input)
    }

    fn after(&mut self, ms: u64, input: Input) -> Step {
        self.now += ms;
        self.feed(input)
    }

    /// Ticks at the time that was asked for, until something is to be called or nothing will ever happen. Says
    /// what, and how long that took.
    fn next_call(&mut self, mut wake_at: Option<Time>) -> Option<(Call, u64)> {
        let started = self.now;
        for _ in 0..100 {
            let at = wake_at?;
            self.now = self.now.max(at.as_nanos() / 1_000_000);
            let step = self.feed(Input::Tick);
            if let Some(call) = step.call {
                return Some((call, self.now - started));
            }
            wake_at = step.wake_at;
        }
        panic!("wakes up for nothing: {:?}", self.election);
    }

    fn mine(&self, number: i64) -> Lease {
        lease(ME, number, self.db(), self.db())
    }

    fn theirs(&self, number: i64) -> Lease {
        lease("other", number, self.db(), self.db())
    }

    fn phase(&self) -> &'static str {
        match self.election.phase {
            Phase::Idle => "idle",
            Phase::Candidate { .. } => "candidate",
            Phase::Holding(Holding { winding_down: false, .. }) => "holding",
            Phase::Holding(_) => "winding down",
            Phase::Releasing { .. } => "releasing",
            Phase::Tidying => "tidying",
            Phase::Looking => "looking",
        }
    }
}

fn candidate() -> Driven {
    let mut driven = Driven::new(settings());
    assert_eq!(driven.feed(Input::Campaign).call, Some(Call::Observe));
    driven
}

fn bidding() -> Driven {
    let mut driven = candidate();
    let call = driven.feed(vacant()).call;
    assert_eq!(call, Some(Call::Acquire { over: None, timeline: None, above: 0 }));
    driven
}

/// Holds fence 1, nobody else waits.
fn holding() -> Driven {
    let mut driven = bidding();
    let step = driven.feed(Input::Acquired(Ok(Some(driven.mine(1)))));
    let deadline = driven.in_ms(13_500);
    assert_eq!(step.term, Some(TermChange::Begin { fence: fence(1), deadline }));
    assert_eq!((step.call, step.wake_at), (None, Some(driven.in_ms(5_000))));
    driven.feed(Input::Withdraw);
    driven
}

fn winding_down() -> Driven {
    let mut driven = holding();
    driven.feed(Input::Stop);
    driven
}

fn releasing() -> Driven {
    let mut driven = holding();
    driven.feed(Input::Resign { fence: fence(1), release: true });
    driven
}

fn releasing_and_wanted() -> Driven {
    let mut driven = releasing();
    driven.feed(Input::Campaign);
    driven
}

/// A bid whose outcome is unknown, and nobody who wants it.
fn tidying() -> Driven {
    let mut driven = bidding();
    driven.feed(Input::Acquired(Err(Trouble::Error)));
    assert_eq!(driven.feed(Input::Withdraw).call, Some(Call::Observe));
    driven
}

fn waiting() -> Driven {
    let mut driven = candidate();
    let step = driven.feed(seen(driven.theirs(1)));
    assert_eq!((step.call, step.wake_at), (None, Some(driven.in_ms(3_000))));
    driven
}

#[test]
fn every_request_in_every_phase() {
    use LossCause::{Expired, Stopped};
    type Made = fn() -> Driven;
    type Case = (Made, Input, &'static str, Option<TermChange>, Option<Call>);
    let one = || fence(1);
    let end = |cause| Some(TermChange::End { fence: fence(1), cause });
    let resign = || Input::Resign { fence: fence(1), release: true };
    let renew = || Some(Call::Renew { fence: fence(1) });
    let release = || Some(Call::Release { fence: fence(1) });
    let cases: Vec<Case> = vec![
        (|| Driven::new(settings()), Input::Tick, "idle", None, None),
        (|| Driven::new(settings()), Input::Withdraw, "idle", None, None),
        (|| Driven::new(settings()), Input::Stop, "idle", None, None),
        (|| Driven::new(settings()), Input::Abandon, "idle", None, None),
        (|| Driven::new(settings()), Input::RenewNow, "idle", None, None),
        (|| Driven::new(settings()), resign(), "idle", None, None),
        (waiting, Input::Tick, "candidate", None, None),
        (waiting, Input::Campaign, "candidate", None, None),
        (waiting, Input::Withdraw, "idle", None, None),
        (waiting, Input::Stop, "idle", None, None),
        (waiting, Input::Abandon, "idle", None, None),
        (waiting, Input::RenewNow, "candidate", None, None),
        (waiting, resign(), "candidate", None, None),
        (waiting, Input::Ended(one()), "candidate", None, None),
        (bidding, Input::Withdraw, "tidying", None, None),
        (bidding, Input::Stop, "tidying", None, None),
        (bidding, Input::Tick, "candidate", None, None),
        (tidying, Input::Campaign, "candidate", None, None),
        (tidying, Input::Stop, "tidying", None, None),
        (holding, Input::Tick, "holding", None, None),
        (holding, Input::Campaign, "holding", None, None),
        (holding, Input::Withdraw, "holding", None, None),
        (holding, Input::RenewNow, "holding", None, renew()),
        (holding, Input::Stop, "winding down", end(Stopped), None),
        (holding, Input::Abandon, "idle", end(Stopped), None),
        (holding, Input::Ended(one()), "idle", None, None),
        (holding, Input::Ended(fence(2)), "holding", None, None),
        (holding, resign(), "releasing", None, release()),
        (holding, Input::Resign { fence: fence(1), release: false }, "idle", None, None),
        (holding, Input::Resign { fence: fence(2), release: true }, "holding", None, None),
        (winding_down, Input::Stop, "winding down", None, None),
        (winding_down, Input::Campaign, "winding down", None, None),
        (winding_down, Input::RenewNow, "winding down", None, renew()),
        (winding_down, Input::Ended(one()), "winding down", None, None),
        (winding_down, resign(), "releasing", None, release()),
        (winding_down, Input::Abandon, "idle", None, None),
        (releasing, Input::Tick, "releasing", None, None),
        (releasing, Input::Campaign, "releasing", None, None),
        (releasing, Input::Stop, "releasing", None, None),
        (releasing, Input::Abandon, "releasing", None, None),
        (releasing, Input::Released, "idle", None, None),
        (releasing_and_wanted, Input::Released, "candidate", None, None),
    ];
    for (make, input, phase, term, call) in cases {
        let mut driven = make();
        let what = format!("{} {input:?}", driven.phase());
        let step = driven.feed(input);
        assert_eq!((driven.phase(), step.term, step.call), (phase, term, call), "{what}");
    }
    // At the deadline, whatever comes: only a resignation knows better.
    let other = Input::Resign { fence: fence(7), release: true };
    for input in [Input::Tick, Input::RenewNow, Input::Withdraw, Input::Stop, Input::Ended(fence(7)), other] {
        let mut driven = holding();
        let what = format!("{input:?}");
        let step = driven.after(13_500, input);
        assert_eq!((driven.phase(), step.term, step.call), ("idle", end(Expired), None), "{what}");
    }
    let mut driven = holding();
    assert_eq!(driven.after(13_500, resign()).call, release());
    let mut driven = winding_down();
    let step = driven.after(13_500, Input::Tick);
    assert_eq!((driven.phase(), step.term, step.call), ("idle", None, None), "it was over already");
}

#[test]
fn a_resignation_that_waited_past_the_deadline_still_releases() {
    let resign = |release| Input::Resign { fence: fence(1), release };
    let expired = || {
        let mut driven = holding();
        assert!(driven.after(13_500, Input::Tick).term.is_some());
        driven
    };
    assert_eq!(expired().feed(resign(true)).call, Some(Call::Release { fence: fence(1) }));
    assert_eq!(expired().feed(resign(false)).call, None, "it was lost before it was resigned");
    let mut driven = expired();
    driven.feed(Input::Abandon);
    assert_eq!(driven.feed(resign(true)).call, None, "abandoned: left to expire");
    let mut driven = expired();
    driven.feed(resign(true));
    driven.feed(Input::Released);
    assert_eq!(driven.feed(resign(true)).call, None, "once is enough");
    // Also where somebody else waits already, who then lets others go first.
    let mut driven = expired();
    assert_eq!(driven.feed(Input::Campaign).call, Some(Call::Observe));
    driven.feed(Input::Observed(Err(Trouble::Error)));
    assert_eq!(driven.feed(resign(true)).call, Some(Call::Release { fence: fence(1) }));
    driven.feed(Input::Released);
    assert_eq!(driven.phase(), "candidate");
}

#[test]
fn answers_to_no_question_change_nothing() {
    let makers = [|| Driven::new(settings()), waiting, holding, winding_down];
    for make in makers {
        let answers: Vec<Input> = vec![
            vacant(),
            seen(make().theirs(9)),
            Input::Observed(Err(Trouble::Error)),
            Input::Acquired(Ok(Some(make().mine(9)))),
            Input::Acquired(Ok(None)),
            Input::Acquired(Err(Trouble::Panic)),
            Input::Renewed(Ok(Some(make().mine(1)))),
            Input::Renewed(Ok(None)),
            Input::Renewed(Err(Trouble::Panic)),
            Input::Released,
            Input::Ended(fence(9)),
            Input::Resign { fence: fence(9), release: true },
        ];
        for answer in answers {
            let mut driven = make();
            let (before, what) = (format!("{:?}", driven.election), format!("{} {answer:?}", driven.phase()));
            let step = driven.feed(answer);
            assert_eq!(format!("{:?}", driven.election), before, "{what}");
            assert!(step.call.is_none() && step.term.is_none() && step.notes.is_empty(), "{what}");
        }
    }
}

#[test]
fn an_answer_of_another_kind_leaves_the_call_open_or_ends_it_without_effect() {
    let mut driven = candidate();
    let step = driven.feed(Input::Renewed(Ok(Some(driven.mine(5)))));
    assert!(step.term.is_none() && step.call.is_none());
    assert_eq!(driven.phase(), "candidate");
    // And a second answer to the same question is one to none.
    let mut driven = bidding();
    let grant = || Input::Acquired(Ok(Some(lease(ME, 1, 100_000, 100_000))));
    assert!(matches!(driven.feed(grant()).term, Some(TermChange::Begin { .. })));
    assert!(driven.feed(grant()).term.is_none());
}

#[test]
fn rule_2_deadlines_count_from_the_send_and_never_for_more_than_was_asked() {
    let mut driven = bidding();
    let sent = driven.time();
    driven.now += 2_000;
    let step = driven.feed(Input::Acquired(Ok(Some(driven.mine(1)))));
    let deadline = sent + ms(13_500);
    assert_eq!(step.term, Some(TermChange::Begin { fence: fence(1), deadline }));
    assert_eq!(step.wake_at, Some(sent + ms(5_000)));
    // A renewal that grants an hour is believed for 15 s, one that grants 4 s for 4 s.
    for (granted, believed) in [(3_600_000, 13_500), (4_000, 2_500), (1_000, 0)] {
        let mut driven = holding();
        let sent = driven.in_ms(5_000);
        assert_eq!(driven.after(5_000, Input::Tick).call, Some(Call::Renew { fence: fence(1) }));
        let answer = lease(ME, 1, driven.db() + granted - 15_000, driven.db());
        let step = driven.feed(Input::Renewed(Ok(Some(answer))));
        let deadline = sent + ms(believed);
        assert_eq!(step.term, Some(TermChange::Extend { fence: fence(1), deadline }), "{granted}");
    }
}

#[test]
fn rule_9_a_renewal_that_matches_nothing_ends_the_term() {
    for (answer, cause) in [
        (Ok(None), LossCause::Superseded),
        (Ok(Some(lease("other", 1, 0, 0))), LossCause::Superseded),
        (Ok(Some(lease(ME, 2, 0, 0))), LossCause::Superseded),
        (Err(Trouble::Panic), LossCause::Failed),
    ] {
        let mut driven = holding();
        driven.after(5_000, Input::Tick);
        let step = driven.feed(Input::Renewed(answer));
        assert_eq!(step.term, Some(TermChange::End { fence: fence(1), cause }));
        assert_eq!(driven.phase(), if cause == LossCause::Superseded { "looking" } else { "idle" });
    }
}

#[test]
fn b08_a_bid_of_unknown_outcome_that_nobody_wants_is_tidied_up() {
    // It had landed.
    let mut driven = tidying();
    assert_eq!(driven.feed(seen(driven.mine(1))).call, Some(Call::Release { fence: fence(1) }));
    let step = driven.feed(Input::Released);
    assert_eq!((driven.phase(), step.call, step.wake_at), ("idle", None, None));
    // It had not, or somebody else was faster, or it is over, or nothing is known.
    let answers: [fn(&Driven) -> Input; 5] = [
        |_| vacant(),
        |driven| seen(driven.theirs(1)),
        |driven| seen(released(ME, 1, driven.db())),
        |driven| seen(lease(ME, 1, driven.db() - 15_000, driven.db())),
        |_| Input::Observed(Err(Trouble::Error)),
    ];
    for answer in answers {
        let mut driven = tidying();
        let answer = answer(&driven);
        let what = format!("{answer:?}");
        let step = driven.feed(answer);
        assert_eq!((driven.phase(), step.call, step.wake_at), ("idle", None, None), "{what}");
    }
    // Somebody wants it after all: no release in between.
    let mut driven = tidying();
    driven.feed(Input::Campaign);
    let step = driven.feed(seen(driven.mine(1)));
    assert_eq!((driven.phase(), step.call), ("candidate", None));
    let (call, _) = driven.next_call(step.wake_at).unwrap();
    assert!(matches!(call, Call::Acquire { over: Some(_), .. } | Call::Observe), "{call:?}");
}

#[test]
fn a_grant_that_nobody_waits_for_any_more_is_released() {
    for input in [Input::Withdraw, Input::Stop, Input::Abandon] {
        let mut driven = bidding();
        driven.feed(input);
        let step = driven.feed(Input::Acquired(Ok(Some(driven.mine(1)))));
        assert_eq!((step.term, step.call), (None, Some(Call::Release { fence: fence(1) })));
    }
}

#[test]
fn a_grant_that_is_useless_is_reported_and_paced() {
    let grants: [fn(&Driven) -> Lease; 3] = [
        |driven| driven.theirs(1),                                // Not ours.
        |driven| lease(ME, 1, driven.db() - 14_000, driven.db()), // Not longer than the margin.
        |driven| lease(ME, 1, driven.db() - 99_000, driven.db()), // Over.
    ];
    for grant in grants {
        let mut driven = bidding();
        let grant = grant(&driven);
        let step = driven.feed(Input::Acquired(Ok(Some(grant))));
        assert_eq!((step.term, step.call), (None, None));
        assert!(step.notes.contains(&Note::UselessGrant { fence: fence(1) }), "{:?}", step.notes);
        let (_, after) = driven.next_call(step.wake_at).unwrap();
        assert_eq!(after, 1_250);
    }
    // A fence that is not above all that were seen.
    let mut driven = Driven::new(Settings { min_fence: 50, ..settings() });
    driven.feed(Input::Campaign);
    assert_eq!(driven.feed(vacant()).call, Some(Call::Acquire { over: None, timeline: None, above: 50 }));
    let step = driven.feed(Input::Acquired(Ok(Some(driven.mine(50)))));
    assert!(step.term.is_none() && !step.notes.is_empty());
}

#[test]
fn winding_down_keeps_the_lease_and_moves_no_term() {
    let mut driven = winding_down();
    for _ in 0..10 {
        let step = driven.feed(Input::Tick);
        let (call, after) = driven.next_call(step.wake_at).unwrap();
        assert_eq!((call, after), (Call::Renew { fence: fence(1) }, 5_000));
        let step = driven.feed(Input::Renewed(Ok(Some(driven.mine(1)))));
        assert_eq!(step.term, None);
    }
    let step = driven.feed(Input::Resign { fence: fence(1), release: true });
    assert_eq!(step.call, Some(Call::Release { fence: fence(1) }));
    driven.feed(Input::Released);
    assert!(driven.election.is_idle());
    assert_eq!(driven.feed(Input::Campaign).call, None, "stopped is for good");
    // A refusal or a panic of the store while winding down has nothing to end.
    for answer in [Ok(None), Err(Trouble::Panic)] {
        let mut driven = winding_down();
        driven.after(5_000, Input::Tick);
        let step = driven.feed(Input::Renewed(answer));
        assert_eq!((driven.phase(), step.term, step.call), ("idle", None, None));
    }
}

#[test]
fn without_release_on_exit_nothing_is_released() {
    let mut driven = Driven::new(Settings { release_on_exit: false, ..settings() });
    driven.feed(Input::Campaign);
    driven.feed(vacant());
    driven.feed(Input::Acquired(Ok(Some(driven.mine(1)))));
    driven.feed(Input::Withdraw);
    let step = driven.feed(Input::Resign { fence: fence(1), release: true });
    assert_eq!((driven.phase(), step.call, step.wake_at), ("idle", None, None));
}

#[test]
fn an_answer_to_another_call_changes_nothing() {
    let mut driven = Driven::new(settings());
    assert_eq!(driven.feed(Input::Campaign).call, Some(Call::Observe));
    for stray in [Input::Acquired(Ok(None)), Input::Renewed(Ok(None)), Input::Released] {
        assert_eq!(driven.feed(stray).call, None);
        assert_eq!(driven.feed(Input::Tick).call, None, "the look is still under way");
    }
    assert!(matches!(driven.feed(vacant()).call, Some(Call::Acquire { over: None, .. })));
    let stray = Input::Observed(Err(Trouble::Error));
    assert_eq!(driven.feed(stray).call, None);
    let won = Input::Acquired(Ok(Some(driven.mine(1))));
    assert!(matches!(driven.feed(won).term, Some(TermChange::Begin { .. })));
}
