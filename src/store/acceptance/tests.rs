//! Proof that every check can fail: for each promise a store that breaks it, and the words in which it is told.

use super::*;
use crate::lease::{Bid, Lease};
use std::sync::atomic::{AtomicUsize, Ordering};

mod broken;
mod fault;
use broken::Broken;
use fault::Fault;

/// What is wrong, the check that has to notice, and a part of what it says.
const TABLE: &[(Fault, &str, &str)] = &[
    (Fault::AcquireIsNotAtomic, "one_of_many_creates", "two candidates won"),
    (Fault::NobodyWins, "one_of_many_creates", "none of 16"),
    (Fault::AcquireIsNotAtomic, "one_of_many_takes_over", "two candidates won"),
    (Fault::FenceRestartsAfterRelease, "one_of_many_takes_over", "followed"),
    (Fault::FenceRestartsAfterRelease, "fences_never_repeat", "after a release"),
    (Fault::FenceRestartsAfterExpiry, "fences_never_repeat", "after an expiry"),
    (Fault::OwnTermContinues, "fences_never_repeat", "by the same holder"),
    (Fault::FenceSkips, "fences_are_the_next_above_stored_and_floor", "a take-over of"),
    (Fault::FenceIgnoresTimeline, "fences_are_the_next_above_stored_and_floor", "a create above"),
    (
        Fault::FloorIgnoredOnCreate,
        "fences_are_the_next_above_stored_and_floor",
        "a create above 3298534883335 got",
    ),
    (Fault::FloorIgnoredOnTakeOver, "fences_are_the_next_above_stored_and_floor", "a take-over of"),
    (Fault::FloorReplacesStored, "fences_are_the_next_above_stored_and_floor", "a take-over of"),
    (Fault::CreateOverLive, "create_is_refused_over_any_row", "by host-a-1 over a live row was granted"),
    (Fault::CreateOverExpired, "create_is_refused_over_any_row", "over an expired row was granted"),
    (Fault::CreateOverReleased, "create_is_refused_over_any_row", "over a released row was granted"),
    (Fault::CreateOverOwn, "create_is_refused_over_any_row", "by host-a-1 over a live row was granted"),
    (Fault::RefusedCreateWrites, "create_is_refused_over_any_row", "over a live row changed the row"),
    (Fault::TakeOverCreates, "take_over_is_refused_without_a_row", "no row was granted"),
    (
        Fault::VersionWithoutHolder,
        "take_over_is_refused_over_another_version",
        "with another holder was granted",
    ),
    (
        Fault::VersionWithoutFence,
        "take_over_is_refused_over_another_version",
        "with another fence was granted",
    ),
    (Fault::VersionWithoutRenewedAt, "take_over_is_refused_over_another_version", "another renewed_at was"),
    (Fault::VersionWithoutExpiresAt, "take_over_is_refused_over_another_version", "another expires_at was"),
    (Fault::VersionWithoutMark, "take_over_is_refused_over_another_version", "with another mark was granted"),
    (Fault::ExpiredIsFree, "take_over_is_refused_over_another_version", "over an expired row"),
    (Fault::ReleasedIsFree, "take_over_is_refused_over_another_version", "over a released row"),
    (Fault::OwnRowIsFree, "take_over_is_refused_over_another_version", "by host-a-1 over a live row"),
    (Fault::HoldersIgnoreCase, "take_over_is_refused_over_another_version", "with another holder"),
    (Fault::LiveIsRefused, "take_over_asks_no_clock", "was refused that names the row as it is"),
    (Fault::OwnTermContinues, "over_ones_own_version_is_a_new_term", "for two terms"),
    (Fault::OwnTermKeepsItsStart, "over_ones_own_version_is_a_new_term", "kept the old one's acquired_at"),
    (Fault::MarkNeverMoves, "every_write_is_another_version", "writes 0 and 1 carry the same mark"),
    (Fault::MarkMovesOnAcquireOnly, "every_write_is_another_version", "carry the same mark"),
    (Fault::OwnRowIsFree, "late_statements_change_nothing", "a late second take-over"),
    (Fault::CreateOverReleased, "late_statements_change_nothing", "a late create"),
    (Fault::ReleaseByName, "late_statements_change_nothing", "a late release"),
    (Fault::RenewRevivesReleased, "renew_is_refused_once_released", "of a released lease was granted"),
    (Fault::TimelineIgnoredOnCreate, "another_timeline_is_refused", "a create on timeline"),
    (Fault::TimelineIgnoredOnTakeOver, "another_timeline_is_refused", "a take-over on timeline"),
    (Fault::TimelineAlwaysRefused, "another_timeline_is_refused", "was refused that names the row as it is"),
    (Fault::VacantWithoutTimeline, "every_answer_carries_the_timeline", "a create carries timeline Some(3)"),
    (Fault::RowWithoutTimeline, "every_answer_carries_the_timeline", "an observed row carries timeline None"),
    (Fault::FenceIgnoresTimeline, "every_answer_carries_the_timeline", "on timeline 3"),
    (Fault::RenewRaisesFence, "renew_keeps_the_term", "changed fence"),
    (Fault::RenewMovesAcquiredAt, "renew_keeps_the_term", "moved acquired_at"),
    (Fault::RenewKeepsRenewedAt, "renew_keeps_the_term", "did not move renewed_at"),
    (Fault::RenewNever, "renew_keeps_the_term", "own renewal of a live lease was refused"),
    (Fault::RenewIgnoresHolder, "renew_is_refused_to_anybody_else", "by another holder was granted"),
    (Fault::RenewIgnoresFence, "renew_is_refused_to_anybody_else", "with a lower fence was granted"),
    (Fault::RenewTakesHigherFence, "renew_is_refused_to_anybody_else", "with a higher fence was granted"),
    (Fault::HoldersIgnoreCase, "renew_is_refused_to_anybody_else", "in capitals was granted"),
    (Fault::RefusedRenewWrites, "renew_is_refused_to_anybody_else", "by another holder changed the row"),
    (Fault::RenewRevivesExpired, "renew_is_refused_once_expired", "that nobody took was granted"),
    (Fault::RenewCreates, "renew_is_refused_without_a_row", "without a row was granted"),
    (Fault::ReleaseDeletes, "release_is_recognisable_and_claimable_at_once", "the row is gone"),
    (Fault::ReleaseExpiresNow, "release_is_recognisable_and_claimable_at_once", "left expires_at"),
    (Fault::ReleaseResetsFence, "release_is_recognisable_and_claimable_at_once", "changed fence"),
    (Fault::ReleaseDropsPayload, "release_is_recognisable_and_claimable_at_once", "changed the payload"),
    (Fault::ReleaseClearsHolder, "release_is_recognisable_and_claimable_at_once", "changed the holder"),
    (Fault::ReleaseMovesRenewedAt, "release_is_recognisable_and_claimable_at_once", "moved renewed_at"),
    (Fault::ReleaseByName, "release_does_nothing_to_anybody_else", "by another holder changed"),
    (Fault::ReleaseIgnoresFence, "release_does_nothing_to_anybody_else", "with a lower fence changed"),
    (Fault::ReleaseCreates, "release_does_nothing_to_anybody_else", "made one"),
    (Fault::SecondReleaseFails, "release_twice_or_late_is_no_error", "undisturbed call failed"),
    (Fault::ExpiredStaysUnreleased, "release_twice_or_late_is_no_error", "could not be released"),
    (Fault::RenewTouchesEveryElection, "elections_do_not_touch_each_other", "a renewal of another election"),
    (Fault::ReleaseTouchesEveryElection, "elections_do_not_touch_each_other", "of another election changed"),
    (Fault::ObserveWrites, "observing_writes_nothing", "observation 0 found"),
    (Fault::ObserveCreates, "observing_writes_nothing", "has a row"),
    (Fault::ListForgetsReleased, "a_list_has_every_row_as_it_is_in_order", "is not in a list of 4"),
    (Fault::ListByDictionary, "a_list_has_every_row_as_it_is_in_order", "comes behind"),
    (Fault::ListWithoutPayload, "a_list_has_every_row_as_it_is_in_order", "and the row is"),
    (Fault::ListWithoutTimeline, "a_list_has_every_row_as_it_is_in_order", "carries timeline None"),
    (Fault::ListReadsItsClockEachTime, "a_list_has_every_row_as_it_is_in_order", "by different clocks"),
    (Fault::ListCallsAllLive, "a_list_has_every_row_as_it_is_in_order", "is expired: false in a list"),
    (Fault::ListIsTooLong, "a_list_has_every_row_as_it_is_in_order", "a list has 1001 rows"),
    (Fault::ListFails, "a_list_has_every_row_as_it_is_in_order", "an undisturbed call failed: later"),
    (Fault::ListWrites, "listing_writes_nothing", "a list changed the row"),
    (Fault::AnswerWithoutMark, "answers_are_the_row", "a create answered"),
    (Fault::ClockReadTwice, "answers_are_the_row", "read its clock twice"),
    (Fault::PayloadDropped, "payloads_come_back_byte_for_byte", "of Some(0) bytes gave None"),
    (Fault::EmptyPayloadIsNone, "payloads_come_back_byte_for_byte", "of Some(0) bytes gave None"),
    (Fault::PayloadEndsAtNul, "payloads_come_back_byte_for_byte", "of Some(1) bytes gave Some(0)"),
    (Fault::PayloadIsText, "payloads_come_back_byte_for_byte", "changed the bytes"),
    (Fault::RenewKeepsPayload, "the_last_write_decides_the_payload", "a renewal without payload left"),
    (Fault::TakeOverKeepsPayload, "the_last_write_decides_the_payload", "a take-over without payload left"),
    (Fault::RefusedRenewPublishes, "the_last_write_decides_the_payload", "a refused renewal left"),
    (Fault::NamesTrimmed, "names_come_back_byte_for_byte", "is taken for another name"),
    (Fault::NamesLowercased, "names_come_back_byte_for_byte", "is taken for another name"),
    (Fault::NamesCut, "names_come_back_byte_for_byte", "is taken for another name"),
    (Fault::HoldersTrimmed, "holders_come_back_byte_for_byte", "renewed for"),
    (Fault::HoldersCut, "holders_come_back_byte_for_byte", "an acquire gave"),
    (Fault::HoldersIgnoreCase, "holders_come_back_byte_for_byte", "renewed for"),
    (Fault::LengthsInMilliseconds, "granted_lengths_are_exact", "a create for 1.234567s was granted 1.234s"),
    (Fault::LengthsUpTo30Days, "granted_lengths_are_exact", "a create for 2678400s was granted 2592000s"),
    (Fault::RenewAddsToExpiry, "granted_lengths_are_exact", "a renewal for 1.5s was granted"),
    (Fault::NowIsRenewedAt, "the_clock_of_the_answer_is_the_one_of_the_row", "fell by 0ns in"),
    (Fault::NowIsLate, "the_clock_of_the_answer_is_the_one_of_the_row", "a create for 60s has 70s left"),
    (
        Fault::NowIsEarly,
        "the_clock_of_the_answer_is_the_one_of_the_row",
        "a create for 60s has only 59s left",
    ),
    (
        Fault::WaitsPastTimeout,
        "a_held_row_delays_no_call_past_its_timeout",
        "an acquire with a timeout of 300ms",
    ),
    (Fault::HoldIgnored, "a_held_row_delays_no_call_past_its_timeout", "took a row that was held"),
    (Fault::HeldIsFatal, "a_held_row_delays_no_call_past_its_timeout", "is fatal"),
    (
        Fault::HeldRenewIsRefused,
        "a_held_row_delays_no_call_past_its_timeout",
        "a renewal of a held row was decided",
    ),
    (
        Fault::HeldReleaseIsDone,
        "a_held_row_delays_no_call_past_its_timeout",
        "a release of a held row was decided",
    ),
    (Fault::HeldStaysHeld, "a_held_row_delays_no_call_past_its_timeout", "could not be taken over any more"),
    (
        Fault::ClockBeforeWait,
        "an_acquire_that_waited_counts_from_after_the_wait",
        "counts from before the wait",
    ),
    (Fault::HoldIgnored, "an_acquire_that_waited_counts_from_after_the_wait", "did not wait for it"),
    (
        Fault::ClockBeforeWait,
        "a_renewal_that_waited_counts_from_after_the_wait",
        "counts from before the wait",
    ),
    (Fault::RenewNever, "a_renewal_that_waited_counts_from_after_the_wait", "because it had to wait"),
    (Fault::ClockBeforeWait, "a_renewal_that_outlived_its_lease_is_refused", "after its lease had expired"),
    (Fault::GuardBeforeWait, "a_renewal_that_outlived_its_lease_is_refused", "after its lease had expired"),
];

/// How many stores are tried at once; most of them wait most of the time.
const WORKERS: usize = 8;

fn check(name: &str) -> &'static Check {
    checks().iter().find(|check| check.name() == name).unwrap_or_else(|| panic!("no check {name}"))
}

#[test]
fn every_check_can_fail() {
    let next = AtomicUsize::new(0);
    let missed = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((fault, name, words)) = TABLE.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match check(name).run(&Broken::new(*fault, Some(3))) {
                        Err(failure) if failure.to_string().contains(words) => {}
                        Err(failure) => missed.lock().push(format!("{fault:?}, {name}: {failure}")),
                        Ok(()) => missed.lock().push(format!("{fault:?} passes {name}")),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_check_is_in_the_table() {
    for check in checks() {
        assert!(TABLE.iter().any(|(_, name, _)| *name == check.name()), "nothing breaks {}", check.name());
    }
}

#[test]
fn timelines_are_refused_by_stores_without_them() {
    for fault in [Fault::TimelineIgnoredOnCreate, Fault::TimelineIgnoredOnTakeOver] {
        let failure = check("another_timeline_is_refused").run(&Broken::new(fault, None)).unwrap_err();
        assert!(failure.to_string().contains("on timeline 1 was granted"), "{failure}");
    }
}

#[test]
fn the_same_store_without_a_fault_passes() {
    std::thread::scope(|scope| {
        scope.spawn(|| run_all(&Broken::new(Fault::Nothing, None)));
        scope.spawn(|| run_all(&Broken::new(Fault::Nothing, Some(3))));
    });
}

#[test]
fn a_store_that_cannot_list_passes_nevertheless() {
    let store = Broken::new(Fault::NoList, None);
    assert_eq!(store.list(Duration::ZERO).unwrap_err().sqlstate(), Some("0A000"));
    for check in checks().iter().filter(|check| check.name().contains("list")) {
        check.run(&store).unwrap();
    }
}

#[test]
fn a_list_that_is_full_may_end_before_the_checks_own_rows() {
    let store = MemoryStore::new();
    for n in 0..Lease::MAX_LISTED {
        store
            .acquire(&Bid::new(&format!("{n:04}"), "h", Duration::from_secs(1)), Duration::from_secs(1))
            .unwrap();
    }
    check("a_list_has_every_row_as_it_is_in_order").run(&store).unwrap();
    assert_eq!(store.list(Duration::from_secs(1)).unwrap().len(), Lease::MAX_LISTED);
}

#[test]
fn the_memory_store_passes() {
    let promoted = MemoryStore::new();
    promoted.set_timeline(Some(7));
    std::thread::scope(|scope| {
        scope.spawn(|| run_all(&MemoryStore::new()));
        scope.spawn(|| run_all(&promoted));
    });
}

#[test]
fn run_all_names_whatever_failed() {
    let panicked = std::panic::catch_unwind(|| run_all(&Broken::new(Fault::NobodyWins, None))).unwrap_err();
    let message = panicked.downcast_ref::<String>().unwrap();
    assert!(message.contains("checks failed:\n"), "{message}");
    assert!(message.contains("\none_of_many_creates (rule 8): none of 16 candidates won"), "{message}");
}

#[test]
fn check_names_are_unique() {
    let mut names: Vec<_> = checks().iter().map(Check::name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), checks().len());
}
