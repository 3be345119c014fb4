//! Stopping and shutting down, with work in progress, and with a store that does not answer.

use std::time::{Duration, Instant};

use tenure::{
    CampaignError, Elector, LeaderGuard, LossCause, MemoryStore, PublishError, ShutdownError, StoreError,
};

use crate::faulty::{Faulty, Kind, Mode};
use crate::util::*;

/// operation_timeout + 1 s, for the calm settings, and as much again for a slow machine.
const PROMPT: Duration = ms(2_000 + 2_000);

fn leading(store: &Faulty) -> (Elector, LeaderGuard) {
    let elector = start(store, calm());
    let guard = elector.wait_for_leadership().unwrap();
    (elector, guard)
}

#[test]
fn stop_wakes_waiters_at_once_also_while_the_store_hangs() {
    for mode in [Mode::Pass, Mode::Hang] {
        let store = Faulty::new();
        let other = start(store.memory(), calm());
        let _guard = other.wait_for_leadership().unwrap();
        store.set_all(&mode);
        let elector = start(&store, calm());
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let elector = elector.clone();
                std::thread::spawn(move || (elector.wait_for_leadership().unwrap_err(), Instant::now()))
            })
            .collect();
        eventually("a look", || store.calls(Kind::Observe) > 0);
        let stopped = Instant::now();
        elector.stop();
        for waiter in waiters {
            let (error, at) = waiter.join().unwrap();
            assert!(matches!(error, CampaignError::Stopped), "{error}");
            assert!(at.duration_since(stopped) < ms(1_000));
        }
        store.set_all(&Mode::Pass);
    }
}

#[test]
fn after_a_stop_nobody_is_elected_and_stopping_again_does_nothing() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    elector.stop();
    elector.stop();
    let error = elector.wait_for_leadership().unwrap_err();
    assert!(matches!(error, CampaignError::Stopped), "{error}");
    let error = elector.wait_for_leadership_timeout(ms(50)).unwrap_err();
    assert!(matches!(error, CampaignError::Stopped), "{error}");
    elector.run(|_| unreachable!()).unwrap();
    elector.stop();
    assert_eq!(store.all_calls(), 0);
    within(BOUND, move || elector.shutdown(Duration::ZERO)).unwrap();
}

#[test]
fn b10_stop_ends_the_term_at_once_and_keeps_the_lease_until_the_guard_goes() {
    let store = Faulty::new();
    let (elector, guard) = leading(&store);
    let events = elector.events();
    elector.stop();
    assert_eq!(guard.check().unwrap_err().cause, LossCause::Stopped);
    assert!(!elector.is_leader() && guard.remaining().is_zero());
    for _ in 0..3 {
        store.wait_for_call(Kind::Renew);
    }
    assert!(is_held(&store) && store.calls(Kind::Release) == 0);
    assert!(elector.status().overrun.is_some());
    elector.stop();
    drop(guard);
    eventually("the release", || is_released(&store));
    assert!(elector.status().overrun.is_none());
    assert_eq!(wait_for_terms(&events, 1), [(1, Some(LossCause::Stopped))]);
    let error = elector.wait_for_leadership().unwrap_err();
    assert!(matches!(error, CampaignError::Stopped), "{error}");
}

#[test]
fn a_participant_elected_while_it_is_stopped_gives_the_lease_back() {
    let store = Faulty::new();
    store.set(&[Kind::Acquire], &Mode::HoldReply);
    let elector = start(&store, calm());
    let waiting = elector.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap_err());
    store.wait_until_hanging(Kind::Acquire);
    elector.stop();
    assert!(matches!(waiter.join().unwrap(), CampaignError::Stopped));
    store.set_all(&Mode::Pass);
    eventually("the release", || is_released(&store));
    assert!(!elector.is_leader());
    within(BOUND, move || elector.shutdown(BOUND)).unwrap();
}

#[test]
fn b09_a_shutdown_releases_also_with_a_renewal_under_way() {
    let store = Faulty::new();
    let (elector, guard) = leading(&store);
    let hold = store.memory().lock(NAME);
    store.wait_for_call(Kind::Renew);
    let worker = std::thread::spawn(move || {
        while guard.sleep(ms(10)).is_ok() {}
        drop(guard);
    });
    let unlock = std::thread::spawn(move || {
        std::thread::sleep(ms(300));
        drop(hold);
    });
    within(BOUND, move || elector.shutdown(BOUND)).unwrap();
    assert!(is_released(&store));
    worker.join().unwrap();
    unlock.join().unwrap();
}

#[test]
fn b10_a_shutdown_within_its_grace_waits_for_the_work_and_then_releases() {
    let store = Faulty::new();
    let (elector, guard) = leading(&store);
    let other = start(&store, calm());
    let successor = std::thread::spawn(move || {
        let guard = other.wait_for_leadership().unwrap();
        (Instant::now(), guard)
    });
    let work = std::thread::spawn(move || {
        while guard.sleep(ms(10)).is_ok() {}
        // The work takes a while to wind down.
        std::thread::sleep(ms(700));
        let ended = Instant::now();
        drop(guard);
        ended
    });
    within(BOUND, move || elector.shutdown(BOUND)).unwrap();
    let ended = work.join().unwrap();
    let (elected, guard) = successor.join().unwrap();
    assert!(elected >= ended, "somebody led while the work was going on");
    assert_eq!(guard.fence().get(), 2);
}

#[test]
fn b10_a_shutdown_goes_on_renewing_while_the_work_winds_down() {
    let store = Faulty::new();
    let (elector, guard) = leading(&store);
    let (stopped, stop_seen) = crossbeam_channel::bounded(0);
    let work = {
        let store = store.clone();
        std::thread::spawn(move || {
            guard.lost().recv_timeout(BOUND).unwrap();
            stop_seen.recv_timeout(BOUND).unwrap();
            for _ in 0..4 {
                store.wait_for_call(Kind::Renew);
            }
            assert!(is_held(&store) && store.calls(Kind::Release) == 0);
            drop(guard);
        })
    };
    let ending = elector.clone();
    let shutdown = std::thread::spawn(move || ending.shutdown(BOUND));
    eventually("the stop", || !elector.is_leader());
    stopped.send_timeout((), BOUND).unwrap();
    within(BOUND, move || shutdown.join().unwrap()).unwrap();
    work.join().unwrap();
    assert!(is_released(&store));
}

#[test]
fn b10_a_shutdown_past_its_grace_stops_renewing_and_does_not_release() {
    let store = Faulty::new();
    let elector = start(&store, brisk());
    let guard = elector.wait_for_leadership().unwrap();
    store.wait_for_call(Kind::Renew);
    let term = guard.term();
    let started = Instant::now();
    let error = within(BOUND, move || elector.shutdown(ms(300))).unwrap_err();
    assert!(matches!(error, ShutdownError::WorkStillRunning), "{error}");
    assert!(started.elapsed() >= ms(300));
    assert!(term.check().is_err());
    let expiry = row(&store).unwrap().expires_at();
    // One renewal may have been under way.
    std::thread::sleep(ms(300));
    let renewals = store.calls(Kind::Renew);
    drop(guard);
    let other = start(&store, brisk());
    let next = other.wait_for_leadership().unwrap();
    assert!(row(&store).unwrap().acquired_at() >= expiry);
    assert_eq!((store.calls(Kind::Release), store.calls(Kind::Renew)), (0, renewals));
    drop(next);
}

#[test]
fn a_shutdown_without_grace_after_the_guard_is_gone_is_clean() {
    for _ in 0..50 {
        let store = MemoryStore::new();
        let elector = start(&store, calm());
        drop(elector.wait_for_leadership().unwrap());
        within(BOUND, move || elector.shutdown(Duration::ZERO)).unwrap();
        assert!(is_released(&store));
    }
    // Also where the renewal thread is too busy to have heard of it.
    let store = Faulty::new();
    let (elector, guard) = leading(&store);
    store.set(&[Kind::Renew], &Mode::Delay(ms(300)));
    store.wait_for_call(Kind::Renew);
    drop(guard);
    within(BOUND, move || elector.shutdown(Duration::ZERO)).unwrap();
    assert!(is_released(&store));
}

#[test]
fn a_store_slower_than_the_renewals_does_not_keep_the_elector_from_listening() {
    for stop in [true, false] {
        let store = Faulty::new();
        let (elector, guard) = leading(&store);
        store.set(&[Kind::Renew], &Mode::Delay(ms(250)));
        store.wait_for_call(Kind::Renew);
        store.wait_for_call(Kind::Renew);
        assert!(guard.is_leader());
        if stop {
            within(BOUND, move || elector.shutdown(ms(10))).unwrap_err();
            let renewals = store.calls(Kind::Renew);
            std::thread::sleep(ms(600));
            assert!(store.calls(Kind::Renew) <= renewals + 1, "abandoned, and renewed all the same");
        } else {
            guard.resign().unwrap();
            assert!(is_released(&store));
        }
    }
}

#[test]
fn b11_everything_returns_in_time_while_the_store_hangs_for_ever() {
    let hung = || {
        let store = Faulty::new();
        let (elector, guard) = leading(&store);
        store.set_all(&Mode::Hang);
        store.wait_until_hanging(Kind::Renew);
        (store, elector, guard)
    };
    let (store, elector, guard) = hung();
    within(ms(1_000), move || elector.stop());
    within(ms(1_000), move || drop(guard));
    store.set_all(&Mode::Pass);

    let (store, elector, guard) = hung();
    drop(guard);
    let error = within(PROMPT, move || elector.shutdown(Duration::ZERO)).unwrap_err();
    assert!(matches!(&error, ShutdownError::Release(e) if e.is_timeout()), "{error}");
    store.set_all(&Mode::Pass);

    let (store, elector, guard) = hung();
    drop(guard);
    within(PROMPT, move || drop(elector));
    store.set_all(&Mode::Pass);

    let (store, elector, guard) = hung();
    within(ms(1_000), move || drop(elector)); // The guard goes on.
    let error = within(PROMPT, move || guard.resign()).unwrap_err();
    assert!(error.is_timeout());
    store.set_all(&Mode::Pass);

    let (store, _elector, guard) = hung();
    let error = within(2 * PROMPT, move || guard.publish("x").unwrap_err());
    assert!(matches!(&error, PublishError::Store(e) if e.is_timeout()), "{error:?}");
    store.set_all(&Mode::Pass);

    let (store, elector, guard) = hung();
    let error = within(PROMPT, move || elector.wait_for_leadership_timeout(ms(200)).unwrap_err());
    assert!(matches!(error, CampaignError::TimedOut), "{error}");
    drop(guard);
    store.set_all(&Mode::Pass);
}

#[test]
fn after_the_threads_have_ended_every_call_still_returns() {
    let store = Faulty::new();
    let (elector, guard) = leading(&store);
    let (term, events) = (guard.term(), elector.events());
    guard.resign().unwrap();
    let ending = elector.clone();
    within(BOUND, move || ending.shutdown(BOUND)).unwrap();
    let calls = store.all_calls();
    within(BOUND, move || {
        assert!(matches!(elector.wait_for_leadership(), Err(CampaignError::Stopped)));
        assert!(matches!(elector.wait_for_leadership_timeout(ms(10)), Err(CampaignError::Stopped)));
        elector.run(|_| unreachable!()).unwrap();
        let status = elector.status();
        assert_eq!((status.role, status.overrun), (tenure::Role::Idle, None));
        assert!(!elector.is_leader() && elector.events().try_recv().is_err());
        assert!(term.check().is_err() && term.sleep(BOUND).is_err() && term.lost().recv().is_ok());
        elector.stop();
        elector.clone().shutdown(Duration::MAX).unwrap();
        elector.shutdown(Duration::ZERO).unwrap();
    });
    assert_eq!(store.all_calls(), calls);
    assert_eq!(wait_for_terms(&events, 1), [(1, Some(LossCause::Resigned))]);
}

#[test]
fn b09_dropping_guard_and_elector_hands_over_before_main_returns() {
    let store = MemoryStore::new();
    {
        let elector = start(&store, calm());
        let _guard = elector.wait_for_leadership().unwrap();
    }
    assert!(is_released(&store));
}

#[test]
fn a_resignation_is_answered_by_its_release_and_not_by_the_next_campaign() {
    let store = Faulty::new();
    let (elector, guard) = leading(&store);
    let waiting = elector.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().is_err());
    eventually("renewals with a waiter", || elector.status().renewals >= 2);
    store.set(&[Kind::Observe], &Mode::Hang);
    within(BOUND, move || guard.resign()).unwrap();
    store.wait_until_hanging(Kind::Observe);
    elector.stop();
    assert!(waiter.join().unwrap());
    store.set_all(&Mode::Pass);
}

#[test]
fn a_release_that_failed_is_reported_by_resign_and_by_shutdown() {
    let store = Faulty::new();
    let (elector, guard) = leading(&store);
    store.set(&[Kind::Release], &Mode::Fail(StoreError::retryable("gone")));
    assert_eq!(guard.resign().unwrap_err().to_string(), "gone");
    assert!(!elector.is_leader());
    store.set_all(&Mode::Pass);
    let error = within(BOUND, move || elector.shutdown(BOUND)).unwrap_err();
    assert!(matches!(&error, ShutdownError::Release(e) if e.to_string() == "gone"), "{error}");
}

#[test]
fn a_release_that_failed_terms_ago_is_not_reported_by_a_shutdown() {
    let store = Faulty::new();
    let elector = start(&store, brisk());
    let guard = elector.wait_for_leadership().unwrap();
    store.set(&[Kind::Release], &Mode::Fail(StoreError::retryable("gone")));
    assert!(guard.resign().is_err());
    store.set_all(&Mode::Pass);
    let guard = elector.wait_for_leadership().unwrap();
    store.set(&[Kind::Renew], &Mode::Fail(StoreError::retryable("gone")));
    assert!(guard.lost().recv_timeout(BOUND).is_ok());
    drop(guard); // Lost, so there is nothing to release.
    within(BOUND, move || elector.shutdown(BOUND)).unwrap();
}

#[test]
fn a_release_that_failed_is_not_reported_by_a_shutdown_once_the_lease_is_over() {
    let store = Faulty::new();
    let elector = start(&store, brisk());
    let guard = elector.wait_for_leadership().unwrap();
    store.set(&[Kind::Release], &Mode::Fail(StoreError::retryable("gone")));
    assert!(guard.resign().is_err());
    let failed = Instant::now();
    // The lease of a second may have been renewed just before.
    eventually("its end", || failed.elapsed() > ms(1_100));
    within(BOUND, move || elector.shutdown(BOUND)).unwrap();
}
