use super::*;
use crate::time::{ManualClock, Time};
use std::sync::mpsc;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(15);

fn manual() -> (ManualClock, MemoryStore) {
    let clock = ManualClock::new(Time::ZERO);
    (clock.clone(), MemoryStore::with_clock(clock))
}

fn acquire(store: &MemoryStore, bid: &Bid<'_>) -> Option<Lease> {
    store.acquire(bid, SECOND).unwrap()
}

fn create(store: &MemoryStore, holder: &str) -> Lease {
    acquire(store, &Bid::new("e", holder, LEASE)).unwrap()
}

fn observe(store: &MemoryStore) -> Lease {
    store.observe("e", SECOND).unwrap().into_lease().unwrap()
}

fn renew(store: &MemoryStore, lease: &Lease) -> Option<Lease> {
    store.renew(&Renewal::new("e", lease.holder(), lease.fence(), LEASE), SECOND).unwrap()
}

#[test]
fn rule_9_the_guard_is_the_row_and_not_the_request_b06() {
    let (clock, store) = manual();
    let seventh = acquire(&store, &Bid::new("e", "h", LEASE).above(6)).unwrap();
    let version = seventh.version();
    let (seven, eight) = (Fence::try_from(7).unwrap(), Fence::try_from(8).unwrap());
    for (holder, fence) in [("other", 7), ("h", 6), ("h", 8)] {
        let renewal = Renewal::new("e", holder, Fence::try_from(fence).unwrap(), LEASE);
        assert_eq!(store.renew(&renewal, SECOND).unwrap(), None, "(i), (ii) {holder} {fence}");
        assert_eq!(observe(&store).version(), version);
    }
    clock.advance(LEASE + Duration::from_millis(1));
    assert_eq!(renew(&store, &seventh), None, "(iii) expired without a rival");
    assert_eq!(observe(&store).version(), version);
    let eighth = acquire(&store, &Bid::new("e", "k", LEASE).over(Some(version))).unwrap();
    assert_eq!(eighth.fence(), eight);
    store.release("e", "h", seven, SECOND).unwrap();
    assert_eq!(observe(&store), eighth, "(v) a stale release");
    let own = acquire(&store, &Bid::new("e", "k", LEASE).over(Some(eighth.version()))).unwrap();
    assert_eq!(own.fence().get(), 9, "(vi) over one's own valid version: a new term");
    assert!(store.delete("e"));
    assert_eq!(renew(&store, &own), None, "(iv) deleted");
    assert_eq!(store.observe("e", SECOND).unwrap(), Observation::vacant(None), "and still no row");
    let after = acquire(&store, &Bid::new("e", "k", LEASE).above(own.fence().get())).unwrap();
    assert_eq!(after.fence().get(), 10, "(viii) above all that the candidate has seen");
    let fences: Vec<_> = store.history("e").into_iter().map(|(fence, _)| fence.get()).collect();
    assert_eq!(fences, [7, 8, 9, 10]);
}

#[test]
fn a_lease_ends_at_its_expiry_exactly() {
    let (clock, store) = manual();
    let lease = create(&store, "h");
    clock.advance(LEASE - Duration::from_micros(1));
    assert_eq!(observe(&store).ttl(), Duration::from_micros(1));
    assert!(!observe(&store).is_expired());
    clock.advance(Duration::from_micros(1));
    assert!(observe(&store).is_expired());
    assert_eq!(renew(&store, &lease), None);
}

#[test]
fn granted_lengths_are_exact_and_parts_of_a_microsecond_dropped_b28() {
    let (clock, store) = manual();
    clock.advance(Duration::from_nanos(1_999));
    let mut over = None;
    for (asked, granted) in [
        (Duration::from_nanos(1_234_567_899), Duration::from_micros(1_234_567)),
        (Duration::from_secs(31 * 86_400), Duration::from_secs(31 * 86_400)),
        (Duration::ZERO, Duration::ZERO),
    ] {
        let lease = acquire(&store, &Bid::new("e", "h", asked).over(over)).unwrap();
        assert_eq!((lease.length(), lease.ttl()), (granted, granted));
        over = Some(lease.version());
    }
}

#[test]
fn the_clock_steps_either_way_and_never_onto_the_epoch() {
    let (_, store) = manual();
    let lease = create(&store, "h");
    store.step_clock(-3_600_000_000);
    assert_eq!(observe(&store).ttl(), LEASE + Duration::from_secs(3_600));
    store.step_clock(7_200_000_000);
    assert!(observe(&store).is_expired());
    for step in [i64::MIN, i64::MAX, i64::MAX, -1] {
        store.step_clock(step);
        let now = observe(&store).now();
        assert!(now > Timestamp::EPOCH, "{now:?}");
        let version = observe(&store).version();
        let next = acquire(&store, &Bid::new("e", "h", LEASE).over(Some(version))).unwrap();
        assert!(!next.is_released() && next.length() == LEASE, "{next:?}");
    }
    assert_eq!(observe(&store).fence().get(), lease.fence().get() + 4);
}

#[test]
fn rule_8_the_same_values_again_are_another_version() {
    let (_, store) = manual();
    let lease = create(&store, "h");
    let renewed = renew(&store, &lease).unwrap();
    assert_eq!(renewed.renewed_at(), lease.renewed_at(), "the clock stood still");
    assert_ne!(renewed.version(), lease.version());
    assert_eq!(acquire(&store, &Bid::new("e", "k", LEASE).over(Some(lease.version()))), None);
}

#[test]
fn rule_15_fences_rise_across_a_fail_over_that_lost_them() {
    let (_, store) = manual();
    store.set_timeline(Some(1));
    let none = store.snapshot("e");
    let first = create(&store, "a");
    let kept = store.snapshot("e");
    let bid = Bid::new("e", "a", LEASE).timeline(Some(1));
    let lost = acquire(&store, &bid.clone().over(Some(first.version()))).unwrap();
    store.promote(2, &[kept]);
    assert_eq!(observe(&store).version(), first.version(), "the row is exactly what it was");
    assert_eq!(observe(&store).timeline(), Some(2));
    assert_eq!(acquire(&store, &bid.over(Some(first.version()))), None, "observed on another timeline");
    let bid = Bid::new("e", "b", LEASE).over(Some(first.version())).timeline(Some(2));
    let next = acquire(&store, &bid).unwrap();
    assert!(next.fence() > lost.fence() && next.fence().matches_timeline(2));
    assert_ne!(next.version().mark(), lost.version().mark(), "marks are not given again");
    store.restore(&none);
    assert_eq!(store.observe("e", SECOND).unwrap(), Observation::vacant(Some(2)));
    assert_eq!(acquire(&store, &Bid::new("e", "b", LEASE).timeline(Some(1))), None, "creates neither");
}

#[test]
fn fences_that_run_out_are_an_error_and_change_nothing() {
    let (_, store) = manual();
    let last = acquire(&store, &Bid::new("e", "h", LEASE).above(i64::MAX - 1)).unwrap();
    let error = store.acquire(&Bid::new("e", "k", LEASE).over(Some(last.version())), SECOND).unwrap_err();
    assert!(error.is_fatal(), "{error}");
    assert_eq!(observe(&store), last);
    assert_eq!(store.history("e").len(), 1);
}

#[test]
fn a_second_release_writes_nothing() {
    let (_, store) = manual();
    let lease = create(&store, "h");
    store.release("e", "h", lease.fence(), SECOND).unwrap();
    let released = observe(&store);
    store.release("e", "h", lease.fence(), SECOND).unwrap();
    assert_eq!(observe(&store), released);
}

#[test]
fn a_locked_row_bounds_writers_and_writes_nothing() {
    let store = MemoryStore::new();
    let lease = create(&store, "h");
    let first = store.lock("e");
    let second = store.lock("e");
    assert_eq!(format!("{second:?}"), r#"RowHold { name: "e", .. }"#, "and not the whole store");
    drop(first);
    let timeout = Duration::from_millis(50);
    let started = SystemClock.now();
    let error = store.acquire(&Bid::new("e", "k", LEASE).over(Some(lease.version())), timeout).unwrap_err();
    assert!(error.is_timeout());
    assert!(store.renew(&Renewal::new("e", "h", lease.fence(), LEASE), timeout).unwrap_err().is_timeout());
    assert!(store.release("e", "h", lease.fence(), timeout).unwrap_err().is_timeout());
    assert!(SystemClock.now().saturating_since(started) >= 3 * timeout);
    assert_eq!(observe(&store).version(), lease.version(), "readers don't wait");
    assert!(acquire(&store, &Bid::new("another", "k", LEASE)).is_some(), "another row is free");
    drop(second);
    assert!(renew(&store, &lease).is_some());
}

#[test]
fn rule_17_the_clock_is_read_after_the_wait() {
    let (clock, store) = manual();
    let lease = create(&store, "h");
    let hold = store.lock("e");
    let (started, starts) = mpsc::channel();
    let waiting = store.clone();
    let old = lease.clone();
    let writer = std::thread::spawn(move || {
        started.send(()).unwrap();
        let over = Some(old.version());
        waiting.acquire(&Bid::new("e", "k", LEASE).over(over), Duration::MAX).unwrap().unwrap()
    });
    starts.recv().unwrap();
    // Whether the writer waits already or not, the clock moves while the row is locked.
    std::thread::sleep(Duration::from_millis(20));
    clock.advance(10 * SECOND);
    drop(hold);
    let next = writer.join().unwrap();
    assert_eq!(next.renewed_at(), lease.renewed_at() + 10 * SECOND);
    assert_eq!(observe(&store).ttl(), LEASE);
}

#[test]
fn debug_never_waits() {
    let store = MemoryStore::new();
    create(&store, "h");
    assert_eq!(format!("{store:?}"), "MemoryStore { elections: 1, timeline: None, .. }");
    let _state = store.0.state.lock();
    assert_eq!(format!("{store:?}"), "MemoryStore { .. }");
}
