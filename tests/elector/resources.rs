//! What an elector costs the store: calls.

use crate::faulty::{Faulty, Kind};
use crate::util::*;

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
