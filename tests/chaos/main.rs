//! Real infrastructure broken under a real fleet: one scenario after the other, each direct and through PgBouncer
//! where that makes a difference, and a table of what was measured.
//!
//! This program is also the node that the scenarios start again and again.
#![allow(clippy::unwrap_used, reason = "tests")]

mod clocks;
mod database;
mod failover;
#[path = "../fleet/mod.rs"]
mod fleet;
mod network;
mod pooler;
mod processes;
mod records;
mod report;
mod scarcity;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fleet::stillness::on_a_machine_that_runs;
use fleet::trials::{AT_ONCE, for_root, named};
use fleet::{Way, figures, node};
use libtest_mimic::{Arguments, Trial};
use report::{Report, Run};

type Scenario = (&'static str, fn(Way) -> Report);

/// Direct, and through PgBouncer.
const BOTH_WAYS: &[Scenario] = named![
    network::leader_partitioned,
    network::leader_black_holed,
    failover::synchronous_failover,
    failover::synchronous_failover_in_time,
    failover::asynchronous_failover_that_loses_terms,
    failover::asynchronous_failover_whose_leader_follows,
    failover::asynchronous_failover_to_ones_own_old_row,
    failover::demoted_primary_read_only,
    network::steady_state,
    network::wan_latency_and_jitter,
    network::replies_lost_but_requests_arrive,
    network::connections_reset_in_mid_query,
    network::bandwidth_collapse,
    network::flapping_path,
    network::everyone_partitioned,
    processes::leader_crashes,
    processes::graceful_hand_over,
    processes::rolling_restart_of_a_fleet,
    processes::leader_stopped_for_longer_than_its_lease,
    processes::leader_stopped_for_less,
    processes::b05_wall_clocks_days_apart,
    processes::cpu_starvation,
    scarcity::descriptors_exhausted,
    scarcity::b31_signal_storm,
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

/// What only root can set up.
const ROOTS: &[Scenario] = named![scarcity::threads_exhausted];

/// Where a pooler would change nothing, or would hide what is to be shown.
const DIRECT: &[Scenario] = named![
    clocks::database_clock_steps_forward,
    clocks::database_clock_leaps_as_the_leader_is_cut_off,
    clocks::database_clock_steps_back,
    clocks::b04_a_a_row_from_the_past_is_taken_at_once,
    clocks::b04_c_clock_back_and_leader_killed,
    clocks::b03_suspended_leader,
    clocks::b03_suspended_leader_without_network,
    clocks::suspended_follower,
    clocks::many_random_clock_steps,
    failover::demoted_primary_becomes_the_standby,
    failover::b17_b_standby_listed_first,
];

/// Where the pooler itself is what is broken.
const POOLED: &[Scenario] = named![
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
        .chain(ways(ROOTS, Way::Direct))
        .chain(ways(ROOTS, Way::Pooled))
        .chain(ways(DIRECT, Way::Direct))
        .chain(ways(POOLED, Way::Pooled));
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let all: Vec<_> = all.filter(|((name, _), _)| wanted(name)).collect();
    let mut trials = Vec::new();
    // One round after the other: runs of the same scenario side by side would want the same of the machine.
    for run in 1..=options.runs {
        for &(&(name, scenario), way) in &all {
            let again = if options.runs > 1 { format!(" #{run}") } else { String::new() };
            let trial = Trial::test(format!("{}::{name}{again}", way.name()), move || {
                let run = Run::begin(name, way);
                run.end(on_a_machine_that_runs(name, || scenario(way)));
                Ok(())
            });
            let roots = ROOTS.iter().any(|(root, _)| *root == name);
            trials.push(if roots { for_root(trial) } else { trial });
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
