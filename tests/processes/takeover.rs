//! How leadership passes on: a leader that is killed, that ends, that is frozen, and one that shares its label.

use std::thread::sleep;
use std::time::Duration;

use crate::figures::figure;
use crate::fleet::{Fleet, Ground, LIMIT, Led, Way};
use crate::line::{Line, now};
use crate::profile::{P3, SLACK};
use crate::rows::{Takeover, takeover};
use crate::stillness::promised;

/// Three nodes, of which the first leads and has renewed; the others know of it.
fn three(ground: &Ground<'_>) -> (Fleet, Led) {
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&ground.options("a"));
    fleet.start(&ground.options("b"));
    fleet.start(&ground.options("c"));
    fleet.await_story(LIMIT, "all have started", |fleet| {
        (0..3).all(|node| fleet.identity(node).is_some()).then_some(())
    });
    fleet.await_held(&first, Duration::from_millis(1_500));
    assert_eq!(fleet.leads().len(), 1, "{}", fleet.told());
    (fleet, first)
}

pub(crate) fn a_killed_leader_is_replaced_at_the_expiry(way: Way) {
    let ground = Ground::shared(way);
    let (mut fleet, first) = three(&ground);
    let killed = fleet.kill(first.node);
    let next = fleet.await_lead(P3.take(), "another one leads", |led| led.fence != first.fence);
    assert_eq!(next.fence, first.fence + 1);
    let Takeover::AfterExpiry(gap) = takeover(&ground.rows(), next.fence) else {
        panic!("who released it? {}", fleet.told())
    };
    assert!(gap <= P3.retry + SLACK, "{gap:?}");
    figure(format_args!(
        "{way:?}: leader killed: the next leads {gap:.1?} after the expiry, {:.1?} after the kill",
        next.at.saturating_sub(killed)
    ));
    fleet.verify(&ground, P3, 2);
}

pub(crate) fn a_leader_that_ends_hands_over_within_a_retry_period(way: Way) {
    let ground = Ground::shared(way);
    let (mut fleet, first) = three(&ground);
    let asked = fleet.terminate(first.node);
    let next = fleet.await_lead(P3.hand(), "another one leads", |led| led.fence != first.fence);
    assert_eq!(next.fence, first.fence + 1);
    let Takeover::AfterRelease(gap) = takeover(&ground.rows(), next.fence) else {
        panic!("it was not released: {}", fleet.told())
    };
    assert!(gap <= P3.retry + SLACK, "{gap:?}");
    let (status, gone) = fleet.await_exit(first.node, P3.op + Duration::from_secs(1) + SLACK);
    assert!(status.success());
    figure(format_args!(
        "{way:?}: SIGTERM: gone after {:.1?}, the next leads {gap:.1?} after the release",
        gone - asked
    ));
    fleet.verify(&ground, P3, 2);
}

/// B02, and B15 b: both have the same label.
pub(crate) fn b02_a_leader_that_was_frozen_knows_at_once_and_touches_nothing(way: Way) {
    let ground = Ground::shared(way);
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&ground.options("web-0"));
    let second = fleet.start(&ground.options("web-0"));
    fleet.await_held(&first, Duration::from_millis(1_500));
    fleet.nodes[first.node].process.stop();
    let frozen = now();
    let next = fleet.await_lead(P3.take(), "the other one leads", |led| led.node == second);
    assert_eq!(next.fence, first.fence + 1);
    sleep((frozen + Duration::from_secs(6)).saturating_sub(now()));
    // The successor stands still for a moment, so that its own renewals don't change the row.
    fleet.nodes[second].process.stop();
    let before = ground.bytes_of_the_row();
    let woken = now();
    fleet.nodes[first.node].process.cont();
    fleet.await_story(LIMIT, "the old guard is dropped", |fleet| {
        let stopped = |line: &Line| matches!(line, Line::Stopped { fence, .. } if *fence == first.fence);
        fleet.lines().any(|(_, line)| stopped(line)).then_some(())
    });
    promised!(before == ground.bytes_of_the_row(), "the successor's row was touched");
    fleet.nodes[second].process.cont();
    let noticed = fleet.await_lost(LIMIT, first.fence) - woken;
    assert!(noticed < Duration::from_millis(250) + SLACK, "{noticed:?}");
    let checked_ok = |line: &Line| matches!(line, Line::Check { ok: true, .. });
    promised!(!fleet.nodes[first.node].story.lines.iter().any(checked_ok), "{}", fleet.told());
    let held = fleet.certain(first.fence).expect("it has led");
    promised!(held.1 <= frozen, "it was told that it leads {:?} after it was frozen", held.1 - frozen);
    figure(format_args!("{way:?}: frozen for 6 s: lost {noticed:.1?} after SIGCONT"));
    let seen = fleet.certain(next.fence).expect("it leads").1;
    fleet.await_story(LIMIT, "the successor goes on", |fleet| {
        (fleet.certain(next.fence)?.1 > seen + P3.renew).then_some(())
    });
    assert_eq!(fleet.leads().len(), 2, "{}", fleet.told());
    fleet.verify(&ground, P3, 2);
}

pub(crate) fn b02_a_short_freeze_changes_nothing(way: Way) {
    let ground = Ground::shared(way);
    let (mut fleet, first) = three(&ground);
    fleet.nodes[first.node].process.stop();
    sleep(Duration::from_secs(1));
    fleet.nodes[first.node].process.cont();
    let woken = now();
    fleet.await_story(LIMIT, "the leader goes on", |fleet| {
        (fleet.certain(first.fence)?.1 > woken + P3.lease).then_some(())
    });
    fleet.no_lost();
    fleet.verify(&ground, P3, 1);
}

pub(crate) fn b15_the_same_label_twice_is_two_participants(way: Way) {
    let ground = Ground::shared(way);
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&ground.options("web-0"));
    let second = fleet.start(&ground.options("web-0"));
    fleet.await_story(LIMIT, "the second has started", |fleet| fleet.identity(second).map(drop));
    fleet.await_held(&first, P3.lease + P3.retry * 4);
    assert_eq!(fleet.leads().len(), 1, "{}", fleet.told());
    fleet.no_lost();
    assert_ne!(fleet.identity(first.node), fleet.identity(second));
    fleet.verify(&ground, P3, 1);
}

pub(crate) fn b15_a_restarted_process_does_not_continue_its_predecessors_term(way: Way) {
    let ground = Ground::shared(way);
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&ground.options("web-0"));
    fleet.await_held(&first, P3.renew * 3);
    fleet.kill(first.node);
    let again = fleet.start_leader(&ground.options("web-0"));
    assert_eq!(again.fence, first.fence + 1);
    let taken = takeover(&ground.rows(), again.fence);
    assert!(matches!(taken, Takeover::AfterExpiry(gap) if gap <= P3.retry + SLACK), "{taken:?}");
    fleet.verify(&ground, P3, 2);
}
