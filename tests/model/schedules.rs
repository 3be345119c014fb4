//! The ten schedules that broke earlier drafts (section 9 of the design), in tenths of a second: lease 15 s, margin
//! 1.5 s, so that a leader cut off just after a renewal leads for 13.5 s more.
//!
//! Each is played twice, under the draft and under the final rules; the draft yields what is told of it.

use tenure_protocol::{Action, Bounds, Names, Own, Rules, Script, Timelines, Wait};

const FINAL: Rules = Rules { margin: 15, ..Rules::DEFAULT_TRUST };
const USUAL: Bounds = Bounds { lease: 150, terms: 20, ..Bounds::CALM };
const LEADER: usize = 0;
const CANDIDATE: usize = 1;
const THIRD: usize = 2;

/// The leader was just elected, and the candidate has seen that.
fn begin(rules: Rules, bounds: Bounds) -> Script {
    let mut world = Script::new(rules, bounds);
    world.look(LEADER);
    assert!(world.bid(LEADER));
    world.look(CANDIDATE);
    world
}

/// Two lead under the draft, and never under the final rules.
fn assert_only_the_draft_fails(draft: Rules, play: impl Fn(Rules) -> Script) {
    assert!(play(draft).two_led(), "the draft held");
    assert!(!play(FINAL).two_led(), "the final rules don't hold");
}

#[test]
fn schedule_1_age_believed() {
    let bounds = Bounds { steps: &[20], step_count: 1, ..USUAL };
    let play = |rules| {
        let mut world = begin(rules, bounds.clone());
        world.until(31);
        world.look(CANDIDATE);
        world.until(53);
        world.renew(LEADER); // and is cut off
        world.happen(Action::StepClock(20));
        world.until(61);
        world.look(CANDIDATE);
        world.until(184);
        assert!(world.leads(LEADER));
        world.bid(CANDIDATE);
        world
    };
    assert_only_the_draft_fails(Rules { wait: Wait::PlausibleAge, ..FINAL }, play);
}

#[test]
fn schedule_2_elapsed_times_compared() {
    let bounds = Bounds { steps: &[-80, 80], step_count: 2, ..USUAL };
    let play = |rules| {
        let mut world = begin(rules, bounds.clone());
        world.until(10);
        world.look(CANDIDATE);
        world.until(20);
        world.happen(Action::StepClock(-80));
        world.until(50);
        world.renew(LEADER);
        world.until(60);
        world.happen(Action::StepClock(80));
        world.until(70);
        world.look(CANDIDATE);
        world.until(130);
        assert!(world.leads(LEADER));
        world.bid(CANDIDATE);
        world
    };
    assert_only_the_draft_fails(Rules { wait: Wait::AgeUnlessStepped, ..FINAL }, play);
}

#[test]
fn schedule_3_the_record_went_back_or_was_deleted() {
    for lost in [Action::Delete, Action::Restore] {
        let bounds = Bounds { participants: 3, rollbacks: 1, resigns: 1, ..USUAL };
        let play = |rules| {
            let mut world = begin(rules, bounds.clone());
            world.look(THIRD);
            world.until(10);
            world.happen(Action::Resign(LEADER));
            world.happen(Action::ArriveLate(LEADER));
            world.look(THIRD);
            world.happen(Action::Keep);
            assert!(world.bid(THIRD));
            world.look(CANDIDATE);
            world.until(60);
            world.renew(THIRD); // unseen, and cut off
            world.happen(lost);
            world.until(70);
            world.look(CANDIDATE);
            world.until(175);
            assert!(world.leads(THIRD));
            world.bid(CANDIDATE);
            world
        };
        let draft = Rules { waits_for_lost_records: false, ..FINAL };
        if lost == Action::Delete {
            assert_only_the_draft_fails(draft, play);
        } else {
            // What comes back here is a released record, which lifts nothing either.
            assert!(play(draft).two_led() && !play(FINAL).two_led());
        }
    }
}

#[test]
fn schedule_4_own_rows_exempted() {
    let bounds = Bounds { timelines: &[2], ..USUAL };
    let play = |rules| {
        let mut world = begin(rules, bounds.clone());
        world.happen(Action::Keep);
        world.until(151);
        assert!(!world.leads(LEADER) && world.bid(CANDIDATE));
        world.look(LEADER);
        world.happen(Action::FailOver);
        world.until(155);
        world.look(LEADER);
        assert!(world.leads(CANDIDATE));
        world.bid(LEADER);
        world
    };
    assert_only_the_draft_fails(Rules { own: Own::ByName, ..FINAL }, play);
}

#[test]
fn schedule_5_no_row_accepted_by_a_bid_that_names_a_version() {
    let bounds = Bounds { participants: 3, rollbacks: 1, ..USUAL };
    let play = |rules| {
        let mut world = begin(rules, bounds.clone());
        world.look(THIRD);
        world.until(151);
        world.happen(Action::Bid(CANDIDATE));
        assert!(world.bid(THIRD));
        world.happen(Action::Delete);
        world.happen(Action::Arrive(CANDIDATE));
        world.happen(Action::Answer(CANDIDATE));
        assert!(world.leads(THIRD));
        world
    };
    assert_only_the_draft_fails(Rules { names: Names::VersionOrNothing, ..FINAL }, play);
}

#[test]
fn schedule_6_a_bid_is_the_first_to_reach_the_promoted_server() {
    let bounds = Bounds { participants: 3, timelines: &[2], ..USUAL };
    let play = |rules| {
        let mut world = begin(rules, bounds.clone());
        world.look(THIRD);
        world.happen(Action::Keep);
        world.until(151);
        world.happen(Action::Bid(CANDIDATE));
        assert!(world.bid(THIRD));
        world.happen(Action::FailOver);
        world.happen(Action::Arrive(CANDIDATE));
        world.happen(Action::Answer(CANDIDATE));
        assert!(world.leads(THIRD));
        world
    };
    assert_only_the_draft_fails(Rules { names_timeline: false, ..FINAL }, play);
}

#[test]
fn schedule_7_the_same_version_twice() {
    let bounds = Bounds { steps: &[-50], step_count: 1, ..USUAL };
    let play = |rules| {
        let mut world = begin(rules, bounds.clone());
        world.until(1);
        world.happen(Action::StepClock(-50));
        world.until(50);
        world.renew(LEADER); // writes the same times again, and is cut off
        world.until(60);
        world.look(CANDIDATE);
        world.until(151);
        assert!(world.leads(LEADER));
        world.bid(CANDIDATE);
        world
    };
    assert_only_the_draft_fails(Rules { version_has_mark: false, ..FINAL }, play);
}

#[test]
fn schedule_8_released_told_by_the_clock() {
    let bounds = Bounds { steps: &[200], step_count: 1, ..USUAL };
    let play = |rules| {
        let mut world = begin(rules, bounds.clone());
        world.until(50);
        world.renew(LEADER);
        world.happen(Action::StepClock(200));
        world.until(60);
        world.look(CANDIDATE);
        assert!(world.leads(LEADER));
        world.bid(CANDIDATE);
        world
    };
    assert_only_the_draft_fails(Rules { released_at_epoch: false, ..FINAL }, play);
}

#[test]
fn schedule_9_a_remaining_time_that_a_backward_step_stretched() {
    let bounds = Bounds { steps: &[-600], step_count: 1, ..USUAL };
    let somebody_leads_in_time = |rules| {
        let mut world = begin(rules, bounds.clone());
        world.until(50);
        world.renew(LEADER); // and dies
        world.happen(Action::StepClock(-600));
        let leads = world.campaign(CANDIDATE, 150 + 30);
        assert!(!world.two_led());
        leads
    };
    assert!(!somebody_leads_in_time(Rules { wait: Wait::Uncapped, ..FINAL }), "the draft held");
    assert!(somebody_leads_in_time(FINAL));
}

#[test]
fn schedule_10_timelines_compared_by_greater_than() {
    let bounds = Bounds { participants: 3, timelines: &[3, 1], ..USUAL };
    let play = |rules| {
        let mut world = Script::new(rules, bounds.clone());
        for who in [LEADER, CANDIDATE, THIRD] {
            world.look(who);
        }
        world.happen(Action::FailOver);
        assert!(world.campaign(LEADER, 160));
        world.look(CANDIDATE);
        world.look(THIRD);
        world.happen(Action::Keep);
        let mut until = 151;
        while !world.bid(THIRD) {
            until += 1;
            world.until(until);
        }
        world.happen(Action::FailOver); // an upgrade: the timelines begin again, and the third's write is lost
        world.look(CANDIDATE);
        assert!(world.leads(THIRD));
        world.bid(CANDIDATE);
        world
    };
    assert_only_the_draft_fails(Rules { timelines: Timelines::Rise, ..FINAL }, play);
}
