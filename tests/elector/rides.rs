//! Clocks that step and records that vanish, under a running fleet.

use tenure::{Event, LossCause, MemoryStore};

use crate::util::*;

#[test]
fn a_database_clock_that_leaps_ahead_costs_one_renewal_and_doubles_nobody() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let events = elector.events();
    let guard = elector.wait_for_leadership().unwrap();
    let waiting = elector.clone();
    let next = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    store.step_clock(3_600_000_000);
    let next = next.join().unwrap();
    assert_eq!(guard.check().unwrap_err().cause, LossCause::Superseded);
    assert!(next.fence() > guard.fence());
    let stepped = |event| matches!(event, Event::ClockStepped { forward: true, .. });
    assert!(events.try_iter().any(stepped));
}

#[test]
fn a_database_clock_that_goes_back_ends_no_term() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let guard = elector.wait_for_leadership().unwrap();
    store.step_clock(-3_600_000_000);
    let renewals = elector.status().renewals;
    eventually("renewals", || elector.status().renewals >= renewals + 2);
    assert_eq!(guard.check().unwrap().get(), 1);
    assert!(guard.remaining() <= ms(7_500));
    assert!(row(&store).unwrap().ttl() <= ms(8_000));
}

#[test]
fn a_deleted_row_is_reported_and_waited_out_by_whoever_saw_it() {
    let store = MemoryStore::new();
    let (leader, elector) = (start(&store, brisk()), start(&store, brisk()));
    let events = elector.events();
    let guard = leader.wait_for_leadership().unwrap();
    let waiting = elector.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    eventually("a look", || elector.status().leader.is_some());
    assert!(store.delete(NAME));
    let term = guard.term();
    let next = waiter.join().unwrap();
    assert!(!term.is_leader(), "nobody else led any more");
    assert!(next.fence() > term.fence());
    assert!(events.try_iter().any(|event| matches!(event, Event::RowGone { .. })));
}

#[test]
fn rule_15_a_fail_over_that_lost_the_leader_is_reported_and_waited_out() {
    let store = MemoryStore::new();
    store.set_timeline(Some(1));
    let (earlier, leader, elector) = (start(&store, brisk()), start(&store, brisk()), start(&store, brisk()));
    earlier.wait_for_leadership().unwrap().resign().unwrap();
    let released = store.snapshot(NAME);
    let guard = leader.wait_for_leadership().unwrap();
    let events = elector.events();
    let waiting = elector.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    eventually("the leader", || elector.status().leader_fence == Some(guard.fence()));
    store.promote(2, &[released]);
    let next = waiter.join().unwrap();
    assert!(!guard.is_leader(), "nobody else led any more, though the row that came back is released");
    assert_eq!(next.fence().get(), (1 << 40) + 1);
    let events: Vec<_> = events.try_iter().collect();
    let changed = |event: &Event| matches!(event, Event::TimelineChanged { from: Some(1), to: Some(2), .. });
    let regressed = |event: &Event| matches!(event, Event::FenceRegressed { seen: 2, found: 1, .. });
    assert!(events.iter().any(changed) && events.iter().any(regressed), "{events:?}");
}

#[test]
fn the_overrun_of_an_old_guard_is_not_laid_to_the_next_one() {
    let store = MemoryStore::new();
    let elector = start(&store, calm());
    let old = elector.wait_for_leadership().unwrap();
    let waiting = elector.clone();
    let next = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    store.step_clock(3_600_000_000);
    let next = next.join().unwrap();
    assert!(old.check().is_err() && next.is_leader());
    assert!(elector.status().overrun.is_some());
    drop(old);
    eventually("no overrun", || elector.status().overrun.is_none());
    assert!(next.is_leader());
    next.resign().unwrap();
    assert!(elector.status().overrun.is_none());
}
