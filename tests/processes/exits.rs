//! Planned ends, and programs that leave through the back door.

use std::thread::sleep;
use std::time::Duration;

use tenure_testground::{Mode, Proxy, await_until};

use crate::figures::figure;
use crate::fleet::{Fleet, Ground, LIMIT, RowLock, Way};
use crate::line::Line;
use crate::node::{End, Options};
use crate::profile::{P3, P6, SLACK};
use crate::rows::{Takeover, takeover};

pub(crate) fn b09_a_shutdown_while_a_renewal_is_held_up_still_releases(way: Way) {
    let ground = Ground::shared(way);
    let mut fleet = Fleet::new();
    let options = |label| Options { profile: P6, ..ground.options(label) };
    let first = fleet.start_leader(&options("a"));
    fleet.start(&options("b"));
    fleet.await_held(&first, P6.renew);
    let mut lock = RowLock::take(&ground);
    lock.await_waiter();
    let asked = fleet.terminate(first.node);
    sleep(Duration::from_millis(300));
    lock.release();
    let (status, gone) = fleet.await_exit(first.node, P6.op + Duration::from_secs(1) + SLACK);
    assert!(status.success(), "{status}");
    let ended = fleet.await_story(P6.hand(), "it says how it ended", |fleet| {
        fleet.nodes[first.node].story.lines.iter().find_map(|line| match line {
            Line::Ended { how, .. } => Some(how.clone()),
            _ => None,
        })
    });
    assert_eq!(ended, "clean");
    assert!(gone - asked <= P6.op + Duration::from_secs(1), "{:?}", gone - asked);
    let next = fleet.await_lead(P6.hand(), "the other one leads", |led| led.fence != first.fence);
    assert_eq!(next.fence, first.fence + 1);
    let taken = takeover(&ground.rows(), next.fence);
    assert!(matches!(taken, Takeover::AfterRelease(_)), "{taken:?}");
    figure(format_args!(
        "{way:?}: shutdown during a held-up renewal: gone after {:.1?}, {taken:.1?}",
        gone - asked
    ));
    fleet.verify(&ground, P6, 2);
}

/// `std::process::exit` runs no destructor; a guard in a static is never dropped. Both are as good as a crash: the
/// next leader waits for the expiry, and no longer than that.
fn like_a_crash(way: Way, end: End) {
    let ground = Ground::shared(way);
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&Options { end, ..ground.options("a") });
    fleet.start(&ground.options("b"));
    fleet.await_held(&first, P3.renew * 3);
    fleet.terminate(first.node);
    fleet.nodes[first.node].story.cut_off = true;
    let (status, _) = fleet.await_exit(first.node, Duration::from_secs(1) + SLACK);
    assert!(status.success(), "{status}");
    let next = fleet.await_lead(P3.take(), "the other one leads", |led| led.fence != first.fence);
    let taken = takeover(&ground.rows(), next.fence);
    assert!(matches!(taken, Takeover::AfterExpiry(gap) if gap <= P3.retry + SLACK), "{taken:?}");
    figure(format_args!("{way:?}: {end:?} with the guard held: {taken:.1?}"));
    fleet.verify(&ground, P3, 2);
}

pub(crate) fn b09_process_exit_hands_over_like_a_crash(way: Way) {
    like_a_crash(way, End::Exit);
}

pub(crate) fn b09_a_guard_in_a_static_hands_over_like_a_crash(way: Way) {
    like_a_crash(way, End::Return);
}

pub(crate) fn rule_9_a_release_that_lands_in_the_successors_term_changes_nothing(way: Way) {
    let ground = Ground::shared(way);
    let proxy = Proxy::to(ground.addr());
    let mut fleet = Fleet::new();
    let dsn = ground.database.dsn_through(proxy.port());
    let first = fleet.start_leader(&Options { dsn, ..ground.options("a") });
    let second = fleet.start(&ground.options("b"));
    fleet.await_held(&first, P3.renew * 2);
    // Nothing else is under way just after a renewal: what is held back is the release.
    ground.await_renewal();
    sleep(P3.renew / 4);
    proxy.set(Mode::HoldRequests);
    fleet.terminate(first.node);
    assert!(fleet.await_exit(first.node, LIMIT).0.success());
    let next = fleet.await_lead(P3.take(), "the other one leads", |led| led.node == second);
    fleet.await_held(&next, P3.renew * 2);
    let before = proxy.snapshot().to_server;
    proxy.set(Mode::Pass);
    await_until(LIMIT, "the release is on its way", || proxy.snapshot().to_server > before);
    let held = fleet.certain(next.fence).map_or(Duration::ZERO, |held| held.1 - held.0);
    fleet.await_held(&next, held + P3.lease);
    assert_eq!(fleet.leads().len(), 2, "{}", fleet.told());
    assert!(!ground.rows().iter().any(|row| row.is_released()), "nothing was released");
    fleet.verify(&ground, P3, 2);
}
