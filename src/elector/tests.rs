//! What happens between two threads at moments that no test through the interface can hit.

use super::*;
use crate::guard::PublishError;
use crate::store::MemoryStore;

mod reports;

const BOUND: Duration = Duration::from_secs(30);
const NAME: &str = "election";

fn start() -> (MemoryStore, Elector) {
    let store = MemoryStore::new();
    let elector = Elector::start(store.clone(), Config::builder(NAME).build().unwrap()).unwrap();
    (store, elector)
}

fn is_released(store: &MemoryStore) -> bool {
    store.observe(NAME, BOUND).unwrap().lease().is_some_and(crate::Lease::is_released)
}

#[track_caller]
fn eventually(mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + BOUND;
    while !is_so() {
        assert!(std::time::Instant::now() < until, "never");
        std::thread::yield_now();
    }
}

/// A waiter to whom a term was handed and who has not looked yet.
fn handed(elector: &Elector) -> (Settled, Receiver<Answer>) {
    let (reply, answer) = bounded(1);
    let settled = Settled::default();
    let waiter = Waiter { ticket: u64::MAX, reply, settled: settled.clone(), rides_out_fatal: false };
    elector.engine().inbox().send(Message::Campaign(waiter)).unwrap();
    eventually(|| answer.is_full());
    (settled, answer)
}

#[test]
fn b14_no_term_begins_for_a_waiter_that_has_given_up() {
    let (store, elector) = start();
    let (reply, answer) = bounded(1);
    let settled = Settled::default();
    // It gives up while its bid is under way, and the thread has not heard of that when the bid is won.
    assert!(settled.settle());
    let waiter = Waiter { ticket: u64::MAX, reply, settled, rides_out_fatal: false };
    elector.engine().inbox().send(Message::Campaign(waiter)).unwrap();
    while !is_released(&store) {
        assert!(!elector.is_leader(), "nobody leads, not for a moment");
    }
    assert!(answer.is_empty());
    assert_eq!(elector.status().terms, 0);
}

#[test]
fn a_waiter_whose_thread_unwound_leaves_nothing_behind() {
    let (store, elector) = start();
    let (reply, answer) = bounded(1);
    drop(answer);
    let waiter = Waiter { ticket: u64::MAX, reply, settled: Settled::default(), rides_out_fatal: false };
    elector.engine().inbox().send(Message::Campaign(waiter)).unwrap();
    eventually(|| is_released(&store) && !elector.is_leader());
}

#[test]
fn b14_a_term_that_comes_at_the_last_moment_is_taken() {
    let (store, elector) = start();
    let (settled, answer) = handed(&elector);
    let guard = elector.give_up(u64::MAX, &settled, &answer, CampaignError::TimedOut).unwrap();
    assert_eq!(guard.check().ok(), elector.fence());
    guard.resign().unwrap();
    assert!(is_released(&store));
}

#[test]
fn after_a_stop_the_term_that_comes_at_the_last_moment_is_given_back() {
    let (store, elector) = start();
    let (settled, answer) = handed(&elector);
    elector.stop();
    let error = elector.give_up(u64::MAX, &settled, &answer, CampaignError::Stopped).unwrap_err();
    assert!(matches!(error, CampaignError::Stopped), "{error}");
    eventually(|| is_released(&store));
}

#[test]
fn a_payload_for_a_term_that_was_given_back_reaches_nobody() {
    let (store, elector) = start();
    let guard = elector.wait_for_leadership().unwrap();
    let (reply, answer) = bounded::<Result<(), PublishError>>(1);
    let fence = Fence::try_from(guard.fence().get() + 1).unwrap();
    elector.engine().inbox().send(Message::Publish { fence, payload: b"x".to_vec(), reply }).unwrap();
    assert!(answer.recv().is_err(), "the dropped reply says that the term is over");
    assert_eq!(store.observe(NAME, BOUND).unwrap().lease().unwrap().payload(), None);
    assert!(guard.is_leader(), "the term that goes on has nothing to do with it");
}
