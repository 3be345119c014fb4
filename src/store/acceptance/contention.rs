//! Many candidates at once: one of them wins.

use std::thread;

use parking_lot::RwLock;

use super::Failure;
use super::bench::{Bench, same_row};
use crate::lease::Lease;

const CANDIDATES: usize = 16;
const CREATE_ROUNDS: usize = 12;
const TAKE_OVER_ROUNDS: usize = 24;

pub(super) fn one_of_many_creates(bench: &Bench<'_>) -> Result<(), Failure> {
    for _ in 0..CREATE_ROUNDS {
        race(&bench.fresh()?, None)?;
    }
    Ok(())
}

pub(super) fn one_of_many_takes_over(bench: &Bench<'_>) -> Result<(), Failure> {
    let mut lease = bench.create("candidate-0")?;
    for round in 0..TAKE_OVER_ROUNDS {
        if round % 3 == 1 {
            bench.release(lease.holder(), lease.fence())?;
            lease = bench.row()?;
        }
        let next = race(bench, Some(&lease))?;
        ensure!(next.fence() > lease.fence(), "fence {} followed {}", next.fence(), lease.fence());
        lease = next;
    }
    Ok(())
}

/// Lets all candidates bid for the same state of the row at the same moment.
fn race(bench: &Bench<'_>, over: Option<&Lease>) -> Result<Lease, Failure> {
    let gate = RwLock::new(());
    let closed = gate.write();
    let gate = &gate;
    let answers: Vec<_> = thread::scope(|scope| {
        // Owned in here: where a thread can't be started, those that wait at the gate are let go.
        let closed = closed;
        let mut candidates = Vec::with_capacity(CANDIDATES);
        for n in 0..CANDIDATES {
            candidates.push(thread::Builder::new().spawn_scoped(scope, move || {
                let holder = format!("candidate-{n}");
                let bid = bench.bid(&holder).over(over.map(Lease::version));
                drop(gate.read());
                bench.acquire(&bid)
            })?);
        }
        drop(closed);
        candidates
            .into_iter()
            .map(|c| c.join().map_err(|_| Failure::new("a call to the store panicked".into()))?)
            .collect::<Result<_, Failure>>()
    })?;
    let mut winners = answers.into_iter().flatten();
    let Some(winner) = winners.next() else {
        return Err(Failure::new(format!("none of {CANDIDATES} candidates won")));
    };
    if let Some(second) = winners.next() {
        let (one, other) = (winner.fence(), second.fence());
        return Err(Failure::new(format!("two candidates won one bid, with fences {one} and {other}")));
    }
    let row = bench.row()?;
    ensure!(same_row(&winner, &row), "the winner got {winner:?} and the row is {row:?}");
    Ok(winner)
}
