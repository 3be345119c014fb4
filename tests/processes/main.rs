//! The elector in real processes on a real PostgreSQL: killed, frozen, cut off, stalled, restarted.
//!
//! This program is also the node that the tests start again and again, and the other children that they need.
#![allow(clippy::unwrap_used, reason = "tests")]

mod alone;
mod callbacks;
mod contention;
mod crowd;
mod exits;
#[path = "../fleet/mod.rs"]
mod fleet;
mod history_tests;
mod in_process;
mod leaks;
mod outages;
mod pooler;
mod replies;
mod rights;
mod rows_tests;
mod scarce;
mod secrets;
mod stalls;
mod takeover;
mod work;

use std::process::ExitCode;

use fleet::trials::{AT_ONCE, for_root, named};
use fleet::{Way, figures, history, line, node, profile, rows, stillness};
use libtest_mimic::{Arguments, Trial};
use stillness::on_a_machine_that_runs;

type Plain = (&'static str, fn());
type OnAWay = (&'static str, fn(Way));

const CHECKERS: &[Plain] = named![
    history_tests::a_good_history_has_no_fault,
    history_tests::two_leaders_are_found,
    history_tests::fences_that_repeat_or_fall_are_found,
    history_tests::terms_without_a_proper_end_are_found,
    history_tests::a_history_in_which_nothing_happened_proves_nothing,
    history_tests::lines_survive_the_pipe,
    history_tests::a_fleet_that_is_given_up_is_judged_all_the_same,
    history_tests::a_killed_node_that_had_panicked_is_a_broken_promise,
    rows_tests::bad_rows_are_told_from_good_ones,
    stillness::only_a_machine_that_stood_still_is_an_excuse,
    stillness::a_second_in_which_somebody_always_waits_is_told_from_others,
];

/// Direct, and through PgBouncer.
const BOTH_WAYS: &[OnAWay] = named![
    takeover::a_killed_leader_is_replaced_at_the_expiry,
    takeover::a_leader_that_ends_hands_over_within_a_retry_period,
    takeover::b02_a_leader_that_was_frozen_knows_at_once_and_touches_nothing,
    takeover::b02_a_short_freeze_changes_nothing,
    takeover::b15_the_same_label_twice_is_two_participants,
    takeover::b15_a_restarted_process_does_not_continue_its_predecessors_term,
    replies::b08_a_term_whose_grant_was_lost_is_never_led,
    replies::b08_renewals_that_land_unanswered_prolong_nothing,
    replies::b08_a_shutdown_whose_release_is_not_answered_is_bounded,
    replies::b19_a_black_hole_under_a_leader,
    replies::rule_2_on_a_slow_path_the_term_counts_from_the_send,
    replies::b28_one_renewal_that_is_reset_or_swallowed_costs_no_term,
    replies::b28_a_renewal_that_is_reset_is_made_again_at_once,
    exits::b09_a_shutdown_while_a_renewal_is_held_up_still_releases,
    exits::b09_process_exit_hands_over_like_a_crash,
    exits::b09_a_guard_in_a_static_hands_over_like_a_crash,
    exits::rule_9_a_release_that_lands_in_the_successors_term_changes_nothing,
    rights::b06_a_truncated_table_ends_the_term_at_the_next_renewal,
    rights::b07_a_row_that_is_held_for_longer_than_the_term,
    rights::b23_twenty_four_processes_create_the_table_and_elect_one,
    outages::b26_nobody_leads_while_the_server_is_down_and_nobody_sleeps_longer,
    outages::b26_a_server_that_crashes_again_and_again,
    outages::b26_after_a_long_outage_nobody_has_backed_off,
    outages::b26_six_immediate_restarts,
    contention::sixteen_candidates_and_two_thousand_terms,
    contention::rule_14_candidates_that_look_write_nothing,
    in_process::leading_from_inside_an_async_runtime,
    in_process::b14_a_guard_that_nobody_keeps_is_given_back_at_once,
    in_process::b14_a_wait_that_times_out_leaves_nothing_half_held,
    in_process::b16_every_name_that_is_accepted_is_an_election_of_its_own,
    in_process::b28_granted_lengths_are_exact,
];

/// What only root can set up.
const ROOTS: &[Plain] = named![
    alone::b27_without_threads_there_is_an_error_and_no_panic,
    scarce::b27_an_elector_without_threads_is_an_error_and_leaves_no_lease,
    alone::rule_3_the_clock_counts_what_the_machine_slept,
    alone::rule_7_a_store_without_threads_gives_an_error_and_no_panic,
];

const PLAIN: &[Plain] = named![
    stalls::b11_the_server_is_stopped,
    stalls::b11_the_server_is_stopped_behind_a_pooler,
    stalls::b11_the_pooler_is_stopped,
    stalls::b11_the_path_swallows_everything,
    stalls::b11_the_path_swallows_replies,
    stalls::b11_the_path_holds_requests_back,
    stalls::b11_the_peer_is_mute,
    pooler::b21_connections_and_columns_come_and_go_under_eight_nodes,
    pooler::b22_settings_of_a_neighbour_do_not_matter_to_four_nodes,
    pooler::b22_a_statement_timeout_left_behind_costs_the_term_and_no_more,
    in_process::b19_a_mute_first_host_is_passed_by,
    leaks::rule_7_two_hundred_time_outs_leave_nothing_behind,
    leaks::rule_7_dropping_the_store_ends_its_threads_and_connections,
    leaks::rule_7_a_resolver_that_never_answers,
    leaks::a_process_without_descriptors_gets_an_error_and_recovers,
    secrets::b20_whatever_is_shown_the_password_is_not_in_it,
    secrets::b20_the_password_may_come_from_the_environment,
    alone::b27_two_hundred_terms_leave_no_thread_and_no_descriptor,
    alone::nobody_spins,
    scarce::b27_hundreds_of_refused_connections_leave_nothing_behind,
    scarce::b27_lost_answers_pile_up_no_sessions,
    scarce::b27_a_leader_without_descriptors_steps_down_and_recovers,
    work::b10_a_shutdown_with_enough_grace_renews_until_the_work_has_ended,
    work::b10_a_shutdown_past_its_grace_leaves_the_lease_to_expire,
    work::b10_a_partition_cancels_the_work_in_time_and_shows_its_overrun,
    work::b12_work_that_panics_hands_over_and_says_why,
    work::b12_work_that_returns_hands_over,
    work::b12_a_store_that_panics_in_a_renewal_costs_the_term_and_no_more,
    callbacks::b13_callbacks_that_sleep_for_three_leases_lose_nothing,
    crowd::b25_two_hundred_followers,
    rights::b01_a_leader_that_may_not_write_any_more_steps_down,
];

#[cfg(feature = "tls")]
const ENCRYPTED: &[Plain] = named![
    secrets::b20_tls_may_be_asked_for_in_the_environment,
    leaks::rule_7_two_hundred_time_outs_over_tls_leave_nothing_behind,
];
#[cfg(not(feature = "tls"))]
const ENCRYPTED: &[Plain] = &[];

fn main() -> ExitCode {
    if let Some(options) = node::Options::from_env() {
        return node::main(&options);
    }
    if let Some(code) = leaks::child_main() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let mut trials = Vec::new();
    let plain = |(name, test): &'static Plain| {
        Trial::test(*name, move || {
            on_a_machine_that_runs(name, test);
            Ok(())
        })
    };
    trials.extend(CHECKERS.iter().chain(PLAIN).chain(ENCRYPTED).map(plain));
    trials.extend(ROOTS.iter().map(plain).map(for_root));
    for (name, test) in BOTH_WAYS {
        for way in [Way::Direct, Way::Pooled] {
            trials.push(Trial::test(format!("{}::{name}", way.name()), move || {
                on_a_machine_that_runs(name, || test(way));
                Ok(())
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    figures::print();
    conclusion.exit_code()
}
