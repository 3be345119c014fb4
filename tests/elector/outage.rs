//! Terms that end because the store does not answer, answers late, or answers that somebody else leads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure::{
    Clock, Elector, LossCause, ManualClock, MemoryStore, PublishError, Role, StoreError, SystemClock, Time,
};

use crate::faulty::{Faulty, Kind, Mode};
use crate::util::*;

#[test]
fn rule_6_a_hanging_store_ends_the_term_on_time_and_wakes_everybody() {
    let store = Faulty::new();
    let elector = start(&store, brisk());
    let guard = elector.wait_for_leadership().unwrap();
    store.wait_for_call(Kind::Renew);
    store.set_all(&Mode::Hang);
    store.wait_until_hanging(Kind::Renew);
    // The last renewal that succeeded was sent before now, so the term ends before now + 900 ms.
    let (hung, boot) = (Instant::now(), SystemClock::new().now());
    let term = guard.term();
    let sleeper = std::thread::spawn(move || {
        let lost = term.sleep(BOUND).unwrap_err();
        (lost, Instant::now())
    });
    let lost = guard.lost().recv_timeout(BOUND).unwrap();
    let told = hung.elapsed();
    assert_eq!(lost.cause, LossCause::Expired);
    assert_eq!(guard.check().unwrap_err(), lost);
    let (woken, at) = sleeper.join().unwrap();
    assert_eq!(woken, lost);
    // Not later than the deadline, but for what this machine needs to run a thread.
    assert!(told < ms(900) + ms(600), "{told:?}");
    assert!(at.duration_since(hung) < ms(900) + ms(600));
    assert!(SystemClock::new().now() > boot);
    assert!(!elector.is_leader() && elector.status().role != Role::Leader);
    // B10 (c): the guard is held on to, and that shows although the store still does not answer.
    eventually("the overrun", || elector.status().overrun.is_some_and(|overrun| overrun >= ms(100)));
    drop(guard);
    assert!(elector.status().overrun.is_none());
    store.set_all(&Mode::Pass);
}

#[test]
fn rule_4_the_deadline_is_checked_where_it_is_used() {
    let store = Faulty::new();
    let elector = start(&store, brisk());
    let guard = elector.wait_for_leadership().unwrap();
    store.wait_for_call(Kind::Renew);
    store.set_all(&Mode::TimeOut);
    store.wait_for_call(Kind::Renew);
    let clock = SystemClock::new();
    // Whatever remains now must be over after that long, to the nanosecond: no thread has to run for it.
    let remaining = guard.remaining();
    let deadline = clock.now() + remaining;
    assert!(remaining <= ms(900));
    loop {
        let before = clock.now();
        let ok = guard.is_leader();
        if before >= deadline {
            assert!(!ok, "live {:?} after its deadline", before.saturating_since(deadline));
            break;
        }
    }
    assert_eq!(guard.check().unwrap_err().cause, LossCause::Expired);
}

#[test]
fn rule_4_the_first_check_after_a_leap_of_the_clock_says_lost_b02_b03() {
    // Frozen, or suspended: the clock went on, nothing else ran.
    let clock = ManualClock::new(Time::from_nanos(5_000_000_000));
    let store = Faulty::new();
    let elector = Elector::start_with_clock(store.clone(), calm().build().unwrap(), clock.clone()).unwrap();
    let guard = elector.wait_for_leadership().unwrap();
    let term = guard.term();
    assert_eq!(guard.remaining(), ms(7_500));
    clock.advance(ms(7_500) - Duration::from_nanos(1));
    assert!(guard.is_leader() && elector.is_leader() && term.is_leader());
    clock.advance(Duration::from_nanos(1));
    assert_eq!(guard.check().unwrap_err().cause, LossCause::Expired);
    assert!(!elector.is_leader() && elector.fence().is_none() && elector.status().fence.is_none());
    assert_eq!(term.sleep(Duration::ZERO).unwrap_err().cause, LossCause::Expired);
    let lost = guard.lost().recv_timeout(BOUND).unwrap();
    assert_eq!(lost.cause, LossCause::Expired);
    // A renewal may have been sent just before the leap; but it must not revive anything.
    std::thread::sleep(ms(300));
    assert!(guard.check().is_err());
}

#[test]
fn rule_5_a_renewal_answered_after_the_deadline_revives_nothing() {
    for ask_first in [true, false] {
        let store = Faulty::new();
        let elector = start(&store, brisk());
        let events = elector.events();
        let guard = elector.wait_for_leadership().unwrap();
        store.set(&[Kind::Renew], &Mode::HoldReply);
        store.wait_until_hanging(Kind::Renew);
        // The write has landed and prolonged the lease; its answer is late.
        if ask_first {
            eventually("the end", || guard.check().is_err());
        } else {
            std::thread::sleep(ms(1_000));
        }
        store.set_all(&Mode::Pass);
        for _ in 0..200 {
            assert!(guard.check().is_err());
            std::thread::sleep(ms(1));
        }
        assert!(!elector.is_leader() && elector.fence().is_none());
        assert_eq!(wait_for_terms(&events, 2), [(1, None), (1, Some(LossCause::Expired))]);
        drop(guard);
        assert!(terms(&events).is_empty(), "once is enough");
    }
}

#[test]
fn rule_2_a_late_answer_counts_from_its_request() {
    let store = Faulty::new();
    store.set(&[Kind::Acquire], &Mode::HoldReply);
    let elector = start(&store, calm());
    let waiting = elector.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    store.wait_until_hanging(Kind::Acquire);
    std::thread::sleep(ms(400));
    store.set(&[Kind::Renew], &Mode::Hang);
    store.set(&[Kind::Acquire], &Mode::Pass);
    let guard = waiter.join().unwrap();
    assert!(guard.remaining() <= ms(7_500 - 400), "{:?}", guard.remaining());
    store.set_all(&Mode::Pass);
}

#[test]
fn a_grant_that_came_too_late_is_not_led_with() {
    let store = Faulty::new();
    store.set(&[Kind::Acquire], &Mode::HoldReply);
    let elector = start(&store, brisk());
    let events = elector.events();
    let waiting = elector.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    store.wait_until_hanging(Kind::Acquire);
    std::thread::sleep(ms(950));
    store.set_all(&Mode::Pass);
    let guard = waiter.join().unwrap();
    assert_eq!(guard.fence().get(), 2);
    assert_eq!(wait_for_terms(&events, 1), [(2, None)]);
}

#[test]
fn a_superseded_term_ends_at_the_next_renewal() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    let events = elector.events();
    let guard = elector.wait_for_leadership().unwrap();
    store.memory().delete(NAME);
    let lost = guard.lost().recv_timeout(ms(4_000)).unwrap();
    assert_eq!(lost.cause, LossCause::Superseded);
    assert_eq!(guard.check(), Err(lost));
    eventually("the overrun", || elector.status().overrun.is_some());
    drop(guard);
    eventually("no overrun", || elector.status().overrun.is_none());
    assert_eq!(wait_for_terms(&events, 2), [(1, None), (1, Some(LossCause::Superseded))]);
    assert_eq!(store.calls(Kind::Release), 0);
    let guard = elector.wait_for_leadership().unwrap();
    assert!(guard.fence().get() > 1, "above all that it has seen, also without the row");
}

#[test]
fn b02_the_guard_of_a_lost_term_does_not_free_its_successor() {
    let store = Faulty::new();
    let first = start(&store, brisk());
    let guard = first.wait_for_leadership().unwrap();
    store.wait_for_call(Kind::Renew);
    store.set_all(&Mode::Hang);
    store.wait_until_hanging(Kind::Renew);
    let second = start(store.memory(), calm());
    let next = second.wait_for_leadership().unwrap();
    assert!(guard.check().is_err());
    let before = row(store.memory()).unwrap();
    store.set_all(&Mode::Pass);
    drop(guard);
    within(BOUND, move || first.shutdown(BOUND)).unwrap();
    let after = row(store.memory()).unwrap();
    assert_eq!((after.holder(), after.fence()), (before.holder(), before.fence()));
    assert!(next.is_leader());
}

#[test]
fn b08_a_guard_dropped_while_a_renewal_hangs_past_the_deadline_is_released_all_the_same() {
    let store = Faulty::new();
    let elector = start(&store, brisk());
    let guard = elector.wait_for_leadership().unwrap();
    store.set(&[Kind::Renew], &Mode::HoldReply);
    store.wait_until_hanging(Kind::Renew);
    let (term, over) = (guard.term(), Instant::now() + guard.remaining());
    drop(guard);
    assert_eq!(term.check().unwrap_err().cause, LossCause::Resigned);
    eventually("the deadline", || Instant::now() > over);
    store.set_all(&Mode::Pass);
    eventually("the release", || is_released(&store));
}

#[test]
fn b12_a_store_that_panics_costs_the_term_and_not_the_thread() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    let guard = elector.wait_for_leadership().unwrap();
    store.set(&[Kind::Renew], &Mode::Panic);
    let lost = guard.lost().recv_timeout(BOUND).unwrap();
    assert_eq!(lost.cause, LossCause::Failed);
    assert!(guard.check().is_err());
    let error = elector.status().last_error.unwrap();
    assert_eq!(error.to_string(), "the store panicked: the store is broken");
    drop(guard);
    store.set_all(&Mode::Pass);
    assert!(elector.wait_for_leadership().unwrap().is_leader());
}

#[test]
fn b28_one_failed_or_timed_out_renewal_costs_nothing() {
    for mode in [Mode::Fail(StoreError::retryable("reset")), Mode::TimeOut, Mode::LoseReply] {
        let store = Faulty::new();
        let elector = start(&store, calm().operation_timeout(ms(300)));
        let guard = elector.wait_for_leadership().unwrap();
        store.set(&[Kind::Renew], &mode);
        eventually("a failure", || elector.status().failures >= 1);
        store.set_all(&Mode::Pass);
        let renewals = elector.status().renewals;
        eventually("another renewal", || elector.status().renewals > renewals);
        assert_eq!(guard.check().unwrap().get(), 1);
        assert!(elector.status().last_error.is_none());
    }
}

#[test]
fn rule_18_whoever_is_told_that_it_is_over_finds_it_over() {
    // Every way to hear of the end, and every end: at that moment no check may still succeed.
    type End = fn(&Elector, &Faulty);
    let ends: [(LossCause, End); 3] = [
        (LossCause::Stopped, |elector, _| elector.stop()),
        (LossCause::Superseded, |_, store| assert!(store.memory().delete(NAME))),
        (LossCause::Expired, |_, store| store.set_all(&Mode::TimeOut)),
    ];
    for (cause, end) in ends {
        let store = Faulty::new();
        let elector = start(&store, brisk());
        let events = elector.events();
        let guard = elector.wait_for_leadership().unwrap();
        let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
        let spawn = |wait: Box<dyn FnOnce() + Send>| {
            let (term, seen) = (guard.term(), seen.clone());
            std::thread::spawn(move || {
                wait();
                seen.lock().push(term.is_leader());
            })
        };
        let (lost, term) = (guard.lost().clone(), guard.term());
        let threads = [
            spawn(Box::new(move || assert!(lost.recv().is_ok()))),
            spawn(Box::new(move || assert!(term.sleep(BOUND).is_err()))),
            spawn(Box::new(move || drop(wait_for_terms(&events, 2)))),
        ];
        end(&elector, &store);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*seen.lock(), [false; 3], "{cause}");
        assert_eq!(guard.check().unwrap_err().cause, cause);
    }
}

#[test]
fn rule_18_the_term_is_over_before_the_release_is_sent() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    let guard = elector.wait_for_leadership().unwrap();
    let term = guard.term();
    store.set(&[Kind::Release], &Mode::Hang);
    let resigning = std::thread::spawn(move || guard.resign());
    store.wait_until_hanging(Kind::Release);
    assert!(!term.is_leader() && !elector.is_leader());
    store.set_all(&Mode::Pass);
    resigning.join().unwrap().unwrap();
}

/// A clock that holds up the thread that publishes, just after it has read the time.
#[derive(Clone, Debug, Default)]
struct Gated(Arc<(Mutex<bool>, parking_lot::Condvar)>);

impl Clock for Gated {
    fn now(&self) -> Time {
        let now = SystemClock::new().now();
        if std::thread::current().name() == Some("publisher") {
            let mut open = self.0.0.lock();
            while !*open {
                self.0.1.wait(&mut open);
            }
        }
        now
    }
}

#[test]
fn a_payload_that_was_held_up_is_not_published_by_the_next_term() {
    let (clock, store) = (Gated::default(), Faulty::new());
    let config = calm().payload("configured").build().unwrap();
    let elector = Elector::start_with_clock(store.clone(), config, clock.clone()).unwrap();
    let guard = elector.wait_for_leadership().unwrap();
    let next = elector.clone();
    let next = std::thread::spawn(move || next.wait_for_leadership().unwrap());
    // Its check succeeds, and it is frozen before it says what to publish.
    let publisher = std::thread::Builder::new().name("publisher".to_owned());
    let publishing = publisher.spawn(move || (guard.publish("of the first term"), guard)).unwrap();
    eventually("a second waiter", || elector.status().renewals >= 2);
    store.memory().step_clock(3_600_000_000);
    let next = next.join().unwrap();
    *clock.0.0.lock() = true;
    clock.0.1.notify_all();
    let (published, _guard) = publishing.join().unwrap();
    assert!(matches!(published, Err(PublishError::Lost(_))), "{published:?}");
    for _ in 0..2 {
        store.wait_for_call(Kind::Renew);
        assert_eq!(row(&store).unwrap().payload(), Some(&b"configured"[..]));
    }
    assert!(next.is_leader());
}

/// A clock that breaks in one thread.
#[derive(Clone, Debug, Default)]
struct Breakable(Arc<Mutex<Option<&'static str>>>);

impl Breakable {
    fn breaks(&self, thread: &'static str) {
        *self.0.lock() = Some(thread);
    }
}

impl Clock for Breakable {
    fn now(&self) -> Time {
        let broken = *self.0.lock();
        assert!(broken.is_none() || std::thread::current().name() != broken, "the clock is broken");
        SystemClock::new().now()
    }
}

#[test]
fn rule_6_without_a_watchdog_there_is_no_term() {
    let clock = Breakable::default();
    let store = MemoryStore::new();
    let elector = Elector::start_with_clock(store.clone(), calm().build().unwrap(), clock.clone()).unwrap();
    clock.breaks("tenure-watchdog");
    for _ in 0..3 {
        let guard = elector.wait_for_leadership().unwrap();
        let term = guard.term();
        let lost = within(ms(2_000), move || term.sleep(BOUND)).unwrap_err();
        assert_eq!(lost.cause, LossCause::Failed);
        assert_eq!(guard.check(), Err(lost));
        guard.resign().unwrap();
        assert!(is_released(&store));
    }
}

#[test]
fn b12_a_renewal_thread_that_breaks_takes_its_term_with_it() {
    let clock = Breakable::default();
    let store = MemoryStore::new();
    let elector = Elector::start_with_clock(store.clone(), calm().build().unwrap(), clock.clone()).unwrap();
    let events = elector.events();
    let guard = elector.wait_for_leadership().unwrap();
    clock.breaks("tenure-renewal");
    let error = guard.publish("x").unwrap_err();
    assert!(matches!(&error, PublishError::Lost(lost) if lost.cause == LossCause::Failed), "{error:?}");
    assert!(!guard.is_leader(), "rule 5: somebody was told");
    let lost = guard.lost().recv_timeout(BOUND).unwrap();
    assert_eq!(lost.cause, LossCause::Failed);
    assert_eq!(guard.check(), Err(lost));
    assert_eq!(wait_for_terms(&events, 2), [(1, None), (1, Some(LossCause::Failed))]);
    let waiting = elector.clone();
    let error = within(BOUND, move || waiting.wait_for_leadership().unwrap_err());
    assert!(matches!(error, tenure::CampaignError::Failed), "{error}");
    let running = elector.clone();
    let error = within(BOUND, move || running.run(|_| ()).unwrap_err());
    assert!(matches!(error, tenure::RunError::Failed), "{error}");
    assert!(guard.resign().is_err(), "nobody released it");
    assert!(is_held(&store));
    within(BOUND, move || elector.shutdown(ms(10))).unwrap();
}

/// The cause of a store's error: the store's own code, which asks the elector when it is dropped.
#[derive(Debug)]
struct Asks(Elector);

impl std::fmt::Display for Asks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the cause")
    }
}

impl std::error::Error for Asks {}

impl Drop for Asks {
    fn drop(&mut self) {
        let _ = self.0.status();
    }
}

#[test]
fn a_stores_error_may_ask_the_elector_when_it_is_dropped() {
    let store = Faulty::new();
    let elector = start(&store, brisk());
    let failing = |kind, message: &str| {
        let error = StoreError::retryable(message).with_source(Asks(elector.clone()));
        store.set(&[kind], &Mode::Fail(error));
    };
    failing(Kind::Observe, "the first");
    let waiting = elector.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().unwrap());
    let answers = |what: &str, failures| {
        eventually(what, || {
            let elector = elector.clone();
            within(BOUND, move || elector.status().failures) >= failures
        });
    };
    answers("a failure", 1);
    // In the place of the first one, and then of the second.
    failing(Kind::Observe, "the second");
    answers("other failures", elector.status().failures + 2);
    store.set_all(&Mode::Pass);
    let guard = within(BOUND, move || waiter.join().unwrap());
    // In the place of that of an earlier release.
    failing(Kind::Release, "a release");
    assert!(guard.resign().is_err());
    store.set_all(&Mode::Pass);
    let again = elector.clone();
    let guard = within(BOUND, move || again.wait_for_leadership().unwrap());
    within(BOUND, move || guard.resign()).unwrap();
}

/// A clock that lags behind for the renewal thread: as if that thread were frozen after each of its readings.
#[derive(Clone, Debug)]
struct Lagging {
    renewal: ManualClock,
    everybody_else: ManualClock,
}

impl Clock for Lagging {
    fn now(&self) -> Time {
        match std::thread::current().name() {
            Some("tenure-renewal") => self.renewal.now(),
            _ => self.everybody_else.now(),
        }
    }
}

#[test]
fn rule_5_a_frozen_renewal_thread_revives_nothing_either() {
    let start = Time::from_nanos(5_000_000_000);
    let clock = Lagging { renewal: ManualClock::new(start), everybody_else: ManualClock::new(start) };
    let store = Faulty::new();
    let elector = Elector::start_with_clock(store.clone(), calm().build().unwrap(), clock.clone()).unwrap();
    let events = elector.events();
    let guard = elector.wait_for_leadership().unwrap();
    let term = guard.term();
    store.set(&[Kind::Renew], &Mode::HoldReply);
    let publishing = std::thread::spawn(move || (guard.publish("x"), guard));
    store.wait_until_hanging(Kind::Renew);
    clock.everybody_else.advance(ms(7_500));
    assert_eq!(term.check().unwrap_err().cause, LossCause::Expired);
    // By the renewal thread's clock the answer is in time, and prolongs the term.
    clock.renewal.advance(ms(7_000));
    store.set_all(&Mode::Pass);
    let (published, guard) = publishing.join().unwrap();
    assert!(matches!(published, Err(PublishError::Lost(_))), "{published:?}");
    assert!(!elector.is_leader() && guard.check().is_err());
    assert_eq!(wait_for_terms(&events, 2), [(1, None), (1, Some(LossCause::Expired))]);
    assert_eq!(elector.status().terms, 1);
}
