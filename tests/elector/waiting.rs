//! Waiting for leadership: timeouts, errors, several waiters.

use std::time::{Duration, Instant};

use tenure::{CampaignError, Event, LossCause, MemoryStore, Role, StoreError};

use crate::faulty::{Faulty, Kind, Mode};
use crate::util::*;

fn no_table() -> StoreError {
    StoreError::fatal("no table").with_sqlstate("42P01")
}

#[test]
fn a_zero_timeout_sends_nothing() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    for _ in 0..20 {
        let error = elector.wait_for_leadership_timeout(Duration::ZERO).unwrap_err();
        assert!(matches!(error, CampaignError::TimedOut), "{error}");
    }
    std::thread::sleep(ms(50));
    assert_eq!(store.all_calls(), 0);
}

#[test]
fn a_short_timeout_is_kept_also_while_the_store_hangs_and_leaves_nothing() {
    let store = Faulty::new();
    store.set_all(&Mode::Hang);
    let elector = start(&store, calm());
    let started = Instant::now();
    let error = elector.wait_for_leadership_timeout(ms(100)).unwrap_err();
    assert!(matches!(error, CampaignError::TimedOut), "{error}");
    assert!(started.elapsed() >= ms(100) && started.elapsed() < ms(3_000), "{:?}", started.elapsed());
    store.set_all(&Mode::Pass);
    eventually("an idle participant", || elector.status().role == Role::Idle);
    let calls = store.all_calls();
    std::thread::sleep(ms(300));
    assert!(store.all_calls() <= calls + 1, "it campaigns although nobody waits");
    assert!(row(&store).is_none_or(|lease| lease.is_released()));
}

#[test]
fn the_longest_timeout_does_not_overflow_b28() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let guard = elector.wait_for_leadership_timeout(Duration::MAX).unwrap();
    assert!(guard.is_leader());
    let term = guard.term();
    let sleeper = std::thread::spawn(move || term.sleep(Duration::MAX));
    drop(guard);
    assert_eq!(sleeper.join().unwrap().unwrap_err().cause, LossCause::Resigned);
    within(BOUND, move || elector.shutdown(Duration::MAX)).unwrap();
}

#[test]
fn b08_a_bid_whose_reply_was_lost_is_tidied_up_when_the_waiter_gives_up() {
    let store = Faulty::new();
    store.set(&[Kind::Acquire], &Mode::LoseReply);
    let elector = start(&store, calm().retry_period(ms(5_000)));
    let error = elector.wait_for_leadership_timeout(ms(300)).unwrap_err();
    assert!(matches!(error, CampaignError::TimedOut), "{error}");
    assert_eq!(store.calls(Kind::Acquire), 1, "nobody hurries after a lost reply");
    eventually("the tidying", || is_released(&store));
    assert!(!elector.is_leader() && elector.status().terms == 0);
}

#[test]
fn b08_a_bid_that_lands_after_the_waiter_gave_up_is_given_back() {
    let store = Faulty::new();
    store.set(&[Kind::Acquire], &Mode::HoldReply);
    let elector = start(&store, calm());
    let events = elector.events();
    assert!(elector.wait_for_leadership_timeout(ms(200)).is_err());
    store.wait_until_hanging(Kind::Acquire);
    assert!(is_held(&store));
    store.set_all(&Mode::Pass);
    eventually("the release", || is_released(&store));
    assert!(!elector.is_leader());
    eventually("an idle participant", || elector.status().role == Role::Idle);
    // Whoever gave up before the answer gets no term, not even for a moment.
    assert_eq!(elector.status().terms, 0);
    assert_eq!(terms(&events), []);
}

#[test]
fn b08_a_lost_reply_costs_a_retry_and_no_lease() {
    let store = Faulty::new();
    store.set(&[Kind::Acquire], &Mode::LoseReply);
    let elector = start(&store, calm());
    let waiting = elector.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    eventually("the failure", || elector.status().last_error.is_some());
    let first = row(&store).unwrap().expires_at();
    assert!(!elector.is_leader());
    store.set_all(&Mode::Pass);
    let guard = waiter.join().unwrap();
    assert!(row(&store).unwrap().acquired_at() < first, "it waited for its own lease");
    assert!(guard.fence().get() > 1, "the fence of a term that nobody led is not led with either");
}

#[test]
fn a_fatal_error_is_returned_at_once_and_the_elector_can_be_used_again() {
    for kind in [Kind::Observe, Kind::Acquire] {
        let store = Faulty::new();
        store.set(&[kind], &Mode::Fail(no_table()));
        let elector = start(&store, calm());
        let events = elector.events();
        let waiting = elector.clone();
        let error = within(BOUND, move || waiting.wait_for_leadership().unwrap_err());
        let CampaignError::Store(error) = error else { panic!("{error}") };
        assert_eq!(error.sqlstate(), Some("42P01"));
        if kind == Kind::Observe {
            assert!(elector.status().last_error.is_some_and(|e| e.is_fatal()));
        }
        eventually("an idle participant", || elector.status().role == Role::Idle);
        let calls = store.calls(kind);
        std::thread::sleep(ms(300));
        assert_eq!(store.calls(kind), calls, "nobody waits any more");
        store.set_all(&Mode::Pass);
        let guard = elector.wait_for_leadership().unwrap();
        assert!(guard.is_leader() && elector.status().last_error.is_none());
        let all: Vec<Event> = events.try_iter().collect();
        let failed = |e: &Event| matches!(e, Event::Failed { error, .. } if error.is_fatal());
        assert_eq!(all.iter().filter(|e| failed(e)).count(), 1, "{all:?}");
        assert!(all.iter().any(|e| matches!(e, Event::Recovered { failures: 1, .. })), "{all:?}");
    }
}

#[test]
fn a_retryable_error_is_ridden_out_at_the_pace_of_the_polls() {
    let store = Faulty::new();
    store.set_all(&Mode::Fail(StoreError::retryable("starting up").with_sqlstate("57P03")));
    let elector = start(&store, calm().retry_period(ms(200)));
    let waiting = elector.clone();
    let started = Instant::now();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    eventually("some failures", || elector.status().failures >= 5);
    assert!(started.elapsed() >= ms(4 * 150), "faster than the polls: {:?}", started.elapsed());
    let status = elector.status();
    assert_eq!(status.role, Role::Candidate);
    assert_eq!(status.last_error.unwrap().sqlstate(), Some("57P03"));
    store.set_all(&Mode::Pass);
    assert!(waiter.join().unwrap().is_leader());
    assert!(elector.status().last_error.is_none());
}

#[test]
fn a_store_that_panics_is_ridden_out_too() {
    let store = Faulty::new();
    store.set_all(&Mode::Panic);
    let elector = start(&store, calm());
    let waiting = elector.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    eventually("the failure", || elector.status().failures >= 2);
    let error = elector.status().last_error.unwrap();
    assert!(error.to_string().contains("the store is broken"), "{error}");
    store.set_all(&Mode::Pass);
    assert!(waiter.join().unwrap().is_leader());
}

#[test]
fn several_waiters_get_one_term_each() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let (sender, guards) = crossbeam_channel::unbounded();
    for _ in 0..3 {
        let (elector, sender) = (elector.clone(), sender.clone());
        std::thread::spawn(move || sender.send(elector.wait_for_leadership().unwrap()));
    }
    for fence in 1..=3 {
        let guard = guards.recv_timeout(BOUND).unwrap();
        assert_eq!(guard.check().unwrap().get(), fence);
        assert!(guards.recv_timeout(ms(300)).is_err(), "two guards of one term");
        drop(guard);
    }
    eventually("the release", || is_released(&store));
    assert_eq!(elector.status().role, Role::Idle);
}

#[test]
fn a_waiter_that_vanishes_as_it_is_elected_leaves_nothing() {
    let store = MemoryStore::new();
    let elector = start(&store, calm().retry_period(ms(5)));
    let mut elected = 0;
    for round in 0..150u64 {
        // Around the time that an election takes, so that the end of the wait and the election meet.
        let timeout = Duration::from_micros(round % 50 * 40);
        match elector.wait_for_leadership_timeout(timeout) {
            Ok(guard) => {
                assert!(guard.is_leader());
                elected += 1;
            }
            Err(error) => assert!(matches!(error, CampaignError::TimedOut), "{error}"),
        }
    }
    assert!(elected < 150);
    // The last of it may still be in the inbox.
    eventually("rest, and nothing held", || {
        let snapshot = store.snapshot(NAME);
        std::thread::sleep(ms(400));
        !is_held(&store) && elector.status().role == Role::Idle && store.snapshot(NAME) == snapshot
    });
    let other = start(&store, calm());
    assert!(within(BOUND, move || other.wait_for_leadership()).is_ok());
}

#[test]
fn waiters_that_come_and_go_do_not_keep_a_renewal_waiting() {
    let store = MemoryStore::new();
    let elector = start(&store, brisk());
    let guard = elector.wait_for_leadership().unwrap();
    let until = Instant::now() + ms(2_500);
    // One that stays, so that the comings and goings of the others change nothing.
    let staying = elector.clone();
    let staying = std::thread::spawn(move || staying.wait_for_leadership().is_ok());
    let crowd: Vec<_> = (0..4)
        .map(|_| {
            let elector = elector.clone();
            std::thread::spawn(move || {
                while Instant::now() < until {
                    let _ = elector.wait_for_leadership_timeout(Duration::from_nanos(1_000));
                }
            })
        })
        .collect();
    for thread in crowd {
        thread.join().unwrap();
    }
    assert!(guard.is_leader(), "{:?} after {} renewals", guard.check(), elector.status().renewals);
    drop(guard);
    assert!(staying.join().unwrap());
}
