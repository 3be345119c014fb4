//! Regions that are to lead, and one that is to lead only where they do not.

use std::time::{Duration, Instant};

use tenure::{Elector, LeaderGuard, MemoryStore};

use crate::faulty::{Faulty, Kind, Mode};
use crate::util::*;

/// Longer than any machine stands still, and than a lease.
const DELAY: Duration = ms(20_000);

/// Waits for leadership in a thread of its own, and stops there when it is told to.
fn waits(elector: &Elector) -> std::thread::JoinHandle<Option<LeaderGuard>> {
    let waiting = elector.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().ok());
    eventually("a candidate that has looked", || elector.status().observed_age.is_some());
    waiter
}

#[test]
fn the_preferred_participant_wins_every_hand_over() {
    let store = MemoryStore::new();
    // It looks far more often, so without its delay it would win almost always.
    let other = start(&store, calm().takeover_delay(DELAY).retry_period(ms(5)));
    let first = start(&store, calm());
    let mut guard = first.wait_for_leadership().unwrap();
    let reserve = waits(&other);
    for round in 0..5 {
        let preferred = start(&store, calm());
        let waiter = waits(&preferred);
        guard.resign().unwrap();
        guard = waiter.join().unwrap().unwrap();
        assert!(guard.is_leader() && !other.is_leader(), "in round {round}");
    }
    other.stop();
    assert!(reserve.join().unwrap().is_none());
    assert_eq!((guard.fence().get(), other.status().terms), (6, 0));
}

#[test]
fn the_preferred_participant_wins_after_a_crash() {
    let store = Faulty::new();
    let memory = store.memory().clone();
    let leader = start(&store, brisk());
    std::mem::forget(leader.wait_for_leadership().unwrap());
    let other = start(&memory, brisk().takeover_delay(DELAY).retry_period(ms(5)));
    let preferred = start(&memory, brisk());
    let (reserve, waiter) = (waits(&other), waits(&preferred));
    store.set_all(&Mode::Hang);
    store.wait_until_hanging(Kind::Renew);
    assert!(waiter.join().unwrap().is_some());
    other.stop();
    assert!(reserve.join().unwrap().is_none());
    store.set_all(&Mode::Pass);
}

#[test]
fn where_only_the_other_one_is_left_it_leads_after_its_delay() {
    let store = MemoryStore::new();
    let other = start(&store, calm().takeover_delay(ms(800)));
    let first = start(&store, calm());
    let guard = first.wait_for_leadership().unwrap();
    let reserve = waits(&other);
    let given_up = Instant::now();
    guard.resign().unwrap();
    let guard = reserve.join().unwrap().unwrap();
    assert!(given_up.elapsed() >= ms(800), "{:?}", given_up.elapsed());
    // What it has lost by a leap of the clock it takes again at once: everybody else has to wait for it.
    let waiting = other.clone();
    let again = std::thread::spawn(move || waiting.wait_for_leadership().ok());
    store.step_clock(3_600_000_000);
    let next = again.join().unwrap().unwrap();
    assert!(next.fence() > guard.fence() && !guard.is_leader());
}

#[test]
fn b16_a_delay_that_no_election_outlasts_is_refused_by_name() {
    let error = calm().takeover_delay(Duration::from_secs(40 * 86_400)).build().unwrap_err();
    assert_eq!(error.field(), "takeover_delay");
}
