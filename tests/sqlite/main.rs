//! The SQLite store between processes: one file, killed and frozen leaders, locks that somebody keeps, files that go.
//!
//! This program is also the node that the tests start again and again, and the other children that they need.
//! `TENURE_SQLITE_FULL=1` runs what takes minutes in its full size.
#![allow(clippy::unwrap_used, reason = "tests")]

mod b29;
mod child;
mod files;
#[path = "../fleet/mod.rs"]
mod fleet;
mod place;
mod reboot;
mod sharing;
mod takeover;

use std::process::ExitCode;

use fleet::{figures, line, node, profile, stillness};
use libtest_mimic::{Arguments, Trial};
use stillness::on_a_machine_that_runs;

/// They mostly wait, but each has processes of its own, and two cores bear only so many.
const AT_ONCE: usize = 6;

type Test = (&'static str, fn());

/// Names of functions, with the functions.
macro_rules! tests {
    ($($module:ident :: $test:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($test)), $module::$test)),*]
    };
}

const TESTS: &[Test] = tests![
    b29::b29_a_a_file_that_is_locked_for_eight_seconds,
    b29::b29_b_a_lease_lives_as_long_as_it_says,
    b29::b29_c_a_busy_writer_costs_no_term,
    b29::b29_d_one_file_by_any_name_and_none_by_a_relative_one,
    b29::b29_a_stopped_process_that_has_the_lock,
    b29::b29_steps_of_the_wall_clock_change_nothing,
    files::what_cannot_be_used_is_refused_with_its_path,
    files::a_table_that_is_missing_or_wrong_is_fatal,
    files::a_file_that_was_replaced_is_left,
    files::a_file_that_was_replaced_under_a_leader_ends_its_term,
    files::files_beside_it_that_are_deleted_under_a_leader_split_nothing,
    files::files_beside_it_that_are_deleted_are_left_by_all_of_a_process,
    files::the_table_may_have_any_name,
    files::a_file_that_can_not_be_looked_at_is_left_as_it_is,
    files::the_last_clone_leaves_nothing_behind,
    reboot::a_lease_of_an_earlier_boot_is_taken_over_at_once,
    reboot::nothing_of_an_earlier_boot_can_be_renewed,
    sharing::many_processes_and_thousands_of_terms,
    sharing::the_acceptance_suite_from_several_processes_at_once,
    sharing::twenty_processes_create_the_file_and_elect_one,
    sharing::electors_of_one_process_share_a_store,
    takeover::a_killed_leader_is_replaced_at_the_expiry,
    takeover::a_leader_that_ends_hands_over_within_a_retry_period,
    takeover::a_leader_that_was_frozen_knows_at_once,
];

/// What only root can set up.
const ROOTS: &[Test] = tests![files::what_a_user_may_not_write_is_fatal];

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0
}

fn main() -> ExitCode {
    if let Some(options) = node::Options::from_env() {
        return node::main(&options);
    }
    if let Some(code) = child::main() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let roots = if is_root() { ROOTS } else { &[] };
    let trials = TESTS.iter().chain(roots).map(|(name, test)| {
        Trial::test(*name, move || {
            on_a_machine_that_runs(name, test);
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    figures::print();
    conclusion.exit_code()
}
