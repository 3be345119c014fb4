//! Fresh random schedules at every run, and those that once broke the promise.
//!
//! `TENURE_SCHEDULES` sets how many, `TENURE_SEED` the first seed; by default it is taken from the wall clock and
//! printed, so that a failure can be replayed.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "tests")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tenure::simulation::{self, Statistics};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[test]
fn fresh_schedules_keep_the_promise() {
    let from = number("TENURE_SEED")
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() * 1_000_000);
    let count = number("TENURE_SCHEDULES").unwrap_or(if cfg!(debug_assertions) { 1_000 } else { 20_000 });
    println!("{count} schedules from seed {from}");
    let (next, sum, bad) = (AtomicU64::new(0), Mutex::new(Statistics::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let outcome = simulation::run(from.wrapping_add(index));
                    sum.lock().unwrap().add(&outcome.statistics);
                    if !outcome.violations.is_empty() {
                        bad.lock().unwrap().push((outcome.options.seed, outcome.violations));
                    }
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap();
    println!("{sum}");
    let bad = bad.into_inner().unwrap();
    assert!(bad.is_empty(), "replay with `--example simulate -- --seed SEED`: {bad:?}");
    assert!(sum.is_meaningful(), "too little happened for the result to mean anything:\n{sum}");
}

/// Seeds whose schedules found something while the simulation was built. What a seed draws changes with the
/// generator, so each finding is also a script of its own in `src/simulation/schedules.rs`.
#[test]
fn schedules_that_once_failed() {
    for seed in [31, 210, 5_158, 8_651] {
        let outcome = simulation::replay(seed);
        assert!(outcome.violations.is_empty(), "seed {seed}:\n{}", outcome.transcript.join("\n"));
    }
}
