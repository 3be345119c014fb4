//! Random faults on a fleet for as long as one likes: half of it direct, half through PgBouncer, each node on a path
//! of its own, on a server whose clock can be stepped.
//!
//! `tests/run soak --minutes 60` for an hour, `--seed N` for the faults of an earlier run. The seed plans the faults;
//! what comes of them also depends on when the machine does what.
//!
//! This program is also the node that it starts again and again.
#![allow(clippy::unwrap_used, reason = "tests")]

mod arena;
mod aside;
mod course;
mod faults;
#[path = "../fleet/mod.rs"]
mod fleet;
mod judge;
mod plan;
mod record;
mod summary;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use fleet::node;
use libtest_mimic::{Arguments, Trial};

#[derive(Parser)]
struct Options {
    /// How long it takes, about.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Plans the same faults as an earlier run.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    if let Some(options) = node::Options::from_env() {
        return node::main(&options);
    }
    let mut options = Options::parse();
    // With one thread the name of the test would stand before the first line that it prints.
    options.arguments.test_threads.get_or_insert(2);
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let length = Duration::from_secs(60 * options.minutes);
    let control = Trial::test("control::what_is_put_away_still_counts", || {
        judge::what_is_put_away_still_counts();
        Ok(())
    });
    let soak = Trial::test("random_faults_double_nobody", move || {
        course::run(seed, length);
        Ok(())
    });
    libtest_mimic::run(&options.arguments, vec![control, soak]).exit_code()
}
