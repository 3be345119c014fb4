//! What is written down and told must neither come before what it tells of, nor tell what is not so.

use crossbeam_channel::{Sender, TryRecvError, unbounded};

use super::*;
use crate::event::Operation;
use crate::lease::{Bid, Lease, LeaseTimes, Observation, Renewal, Timestamp};
use crate::status::Role;

/// What is made of a renewal that was granted.
type Answering = fn(Lease) -> Option<Lease>;

/// Renewals wait until they are told what becomes of them.
#[derive(Debug)]
struct Staged {
    memory: MemoryStore,
    asked: Sender<()>,
    answers: Receiver<Answering>,
}

impl Store for Staged {
    fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        self.memory.acquire(bid, timeout)
    }
    fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        let _ = self.asked.send(());
        let answer = self.answers.recv().map_err(|_| StoreError::retryable("the test is over"))?;
        Ok(self.memory.renew(renewal, timeout)?.and_then(answer))
    }
    fn release(&self, name: &str, holder: &str, fence: Fence, timeout: Duration) -> Result<(), StoreError> {
        self.memory.release(name, holder, fence, timeout)
    }
    fn observe(&self, name: &str, timeout: Duration) -> Result<Observation, StoreError> {
        self.memory.observe(name, timeout)
    }
}

struct Stage {
    elector: Elector,
    asked: Receiver<()>,
    answers: Sender<Answering>,
}

fn staged() -> Stage {
    let ((asked, is_asked), (answers, answer)) = (unbounded(), unbounded());
    let store = Staged { memory: MemoryStore::new(), asked, answers: answer };
    let config = Config::builder(NAME).renew_interval(Duration::from_millis(20)).build().unwrap();
    Stage { elector: Elector::start(store, config).unwrap(), asked: is_asked, answers }
}

fn others_lease(fence: i64) -> Lease {
    let at = Timestamp::from_micros(1_700_000_000_000_000);
    let times =
        LeaseTimes { acquired_at: at, renewed_at: at, expires_at: at + Duration::from_secs(15), now: at };
    Lease::new(NAME, "other", Fence::try_from(fence).unwrap(), times)
}

#[test]
fn rule_18_a_term_that_was_refused_or_broken_is_over_before_anything_is_written_down() {
    let answers: [(Answering, LossCause); 3] = [
        (|_| None, LossCause::Superseded),
        (|_| Some(others_lease(9)), LossCause::Superseded),
        (|_| panic!("the store is broken"), LossCause::Failed),
    ];
    for (answer, cause) in answers {
        let stage = staged();
        let guard = stage.elector.wait_for_leadership().unwrap();
        stage.asked.recv_timeout(BOUND).unwrap();
        // Whoever asks for the status is in nobody's way.
        let snapshot = stage.elector.engine().shared.snapshot.lock();
        stage.answers.send(answer).unwrap();
        let lost = guard.lost().recv_timeout(BOUND).unwrap();
        assert_eq!((lost.cause, guard.check().unwrap_err().cause), (cause, cause));
        drop(snapshot);
    }
}

#[test]
fn a_renewal_that_was_granted_to_another_term_is_not_counted_as_one() {
    let stage = staged();
    let guard = stage.elector.wait_for_leadership().unwrap();
    stage.answers.send(|_| Some(others_lease(9))).unwrap();
    guard.lost().recv_timeout(BOUND).unwrap();
    eventually(|| stage.elector.status().losses.superseded == 1);
    let status = stage.elector.status();
    assert_eq!((status.renewals, status.round_trip), (0, None), "{status:?}");
}

/// Threads of this name stand still when they read the clock, until they are told to go on.
const SLOW: &str = "stands still";

#[derive(Debug)]
struct Halting {
    clock: SystemClock,
    halted: Sender<()>,
    go_on: Receiver<()>,
}

impl Clock for Halting {
    fn now(&self) -> Time {
        if std::thread::current().name() == Some(SLOW) {
            let _ = self.halted.send(());
            let _ = self.go_on.recv();
        }
        self.clock.now()
    }
}

#[test]
fn work_that_began_while_a_status_was_made_overruns_nothing() {
    let ((halted, is_halted), (goes_on, go_on)) = (unbounded(), unbounded());
    let clock = Halting { clock: SystemClock::new(), halted, go_on };
    let config = Config::builder(NAME).build().unwrap();
    let elector = Elector::start_with_clock(MemoryStore::new(), config, clock).unwrap();
    let looking = elector.clone();
    let looker = std::thread::Builder::new().name(SLOW.to_owned()).spawn(move || looking.status()).unwrap();
    // It has seen that nobody leads, and not yet whether somebody holds a guard.
    is_halted.recv_timeout(BOUND).unwrap();
    let guard = elector.wait_for_leadership().unwrap();
    drop(goes_on);
    looker.join().unwrap();
    let status = elector.status();
    assert_eq!((status.role, status.overrun), (Role::Leader, None), "{status:?}");
    assert!(guard.is_leader());
}

#[test]
fn a_late_release_does_not_hide_who_leads_by_now() {
    let (_store, elector) = start();
    let mut books = books::Books::new(elector.engine().shared.clone());
    books.saw(Some(&others_lease(9)));
    let events = elector.events();
    books.released(Fence::try_from(8).unwrap(), None, Duration::ZERO);
    assert_eq!(elector.status().leader.as_deref(), Some("other"));
    books.saw(Some(&others_lease(9)));
    books.answered(Operation::Observe, Duration::ZERO);
    let told: Vec<Event> = events.try_iter().collect();
    assert!(matches!(told[..], [Event::Released { .. }]), "the leader was told of before: {told:?}");
}

#[test]
fn the_events_end_with_the_threads_though_handles_are_left() {
    let (_store, elector) = start();
    let events = elector.events();
    elector.stop();
    eventually(|| matches!(events.try_recv(), Err(TryRecvError::Disconnected)));
    assert!(matches!(elector.events().try_recv(), Err(TryRecvError::Disconnected)), "nothing comes any more");
}
