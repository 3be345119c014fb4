//! How leadership passes on between processes.

use std::thread::sleep;
use std::time::Duration;

use crate::figures::figure;
use crate::fleet::{Fleet, LIMIT, Led};
use crate::line::{Line, now};
use crate::place::{Place, ms};
use crate::profile::{P3, SLACK};

/// Three nodes, of which the first leads and has renewed.
fn three(place: &Place) -> (Fleet, Led) {
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&place.options("a"));
    fleet.start(&place.options("b"));
    fleet.start(&place.options("c"));
    fleet.await_story(LIMIT, "all have started", |fleet| {
        (0..3).all(|node| fleet.identity(node).is_some()).then_some(())
    });
    fleet.await_held(&first, ms(1_500));
    assert_eq!(fleet.leads().len(), 1, "{}", fleet.told());
    (fleet, first)
}

pub(crate) fn a_killed_leader_is_replaced_at_the_expiry() {
    let place = Place::new();
    let (mut fleet, first) = three(&place);
    let killed = fleet.kill(first.node);
    let next = fleet.await_lead(P3.take(), "another one leads", |led| led.fence != first.fence);
    assert_eq!(next.fence, first.fence + 1);
    let held = fleet.certain(first.fence).expect("it has led").1;
    assert!(next.at + P3.renew + P3.op >= held + P3.lease, "before the lease was over: {}", fleet.told());
    figure(format_args!("leader killed: the next leads {:.1?} after", next.at.saturating_sub(killed)));
    fleet.finish();
    fleet.judge(2);
}

pub(crate) fn a_leader_that_ends_hands_over_within_a_retry_period() {
    let place = Place::new();
    let (mut fleet, first) = three(&place);
    let asked = fleet.terminate(first.node);
    let next = fleet.await_lead(P3.hand(), "another one leads", |led| led.fence != first.fence);
    assert_eq!(next.fence, first.fence + 1);
    let (status, gone) = fleet.await_exit(first.node, P3.op + Duration::from_secs(1) + SLACK);
    assert!(status.success());
    figure(format_args!(
        "SIGTERM: gone after {:.1?}, the next leads {:.1?} after the signal",
        gone - asked,
        next.at.saturating_sub(asked)
    ));
    fleet.finish();
    fleet.judge(2);
}

pub(crate) fn a_leader_that_was_frozen_knows_at_once() {
    let place = Place::new();
    let (mut fleet, first) = three(&place);
    place.freeze(&fleet.nodes[first.node].process);
    let frozen = now();
    let next = fleet.await_lead(P3.take(), "another one leads", |led| led.node != first.node);
    assert_eq!(next.fence, first.fence + 1);
    sleep((frozen + Duration::from_secs(6)).saturating_sub(now()));
    let woken = now();
    fleet.nodes[first.node].process.cont();
    let noticed = fleet.await_lost(LIMIT, first.fence) - woken;
    assert!(noticed < ms(250) + SLACK, "{noticed:?}");
    let checked_ok = |line: &Line| matches!(line, Line::Check { ok: true, .. });
    assert!(!fleet.nodes[first.node].story.lines.iter().any(checked_ok), "{}", fleet.told());
    let seen = fleet.certain(next.fence).expect("it leads").1;
    fleet.await_story(LIMIT, "the successor goes on", |fleet| {
        (fleet.certain(next.fence)?.1 > seen + P3.term()).then_some(())
    });
    assert_eq!(fleet.leads().len(), 2, "{}", fleet.told());
    fleet.finish();
    fleet.judge(2);
}
