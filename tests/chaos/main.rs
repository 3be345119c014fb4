//! Real infrastructure broken under a real fleet: one scenario after the other, each direct and through PgBouncer
//! where that makes a difference, and a table of what was measured.
//!
//! This program is also the node that the scenarios start again and again.
#![allow(clippy::unwrap_used, reason = "tests")]

mod database;
#[path = "../fleet/mod.rs"]
mod fleet;
mod network;
mod pooler;
mod records;
mod report;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fleet::stillness::on_a_machine_that_runs;
use fleet::{Way, figures, node};
use libtest_mimic::{Arguments, Trial};
use report::Report;

/// They mostly wait, but each has processes of its own, and two cores bear only so many.
const AT_ONCE: usize = 6;

type Scenario = (&'static str, fn(Way) -> Report);

/// Names of functions, with the functions.
macro_rules! scenarios {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), $module::$name)),*]
    };
}

/// Direct, and through PgBouncer.
const BOTH_WAYS: &[Scenario] = scenarios![
    network::leader_partitioned,
    network::leader_black_holed,
    database::database_paused,
    database::database_restarts,
    database::database_restarts_at_once,
    database::database_killed,
    database::table_locked,
    database::table_locked_where_locks_time_out,
    database::row_locked,
    database::backends_terminated,
    database::database_read_only,
    database::more_participants_than_server_connections,
    database::two_elections_one_broken,
    records::row_deleted,
    records::row_deleted_and_its_holder_cut_off,
    records::table_truncated,
    records::table_dropped_and_recreated,
    records::row_set_back_to_an_earlier_term,
    records::row_set_back_and_the_leader_cut_off,
    records::row_set_back_to_an_earlier_release,
    records::table_replaced_by_an_older_dump,
    records::table_replaced_and_the_leader_cut_off,
];

/// Where a pooler would change nothing, or would hide what is to be shown.
const DIRECT: &[Scenario] = &[];

/// Where the pooler itself is what is broken.
const POOLED: &[Scenario] = scenarios![
    pooler::pooler_restarts,
    pooler::pooler_paused_and_resumed,
    pooler::pooler_process_stopped,
    pooler::pooler_reconnect_storm,
    pooler::pooler_reconnect_storm_without_pauses,
    pooler::pooler_loses_its_server,
];

#[derive(Parser)]
struct Options {
    /// How often each scenario runs.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Only scenarios whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Write the table of what was measured to this file too.
    #[arg(long)]
    table: Option<PathBuf>,
    #[command(flatten)]
    arguments: Arguments,
}

fn trials(options: &Options) -> Vec<Trial> {
    let ways = |scenarios: &'static [Scenario], way| scenarios.iter().map(move |scenario| (scenario, way));
    let all = ways(BOTH_WAYS, Way::Direct)
        .chain(ways(BOTH_WAYS, Way::Pooled))
        .chain(ways(DIRECT, Way::Direct))
        .chain(ways(POOLED, Way::Pooled));
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let mut trials = Vec::new();
    for (&(name, scenario), way) in all.filter(|((name, _), _)| wanted(name)) {
        for run in 1..=options.runs {
            let again = if options.runs > 1 { format!(" #{run}") } else { String::new() };
            trials.push(Trial::test(format!("{}::{name}{again}", way.name()), move || {
                report::begun(name, way);
                let report = on_a_machine_that_runs(name, || scenario(way));
                report::ended(name, way, report);
                Ok(())
            }));
        }
    }
    trials
}

fn main() -> ExitCode {
    if let Some(options) = node::Options::from_env() {
        return node::main(&options);
    }
    let mut options = Options::parse();
    options.arguments.test_threads.get_or_insert(AT_ONCE);
    let trials = trials(&options);
    let conclusion = libtest_mimic::run(&options.arguments, trials);
    report::print(options.table.as_deref());
    figures::print();
    conclusion.exit_code()
}
