//! The guards of renew and release (rule 9).

use std::time::Duration;

use super::Failure;
use super::bench::{A, B, Bench, LONG, SHORT, same_row};
use crate::lease::{Bid, Fence, Lease, Renewal, Timestamp};

pub(super) fn renew_keeps_the_term(bench: &Bench<'_>) -> Result<(), Failure> {
    let lease = bench.create(A)?;
    let mut before = lease.clone();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(5));
        let after = bench.renewed(&Renewal::new(&bench.name, A, lease.fence(), LONG))?;
        ensure!(
            after.fence() == lease.fence(),
            "a renewal changed fence {} to {}",
            lease.fence(),
            after.fence()
        );
        ensure!(after.held_by(A), "a renewal changed the holder to {:?}", after.holder());
        ensure!(after.acquired_at() == lease.acquired_at(), "a renewal moved acquired_at");
        ensure!(after.renewed_at() > before.renewed_at(), "a renewal did not move renewed_at");
        ensure!(after.expires_at() > before.expires_at(), "a renewal did not move expires_at");
        before = after;
    }
    Ok(())
}

pub(super) fn renew_is_refused_to_anybody_else(bench: &Bench<'_>) -> Result<(), Failure> {
    let lease = bench.won(&bench.bid(A).above(6))?;
    let fence = lease.fence();
    let (lower, higher) = neighbours(fence)?;
    bench.renew_refused(B, fence, "a renewal by another holder")?;
    bench.renew_refused(A, lower, "a renewal with a lower fence")?;
    bench.renew_refused(A, higher, "a renewal with a higher fence")?;
    bench.renew_refused(&A.to_uppercase(), fence, "a renewal by a holder in capitals")?;
    ensure!(bench.renew(A, fence)?.is_some(), "the leader's own renewal was refused");
    let next = bench.take(B, &bench.row()?)?;
    bench.renew_refused(A, fence, "a renewal after a take-over")?;
    bench.renew_refused(A, next.fence(), "a renewal with the successor's fence")
}

fn neighbours(fence: Fence) -> Result<(Fence, Fence), Failure> {
    Ok((Fence::try_from(fence.get() - 1)?, Fence::try_from(fence.get() + 1)?))
}

pub(super) fn renew_is_refused_once_expired(bench: &Bench<'_>) -> Result<(), Failure> {
    let lease = bench.won(&Bid::new(&bench.name, A, SHORT))?;
    bench.expired()?;
    bench.renew_refused(A, lease.fence(), "a renewal of an expired lease that nobody took")?;
    let lease = bench.take(A, &bench.row()?)?;
    let short = Renewal::new(&bench.name, A, lease.fence(), SHORT);
    bench.renewed(&short)?;
    bench.expired()?;
    bench.renew_refused(A, lease.fence(), "a renewal of a lease that expired after a renewal")
}

pub(super) fn renew_is_refused_once_released(bench: &Bench<'_>) -> Result<(), Failure> {
    let lease = bench.create(A)?;
    bench.release(A, lease.fence())?;
    bench.renew_refused(A, lease.fence(), "a renewal of a released lease")
}

pub(super) fn renew_is_refused_without_a_row(bench: &Bench<'_>) -> Result<(), Failure> {
    let lease = bench.fresh()?.create(A)?;
    bench.renew_refused(A, lease.fence(), "a renewal without a row")
}

pub(super) fn release_is_recognisable_and_claimable_at_once(bench: &Bench<'_>) -> Result<(), Failure> {
    let lease = bench.won(&bench.bid(A).payload(Some(b"address")).above(40))?;
    bench.release(A, lease.fence())?;
    let row = bench.row()?;
    ensure!(row.expires_at() == Timestamp::EPOCH, "a release left expires_at at {:?}", row.expires_at());
    ensure!(row.is_released() && row.is_expired(), "a released lease still runs: {row:?}");
    ensure!(row.fence() == lease.fence(), "a release changed fence {} to {}", lease.fence(), row.fence());
    ensure!(row.payload() == lease.payload(), "a release changed the payload");
    ensure!(row.held_by(A), "a release changed the holder to {:?}", row.holder());
    ensure!(row.acquired_at() == lease.acquired_at(), "a release moved acquired_at");
    ensure!(row.renewed_at() == lease.renewed_at(), "a release moved renewed_at");
    let next = bench.take(B, &row)?;
    ensure!(next.fence() > lease.fence(), "fence {} after a release of {}", next.fence(), lease.fence());
    Ok(())
}

pub(super) fn release_does_nothing_to_anybody_else(bench: &Bench<'_>) -> Result<(), Failure> {
    let lease = bench.won(&bench.bid(A).above(6))?;
    let (lower, higher) = neighbours(lease.fence())?;
    let ignored = |holder: &str, fence: Fence, what: &str| {
        let before = bench.observe()?;
        bench.release(holder, fence)?;
        bench.unchanged(&before, what)
    };
    ignored(B, lease.fence(), "a release by another holder")?;
    ignored(A, lower, "a release with a lower fence")?;
    ignored(A, higher, "a release with a higher fence")?;
    let next = bench.take(B, &lease)?;
    ignored(A, lease.fence(), "a release after a take-over")?;
    let own = bench.take(B, &next)?;
    ignored(B, next.fence(), "a release of one's own earlier term")?;
    bench.release(B, own.fence())?;
    ignored(A, own.fence(), "a release of a released lease by another holder")?;
    ensure!(bench.row()?.is_released(), "the leader's own release did nothing");
    let nowhere = bench.fresh()?;
    nowhere.release(A, lease.fence())?;
    ensure!(nowhere.observe()?.lease().is_none(), "a release without a row made one");
    Ok(())
}

pub(super) fn release_twice_or_late_is_no_error(bench: &Bench<'_>) -> Result<(), Failure> {
    let lease = bench.create(A)?;
    bench.release(A, lease.fence())?;
    let once = bench.row()?;
    bench.release(A, lease.fence())?;
    let twice = bench.row()?;
    let same =
        twice.is_released() && twice.fence() == once.fence() && twice.renewed_at() == once.renewed_at();
    ensure!(same && twice.held_by(A), "a second release made {twice:?} of {once:?}");
    let lease = bench.won(&Bid::new(&bench.name, A, SHORT).over(Some(twice.version())))?;
    bench.expired()?;
    bench.release(A, lease.fence())?;
    ensure!(bench.row()?.is_released(), "an expired lease that nobody took could not be released");
    Ok(())
}

pub(super) fn elections_do_not_touch_each_other(bench: &Bench<'_>) -> Result<(), Failure> {
    let other = bench.fresh()?;
    // The same holder and the same fence in both: only the name tells them apart.
    let ours = bench.create(A)?;
    let theirs = other.create(A)?;
    let before = other.observe()?;
    let still = |what: &str| other.unchanged(&before, &format!("{what} of another election"));
    still("a create")?;
    bench.renewed(&Renewal::new(&bench.name, A, ours.fence(), LONG).payload(Some(b"ours")))?;
    still("a renewal")?;
    let second = bench.take(B, &bench.row()?)?;
    still("a take-over")?;
    let third = bench.take(A, &second)?;
    bench.release(A, third.fence())?;
    still("a release")?;
    bench.fresh()?.release(A, theirs.fence())?;
    still("a release by name")?;
    let foreign = bench.bid(B).over(Some(theirs.version()));
    bench.refused(&foreign, "a bid over the version of another election")?;
    let found: Lease = other.row()?;
    ensure!(same_row(&found, &theirs), "the row of another election is {found:?} instead of {theirs:?}");
    Ok(())
}
