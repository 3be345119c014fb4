//! The paths between the nodes and the database.

use std::thread::sleep;
use std::time::Duration;

use tenure_testground::{Counters, Direction, Flow, Mode, Proxy};

use crate::fleet::line::now;
use crate::fleet::profile::SLACK;
use crate::fleet::stillness::promised;
use crate::fleet::{Ground, RowLock, Way, rows};
use crate::report::Report;
use crate::stage::Stage;

/// Nothing at all.
pub(crate) fn steady_state(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    stage.fleet.await_held(&first, Duration::from_secs(8));
    stage.nothing_failed();
    let gap = stage.longest_gap();
    assert!(gap < stage.profile.renew + stage.profile.op, "a renewal came {gap:?} after the one before");
    stage.calms(now());
    stage.finish_with_one_term()
}

/// Every path is as long as one around the world, and never twice the same; then the leader's is cut.
pub(crate) fn wan_latency_and_jitter(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    // There and back takes 100 to 200 ms. A call is one such trip, or two where it has to connect first.
    let by = Duration::from_millis(50);
    stage.set_all(Mode::Delay { by, jitter: by });
    stage.goes_on(&first);
    stage.proxies[0].reset_all();
    stage.goes_on(&first);
    stage.fleet.no_lost();
    // The answer to the last renewal arrives, and the next one is not sent yet.
    stage.ground.await_renewal();
    sleep(by * 3);
    stage.proxies[0].set(Mode::BlackHole);
    let cut = now();
    stage.steps_down(&first, cut);
    // That renewal took at least so long to the server: it was sent that much earlier.
    let row = stage.ground.rows().into_iter().rev().find(|row| row.fence == first.fence).expect("a row");
    let sent = rows::stamp(row.renewed) - by;
    let to = stage.fleet.certain(first.fence).expect("it has led").1;
    let tolerance = Duration::from_millis(10);
    let end = sent + stage.profile.term() + tolerance;
    promised!(to < end, "led {:?} too long", to - end);
    let next = stage.takes_over(&first);
    stage.goes_on(&next);
    stage.set_all(Mode::Pass);
    stage.calms(now());
    stage.finish(2)
}

/// Connections are reset and new ones refused, for the leader alone.
pub(crate) fn leader_partitioned(way: Way) -> Report {
    leader_cut_off(way, Mode::Reset)
}

/// Nothing moves on the leader's path, and its connections stay open.
pub(crate) fn leader_black_holed(way: Way) -> Report {
    leader_cut_off(way, Mode::BlackHole)
}

fn leader_cut_off(way: Way, mode: Mode) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    stage.proxies[0].set(mode);
    let cut = now();
    stage.steps_down(&first, cut);
    let next = stage.takes_over(&first);
    stage.proxies[0].set(Mode::Pass);
    let healed = now();
    stage.goes_on(&next);
    stage.calms(healed);
    stage.finish(2)
}

/// All of the leader's renewals are carried out, and it learns of none.
pub(crate) fn replies_lost_but_requests_arrive(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let (first, path) = (stage.first, 0);
    let mut lock = RowLock::take(&stage.ground);
    // What was answered was sent before that: from now on a renewal waits until its answer can't come any more.
    let cut = now();
    let before = stage.ground.rows().len();
    for landed in 1..=3 {
        lock.await_waiter();
        stage.proxies[path].set(Mode::SwallowReplies);
        lock.release();
        stage.await_rows(before + landed);
        lock = RowLock::take(&stage.ground);
        if landed < 3 {
            stage.proxies[path].set(Mode::Pass);
        }
    }
    lock.release();
    stage.steps_down(&first, cut);
    let next = stage.takes_over(&first);
    let rows = stage.ground.rows();
    let taken = rows.iter().position(|row| row.fence == next.fence).expect("it was granted");
    let unanswered = rows[before..taken].iter().filter(|row| row.fence == first.fence).count();
    assert!(unanswered >= 3, "{unanswered} renewals landed: {rows:#?}");
    stage.proxies[path].set(Mode::Pass);
    let healed = now();
    stage.goes_on(&next);
    stage.calms(healed);
    stage.finish(2)
}

/// All connections of the leader are reset while its renewal is being carried out, or that and the attempt after it.
pub(crate) fn connections_reset_in_mid_query(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    for resets in [1, 2, 1, 2, 1, 2] {
        let mut lock = RowLock::take(&stage.ground);
        for reset in 1..=resets {
            // The server goes on with what was abandoned.
            lock.await_line(reset);
            stage.proxies[0].reset_all();
        }
        lock.release();
        stage.ground.await_renewal();
        stage.ground.await_renewal();
    }
    // A call makes up for one connection that breaks, not for two.
    stage.fleet.read();
    let failed = stage.failures().len();
    assert!(failed >= 3, "{failed} calls have failed: {}", stage.fleet.told());
    stage.goes_on(&first);
    stage.calms(now());
    stage.finish_with_one_term()
}

/// Everybody's path gets too narrow for any statement, then so narrow that they just pass in time.
pub(crate) fn bandwidth_collapse(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    let narrow = |stage: &Stage<'_>, rate| match way {
        Way::Direct => stage.set_all(Mode::Throttle(rate)),
        // PgBouncer turns away whose first message comes in pieces.
        Way::Pooled => {
            let to_client = |path: &Proxy| path.set_flow(Direction::ToClient, Flow::Throttle(rate));
            stage.proxies.iter().for_each(to_client);
        }
    };
    let bytes = |counters: Counters| match way {
        Way::Direct => counters.from_client + counters.from_server,
        Way::Pooled => counters.from_server,
    };
    let op = stage.profile.op.as_secs_f64();
    let statement = bytes(stage.cost_of_a_renewal(1));
    stage.proxies[0].reset_all();
    let with_connection = bytes(stage.cost_of_a_renewal(2));
    // A statement would take three times as long as a call may.
    narrow(&stage, (statement as f64 / op / 3.0) as u64);
    let cut = now();
    stage.steps_down(&first, cut);
    stage.nobody_leads_for(&first, stage.profile.lease);
    narrow(&stage, (with_connection as f64 / op / 0.7) as u64);
    let next = stage.leads_again(&first, now(), stage.profile.take() - SLACK);
    stage.goes_on(&next);
    stage.set_all(Mode::Pass);
    stage.calms(now());
    stage.finish(2)
}

/// The leader's path goes and comes back every few hundred milliseconds.
pub(crate) fn flapping_path(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    let until = now() + Duration::from_secs(8);
    for down in [Mode::Reset, Mode::BlackHole, Mode::Refuse, Mode::SwallowReplies].into_iter().cycle() {
        if now() > until {
            break;
        }
        stage.proxies[0].set(down);
        stage.proxies[0].close_all();
        sleep(Duration::from_millis(250));
        stage.proxies[0].set(Mode::Pass);
        sleep(Duration::from_millis(350));
        stage.fleet.read();
    }
    assert!(!stage.failures().is_empty(), "it has not noticed");
    // Each time it came back there was time for a renewal, and several of these times lie within a term.
    stage.goes_on(&first);
    stage.calms(now());
    stage.finish_with_one_term()
}

/// Nobody reaches the database: first every connection is reset, then they stay open and nothing moves.
pub(crate) fn everyone_partitioned(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let mut led = stage.first;
    for mode in [Mode::Reset, Mode::BlackHole] {
        stage.set_all(mode);
        let cut = now();
        stage.steps_down(&led, cut);
        stage.nobody_leads_for(&led, stage.profile.lease);
        let healing = now();
        stage.set_all(Mode::Pass);
        let healed = now();
        // Where the cut hit a renewal that landed, its state is new to everybody, and is waited out.
        led = stage.leads_again(&led, healed, stage.profile.take() - SLACK);
        stage.not_before(&led, healing);
        stage.fleet.await_held(&led, stage.profile.renew * 2);
    }
    stage.calms(now());
    stage.finish(3)
}
