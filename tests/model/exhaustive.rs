//! The final rules: every state within bounds.
//!
//! A lease is three ticks and the margin one; messages may be lost at any point, and participants may stand still at
//! any point, in all of them.

use super::must_hold;
use tenure_protocol::{Bounds, Rules};

const TWO_TERMS: Bounds = Bounds { terms: 2, ..Bounds::CALM };

fn and_take_over(name: &str, rules: Rules, bounds: Bounds) {
    assert!(must_hold(name, rules, bounds).somebody_takes_over, "{name}: nobody ever takes over");
}

#[test]
fn lost_messages_and_freezes() {
    and_take_over("three terms", Rules::DEFAULT_TRUST, Bounds::CALM);
    and_take_over("two terms, strict", Rules::FINAL, TWO_TERMS);
}

#[test]
fn three_participants() {
    and_take_over("three", Rules::DEFAULT_TRUST, Bounds { participants: 3, terms: 2, ..Bounds::CALM });
}

#[test]
fn slow_reads() {
    and_take_over("slow reads", Rules::DEFAULT_TRUST, Bounds { instant_reads: false, ..TWO_TERMS });
}

#[test]
fn statements_that_land_at_any_time() {
    and_take_over("late statements", Rules::DEFAULT_TRUST, Bounds { late: 1, ..TWO_TERMS });
}

#[test]
fn resignations_whose_release_lands_at_any_time() {
    and_take_over("resignations", Rules::DEFAULT_TRUST, Bounds { resigns: 1, ..TWO_TERMS });
}

#[test]
fn clocks_as_far_apart_as_the_margin_allows() {
    and_take_over("drift", Rules::DEFAULT_TRUST, Bounds { drift: 1, ..TWO_TERMS });
}

#[test]
fn the_databases_clock_goes_back() {
    let bounds = Bounds { steps: &[-3], step_count: 1, ..TWO_TERMS };
    and_take_over("step back", Rules::DEFAULT_TRUST, bounds);
}

#[test]
fn the_databases_clock_leaps_ahead() {
    and_take_over("leap ahead", Rules::FINAL, Bounds { steps: &[3], step_count: 1, ..TWO_TERMS });
}

#[test]
fn the_record_is_deleted_or_restored_under_participants_that_watch_it() {
    and_take_over("rollback", Rules::DEFAULT_TRUST, Bounds { rollbacks: 1, ..TWO_TERMS });
}

#[test]
fn released_records_are_restored_under_participants_that_have_seen_the_last_term() {
    // Three terms, as in the limit that `drafts` shows, take a minute and 9,199,478 states: they hold as well.
    let bounds = Bounds { rollbacks: 1, rollbacks_watched: true, resigns: 1, ..TWO_TERMS };
    and_take_over("released, rollback", Rules::DEFAULT_TRUST, bounds);
}

#[test]
fn a_fail_over_loses_writes() {
    and_take_over("fail-over", Rules::DEFAULT_TRUST, Bounds { timelines: &[2], ..TWO_TERMS });
}

#[test]
fn a_late_statement_and_a_lost_record() {
    let bounds = Bounds { late: 1, rollbacks: 1, terms: 1, ..Bounds::CALM };
    must_hold("late and rollback", Rules::DEFAULT_TRUST, bounds);
    let bounds = Bounds { late: 1, timelines: &[2], terms: 1, ..Bounds::CALM };
    must_hold("late and fail-over", Rules::DEFAULT_TRUST, bounds);
}

#[test]
fn participants_are_replaced() {
    and_take_over("restart", Rules::DEFAULT_TRUST, Bounds { restarts: 1, ..TWO_TERMS });
}
