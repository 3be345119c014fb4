//! From one leader to the next.

use std::time::Instant;

use tenure::{LossCause, MemoryStore, Role};

use crate::faulty::{Faulty, Kind, Mode};
use crate::util::*;

#[track_caller]
fn fences_rise(store: &MemoryStore, terms: usize) {
    let history = store.history(NAME);
    assert!(history.windows(2).all(|w| w[0].0 < w[1].0), "{history:?}");
    assert_eq!(history.len(), terms, "{history:?}");
}

#[test]
fn a_first_candidate_leads_and_a_second_waits() {
    let store = MemoryStore::new();
    let (first, second) = (start(&store, calm()), start(&store, calm()));
    let guard = first.wait_for_leadership().unwrap();
    assert_eq!(guard.check().unwrap().get(), 1);
    assert!(first.is_leader() && first.fence() == Some(guard.fence()));
    assert!(second.wait_for_leadership_timeout(ms(500)).is_err());
    assert!(!second.is_leader() && second.fence().is_none());
    assert!(guard.is_leader());
    fences_rise(&store, 1);
}

#[test]
fn a_resignation_or_a_drop_hands_over_within_one_poll_with_a_higher_fence() {
    for resign in [true, false] {
        let store = MemoryStore::new();
        let (first, second) = (start(&store, calm()), start(&store, calm()));
        let guard = first.wait_for_leadership().unwrap();
        let fence = guard.fence();
        let waiting = second.clone();
        let waiter = std::thread::spawn(move || {
            let guard = waiting.wait_for_leadership().unwrap();
            (guard.check().unwrap(), Instant::now(), guard)
        });
        eventually("a candidate that has looked", || second.status().observed_age.is_some());
        let given_up = Instant::now();
        if resign {
            guard.resign().unwrap();
            assert!(is_released(&store) || second.is_leader());
        } else {
            drop(guard);
        }
        assert!(!first.is_leader());
        let (next, at, _guard) = waiter.join().unwrap();
        assert!(next > fence);
        // A poll is due within 100 ms; the rest is for a slow machine, and far below the lease.
        assert!(at.duration_since(given_up) < ms(3_000));
        fences_rise(&store, 2);
    }
}

#[test]
fn a_participant_that_resigned_lets_others_go_first() {
    let store = MemoryStore::new();
    // The other one looks at least once in a retry period; the one that resigned waits for 1.25 of them.
    let retry = |config: tenure::ConfigBuilder| config.retry_period(ms(1_500));
    let (first, second) = (start(&store, retry(calm())), start(&store, retry(calm())));
    let guard = first.wait_for_leadership().unwrap();
    let waiting = second.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    eventually("a candidate that has looked", || second.status().observed_age.is_some());
    guard.resign().unwrap();
    let again = first.clone();
    let back = std::thread::spawn(move || again.wait_for_leadership().is_ok());
    let guard = waiter.join().unwrap();
    assert_eq!(guard.fence().get(), 2);
    assert!(!first.is_leader());
    first.stop();
    assert!(!back.join().unwrap());
}

#[test]
fn rule_10_a_crashed_leader_is_followed_after_its_lease_and_not_before() {
    let store = Faulty::new();
    let memory = store.memory().clone();
    let leader = start(&store, brisk());
    let guard = leader.wait_for_leadership().unwrap();
    store.wait_for_call(Kind::Renew);
    // From here on nothing of it gets through: as far as anybody else can tell it is dead.
    store.set_all(&Mode::Hang);
    store.wait_until_hanging(Kind::Renew);
    std::mem::forget(guard);
    let expiry = row(&memory).unwrap().expires_at();
    let second = start(&memory, brisk());
    let guard = within(BOUND, move || second.wait_for_leadership().unwrap());
    assert_eq!(guard.fence().get(), 2);
    assert!(row(&memory).unwrap().acquired_at() >= expiry);
    assert!(!leader.is_leader());
    fences_rise(&memory, 2);
    store.set_all(&Mode::Pass);
}

#[test]
fn b14_a_guard_that_nobody_holds_leaves_nothing_half_held() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let events = elector.events();
    let _ = elector.wait_for_leadership().unwrap();
    assert!(!elector.is_leader() && elector.status().role == Role::Idle);
    eventually("the release", || is_released(&store));
    assert_eq!(wait_for_terms(&events, 2), [(1, None), (1, Some(LossCause::Resigned))]);
    let untouched = store.snapshot(NAME);
    std::thread::sleep(ms(600));
    assert_eq!(store.snapshot(NAME), untouched, "it goes on renewing");
}

#[test]
fn a_temporary_elector_does_not_end_the_term_and_the_guard_ends_the_threads() {
    let store = Faulty::new();
    let guard = start(&store, calm()).wait_for_leadership().unwrap();
    store.wait_for_call(Kind::Renew);
    store.wait_for_call(Kind::Renew);
    assert!(guard.is_leader());
    let events_of_a_dead_elector = guard.lost().clone();
    drop(guard);
    eventually("the release", || is_released(&store));
    assert!(events_of_a_dead_elector.recv_timeout(BOUND).is_ok());
    // The threads own the store; nobody else's handle is left but this one.
    let probe = std::sync::Arc::new(store.clone());
    let guard = start(&probe, calm()).wait_for_leadership().unwrap();
    assert!(std::sync::Arc::strong_count(&probe) > 1);
    drop(guard);
    eventually("the end of the threads", || std::sync::Arc::strong_count(&probe) == 1);
}

#[test]
fn b14_a_forgotten_guard_is_ended_by_a_shutdown() {
    let store = Faulty::new();
    let elector = start(&store, brisk());
    let guard = elector.wait_for_leadership().unwrap();
    let term = guard.term();
    std::mem::forget(guard);
    store.wait_for_call(Kind::Renew);
    assert!(elector.is_leader(), "held until then");
    let error = within(BOUND, move || elector.shutdown(ms(50))).unwrap_err();
    assert_eq!(error.to_string(), "work is still running after the grace; the lease was left to expire");
    assert_eq!(term.check().unwrap_err().cause, LossCause::Stopped);
    assert!(!is_released(&store));
    eventually("the expiry", || !is_held(&store));
}

#[test]
fn b15_the_same_label_twice_is_two_participants() {
    let store = Faulty::new();
    let (first, second) = (start(&store, calm()), start(&store, calm()));
    assert_ne!(first.identity(), second.identity());
    let guard = first.wait_for_leadership().unwrap();
    let before = store.calls(Kind::Observe);
    let waiting = second.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership());
    eventually("some looks", || store.calls(Kind::Observe) >= before + 4);
    assert!(guard.is_leader() && !second.is_leader());
    second.stop();
    assert!(waiter.join().unwrap().is_err());
}

#[test]
fn min_fence_lifts_the_first_fence() {
    let store = MemoryStore::new();
    let elector = start(&store, calm().min_fence(41));
    assert_eq!(elector.wait_for_leadership().unwrap().fence().get(), 42);
    let next = start(&store, calm());
    assert_eq!(next.wait_for_leadership().unwrap().fence().get(), 43);
}

#[test]
fn without_release_on_exit_the_lease_is_left_to_expire() {
    let store = Faulty::new();
    let elector = start(&store, brisk().release_on_exit(false));
    let guard = elector.wait_for_leadership().unwrap();
    guard.resign().unwrap();
    assert!(!elector.is_leader());
    assert_eq!(store.calls(Kind::Release), 0);
    let expiry = row(&store).unwrap().expires_at();
    let other = start(&store, brisk());
    let guard = other.wait_for_leadership().unwrap();
    assert!(row(&store).unwrap().acquired_at() >= expiry);
    assert_eq!(guard.fence().get(), 2);
}
