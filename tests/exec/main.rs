//! `tenure exec`: that what it runs never outlives the term, and that it is a well-behaved parent otherwise. Real processes
//! on SQLite files and PostgreSQL servers.
//!
//! This program is also the command that `tenure exec` runs in its tests.
#![allow(clippy::unwrap_used, reason = "tests")]

mod below;
mod command;
mod deadline;
#[path = "../fleet/mod.rs"]
mod fleet;
mod killed;
mod options;
mod place;
mod storm;
mod terminal;
mod worker;

use std::process::ExitCode;

use fleet::trials::named;
use fleet::{figures, stillness};
use libtest_mimic::{Arguments, Trial};
use stillness::on_a_machine_that_runs;

/// Each has processes of its own, and two cores bear only so many.
const AT_ONCE: usize = 3;

type Test = (&'static str, fn());

const EXEC: &[Test] = named![
    deadline::a_black_holed_database_fifty_times,
    deadline::a_stopped_tenure_fifty_times,
    deadline::a_stopped_guardian_does_not_save_the_command,
    deadline::both_stopped_and_continued_kill_first,
    deadline::a_stopped_guardian_whose_tenure_is_killed_does_its_work,
    deadline::the_judge_sees_a_command_that_nobody_guards,
    killed::the_first_demonstration_of_the_readme,
    killed::a_killed_tenure_hands_over_twenty_times,
    killed::a_service_that_cannot_be_elected_says_why_and_when_that_is_over,
    killed::a_lease_in_another_table_is_handed_over_too,
    killed::a_killed_guardian_takes_the_command_with_it,
    killed::a_guardian_heeds_no_signal_that_can_be_caught,
    killed::the_command_dies_with_its_guardian_though_nobody_kills_it,
    killed::a_killed_tenure_whose_guardian_cannot_reach_the_store,
    killed::a_command_that_forks_without_end_is_gone_all_the_same,
    killed::a_superseded_term_ends_the_command_at_once,
    command::exit_codes_are_the_commands,
    command::what_cannot_be_run_takes_no_lease,
    command::signals_are_passed_on,
    command::a_signal_ends_the_wait,
    command::a_signal_at_any_moment_ends_it,
    command::a_signal_for_the_whole_group_is_no_failure_of_the_guardian,
    command::a_guardian_that_fails_after_a_signal_has_failed_all_the_same,
    command::a_command_that_stands_still_can_be_ended,
    command::nothing_that_a_terminal_would_obey_is_said,
    command::standard_input_is_the_commands,
    command::nothing_but_the_three_descriptors_is_open,
    command::signals_have_their_defaults_and_what_was_ignored_stays_so,
    command::the_environment_says_who_leads,
    command::what_is_left_behind_is_asked_and_then_killed,
    command::whoever_reads_the_output_reads_its_end,
    storm::whoever_is_struck_at_whatever_moment,
    options::once_runs_on_one_host_and_is_quiet_on_the_others,
    options::once_is_not_quiet_about_a_store_that_fails,
    options::a_wait_has_an_end,
    options::a_wait_has_an_end_before_the_table_is_there_too,
    options::restart_leads_again_after_a_loss,
    options::a_hundred_restarts_leave_nothing_behind,
    options::at_least_keeps_the_lease,
    options::what_cannot_be_used_is_refused_by_name,
    options::the_table_is_created_where_it_is_missing_and_may_be,
    options::the_table_is_created_after_an_outage_too,
    options::no_password_is_anywhere,
    options::the_parts_are_not_for_use_by_hand,
    options::help_fits_eighty_columns,
    terminal::the_line_on_a_terminal_says_who_leads,
    terminal::a_terminal_that_stands_still_holds_up_no_term,
    terminal::a_reader_that_stands_still_holds_up_nothing,
    below::hundreds_of_generations_of_sessions_are_dead_in_time,
    below::strangers_are_waited_for,
    below::the_proc_of_another_namespace_is_refused,
    below::a_stopped_guardian_is_continued_by_the_next_renewal,
];

fn main() -> ExitCode {
    if let Some(code) = worker::main() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let trials = EXEC.iter().map(|(name, test)| {
        Trial::test(*name, move || {
            on_a_machine_that_runs(name, test);
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    figures::print();
    conclusion.exit_code()
}
