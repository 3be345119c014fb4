//! What a guard and a status can do, and what the events tell.

use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, select};
use tenure::{Event, LossCause, MemoryStore, PublishError, Role, StoreError};

use crate::faulty::{Faulty, Kind, Mode};
use crate::util::*;

#[test]
fn sleep_lasts_as_long_as_it_should_and_ends_with_the_term() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let guard = elector.wait_for_leadership().unwrap();
    let started = Instant::now();
    guard.sleep(ms(450)).unwrap();
    assert!(started.elapsed() >= ms(449), "{:?}", started.elapsed());
    guard.sleep(Duration::ZERO).unwrap();
    let term = guard.term();
    let sleeper = std::thread::spawn(move || term.sleep(BOUND).unwrap_err());
    std::thread::sleep(ms(50));
    let stopped = Instant::now();
    elector.stop();
    assert_eq!(sleeper.join().unwrap().cause, LossCause::Stopped);
    assert!(stopped.elapsed() < ms(2_000));
    assert!(guard.sleep(Duration::ZERO).is_err());
}

#[test]
fn lost_is_ready_once_and_then_disconnected_for_every_receiver() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let guard = elector.wait_for_leadership().unwrap();
    let receivers: Vec<_> = (0..4).map(|_| guard.term().lost().clone()).collect();
    let waiters: Vec<_> = receivers
        .into_iter()
        .map(|lost| {
            std::thread::spawn(move || {
                let other = crossbeam_channel::never::<()>();
                select! {
                    recv(lost) -> lost => lost.ok(),
                    recv(other) -> _ => unreachable!(),
                    default(BOUND) => panic!("nobody woke it"),
                }
            })
        })
        .collect();
    assert_eq!(guard.lost().recv_timeout(ms(50)), Err(RecvTimeoutError::Timeout));
    let (fence, late) = (guard.fence(), guard.lost().clone());
    drop(guard);
    let told: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
    assert_eq!(told.iter().flatten().count(), 1, "{told:?}");
    assert!(told.iter().flatten().all(|l| l.fence == fence && l.cause == LossCause::Resigned));
    assert_eq!(late.recv_timeout(BOUND), Err(RecvTimeoutError::Disconnected), "whoever looks later");
}

#[test]
fn a_published_payload_is_there_at_once_and_stays() {
    let store = Faulty::new();
    let elector = start(&store, calm().payload("first"));
    let guard = elector.wait_for_leadership().unwrap();
    assert_eq!(row(&store).unwrap().payload(), Some(&b"first"[..]));
    guard.publish("second").unwrap();
    assert_eq!(row(&store).unwrap().payload(), Some(&b"second"[..]));
    assert_eq!(elector.status().leader_payload.as_deref(), Some(&b"second"[..]));
    store.wait_for_call(Kind::Renew);
    store.wait_for_call(Kind::Renew);
    assert_eq!(row(&store).unwrap().payload(), Some(&b"second"[..]));
    guard.publish("").unwrap();
    assert_eq!(row(&store).unwrap().payload(), Some(&b""[..]), "empty is not none");
    guard.resign().unwrap();
    let guard = elector.wait_for_leadership().unwrap();
    assert_eq!(row(&store).unwrap().payload(), Some(&b"first"[..]), "the next term starts afresh");
    drop(guard);
}

#[test]
fn what_cannot_be_published_is_refused() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    let guard = elector.wait_for_leadership().unwrap();
    let limit = tenure::Config::MAX_PAYLOAD_LEN;
    guard.publish(vec![7; limit]).unwrap();
    let error = guard.publish(vec![7; limit + 1]).unwrap_err();
    assert!(matches!(error, PublishError::TooLarge { size, .. } if size == limit + 1), "{error}");
    store.set(&[Kind::Renew], &Mode::Fail(StoreError::retryable("gone")));
    let error = guard.publish("x").unwrap_err();
    assert!(matches!(&error, PublishError::Store(e) if e.to_string() == "gone"), "{error}");
    store.set_all(&Mode::Pass);
    eventually("a later renewal", || row(&store).unwrap().payload() == Some(b"x"));
    assert!(guard.is_leader());
    elector.stop();
    let error = guard.publish("y").unwrap_err();
    assert!(matches!(&error, PublishError::Lost(lost) if lost.cause == LossCause::Stopped), "{error}");
}

#[test]
fn a_guard_shows_its_term_and_nothing_of_the_payload() {
    let elector = start(&MemoryStore::new(), calm().payload("S3cr3t"));
    let guard = elector.wait_for_leadership().unwrap();
    let shown = format!("{guard:?} {:?} {elector:?}", guard.term());
    assert!(shown.contains("fence") && !shown.contains("S3cr3t"), "{shown}");
    assert!(format!("{guard:?}").contains("deadline"), "{guard:?}");
    elector.stop();
    assert!(format!("{guard:?}").contains("over: Stopped"), "{guard:?}");
}

#[test]
fn publishing_with_a_renewal_under_way_waits_for_it() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    let guard = elector.wait_for_leadership().unwrap();
    store.set(&[Kind::Renew], &Mode::Delay(ms(300)));
    store.wait_for_call(Kind::Renew);
    let started = Instant::now();
    guard.publish("x").unwrap();
    assert!(started.elapsed() >= ms(300));
    assert_eq!(row(&store).unwrap().payload(), Some(&b"x"[..]));
}

#[test]
fn publishing_to_a_superseded_lease_ends_the_term() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let guard = elector.wait_for_leadership().unwrap();
    store.delete(NAME);
    let error = guard.publish("x").unwrap_err();
    assert!(matches!(&error, PublishError::Lost(lost) if lost.cause == LossCause::Superseded), "{error}");
    assert!(guard.check().is_err());
}

#[test]
fn the_status_tells_what_is_known() {
    let store = Faulty::new();
    let (first, second) = (start(&store, calm().payload("here")), start(&store, calm()));
    let status = first.status();
    assert_eq!((status.role, status.fence, status.remaining), (Role::Idle, None, None));
    assert_eq!((status.leader, status.observed_age, status.terms), (None, None, 0));
    let guard = first.wait_for_leadership().unwrap();
    store.wait_for_call(Kind::Renew);
    let status = first.status();
    assert_eq!((status.role, status.fence, status.terms), (Role::Leader, Some(guard.fence()), 1));
    assert!(status.remaining.unwrap() <= ms(7_500) && status.observed_age.unwrap() < BOUND);
    assert_eq!(status.leader.as_deref(), Some(first.identity().as_str()));
    let waiting = second.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    eventually("the other's leader", || second.status().leader.is_some());
    let status = second.status();
    assert_eq!((status.role, status.fence, status.terms), (Role::Candidate, None, 0));
    assert_eq!(status.leader.as_deref(), Some(first.identity().as_str()));
    assert_eq!(status.leader_fence, Some(guard.fence()));
    assert_eq!(status.leader_payload.as_deref(), Some(&b"here"[..]));
    eventually("renewals", || first.status().renewals >= 2);
    guard.resign().unwrap();
    assert_eq!(first.status().role, Role::Idle);
    let next = waiter.join().unwrap();
    assert_eq!(second.status().fence, Some(next.fence()));
}

#[test]
fn events_come_once_for_each_reader_and_each_term() {
    let store = MemoryStore::new();
    let (elector, other) = (start(&store, calm()), start(&store, calm()));
    let (one, two) = (elector.events(), elector.events());
    let watching = other.events();
    let guard = elector.wait_for_leadership().unwrap();
    let waiting = other.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    eventually("the observation", || other.status().leader.is_some());
    guard.resign().unwrap();
    let next = waiter.join().unwrap();
    for events in [one, two] {
        assert_eq!(wait_for_terms(&events, 2), [(1, None), (1, Some(LossCause::Resigned))]);
    }
    let seen: Vec<Event> = watching.try_iter().collect();
    let observed: Vec<_> = seen
        .iter()
        .filter_map(|event| match event {
            Event::Observed { leader, .. } => Some((leader.holder.as_str(), leader.fence.get())),
            _ => None,
        })
        .collect();
    assert_eq!(observed, [(elector.identity().as_str(), 1)], "{seen:?}");
    assert!(next.is_leader());
}

#[test]
fn events_that_nobody_reads_are_dropped_and_counted_and_dead_readers_forgotten() {
    let store = MemoryStore::new();
    let elector = start(&store, calm().retry_period(ms(1)).renew_interval(ms(3_000)));
    let lazy = elector.events();
    drop(elector.events());
    for _ in 0..100 {
        drop(elector.wait_for_leadership().unwrap());
    }
    // A campaign begins and ends, a term begins and ends, its lease is released.
    let dropped = || usize::try_from(elector.status().events_dropped).unwrap();
    eventually("the last events", || dropped() + lazy.len() >= 500);
    assert_eq!(dropped() + lazy.len(), 500, "of one reader");
    // Two threads report, and may both find room for the last one.
    assert!((256..=257).contains(&lazy.try_iter().count()));
    // There is room again.
    drop(elector.wait_for_leadership().unwrap());
    assert_eq!(wait_for_terms(&lazy, 2).len(), 2);
    drop(elector);
    eventually("the end of the reports", || {
        matches!(lazy.try_recv(), Err(crossbeam_channel::TryRecvError::Disconnected))
    });
}

#[test]
fn b12_a_guard_dropped_by_a_panic_tells_of_a_failure_and_releases() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let guard = elector.wait_for_leadership().unwrap();
    let term = guard.term();
    let panicked = std::thread::spawn(move || {
        let _guard = guard;
        panic!("provoked");
    });
    assert!(panicked.join().is_err());
    assert_eq!(term.check().unwrap_err().cause, LossCause::Failed);
    eventually("the release", || is_released(&store));
}
