use super::*;

#[test]
fn rule_15_fences_follow_the_timeline_and_always_rise() {
    let next = |highest, timeline| Fence::after(highest, timeline).unwrap().get();
    assert_eq!(next(0, None), 1);
    assert_eq!(next(0, Some(1)), 1, "a database that was never promoted starts at 1");
    assert_eq!(next(41, Some(1)), 42);
    let promoted = next(41, Some(2));
    assert_eq!(promoted, (1 << 40) + 1);
    assert_eq!(next(promoted, Some(2)), promoted + 1);
    // After an upgrade the timeline starts again at 1: still higher, and recognisable.
    let upgraded = next(promoted, Some(1));
    assert_eq!(upgraded, (1024 << 40) + 1);
    assert_eq!(next(upgraded, Some(1)), upgraded + 1);
    let mut highest = 0;
    for timeline in [1, 2, 3, 1, 1, 7, 6, 5, 1024, 1025, 1026, 2, u32::MAX] {
        let fence = Fence::after(highest, Some(timeline)).unwrap();
        assert!(fence.get() > highest, "{fence:?} after {highest} on {timeline}");
        assert!(fence.matches_timeline(timeline));
        highest = fence.get();
    }
}

#[test]
fn exhausted_fences_are_none_not_a_wrap() {
    assert_eq!(Fence::after(i64::MAX, None), None);
    assert_eq!(Fence::after(i64::MAX, Some(1)), None);
    assert_eq!(Fence::after(i64::MAX - 1, Some(3)), None);
    assert_eq!(Fence::after(-5, None).unwrap().get(), 1);
}

#[test]
fn timestamps_saturate() {
    let last = Timestamp::from_micros(i64::MAX);
    let first = Timestamp::from_micros(i64::MIN);
    assert_eq!(last.saturating_since(first), Duration::from_micros(u64::MAX));
    assert_eq!(first.saturating_since(last), Duration::ZERO);
    assert_eq!(last + Duration::MAX, last);
    assert_eq!(Timestamp::EPOCH.to_system_time(), Some(SystemTime::UNIX_EPOCH));
}

#[test]
fn a_fence_is_a_number_from_1_on_and_shows_it() {
    let fence = Fence::try_from(7).unwrap();
    assert_eq!((i64::from(fence), fence.get()), (7, 7));
    assert_eq!((format!("{fence}"), format!("{fence:?}")), ("7".to_owned(), "Fence(7)".to_owned()));
    for number in [0, -1, i64::MIN] {
        let error = Fence::try_from(number).unwrap_err();
        assert_eq!(error.to_string(), format!("{number} is not a fence: fences start at 1"));
    }
    assert_eq!(Fence::try_from(1).unwrap().get(), 1);
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn lease() -> Lease {
    let times = LeaseTimes { acquired_at: at(10), renewed_at: at(20), expires_at: at(50), now: at(30) };
    Lease::new("e", "h", Fence::try_from(5).unwrap(), times)
}

#[test]
fn a_timestamp_is_shown_and_converted_on_both_sides_of_the_epoch() {
    let second = Duration::from_secs(1);
    assert_eq!(at(1_000_000).to_system_time(), SystemTime::UNIX_EPOCH.checked_add(second));
    assert_eq!(at(-1_000_000).to_system_time(), SystemTime::UNIX_EPOCH.checked_sub(second));
    assert_eq!(Timestamp::EPOCH.to_system_time(), Some(SystemTime::UNIX_EPOCH));
    assert_eq!((format!("{:?}", at(7)), at(7).as_micros()), ("7us".to_owned(), 7));
}

#[test]
fn a_lease_says_what_it_was_made_of() {
    let lease = lease().with_payload(Some(b"where".to_vec())).with_mark(9).with_timeline(Some(3));
    assert_eq!((lease.name(), lease.holder(), lease.fence().get()), ("e", "h", 5));
    assert_eq!((lease.payload(), lease.timeline()), (Some(&b"where"[..]), Some(3)));
    let times = (lease.acquired_at(), lease.renewed_at(), lease.expires_at(), lease.now());
    assert_eq!(times, (at(10), at(20), at(50), at(30)));
    assert_eq!((lease.ttl(), lease.length()), (Duration::from_micros(20), Duration::from_micros(30)));
    assert!(lease.held_by("h") && !lease.held_by("k"));
    let version = lease.version();
    assert_eq!((version.holder(), version.fence().get(), version.mark()), ("h", 5, 9));
    assert_eq!((version.renewed_at(), version.expires_at()), (at(20), at(50)));
    let seen = Observation::of(lease.clone());
    assert_eq!((seen.lease(), seen.timeline()), (Some(&lease), Some(3)));
    assert_eq!(seen.into_lease(), Some(lease));
    let vacant = Observation::vacant(Some(4));
    assert_eq!((vacant.lease(), vacant.timeline()), (None, Some(4)));
    assert_eq!(vacant.into_lease(), None);
}

#[test]
fn a_lease_is_over_at_its_expiry_and_released_at_the_epoch() {
    let seen_at = |now, expires_at| {
        let times = LeaseTimes { acquired_at: at(10), renewed_at: at(20), expires_at, now };
        let lease = Lease::new("e", "h", Fence::try_from(5).unwrap(), times);
        (lease.is_expired(), lease.is_released())
    };
    assert_eq!(seen_at(at(49), at(50)), (false, false));
    assert_eq!(seen_at(at(50), at(50)), (true, false));
    assert_eq!(seen_at(at(51), at(50)), (true, false));
    assert_eq!(seen_at(at(51), Timestamp::EPOCH), (true, true));
}

#[test]
fn what_is_asked_of_a_store_is_what_was_set() {
    let version = lease().version();
    let bid = Bid::new("e", "h", Duration::from_secs(3));
    assert_eq!((bid.name, bid.holder, bid.lease_duration), ("e", "h", Duration::from_secs(3)));
    assert_eq!((bid.payload, bid.above, &bid.over, bid.timeline), (None, 0, &None, None));
    let bid = bid.payload(Some(b"p")).above(7).over(Some(version.clone())).timeline(Some(2));
    assert_eq!(
        (bid.payload, bid.above, bid.over, bid.timeline),
        (Some(&b"p"[..]), 7, Some(version), Some(2))
    );
    let fence = Fence::try_from(5).unwrap();
    let renewal = Renewal::new("e", "h", fence, Duration::from_secs(3));
    assert_eq!((renewal.name, renewal.holder, renewal.fence), ("e", "h", fence));
    assert_eq!((renewal.lease_duration, renewal.payload), (Duration::from_secs(3), None));
    assert_eq!(renewal.payload(Some(b"q")).payload, Some(&b"q"[..]));
}
