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
