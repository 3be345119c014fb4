//! What an operator learns: which error, which step, who took over, and how close it came.

use std::time::Duration;

use crossbeam_channel::Receiver;
use tenure::{
    Bid, Elector, Event, LossCause, ManualClock, MemoryStore, Operation, Role, Store, StoreError, Time,
};

use crate::faulty::{Faulty, Kind, Mode};
use crate::util::*;

/// Reads events until one fits, and gives what it says.
#[track_caller]
fn wait_for<T>(events: &Receiver<Event>, what: &str, fits: impl Fn(&Event) -> Option<T>) -> T {
    let mut found = None;
    eventually(what, || {
        found = events.try_iter().find_map(|event| fits(&event));
        found.is_some()
    });
    found.unwrap()
}

fn lost(event: &Event) -> Option<(LossCause, Option<StoreError>, Duration)> {
    match event {
        Event::Lost { cause, error, stalled, .. } => Some((*cause, error.clone(), *stalled)),
        _ => None,
    }
}

fn no_right() -> StoreError {
    let cause = std::io::Error::other("what the driver said");
    StoreError::fatal("permission denied").with_sqlstate("42501").with_source(cause)
}

#[test]
fn b01_a_term_that_expired_says_which_error_kept_it_from_being_renewed() {
    let store = Faulty::new();
    let elector = start(&store, brisk());
    let events = elector.events();
    let guard = elector.wait_for_leadership().unwrap();
    store.set(&[Kind::Renew], &Mode::Fail(no_right()));
    let failed = wait_for(&events, "the failure", |event| match event {
        Event::Failed { operation, error, .. } => Some((*operation, error.clone())),
        _ => None,
    });
    assert_eq!((failed.0, failed.1.sqlstate()), (Operation::Renew, Some("42501")));
    assert!(std::error::Error::source(&failed.1).is_some());
    let (cause, error, _) = wait_for(&events, "the end", lost);
    assert_eq!(cause, LossCause::Expired);
    let error = error.expect("the last error");
    assert_eq!((error.sqlstate(), error.is_fatal()), (Some("42501"), true));
    assert!(std::error::Error::source(&error).is_none(), "foreign code is not for the watchdog to drop");
    drop(guard);
    let status = elector.status();
    assert!(status.failures >= 2, "{status:?}");
    assert_eq!(
        (status.failures_by_kind.fatal, status.failures_by_operation.renew),
        (status.failures, status.failures)
    );
    assert_eq!((status.losses.expired, status.losses.total()), (1, 1));
}

#[test]
fn an_error_that_passed_is_not_blamed_for_a_later_end() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    let events = elector.events();
    let guard = elector.wait_for_leadership().unwrap();
    store.set(&[Kind::Renew], &Mode::Fail(no_right()));
    eventually("failures", || elector.status().failures >= 2);
    store.set_all(&Mode::Pass);
    let (failures, after) = wait_for(&events, "the recovery", |event| match event {
        Event::Recovered { failures, after, .. } => Some((*failures, *after)),
        _ => None,
    });
    assert!(failures >= 2 && after > Duration::ZERO, "{failures} in {after:?}");
    // From here on it just hangs: there is no error.
    store.set(&[Kind::Renew], &Mode::Hang);
    let (cause, error, _) = wait_for(&events, "the end", lost);
    assert!(cause == LossCause::Expired && error.is_none(), "{error:?}");
    store.set_all(&Mode::Pass);
    drop(guard);
}

#[test]
fn b12_a_store_that_panicked_is_named_with_the_end_of_the_term() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    let events = elector.events();
    let guard = elector.wait_for_leadership().unwrap();
    store.set(&[Kind::Renew], &Mode::Panic);
    let (cause, error, _) = wait_for(&events, "the end", lost);
    assert_eq!(cause, LossCause::Failed);
    assert!(error.is_some_and(|error| error.to_string().starts_with("the store panicked")));
    store.set_all(&Mode::Pass);
    drop(guard);
}

#[test]
fn b02_b03_a_process_that_stood_still_says_for_how_long() {
    let mut all = Vec::new();
    // Whoever stands still before the watchdog waits for the first time is not told of: then once more.
    for _ in 0..10 {
        let clock = ManualClock::new(Time::from_nanos(5_000_000_000));
        let config = calm().build().unwrap();
        let elector = Elector::start_with_clock(MemoryStore::new(), config, clock.clone()).unwrap();
        let events = elector.events();
        let _guard = elector.wait_for_leadership().unwrap();
        clock.advance(ms(500));
        eventually("a renewal", || elector.status().renewals >= 1);
        clock.advance(ms(60_000));
        let (cause, error, stalled) = wait_for(&events, "the end", lost);
        assert!(cause == LossCause::Expired && error.is_none(), "{cause} {error:?}");
        if (ms(59_000)..=ms(60_500)).contains(&stalled) {
            return;
        }
        all.push(stalled);
    }
    panic!("stood still for 60 s, and says {all:?}");
}

/// Takes the lease away as somebody does who does not know the rules.
fn usurp(store: &MemoryStore, holder: &str) {
    let seen = store.observe(NAME, BOUND).unwrap().into_lease().unwrap();
    let bid = Bid::new(NAME, holder, ms(60_000)).above(seen.fence().get()).over(Some(seen.version()));
    assert!(store.acquire(&bid, BOUND).unwrap().is_some());
}

#[test]
fn a_superseded_leader_learns_who_leads_though_it_wants_nothing_any_more() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    let events = elector.events();
    let guard = elector.wait_for_leadership().unwrap();
    usurp(store.memory(), "usurper");
    let leader = wait_for(&events, "who took over", |event| match event {
        Event::Observed { leader, .. } => Some(leader.clone()),
        _ => None,
    });
    assert_eq!((leader.holder.as_str(), leader.fence.get()), ("usurper", 2));
    assert_eq!(
        guard.check().unwrap_err().cause,
        LossCause::Superseded,
        "rule 18: over before anybody looked"
    );
    assert_eq!(elector.status().leader.as_deref(), Some("usurper"));
    eventually("the count", || elector.status().losses.superseded == 1);
    let looks = store.calls(Kind::Observe);
    std::thread::sleep(ms(300));
    assert_eq!(store.calls(Kind::Observe), looks, "once is enough");
}

#[test]
fn a_leader_whose_lease_ran_out_by_a_leap_of_the_clock_learns_of_the_leap() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let events = elector.events();
    let guard = elector.wait_for_leadership().unwrap();
    store.step_clock(3_600_000_000);
    let by = wait_for(&events, "the leap", |event| match event {
        Event::ClockStepped { forward: true, by, .. } => Some(*by),
        _ => None,
    });
    assert!(by >= ms(3_590_000) && by <= ms(3_600_000), "{by:?}");
    assert!(guard.check().is_err());
    assert_eq!(elector.status().clock_steps, 1);
}

#[test]
fn rule_18_the_look_at_the_successor_delays_no_end() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    let guard = elector.wait_for_leadership().unwrap();
    store.set(&[Kind::Observe], &Mode::Hang);
    usurp(store.memory(), "usurper");
    assert_eq!(guard.lost().recv_timeout(BOUND).unwrap().cause, LossCause::Superseded);
    store.wait_until_hanging(Kind::Observe);
    assert!(!elector.is_leader() && elector.status().role == Role::Idle);
    store.set_all(&Mode::Pass);
}

#[test]
fn a_hand_over_is_told_with_its_result() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    let events = elector.events();
    elector.wait_for_leadership().unwrap().resign().unwrap();
    let released = |event: &Event| match event {
        Event::Released { fence, .. } => Some((fence.get(), None)),
        Event::ReleaseFailed { fence, error, .. } => Some((fence.get(), Some(error.to_string()))),
        _ => None,
    };
    assert_eq!(wait_for(&events, "the release", released), (1, None));
    let guard = elector.wait_for_leadership().unwrap();
    store.set(&[Kind::Release], &Mode::Fail(StoreError::retryable("gone")));
    guard.resign().unwrap_err();
    let all: Vec<Event> = events.try_iter().collect();
    assert_eq!(all.iter().find_map(released), Some((2, Some("gone".to_owned()))), "{all:?}");
    assert!(!all.iter().any(|event| matches!(event, Event::Failed { .. })), "told once: {all:?}");
    assert_eq!(elector.status().failures_by_operation.release, 1);
}

#[test]
fn campaigns_begin_and_end() {
    let store = MemoryStore::new();
    let (elector, other) = (start(&store, calm()), start(&store, calm()));
    let events = elector.events();
    let campaigns = || -> Vec<&str> {
        let name = |event| match event {
            Event::CampaignStarted { .. } => Some("started"),
            Event::CampaignEnded { .. } => Some("ended"),
            Event::Elected { .. } => Some("elected"),
            _ => None,
        };
        events.try_iter().filter_map(name).collect()
    };
    let guard = other.wait_for_leadership().unwrap();
    assert!(elector.wait_for_leadership_timeout(ms(100)).is_err());
    eventually("an idle participant", || elector.status().role == Role::Idle);
    let mut told = campaigns();
    eventually("the end of the first", || {
        told.extend(campaigns());
        told == ["started", "ended"]
    });
    guard.resign().unwrap();
    let _guard = elector.wait_for_leadership().unwrap();
    let mut told = campaigns();
    eventually("the end of the second", || {
        told.extend(campaigns());
        told == ["started", "elected", "ended"]
    });
}

#[test]
fn renewals_say_how_long_they_took_and_how_much_was_left() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    let events = elector.events();
    let guard = elector.wait_for_leadership().unwrap();
    let status = elector.status();
    assert_eq!((status.round_trip, status.headroom), (None, None), "nothing was renewed yet");
    assert!(status.renewed_age.unwrap() < BOUND);
    store.set(&[Kind::Renew], &Mode::Delay(ms(300)));
    let slow = |event: &Event| match event {
        Event::Renewed { took, headroom, remaining, .. } if *took >= ms(300) => Some((*headroom, *remaining)),
        _ => None,
    };
    let (headroom, remaining) = wait_for(&events, "a slow renewal", slow);
    // 200 ms from the last send to this one, 300 ms for the answer, and the term is counted from the send.
    assert!(headroom <= ms(7_500 - 500) && remaining <= ms(7_500 - 300), "{headroom:?} {remaining:?}");
    assert!(headroom < remaining);
    store.set_all(&Mode::Pass);
    let renewals = elector.status().renewals;
    eventually("quick ones", || elector.status().renewals >= renewals + 3);
    let status = elector.status();
    assert!(status.worst_round_trip.unwrap() >= ms(300), "{status:?}");
    assert!(status.round_trip <= status.worst_round_trip, "{status:?}");
    assert!(
        status.least_headroom.unwrap() <= headroom && status.least_headroom <= status.headroom,
        "{status:?}"
    );
    assert!(status.renewed_age.unwrap() + status.remaining.unwrap() <= ms(7_500 + 100), "{status:?}");
    guard.resign().unwrap();
    assert_eq!(elector.status().renewed_age, None);
}

#[test]
fn a_role_is_told_with_how_long_it_has_lasted() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    std::thread::sleep(ms(60));
    let idle = elector.status();
    assert!(idle.role == Role::Idle && idle.in_role >= ms(60), "{idle:?}");
    let before = std::time::Instant::now();
    let guard = elector.wait_for_leadership().unwrap();
    assert!(elector.status().in_role <= before.elapsed());
    std::thread::sleep(ms(60));
    let leading = elector.status();
    assert!(leading.role == Role::Leader && leading.in_role >= ms(60), "{leading:?}");
    // Also while the renewal thread hears of nothing.
    store.set_all(&Mode::Hang);
    store.wait_until_hanging(Kind::Renew);
    let before = std::time::Instant::now();
    drop(guard);
    let idle = elector.status();
    assert!(idle.role == Role::Idle && idle.in_role <= before.elapsed(), "{idle:?}");
    store.set_all(&Mode::Pass);
}

#[test]
fn a_snapshot_never_counts_an_end_without_its_term() {
    let store = MemoryStore::new();
    let elector = start(&store, calm().retry_period(ms(1)));
    let looking = elector.clone();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let over = done.clone();
    let looker = std::thread::spawn(move || {
        let mut looks = 0_u32;
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            let status = looking.status();
            let live = u64::from(status.role == Role::Leader);
            assert!(status.losses.total() + live <= status.terms, "{status:?}");
            assert_eq!(status.fence.is_some(), live == 1);
            looks += 1;
        }
        looks
    });
    for _ in 0..200 {
        drop(elector.wait_for_leadership().unwrap());
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(looker.join().unwrap() > 200, "too few looks");
    eventually("the last end", || elector.status().losses.resigned == 200);
}
