//! What becomes of the nodes' processes: killed, ended in order, stopped, starved, misled about the time.

use std::thread::sleep;
use std::time::Duration;

use tenure_testground::{ClockShim, Postgres};

use crate::fleet::figures::figure;
use crate::fleet::line::{Line, now};
use crate::fleet::node::Options;
use crate::fleet::profile::{P3, SLACK};
use crate::fleet::stillness::promised;
use crate::fleet::{Ground, LIMIT, Way};
use crate::report::Report;
use crate::stage::Stage;

/// SIGKILL for the leader, and another node in its place; three times.
pub(crate) fn leader_crashes(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let mut led = stage.first;
    for n in 3..6 {
        stage.fleet.kill(led.node);
        // By those who have seen its renewals: a newcomer would go by the expiry.
        led = stage.takes_over(&led);
        stage.join(&format!("n{n}"));
        stage.fleet.await_held(&led, stage.profile.renew * 2);
    }
    stage.calms(now());
    stage.finish(4)
}

/// SIGTERM for the leader, and for the one after it.
pub(crate) fn graceful_hand_over(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    let second = stage.hands_over(&first);
    stage.fleet.await_held(&second, stage.profile.renew * 2);
    let third = stage.hands_over(&second);
    stage.goes_on(&third);
    stage.calms(now());
    assert_eq!(third.fence, first.fence + 2);
    stage.finish(3)
}

/// Each of four nodes is ended and replaced, one after the other, twice round.
pub(crate) fn rolling_restart_of_a_fleet(way: Way) -> Report {
    const NODES: usize = 4;
    let mut stage = Stage::set_with(Ground::shared(way), P3, NODES, |_, _| ());
    let mut seats: Vec<usize> = (0..NODES).collect();
    let (mut led, mut terms) = (stage.first, 1);
    for n in 0..NODES * 2 {
        let seat = n % NODES;
        let node = seats[seat];
        if node == led.node {
            led = stage.hands_over(&led);
            terms += 1;
        } else {
            stage.fleet.terminate(node);
            stage.ends_in_order(node);
        }
        let replacement = stage.join(&format!("n{seat}"));
        stage.fleet.await_story(LIMIT, "it has started", |fleet| fleet.identity(replacement).map(drop));
        seats[seat] = replacement;
    }
    stage.calms(now());
    // Nothing else has ended a term, and no fence was skipped.
    assert_eq!(stage.fleet.leads().len(), terms, "{}", stage.fleet.told());
    assert_eq!(led.fence, stage.first.fence + terms as i64 - 1);
    stage.finish(terms)
}

/// SIGSTOP for the leader, until another one has led for a while.
pub(crate) fn leader_stopped_for_longer_than_its_lease(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    stage.fleet.nodes[first.node].process.stop();
    let stopped = now();
    let next = stage.takes_over(&first);
    stage.fleet.await_held(&next, stage.profile.renew * 2);
    // The others stand still for a moment, so that it is not they who change the row.
    let others = [1, 2];
    others.iter().for_each(|node| stage.fleet.nodes[*node].process.stop());
    let before = stage.ground.bytes_of_the_row();
    let woken = now();
    stage.fleet.nodes[first.node].process.cont();
    stage.fleet.await_story(LIMIT, "the old guard is dropped", |fleet| {
        let stopped = |line: &Line| matches!(line, Line::Stopped { fence, .. } if *fence == first.fence);
        fleet.lines().any(|(_, line)| stopped(line)).then_some(())
    });
    promised!(before == stage.ground.bytes_of_the_row(), "the successor's row was touched");
    others.iter().for_each(|node| stage.fleet.nodes[*node].process.cont());
    let noticed = stage.fleet.await_lost(LIMIT, first.fence).saturating_sub(woken);
    assert!(noticed < Duration::from_millis(250) + SLACK, "{noticed:?}");
    let lines = &stage.fleet.nodes[first.node].story.lines;
    let checks: Vec<bool> = lines
        .iter()
        .filter_map(|line| if let Line::Check { ok, .. } = line { Some(*ok) } else { None })
        .collect();
    promised!(!checks.contains(&true), "it was told that it leads:\n{}", stage.fleet.told());
    assert_eq!(checks, [false], "its first check after that:\n{}", stage.fleet.told());
    let held = stage.fleet.certain(first.fence).expect("it has led");
    promised!(held.1 <= stopped, "told that it leads {:?} after it was stopped", held.1 - stopped);
    stage.goes_on(&next);
    stage.calms(now());
    stage.finish(2)
}

/// SIGSTOP for the leader for half of its term, three times.
pub(crate) fn leader_stopped_for_less(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    for _ in 0..3 {
        stage.fleet.nodes[first.node].process.stop();
        sleep(stage.profile.term() / 2);
        stage.fleet.nodes[first.node].process.cont();
        stage.ground.await_renewal();
    }
    stage.goes_on(&first);
    stage.calms(now());
    stage.finish_with_one_term()
}

/// Wall clocks three days ahead and three days behind that change places, time zones at both ends of the world in the
/// processes and in the sessions, and three leaders are killed.
pub(crate) fn b05_wall_clocks_days_apart(way: Way) -> Report {
    const DAYS: f64 = 259_200.0;
    let server = Postgres::start_new();
    let ground = Ground::on(&server, way);
    let roles = [("app_a", "Pacific/Kiritimati"), ("app_b", "America/New_York")];
    for (role, zone) in roles {
        server.create_role(role, "");
        server.execute(&format!("ALTER ROLE {role} SET timezone = '{zone}'"));
        ground.database.execute(&format!("GRANT SELECT, INSERT, UPDATE ON leader_election TO {role}"));
        ground.pooler.iter().for_each(|pooler| pooler.add_user(role));
    }
    let clocks = [ClockShim::new(), ClockShim::new()];
    clocks[0].step(DAYS);
    clocks[1].step(-DAYS);
    let mislead = |n: usize, options: &mut Options| {
        let side = n % 2;
        options.dsn = options.dsn.replacen("//postgres@", &format!("//{}@", roles[side].0), 1);
        options.env = clocks[side].env();
        options.env.push(("TZ".to_owned(), ["Asia/Tokyo", "America/Los_Angeles"][side].to_owned()));
    };
    let mut stage = Stage::set_with(ground, P3, 3, mislead);
    let mut led = stage.first;
    let maps = format!("/proc/{}/maps", stage.fleet.nodes[led.node].process.pid());
    assert!(std::fs::read_to_string(maps).expect("it runs").contains("clock_shim"), "its clock is right");
    clocks[0].step(-2.0 * DAYS);
    clocks[1].step(2.0 * DAYS);
    stage.goes_on(&led);
    stage.nothing_failed();
    for n in 3..6 {
        stage.fleet.kill(led.node);
        led = stage.takes_over(&led);
        stage.join_with(&format!("n{n}"), |options| mislead(n, options));
        stage.fleet.await_held(&led, stage.profile.renew);
    }
    stage.calms(now());
    stage.finish(4)
}

/// The leader runs for 10 ms of every 100 ms, as under a quota of processor time, and between these stretches for 50 ms
/// in more than a second, so that its renewals come late or too late.
pub(crate) fn cpu_starvation(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let leader = stage.first.node;
    let ms = Duration::from_millis;
    for long in [1_300, 1_600, 1_700, 1_800] {
        for (stopped, runs) in std::iter::repeat_n((90, 10), 8).chain([(long, 50)]) {
            stage.fleet.nodes[leader].process.stop();
            sleep(ms(stopped));
            stage.fleet.nodes[leader].process.cont();
            sleep(ms(runs));
            stage.fleet.read();
        }
    }
    let gap = stage.longest_gap();
    assert!(gap > stage.profile.renew * 2, "{gap:?} at most between two renewals: it has run all the time");
    figure(format_args!("{}: starved: {gap:.1?} between two renewals at most", way.name()));
    // Whether it has kept its term or not: the stories show whether it was honest.
    let led = stage.calms(now());
    stage.goes_on(&led);
    stage.finish(1)
}
