//! The callback form: what is called, when, how often, and what a callback may do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tenure::{Elector, Leader, LossCause, MemoryStore, Role, RunError, Term};

use crate::faulty::{Faulty, Kind, Mode};
use crate::running::{Recorder, Running};
use crate::util::*;

#[test]
fn b12_work_that_returns_releases_and_somebody_else_leads() {
    let store = Faulty::new();
    let (first, second) = (start(&store, calm()), start(&store, calm()));
    let running = Running::start(
        &first,
        Recorder::new(|_: &Elector, term: Term| {
            assert!(term.is_leader());
        }),
    );
    eventually("the first term's end", || running.log().iter().any(|l| l.starts_with("stopped")));
    let guard = within(BOUND, move || second.wait_for_leadership().unwrap());
    assert!(guard.fence().get() >= 2);
    first.stop();
    running.join().unwrap();
    assert!(store.calls(Kind::Release) >= 1);
}

#[test]
fn started_and_stopped_come_in_pairs_and_terms_follow_each_other() {
    let store = MemoryStore::new();
    let elector = start(&store, calm().retry_period(ms(10)));
    let running = Running::start(
        &elector,
        Recorder::new(|elector: &Elector, term: Term| {
            if term.fence().get() == 3 {
                elector.stop();
            }
        }),
    );
    running.join().unwrap();
    let log = running.log();
    let terms: Vec<_> = log.iter().filter(|l| !l.starts_with("leader")).cloned().collect();
    let expected = [
        "started 1",
        "stopped 1 resigned",
        "started 2",
        "stopped 2 resigned",
        "started 3",
        "stopped 3 the elector was stopped",
    ];
    assert_eq!(terms, expected);
    assert!(log.contains(&"leader 1".to_owned()) || log.contains(&"leader 2".to_owned()), "{log:?}");
    assert!(is_released(&store));
}

#[test]
fn a_closure_is_a_callback() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let stopper = elector.clone();
    let led = AtomicUsize::new(0);
    elector
        .run(|term: Term| {
            led.fetch_add(usize::from(term.is_leader()), Ordering::SeqCst);
            stopper.stop();
        })
        .unwrap();
    assert_eq!(led.load(Ordering::SeqCst), 1);
    assert!(is_released(&store));
}

#[test]
fn b13_a_callback_that_blocks_for_several_leases_loses_nothing() {
    let store = Faulty::new();
    let elector = start(&store, brisk());
    let events = elector.events();
    let running = Running::start(
        &elector,
        Recorder {
            // Both the work and the announcement block for three leases.
            new_leader: Box::new(|_| std::thread::sleep(ms(3_000))),
            ..Recorder::new(|elector: &Elector, term: Term| {
                let until = Instant::now() + ms(3_000);
                while Instant::now() < until {
                    assert!(term.is_leader(), "{:?}", term.check());
                    std::thread::sleep(ms(5));
                }
                elector.stop();
            })
        },
    );
    running.join().unwrap();
    assert_eq!(wait_for_terms(&events, 2), [(1, None), (1, Some(LossCause::Stopped))]);
}

#[test]
fn b13_every_call_of_the_interface_returns_inside_every_callback() {
    fn use_all(elector: &Elector) {
        let started = Instant::now();
        let status = elector.status();
        assert!(matches!(status.role, Role::Leader | Role::Idle | Role::Candidate));
        let _ =
            (elector.is_leader(), elector.fence(), elector.identity(), elector.config(), elector.events());
        let _ = elector.wait_for_leadership_timeout(ms(1));
        let _ = format!("{elector:?}");
        drop(elector.clone());
        assert!(started.elapsed() < ms(2_000), "{:?}", started.elapsed());
    }
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let inside = [elector.clone(), elector.clone(), elector.clone()];
    let [one, two, three] = inside;
    let running = Running::start(
        &elector,
        Recorder {
            new_leader: Box::new(move |_| use_all(&one)),
            stopped: Box::new(move |_| use_all(&two)),
            started: Box::new(move |_, term| {
                use_all(&three);
                assert_eq!(term.check().unwrap(), term.fence());
                assert!(!term.remaining().is_zero());
                term.sleep(ms(1)).unwrap();
                three.stop();
                assert!(term.check().is_err() && term.lost().recv_timeout(BOUND).is_ok());
                use_all(&three);
                // From inside, a shutdown cannot wait for itself; it says so.
                let error = three.clone().shutdown(ms(50)).unwrap_err();
                assert!(matches!(error, tenure::ShutdownError::WorkStillRunning), "{error}");
            }),
        },
    );
    running.join().unwrap();
    assert_eq!(running.log().iter().filter(|l| l.starts_with("stopped")).count(), 1);
}

#[test]
fn b12_a_panic_of_the_work_ends_the_term_releases_and_is_reported() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let events = elector.events();
    let running = Running::start(&elector, Recorder::new(|_: &Elector, _: Term| panic!("no more disk")));
    let error = running.join().unwrap_err();
    assert_eq!(error.to_string(), "started_leading panicked: no more disk");
    assert!(is_released(&store) && !elector.is_leader());
    assert_eq!(wait_for_terms(&events, 2), [(1, None), (1, Some(LossCause::Failed))]);
    let log = running.log();
    assert!(log.iter().any(|l| l.starts_with("stopped 1 something in this process panicked")), "{log:?}");
    // And the elector is as good as new.
    drop(elector.wait_for_leadership().unwrap());
}

#[test]
fn b12_a_panic_of_the_other_callbacks_is_reported_too() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let running = Running::start(
        &elector,
        Recorder {
            stopped: Box::new(|_| panic!("{} things", 2)),
            ..Recorder::new(|_: &Elector, _: Term| ())
        },
    );
    let error = running.join().unwrap_err();
    assert_eq!(error.to_string(), "stopped_leading panicked: 2 things");
    assert!(is_released(&store));

    let elector = start(&store, calm());
    let running = Running::start(
        &elector,
        Recorder {
            new_leader: Box::new(|_| std::panic::panic_any(7)),
            ..Recorder::new(|_: &Elector, term: Term| {
                let lost = term.sleep(BOUND).unwrap_err();
                assert_eq!(lost.cause, LossCause::Failed);
            })
        },
    );
    let error = running.join().unwrap_err();
    assert!(
        matches!(&error, RunError::Panicked { callback: "new_leader", message } if message == "no message")
    );
    // It may have been told of the lease before the term began; then nobody was there any more to begin it.
    eventually("the release", || is_released(&store));
    let log = running.log();
    let count = |what: &str| log.iter().filter(|l| l.starts_with(what)).count();
    assert_eq!(count("started"), count("stopped"), "{log:?}");
}

#[test]
fn a_panic_of_new_leader_stops_the_campaign() {
    let store = MemoryStore::new();
    let (leader, elector) = (start(&store, calm()), start(&store, calm()));
    let guard = leader.wait_for_leadership().unwrap();
    let running = Running::start(
        &elector,
        Recorder {
            new_leader: Box::new(|leader| panic!("{} leads", leader.fence)),
            ..Recorder::new(|_: &Elector, _: Term| unreachable!())
        },
    );
    assert_eq!(running.join().unwrap_err().to_string(), "new_leader panicked: 1 leads");
    assert!(guard.is_leader());
}

#[test]
fn nothing_is_campaigned_for_while_a_callback_still_runs_after_a_loss() {
    let store = Faulty::new();
    let elector = start(&store, brisk());
    let go_on = Arc::new(Mutex::new(()));
    let (held, waits) = (go_on.lock(), go_on.clone());
    let running = Running::start(
        &elector,
        Recorder::new(move |_: &Elector, term: Term| {
            if term.fence().get() == 1 {
                assert!(term.sleep(BOUND).is_err());
                drop(waits.lock());
            } else {
                let _ = term.sleep(BOUND);
            }
        }),
    );
    eventually("the first term", || elector.is_leader());
    store.set_all(&Mode::TimeOut);
    eventually("the loss", || !elector.is_leader());
    store.set_all(&Mode::Pass);
    eventually("the overrun", || elector.status().overrun.is_some());
    let bids = store.calls(Kind::Acquire);
    std::thread::sleep(ms(1_500));
    assert_eq!(store.calls(Kind::Acquire), bids);
    assert_eq!(store.calls(Kind::Release), 0, "the work may still be going on");
    assert_eq!(elector.status().role, Role::Idle);
    assert!(elector.status().overrun.unwrap() >= ms(1_400));
    drop(held);
    eventually("the second term", || running.log().iter().any(|l| l == "started 2"));
    elector.stop();
    running.join().unwrap();
    let log: Vec<_> = running.log().into_iter().filter(|l| !l.starts_with("leader")).collect();
    assert_eq!(log[..3], ["started 1", "stopped 1 the deadline passed without a renewal", "started 2"]);
    assert!(elector.status().overrun.is_none());
}

#[test]
fn b10_callbacks_are_shut_down_with_and_without_enough_grace() {
    for (grace, clean) in [(BOUND, true), (ms(200), false)] {
        let store = Faulty::new();
        let elector = start(&store, brisk());
        let running = Running::start(
            &elector,
            Recorder::new(|_: &Elector, term: Term| {
                assert!(term.sleep(BOUND).is_err());
                std::thread::sleep(ms(1_500)); // Winding down takes longer than a lease.
            }),
        );
        eventually("the work", || running.log().iter().any(|l| l.starts_with("started")));
        let ending = elector.clone();
        let outcome = within(BOUND, move || ending.shutdown(grace));
        if clean {
            outcome.unwrap();
            assert!(running.log().last().unwrap().starts_with("stopped") || is_released(&store));
            assert_eq!(store.calls(Kind::Release), 1, "after the work, not before");
        } else {
            assert!(matches!(outcome, Err(tenure::ShutdownError::WorkStillRunning)), "{outcome:?}");
            eventually("the expiry", || !is_held(&store));
            assert_eq!(store.calls(Kind::Release), 0);
        }
        running.join().unwrap();
        assert_eq!(running.log().iter().filter(|l| l.starts_with("stopped")).count(), 1);
    }
}

#[test]
fn b10_a_partition_cancels_the_work_in_time_and_stopped_comes_after_it_returned() {
    let store = Faulty::new();
    let elector = start(&store, brisk());
    let ended: Arc<Mutex<Option<Instant>>> = Arc::default();
    let (end, stopped) = (ended.clone(), Arc::new(Mutex::new(None)));
    let told = stopped.clone();
    let running = Running::start(
        &elector,
        Recorder {
            stopped: Box::new(move |_| *told.lock() = Some(Instant::now())),
            ..Recorder::new(move |elector: &Elector, term: Term| {
                assert!(term.sleep(BOUND).is_err());
                std::thread::sleep(ms(400));
                *end.lock() = Some(Instant::now());
                elector.stop();
            })
        },
    );
    eventually("the work", || running.log().iter().any(|l| l.starts_with("started")));
    store.set_all(&Mode::TimeOut);
    eventually("the overrun", || elector.status().overrun.is_some());
    running.join().unwrap();
    assert!(stopped.lock().unwrap() >= ended.lock().unwrap());
}

#[test]
fn a_store_that_needs_a_person_is_ridden_out_and_shows_in_the_status() {
    let store = Faulty::new();
    let refused = tenure::StoreError::fatal("permission denied").with_sqlstate("42501");
    store.set_all(&Mode::Fail(refused));
    let elector = start(&store, calm());
    let running = Running::start(&elector, Recorder::new(|elector: &Elector, _: Term| elector.stop()));
    eventually("some failures", || elector.status().failures >= 3);
    let status = elector.status();
    assert_eq!(status.role, Role::Candidate);
    assert!(status.last_error.is_some_and(|e| e.is_fatal() && e.sqlstate() == Some("42501")));
    store.set_all(&Mode::Pass);
    running.join().unwrap();
}

#[test]
fn new_leader_tells_each_term_once_its_own_included() {
    let store = MemoryStore::new();
    let (leader, elector) = (start(&store, calm()), start(&store, calm()));
    let guard = leader.wait_for_leadership().unwrap();
    let told: Arc<Mutex<Vec<i64>>> = Arc::default();
    let (telling, known) = (told.clone(), told.clone());
    let knows = |told: &Mutex<Vec<i64>>, fence| {
        eventually("the announcement", || told.lock().last() == Some(&fence));
    };
    let running = Running::start(
        &elector,
        Recorder {
            new_leader: Box::new(move |leader: &Leader| telling.lock().push(leader.fence.get())),
            ..Recorder::new(move |_: &Elector, term: Term| knows(&known, term.fence().get()))
        },
    );
    knows(&told, 1);
    guard.resign().unwrap();
    knows(&told, 2);
    let guard = leader.wait_for_leadership().unwrap();
    let fence = guard.fence().get();
    knows(&told, fence);
    elector.stop();
    running.join().unwrap();
    let told = told.lock().clone();
    assert!(told.windows(2).all(|w| w[0] < w[1]) && told.len() >= 3, "{told:?}");
}

/// Takes part without knowing what was there before, as a program does that has just been started.
fn newcomer(store: &MemoryStore, label: &str) -> (Elector, tenure::LeaderGuard) {
    let elector = start(store, calm().label(label));
    let guard = elector.wait_for_leadership().unwrap();
    (elector, guard)
}

#[test]
fn new_leader_tells_of_another_one_with_the_same_fence() {
    let store = MemoryStore::new();
    let (_first, guard) = newcomer(&store, "first");
    let elector = start(&store, calm());
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let telling = told.clone();
    let running = Running::start(
        &elector,
        Recorder {
            new_leader: Box::new(move |leader: &Leader| telling.lock().push(leader.holder.clone())),
            ..Recorder::new(|_: &Elector, _: Term| {})
        },
    );
    let last = |label: &str| told.lock().last().is_some_and(|holder| holder.starts_with(label));
    eventually("the first", || last("first"));
    // The row is deleted, and whoever comes next begins again at 1. The others wait for longer than that takes.
    assert!(store.delete(NAME));
    let (_second, next) = newcomer(&store, "second");
    assert_eq!(next.fence(), guard.fence());
    eventually("the second", || last("second"));
    elector.stop();
    running.join().unwrap();
}

#[test]
fn a_new_leader_callback_that_blocks_makes_no_reader_miss_anything() {
    let store = Faulty::new();
    let (_first, _guard) = newcomer(store.memory(), "first");
    let elector = start(&store, calm().retry_period(ms(1)));
    let (entered, is_entered) = crossbeam_channel::bounded(1);
    let (go_on, goes_on) = crossbeam_channel::bounded::<()>(0);
    let running = Running::start(
        &elector,
        Recorder {
            new_leader: Box::new(move |_: &Leader| {
                let _ = entered.try_send(());
                let _ = goes_on.recv();
            }),
            ..Recorder::new(|_: &Elector, _: Term| {})
        },
    );
    is_entered.recv_timeout(BOUND).unwrap();
    // Each failure and each recovery is an event.
    for round in 0..150 {
        let failures = elector.status().failures;
        store.set_all(&Mode::Fail(tenure::StoreError::retryable(format!("no answer {round}"))));
        eventually("a failure", || elector.status().failures > failures);
        store.set_all(&Mode::Pass);
        eventually("the recovery", || elector.status().last_error.is_none());
    }
    assert_eq!(elector.status().events_dropped, 0, "nobody reads events, so nobody missed one");
    drop(go_on);
    elector.stop();
    running.join().unwrap();
}

#[test]
fn a_panic_of_new_leader_does_not_end_a_term_that_is_not_its_own() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let guard = elector.wait_for_leadership().unwrap();
    let running = Running::start(
        &elector,
        Recorder {
            new_leader: Box::new(|_| panic!("no")),
            ..Recorder::new(|_: &Elector, _: Term| unreachable!())
        },
    );
    assert_eq!(running.join().unwrap_err().to_string(), "new_leader panicked: no");
    assert!(guard.is_leader(), "{:?}", guard.check());
}
