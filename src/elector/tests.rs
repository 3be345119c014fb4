//! What happens between two threads at moments that no test through the interface can hit.

use super::*;
use crate::guard::PublishError;
use crate::store::MemoryStore;

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

type Handed = Result<(Term, Hold), StoreError>;

/// A waiter to whom a term was handed and who has not looked yet.
fn handed(elector: &Elector) -> Receiver<Handed> {
    let (reply, answer) = bounded(1);
    let waiter = Waiter { ticket: u64::MAX, reply, rides_out_fatal: false };
    elector.engine().inbox().send(Message::Campaign(waiter)).unwrap();
    eventually(|| answer.is_full());
    answer
}

#[test]
fn b14_a_term_handed_to_somebody_who_gave_up_at_that_moment_is_given_back() {
    let (store, elector) = start();
    let answer = handed(&elector);
    let fence = elector.fence().expect("it leads");
    // The waiter looked for the last time just before.
    elector.engine().inbox().send(Message::Withdraw { ticket: u64::MAX }).unwrap();
    eventually(|| is_released(&store));
    assert!(!elector.is_leader());
    let (term, hold) = answer.recv().unwrap().unwrap();
    assert_eq!(term.check().map_err(|lost| lost.cause), Err(LossCause::Resigned));
    drop(hold);
    assert!(elector.wait_for_leadership().unwrap().fence() > fence);
}

#[test]
fn b14_a_term_that_comes_at_the_last_moment_is_taken() {
    let (store, elector) = start();
    let answer = handed(&elector);
    let guard = elector.give_up(u64::MAX, &answer, CampaignError::TimedOut).unwrap();
    assert_eq!(guard.check().ok(), elector.fence());
    guard.resign().unwrap();
    assert!(is_released(&store));
}

#[test]
fn after_a_stop_the_term_that_comes_at_the_last_moment_is_given_back() {
    let (store, elector) = start();
    let answer = handed(&elector);
    elector.stop();
    let error = elector.give_up(u64::MAX, &answer, CampaignError::Stopped).unwrap_err();
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
