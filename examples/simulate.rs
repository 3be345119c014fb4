//! Elections by the thousand on virtual time, with every fault that the simulation knows.
//!
//!     cargo run --release --features testing --example simulate -- --schedules 10000
//!     cargo run --release --features testing --example simulate -- --seed 4711
//!
//! With `--seed` one schedule is replayed, with a transcript. Without, the schedules of consecutive seeds are run on
//! every core; those that break the promise are named. The last line starts with `violations: `.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use clap::Parser;
use tenure::simulation::{self, Statistics};

#[derive(Parser)]
struct Arguments {
    /// Replay this schedule and print what happened
    #[arg(long, conflicts_with_all = ["schedules", "from"])]
    seed: Option<u64>,
    /// How many schedules to run
    #[arg(long, default_value_t = 1_000)]
    schedules: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
}

fn replay(seed: u64) -> ExitCode {
    let outcome = simulation::replay(seed);
    println!("{:#?}", outcome.options);
    for line in &outcome.transcript {
        println!("{line}");
    }
    println!("{}", outcome.statistics);
    for violation in &outcome.violations {
        println!("violation: {violation}");
    }
    println!("violations: {}", outcome.violations.len());
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        return replay(seed);
    }
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    let sum = Mutex::new(Statistics::default());
    let bad = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let mut mine = Statistics::default();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= arguments.schedules {
                        break;
                    }
                    let outcome = simulation::run(arguments.from.wrapping_add(index));
                    mine.add(&outcome.statistics);
                    if !outcome.violations.is_empty() {
                        bad.lock()
                            .expect("no thread panics")
                            .push((outcome.options.seed, outcome.violations));
                    }
                }
                sum.lock().expect("no thread panics").add(&mine);
            });
        }
    });
    let sum = sum.into_inner().expect("no thread panics");
    let mut bad = bad.into_inner().expect("no thread panics");
    bad.sort();
    println!("{sum}");
    for (seed, violations) in &bad {
        println!("seed {seed}: {}", violations.join("; "));
    }
    let took = begun.elapsed().as_secs_f64();
    println!("{took:.1} s, {:.0} schedules a second", sum.schedules as f64 / took);
    if !sum.is_meaningful() {
        println!("too little happened for the result to mean anything");
    }
    println!("violations: {} in {} schedules from seed {}", bad.len(), sum.schedules, arguments.from);
    if bad.is_empty() && sum.is_meaningful() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
