//! A row that somebody else keeps locked: how long a call may wait for it, and what it may make of a clock that
//! went on meanwhile (rules 7 and 17).

use std::thread;
use std::time::Duration;

use super::Failure;
use super::bench::{A, B, Bench, LONG, now, since};
use crate::lease::{Bid, Lease, Renewal};
use crate::store::StoreError;
use crate::time::Time;

/// The timeout of a call that has to wait in vain, and how much later it may end.
const TIMEOUT: Duration = Duration::from_millis(300);
const OVERRUN: Duration = Duration::from_millis(250);
/// A loaded machine may stop a thread for longer than that; a store that keeps no bound fails every time.
const ATTEMPTS: usize = 3;
/// How long a row is held before a write that waits is let go on.
const HELD: Duration = Duration::from_secs(1);
/// The lease that is asked for meanwhile: longer than the wait, so that a stale one still shows what is left.
const LENGTH: Duration = Duration::from_secs(3);
/// How far clocks of different machines may drift apart in those few seconds.
const RATE_SLACK: Duration = Duration::from_millis(100);

pub(super) fn a_held_row_delays_no_call_past_its_timeout(bench: &Bench<'_>) -> Result<(), Failure> {
    // An election for each, since a call that timed out may still land later.
    let election = || {
        let election = bench.fresh()?;
        let lease = election.create(A)?;
        Ok::<_, Failure>((election, lease))
    };
    let (observed, _) = election()?;
    blocked(&observed, "an observation", || {
        // Reading need not wait; where it does, the bound holds as well.
        retryable(observed.store.observe(&observed.name, TIMEOUT).map(drop).err())
    })?;
    let (acquired, lease) = election()?;
    blocked(&acquired, "an acquire", || {
        let bid = acquired.bid(B).over(Some(lease.version()));
        let answer = acquired.store.acquire(&bid, TIMEOUT);
        ensure!(!matches!(answer, Ok(Some(_))), "an acquire took a row that was held");
        retryable(answer.err())
    })?;
    let (renewed, lease) = election()?;
    blocked(&renewed, "a renewal", || {
        let renewal = Renewal::new(&renewed.name, A, lease.fence(), LONG);
        let answer = renewed.store.renew(&renewal, TIMEOUT);
        ensure!(answer.is_err(), "a renewal of a held row was decided");
        retryable(answer.err())
    })?;
    let (released, lease) = election()?;
    blocked(&released, "a release", || {
        let answer = released.store.release(&released.name, A, lease.fence(), TIMEOUT);
        ensure!(answer.is_err(), "a release of a held row was decided");
        retryable(answer.err())
    })?;
    for election in [observed, acquired, renewed, released] {
        comes_back(&election)?;
    }
    Ok(())
}

fn retryable(error: Option<StoreError>) -> Result<(), Failure> {
    match error {
        Some(error) if !error.is_retryable() => Err(Failure::new(format!("a held row is fatal: {error}"))),
        _ => Ok(()),
    }
}

/// Makes the call while the row is held, and measures it.
fn blocked(bench: &Bench<'_>, what: &str, call: impl Fn() -> Result<(), Failure>) -> Result<(), Failure> {
    let _hold = bench.subject.hold(&bench.name);
    let mut took = Duration::ZERO;
    for _ in 0..ATTEMPTS {
        let started = now();
        call()?;
        took = since(started);
        if took <= TIMEOUT + OVERRUN {
            return Ok(());
        }
    }
    Err(Failure::new(format!("{what} with a timeout of {TIMEOUT:?} returned after {took:?}")))
}

/// The election goes on after the hold, whatever the calls that timed out still do.
fn comes_back(bench: &Bench<'_>) -> Result<(), Failure> {
    let started = now();
    while since(started) < bench.subject.timeout() {
        let version = bench.row()?.version();
        if bench.acquire(&bench.bid(B).over(Some(version)))?.is_some() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(Failure::new("after it was held, a row could not be taken over any more".into()))
}

pub(super) fn an_acquire_that_waited_counts_from_after_the_wait(bench: &Bench<'_>) -> Result<(), Failure> {
    let old = bench.create(A)?;
    let (answer, let_go) = after_a_wait(bench, HELD, || {
        bench.acquire(&Bid::new(&bench.name, B, LENGTH).over(Some(old.version())))
    })?;
    // Refusing is sound as well: somebody had the row.
    let Some(lease) = answer else { return Ok(()) };
    counts_from(bench, &lease, let_go, "an acquire")
}

pub(super) fn a_renewal_that_waited_counts_from_after_the_wait(bench: &Bench<'_>) -> Result<(), Failure> {
    let old = bench.create(A)?;
    let (answer, let_go) =
        after_a_wait(bench, HELD, || bench.renew_as(&Renewal::new(&bench.name, A, old.fence(), LENGTH)))?;
    let Some(lease) = answer else {
        return Err(Failure::new("a renewal of a live lease was refused because it had to wait".into()));
    };
    counts_from(bench, &lease, let_go, "a renewal")
}

pub(super) fn a_renewal_that_outlived_its_lease_is_refused(bench: &Bench<'_>) -> Result<(), Failure> {
    let lease = bench.won(&Bid::new(&bench.name, A, HELD))?;
    let before = bench.observe()?;
    let (answer, _) = after_a_wait(bench, HELD + HELD / 2, || bench.renew(A, lease.fence()))?;
    ensure!(answer.is_none(), "a renewal was granted after its lease had expired: {answer:?}");
    bench.unchanged(&before, "a renewal that outlived its lease")
}

/// Starts the call while the row is held, lets the row go later, and says when that was.
fn after_a_wait<T: Send>(
    bench: &Bench<'_>,
    held: Duration,
    call: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<(T, Time), Failure> {
    thread::scope(|scope| {
        let hold = bench.subject.hold(&bench.name);
        let writer = thread::Builder::new().spawn_scoped(scope, call)?;
        thread::sleep(held);
        let early = writer.is_finished();
        let let_go = now();
        drop(hold);
        let answer = writer.join().map_err(|_| Failure::new("a call to the store panicked".into()))??;
        ensure!(!early, "a write to a held row did not wait for it");
        Ok((answer, let_go))
    })
}

/// What is left of the lease, seen by somebody else, is all of it but the time since the row was let go.
fn counts_from(bench: &Bench<'_>, lease: &Lease, let_go: Time, what: &str) -> Result<(), Failure> {
    let row = bench.row()?;
    let passed = since(let_go);
    let left = row.ttl();
    ensure!(row.version() == lease.version(), "{what} answered {lease:?} and the row is {row:?}");
    ensure!(left <= LENGTH, "{what} for {LENGTH:?} has {left:?} left");
    ensure!(
        left + passed + RATE_SLACK >= LENGTH,
        "{what} for {LENGTH:?} that waited for {HELD:?} has {left:?} left after {passed:?}: it counts from before the wait"
    );
    Ok(())
}
