//! Answers that are lost, and paths that go silent under a leader.

use std::thread::sleep;
use std::time::Duration;

use tenure_testground::{Mode, Proxy, await_until};

use crate::figures::figure;
use crate::fleet::{Fleet, Ground, LIMIT, RowLock, Way};
use crate::line::{Line, now};
use crate::node::Options;
use crate::profile::{P3, P6, Profile, SLACK};
use crate::rows;
use crate::stillness::promised;

/// A node whose path leads through a proxy.
fn through(proxy: &Proxy, ground: &Ground<'_>, label: &str, profile: Profile) -> Options {
    Options { dsn: ground.database.dsn_through(proxy.port()), profile, ..ground.options(label) }
}

fn directly(ground: &Ground<'_>, label: &str, profile: Profile) -> Options {
    Options { profile, ..ground.options(label) }
}

pub(crate) fn b08_a_term_whose_grant_was_lost_is_never_led(way: Way) {
    let ground = Ground::shared(way);
    ground.database.execute(
        "INSERT INTO leader_election (name, holder, fence, acquired_at, renewed_at, expires_at)
         VALUES ('e', 'ghost', 5, 'epoch', 'epoch', 'epoch')",
    );
    let proxy = Proxy::to(ground.addr());
    let mut fleet = Fleet::new();
    // The bid waits in the server; then answers are lost; then the bid is granted.
    let mut lock = RowLock::take(&ground);
    let a = fleet.start(&through(&proxy, &ground, "a", P6));
    lock.await_waiter();
    proxy.set(Mode::SwallowReplies);
    lock.release();
    await_until(LIMIT, "the bid is granted", || ground.rows().last().is_some_and(|row| row.fence == 6));
    let b = fleet.start(&directly(&ground, "b", P6));
    fleet.await_story(LIMIT, "b has started", |fleet| fleet.identity(b).map(drop));
    sleep(Duration::from_secs(2));
    fleet.read();
    assert!(fleet.leads().is_empty(), "{}", fleet.told());
    proxy.set(Mode::Reset);
    sleep(Duration::from_millis(100));
    let passed = now();
    proxy.set(Mode::Pass);
    let led = fleet.await_lead(P6.take(), "somebody leads", |_| true);
    promised!(led.fence > 6, "{}", fleet.told());
    if led.node == a {
        let bound = P6.retry * 2 + P6.op + Duration::from_millis(500) + SLACK;
        assert!(led.at - passed < bound, "{}", fleet.told());
    }
    figure(format_args!(
        "{way:?}: grant lost: {} leads {:.1?} after the path is back",
        fleet.nodes[led.node].story.label,
        led.at - passed
    ));
    fleet.await_held(&led, P6.renew * 2);
    fleet.verify(&ground, P6, 1);
}

pub(crate) fn b08_renewals_that_land_unanswered_prolong_nothing(way: Way) {
    let ground = Ground::shared(way);
    let proxy = Proxy::to(ground.addr());
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&through(&proxy, &ground, "a", P3));
    fleet.start(&directly(&ground, "b", P3));
    fleet.await_held(&first, P3.renew * 2);
    proxy.set(Mode::SwallowReplies);
    let cut = now();
    let down = fleet.stepped_down(&first, cut, P3);
    figure(format_args!(
        "{way:?}: replies lost: stepped down {down:.1?} after the cut (term {:?})",
        P3.term()
    ));
    let next = fleet.await_lead(P3.take(), "the other one leads", |led| led.fence != first.fence);
    proxy.set(Mode::Pass);
    fleet.await_held(&next, P3.lease);
    fleet.verify(&ground, P3, 2);
}

pub(crate) fn b08_a_shutdown_whose_release_is_not_answered_is_bounded(way: Way) {
    let ground = Ground::shared(way);
    let proxy = Proxy::to(ground.addr());
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&through(&proxy, &ground, "a", P6));
    fleet.start(&directly(&ground, "b", P6));
    fleet.await_held(&first, P6.renew / 2);
    // Nothing else is under way just after a renewal.
    ground.await_renewal();
    sleep(Duration::from_millis(200));
    proxy.set(Mode::SwallowReplies);
    let asked = fleet.terminate(first.node);
    let (status, gone) = fleet.await_exit(first.node, P6.op + Duration::from_secs(1) + SLACK);
    assert!(status.success(), "{status}");
    assert!(gone - asked <= P6.op + Duration::from_secs(1), "{:?}", gone - asked);
    let next = fleet.await_lead(P6.hand(), "the release has landed", |led| led.fence != first.fence);
    figure(format_args!(
        "{way:?}: release unanswered: gone after {:.1?}, the next leads {:.1?} after the request",
        gone - asked,
        next.at - asked
    ));
    fleet.verify(&ground, P6, 2);
}

pub(crate) fn b19_a_black_hole_under_a_leader(way: Way) {
    let ground = Ground::shared(way);
    let proxy = Proxy::to(ground.addr());
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&through(&proxy, &ground, "a", P3));
    fleet.start(&directly(&ground, "b", P3));
    fleet.await_held(&first, P3.lease);
    let before = fleet.counts(first.node);
    proxy.set(Mode::BlackHole);
    let cut = now();
    let down = fleet.stepped_down(&first, cut, P3);
    let next = fleet.await_lead(P3.take(), "the other one leads", |led| led.fence != first.fence);
    figure(format_args!(
        "{way:?}: black hole: stepped down {down:.1?} after the cut, the other one leads {:.1?} after it",
        next.at - cut
    ));
    // It goes on trying.
    sleep(P3.lease);
    proxy.set(Mode::Pass);
    fleet.counts_come_back(first.node, before);
    fleet.await_held(&next, P3.lease * 2);
    assert_eq!(fleet.leads().len(), 2, "{}", fleet.told());
    fleet.verify(&ground, P3, 2);
}

pub(crate) fn rule_2_on_a_slow_path_the_term_counts_from_the_send(way: Way) {
    let ground = Ground::shared(way);
    let proxy = Proxy::to(ground.addr());
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&through(&proxy, &ground, "a", P3));
    let one_way = Duration::from_millis(80);
    proxy.set(Mode::Delay { by: one_way, jitter: Duration::ZERO });
    fleet.await_held(&first, P3.lease);
    proxy.set(Mode::BlackHole);
    fleet.stepped_down(&first, now(), P3);
    let to = fleet.certain(first.fence).expect("it has led").1;
    // The last renewal that was answered took that long to get to the server, so it was sent that much earlier.
    let row = ground.rows().into_iter().rev().find(|row| row.fence == first.fence).expect("a row");
    let sent = rows::stamp(row.renewed) - one_way;
    let tolerance = Duration::from_millis(10);
    promised!(to < sent + P3.term() + tolerance, "{:?} too long", to - (sent + P3.term()));
    proxy.set(Mode::Pass);
    fleet.verify(&ground, P3, 1);
}

pub(crate) fn b28_one_renewal_that_is_reset_or_swallowed_costs_no_term(way: Way) {
    let ground = Ground::shared(way);
    let proxy = Proxy::to(ground.addr());
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&through(&proxy, &ground, "a", P3));
    for _ in 0..3 {
        ground.await_renewal();
        proxy.reset_all();
        ground.await_renewal();
        // The worst moment: just before the next renewal is sent, and for a whole operation timeout.
        sleep(P3.renew - Duration::from_millis(100));
        proxy.set(Mode::BlackHole);
        sleep(Duration::from_millis(100) + P3.op);
        proxy.set(Mode::Pass);
        ground.await_renewal();
    }
    fleet.await_held(&first, P3.lease);
    let renewed: Vec<i64> = ground.rows().iter().map(|row| row.renewed).collect();
    let longest = renewed.windows(2).map(|pair| pair[1] - pair[0]).max().expect("renewals");
    let longest = Duration::from_micros(longest.unsigned_abs());
    assert!(longest < P3.term(), "{longest:?}");
    figure(format_args!(
        "{way:?}: one renewal lost: at most {longest:.1?} between two (term {:?})",
        P3.term()
    ));
    fleet.no_lost();
    let failures = fleet.lines().filter(|(_, line)| matches!(line, Line::Err { .. })).count();
    assert!(failures >= 1, "nothing was disturbed");
    fleet.verify(&ground, P3, 1);
}

pub(crate) fn b28_a_renewal_that_is_reset_is_made_again_at_once(way: Way) {
    let ground = Ground::shared(way);
    let proxy = Proxy::to(ground.addr());
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&through(&proxy, &ground, "a", P3));
    fleet.await_held(&first, P3.renew * 2);
    let failures = |fleet: &Fleet| fleet.lines().filter(|(_, line)| matches!(line, Line::Err { .. })).count();
    let mut took: Vec<Duration> = Vec::new();
    for _ in 0..5 {
        ground.await_renewal();
        let before = failures(&fleet);
        proxy.set(Mode::Reset);
        fleet.await_story(LIMIT, "a renewal is reset", |fleet| (failures(fleet) > before).then_some(()));
        proxy.set(Mode::Pass);
        let passed = now();
        ground.await_renewal();
        took.push(now() - passed);
    }
    took.sort();
    let bound = (P3.renew / 4).max(Duration::from_millis(50)) + P3.op;
    // On a busy machine not each of them.
    assert!(took[0] <= bound && took[4] <= bound + SLACK, "{took:?}, not {bound:?}");
    figure(format_args!("{way:?}: a renewal reset: the next one {:.1?} to {:.1?} later", took[0], took[4]));
    fleet.await_held(&first, P3.lease);
    fleet.no_lost();
    fleet.verify(&ground, P3, 1);
}
