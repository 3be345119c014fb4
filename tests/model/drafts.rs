//! Rules that look right and are not: the search must find what each of them breaks.

use super::{must_break, must_hold};
use tenure_protocol::{Anchor, Bounds, Names, Own, Rules, Wait};

const TWO: &str = "at most one leader";

#[test]
fn rule_2_anchor_at_the_reply() {
    must_break("anchor", TWO, Rules { anchor: Anchor::Reply, ..Rules::FINAL }, Bounds::CALM);
}

#[test]
fn rule_2_no_margin_and_a_clock_that_runs_fast() {
    let rules = Rules { margin: 0, ..Rules::FINAL };
    let bounds = Bounds { terms: 2, ..Bounds::CALM };
    must_hold("no margin, equal clocks", rules.clone(), bounds.clone());
    must_break("no margin", TWO, rules, Bounds { drift: 1, ..bounds });
}

#[test]
fn rule_2_clocks_further_apart_than_the_margin() {
    must_break("two ticks apart", TWO, Rules::FINAL, Bounds { drift: 2, ..Bounds::CALM });
}

#[test]
fn rule_5_an_extension_after_the_end() {
    must_break("revived", "lost is final", Rules { lost_is_final: false, ..Rules::FINAL }, Bounds::CALM);
}

#[test]
fn rule_8_a_bid_that_names_nothing() {
    must_break("unconditional", TWO, Rules { names: Names::Nothing, ..Rules::FINAL }, Bounds::CALM);
}

#[test]
fn rule_8_a_bid_that_names_only_the_expiry() {
    let rules = Rules { names: Names::Expiry, ..Rules::FINAL };
    must_break("expiry", TWO, rules, Bounds { steps: &[3], step_count: 1, ..Bounds::CALM });
}

#[test]
fn rule_10_the_databases_clock_alone_decides() {
    let rules = Rules { wait: Wait::DatabaseClock, ..Rules::FINAL };
    must_break("leap", TWO, rules, Bounds { steps: &[3], step_count: 1, ..Bounds::CALM });
}

#[test]
fn rule_10_the_documented_limit_of_the_default_trust() {
    // The first answer comes after a forward step since the leader's last renewal; `Strict` closes it.
    let bounds = Bounds { steps: &[3], step_count: 1, ..Bounds::CALM };
    must_break("default trust", TWO, Rules::DEFAULT_TRUST, bounds);
}

#[test]
fn rule_10_a_limit_a_released_record_is_restored_under_a_candidate_that_has_not_seen_the_lost_term() {
    // Nothing that it sees tells of the lost term, and a released lease is claimable at once.
    let bounds = Bounds { rollbacks: 1, resigns: 1, ..Bounds::CALM };
    must_break("released and restored", TWO, Rules::DEFAULT_TRUST, bounds);
}

#[test]
fn rule_11_one_identity_for_two() {
    let rules = Rules { unique_identities: false, ..Rules::FINAL };
    must_break("identity reused", TWO, rules, Bounds::CALM);
}

#[test]
fn rule_15_own_rows_exempted_in_a_fail_over() {
    let rules = Rules { own: Own::ByName, ..Rules::FINAL };
    must_break("own rows", TWO, rules, Bounds { timelines: &[2], ..Bounds::CALM });
}

#[test]
fn rule_15_fences_that_ignore_the_timeline() {
    // The promoted server issues a fence again that was issued before.
    let rules = Rules { timelines: tenure_protocol::Timelines::Rise, ..Rules::FINAL };
    let bounds = Bounds { timelines: &[1], ..Bounds::CALM };
    must_break("counter alone", "fences rise", rules, bounds);
}
