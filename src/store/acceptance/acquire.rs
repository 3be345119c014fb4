//! The compare-and-swap: what an acquire may look at, and what it must not look at (rules 8 and 15).

use super::Failure;
use super::bench::{A, B, Bench, LONG, SHORT};
use crate::lease::{Bid, Fence, Lease, LeaseTimes, Timestamp, Version};

pub(super) fn fences_never_repeat(bench: &Bench<'_>) -> Result<(), Failure> {
    let mut highest = 0;
    let mut rises = |lease: &Lease, what: &str| {
        let fence = lease.fence().get();
        ensure!(fence > highest, "fence {fence} {what} is not above {highest}");
        highest = fence;
        Ok(())
    };
    let mut lease = bench.create(A)?;
    rises(&lease, "of the first term")?;
    for _ in 0..3 {
        bench.release(lease.holder(), lease.fence())?;
        lease = bench.take(A, &bench.row()?)?;
        rises(&lease, "after a release by the same holder")?;
        bench.release(lease.holder(), lease.fence())?;
        let version = Some(bench.row()?.version());
        lease = bench.won(&Bid::new(&bench.name, B, SHORT).over(version))?;
        rises(&lease, "after a release by another")?;
        lease = bench.take(B, &bench.expired()?)?;
        rises(&lease, "after an expiry by the same holder")?;
        bench.renew(B, lease.fence())?;
        lease = bench.take(A, &bench.row()?)?;
        rises(&lease, "after a renewal")?;
        let short = Bid::new(&bench.name, A, SHORT).over(Some(lease.version()));
        lease = bench.won(&short)?;
        rises(&lease, "over a live lease")?;
        lease = bench.take(B, &bench.expired()?)?;
        rises(&lease, "after an expiry")?;
    }
    Ok(())
}

/// Exactly [`Fence::after`], whichever of the two numbers is the larger.
pub(super) fn fences_are_the_next_above_stored_and_floor(bench: &Bench<'_>) -> Result<(), Failure> {
    let timeline = bench.observe()?.timeline();
    let expect = |lease: &Lease, highest: i64, what: &str| {
        let expected = Fence::after(highest, timeline);
        let fence = lease.fence();
        ensure!(Some(fence) == expected, "{what} got {fence:?} after {highest}, not {expected:?}");
        Ok(())
    };
    for floor in [i64::MIN, -1, 0, 1, 41, (3 << 40) + 7, 1 << 62] {
        let created = bench.fresh()?;
        let lease = created.won(&created.bid(A).above(floor))?;
        expect(&lease, floor, &format!("a create above {floor}"))?;
    }
    let mut lease = bench.won(&bench.bid(A).above(41))?;
    for distance in [-41, -1, 0, 1, 1_000, 5 << 40] {
        let stored = lease.fence().get();
        let floor = stored + distance;
        lease = bench.won(&bench.bid(B).over(Some(lease.version())).above(floor))?;
        expect(&lease, stored.max(floor), &format!("a take-over of {stored} above {floor}"))?;
    }
    Ok(())
}

pub(super) fn create_is_refused_over_any_row(bench: &Bench<'_>) -> Result<(), Failure> {
    let lease = bench.create(A)?;
    for holder in [A, B] {
        bench.refused(&bench.bid(holder), &format!("a create by {holder} over a live row"))?;
    }
    bench.release(A, lease.fence())?;
    for holder in [A, B] {
        bench.refused(&bench.bid(holder), &format!("a create by {holder} over a released row"))?;
    }
    bench.won(&Bid::new(&bench.name, A, SHORT).over(Some(bench.row()?.version())))?;
    bench.expired()?;
    for holder in [A, B] {
        bench.refused(&bench.bid(holder), &format!("a create by {holder} over an expired row"))?;
    }
    bench.refused(&bench.bid(B).above(1 << 41), "a create with a floor above the row's fence")
}

pub(super) fn take_over_is_refused_without_a_row(bench: &Bench<'_>) -> Result<(), Failure> {
    let elsewhere = bench.fresh()?;
    let live = elsewhere.create(A)?;
    bench.refused(&bench.bid(A).over(Some(live.version())), "a take-over where there is no row")?;
    elsewhere.release(A, live.fence())?;
    let released = elsewhere.row()?.version();
    bench.refused(&bench.bid(A).over(Some(released)), "a take-over of a released lease where there is no row")
}

pub(super) fn take_over_is_refused_over_another_version(bench: &Bench<'_>) -> Result<(), Failure> {
    let live = bench.won(&bench.bid(A).above(40))?;
    all_alterations_refused(bench, &live, "a live")?;
    bench.release(A, live.fence())?;
    let released = bench.row()?;
    all_alterations_refused(bench, &released, "a released")?;
    bench.won(&Bid::new(&bench.name, A, SHORT).over(Some(released.version())))?;
    let expired = bench.expired()?;
    all_alterations_refused(bench, &expired, "an expired")?;
    // The exact version still wins, so it was the altered part that was refused.
    bench.take(B, &expired).map(drop)
}

fn all_alterations_refused(bench: &Bench<'_>, row: &Lease, state: &str) -> Result<(), Failure> {
    for (part, version) in altered(row)? {
        ensure!(version != row.version(), "the check altered nothing in {part}");
        for holder in [A, B] {
            let bid = bench.bid(holder).over(Some(version.clone()));
            bench.refused(&bid, &format!("a bid by {holder} over {state} row with another {part}"))?;
        }
    }
    Ok(())
}

/// The row's version with one part changed at a time, by as little as possible.
fn altered(row: &Lease) -> Result<Vec<(&'static str, Version)>, Failure> {
    let version = row.version();
    let times = LeaseTimes {
        acquired_at: row.acquired_at(),
        renewed_at: row.renewed_at(),
        expires_at: row.expires_at(),
        now: row.now(),
    };
    let build = |holder: &str, fence: i64, times: LeaseTimes, mark: u64| {
        let lease = Lease::new(row.name(), holder, Fence::try_from(fence)?, times);
        Ok::<_, Failure>(lease.with_mark(mark).version())
    };
    let (holder, fence, mark) = (version.holder(), version.fence().get(), version.mark());
    let mut all = Vec::new();
    for other in [B, &holder.to_uppercase(), &format!("{holder} ")] {
        all.push(("holder", build(other, fence, times, mark)?));
    }
    for other in [fence - 1, fence + 1] {
        all.push(("fence", build(holder, other, times, mark)?));
    }
    for step in [-1, 1] {
        let moved = |at: Timestamp| Timestamp::from_micros(at.as_micros() + step);
        let renewed = LeaseTimes { renewed_at: moved(times.renewed_at), ..times };
        all.push(("renewed_at", build(holder, fence, renewed, mark)?));
        let expires = LeaseTimes { expires_at: moved(times.expires_at), ..times };
        all.push(("expires_at", build(holder, fence, expires, mark)?));
        all.push(("mark", build(holder, fence, times, mark.wrapping_add_signed(step))?));
    }
    if !row.is_released() {
        let released = LeaseTimes { expires_at: Timestamp::EPOCH, ..times };
        all.push(("expires_at", build(holder, fence, released, mark)?));
    }
    Ok(all)
}

pub(super) fn take_over_asks_no_clock(bench: &Bench<'_>) -> Result<(), Failure> {
    let live = bench.create(A)?;
    ensure!(!live.is_expired(), "a lease of {LONG:?} is over at once");
    let next = bench.take(B, &live)?;
    ensure!(next.held_by(B) && next.fence() > live.fence(), "{B} took over and got {next:?}");
    ensure!(bench.renew(B, next.fence())?.is_some(), "whoever took over a live lease cannot renew it");
    bench.renew_refused(A, live.fence(), "a renewal by the predecessor")
}

pub(super) fn over_ones_own_version_is_a_new_term(bench: &Bench<'_>) -> Result<(), Failure> {
    let first = bench.create(A)?;
    std::thread::sleep(std::time::Duration::from_millis(5));
    let second = bench.take(A, &first)?;
    ensure!(second.fence() > first.fence(), "the same fence {} for two terms", first.fence());
    ensure!(second.acquired_at() > first.acquired_at(), "a new term kept the old one's acquired_at");
    bench.renew_refused(A, first.fence(), "a renewal of one's own earlier term")
}

/// The version, and the mark alone: times can repeat when the clock steps back.
pub(super) fn every_write_is_another_version(bench: &Bench<'_>) -> Result<(), Failure> {
    let mut versions = vec![bench.create(A)?.version()];
    for holder in [A, B, A, A] {
        let over = versions.last().cloned();
        let lease = bench.won(&bench.bid(holder).over(over))?;
        versions.push(lease.version());
        for _ in 0..5 {
            ensure!(bench.renew(holder, lease.fence())?.is_some(), "a live lease could not be renewed");
            versions.push(bench.row()?.version());
        }
    }
    let fence = bench.row()?.fence();
    bench.release(A, fence)?;
    versions.push(bench.row()?.version());
    for (n, one) in versions.iter().enumerate() {
        for (m, other) in versions.iter().enumerate().skip(n + 1) {
            ensure!(one.mark() != other.mark(), "writes {n} and {m} carry the same mark {}", one.mark());
        }
    }
    Ok(())
}

pub(super) fn late_statements_change_nothing(bench: &Bench<'_>) -> Result<(), Failure> {
    let create = bench.bid(A);
    let first = bench.won(&create)?;
    let over_first = bench.bid(A).over(Some(first.version()));
    let second = bench.won(&over_first)?;
    let over_second = bench.bid(B).over(Some(second.version()));
    let third = bench.won(&over_second)?;
    let late = |terms: &[&Lease], moment: &str| {
        for (bid, what) in
            [(&create, "create"), (&over_first, "take-over"), (&over_second, "second take-over")]
        {
            bench.refused(bid, &format!("a late {what}, {moment},"))?;
        }
        for term in terms {
            let what = format!("of fence {}, {moment},", term.fence());
            bench.renew_refused(term.holder(), term.fence(), &format!("a late renewal {what}"))?;
            let before = bench.observe()?;
            bench.release(term.holder(), term.fence())?;
            bench.unchanged(&before, &format!("a late release {what}"))?;
        }
        Ok::<_, Failure>(())
    };
    late(&[&first, &second], "while a successor leads")?;
    bench.renew(B, third.fence())?;
    late(&[&first, &second], "after a renewal")?;
    bench.release(B, third.fence())?;
    late(&[&first, &second], "after a release")?;
    let fourth = bench.take(A, &bench.row()?)?;
    late(&[&first, &second, &third], "once the first holder leads again")?;
    bench.won(&Bid::new(&bench.name, A, SHORT).over(Some(fourth.version())))?;
    bench.expired()?;
    late(&[&first, &second, &third, &fourth], "after an expiry")
}

/// A store without timelines refuses every bid that names one: what it named is not there.
pub(super) fn another_timeline_is_refused(bench: &Bench<'_>) -> Result<(), Failure> {
    let actual = bench.observe()?.timeline();
    let others: Vec<u32> = match actual {
        Some(timeline) => vec![timeline.wrapping_add(1), timeline.wrapping_sub(1), timeline ^ 1024],
        None => vec![1, 2],
    };
    for other in &others {
        bench.refused(&bench.bid(A).timeline(Some(*other)), &format!("a create on timeline {other}"))?;
    }
    let lease = bench.won(&bench.bid(A).timeline(actual))?;
    for other in &others {
        let bid = bench.bid(B).over(Some(lease.version())).timeline(Some(*other));
        bench.refused(&bid, &format!("a take-over on timeline {other}"))?;
    }
    let lease = bench.won(&bench.bid(B).over(Some(lease.version())).timeline(actual))?;
    // A bid that names none accepts any.
    bench.take(A, &lease).map(drop)
}

pub(super) fn every_answer_carries_the_timeline(bench: &Bench<'_>) -> Result<(), Failure> {
    let vacant = bench.observe()?;
    ensure!(vacant.lease().is_none(), "a name that never was has a row");
    let timeline = vacant.timeline();
    let lease = bench.create(A)?;
    let renewed = bench.renewed(&crate::lease::Renewal::new(&bench.name, A, lease.fence(), LONG))?;
    let taken = bench.take(B, &renewed)?;
    let observed = bench.observe()?;
    let all = [
        ("a create", lease.timeline()),
        ("a renewal", renewed.timeline()),
        ("a take-over", taken.timeline()),
        ("an observed row", observed.lease().and_then(Lease::timeline)),
        ("an observation", observed.timeline()),
    ];
    for (what, seen) in all {
        ensure!(seen == timeline, "{what} carries timeline {seen:?}, a vacant election {timeline:?}");
    }
    if let Some(timeline) = timeline {
        ensure!(taken.fence().matches_timeline(timeline), "{:?} on timeline {timeline}", taken.fence());
    }
    Ok(())
}
