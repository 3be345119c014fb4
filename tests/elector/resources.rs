//! What an elector costs the store: calls.

use crate::faulty::{Faulty, Kind};
use crate::util::*;
use tenure::MemoryStore;

#[test]
fn rule_14_a_candidate_that_waits_writes_nothing() {
    let store = Faulty::new();
    let leader = start(store.memory(), calm());
    let _guard = leader.wait_for_leadership().unwrap();
    let elector = start(&store, calm());
    let waiting = elector.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().is_err());
    eventually("ten looks", || store.calls(Kind::Observe) >= 10);
    assert_eq!(store.all_calls(), store.calls(Kind::Observe));
    elector.stop();
    assert!(waiter.join().unwrap());
}

#[test]
fn an_idle_elector_is_silent() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    std::thread::sleep(ms(400));
    assert_eq!(store.all_calls(), 0);
    drop(elector.wait_for_leadership().unwrap());
    eventually("the release", || is_released(&store));
    let calls = store.all_calls();
    std::thread::sleep(ms(400));
    assert_eq!(store.all_calls(), calls, "also after a term");
}

/// In kB.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A participant that only looks has nothing to report, so it does not notice that they are gone.
#[test]
fn readers_that_come_and_go_cost_little_while_nothing_is_reported() {
    let store = MemoryStore::new();
    let (leader, follower) = (start(&store, calm()), start(&store, calm()));
    let guard = leader.wait_for_leadership().unwrap();
    let waiting = follower.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    eventually("the observation", || follower.status().leader.is_some());
    let before = memory();
    for _ in 0..5_000 {
        drop(follower.events());
    }
    // Other tests of this process need some, too.
    let more = memory().saturating_sub(before);
    assert!(more < 50_000, "{more} kB");
    // Those that are left are told, and the others forgotten.
    let reader = follower.events();
    guard.resign().unwrap();
    drop(waiter.join().unwrap());
    assert_eq!(wait_for_terms(&reader, 1).len(), 1);
}
