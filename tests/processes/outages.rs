//! The server goes away and comes back.

use std::thread::sleep;
use std::time::Duration;

use tenure_testground::Postgres;

use crate::figures::figure;
use crate::fleet::{Fleet, Ground, Led, Way};
use crate::line::{Line, now};
use crate::profile::{P3, SLACK};

fn two(ground: &Ground<'_>) -> (Fleet, Led) {
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&ground.options("a"));
    fleet.start(&ground.options("b"));
    fleet.await_held(&first, P3.renew * 3);
    (fleet, first)
}

pub(crate) fn b26_nobody_leads_while_the_server_is_down_and_nobody_sleeps_longer(way: Way) {
    let server = Postgres::start_new();
    let ground = Ground::on(&server, way);
    let (mut fleet, first) = two(&ground);
    server.stop_fast();
    let down = now();
    fleet.stepped_down(&first, down, P3);
    sleep((down + P3.lease * 2).saturating_sub(now()));
    fleet.read();
    assert_eq!(fleet.leads().len(), 1, "{}", fleet.told());
    server.start();
    let up = now();
    let next = fleet.await_lead(P3.take(), "somebody leads again", |led| led.fence > first.fence);
    let took = next.at.saturating_sub(up);
    // A pooler tries a server again only once in a second.
    assert!(took < P3.retry * 3 / 2 + P3.op + Duration::from_secs(2) + SLACK, "{took:?}");
    figure(format_args!("{way:?}: server down for two leases: led again {took:.1?} after it is back"));
    let fatal = fleet.lines().find(|(_, line)| matches!(line, Line::Err { fatal: true, .. }));
    assert_eq!(fatal, None, "all of it passes by itself");
    fleet.await_held(&next, P3.renew * 2);
    fleet.verify(&ground, P3, 2);
}

pub(crate) fn b26_a_server_that_crashes_again_and_again(way: Way) {
    let server = Postgres::start_new();
    let ground = Ground::on(&server, way);
    let (mut fleet, first) = two(&ground);
    for round in 0..4 {
        if round % 2 == 0 {
            server.stop_immediate();
        } else {
            server.kill9();
        }
        server.start();
        sleep(P3.lease / 2);
    }
    let quiet = now();
    // Whoever leads now, an old term or a new one, leads for longer than a lease.
    fleet.await_story(P3.take() + P3.lease * 2, "one leads steadily", |fleet| {
        let held = fleet.leads().last().and_then(|led| fleet.certain(led.fence))?;
        (held.1 > held.0.max(quiet) + P3.lease).then_some(())
    });
    assert!(fleet.leads()[0].fence == first.fence);
    figure(format_args!("{way:?}: 4 crashes: {} terms", fleet.leads().len()));
    fleet.verify(&ground, P3, 1);
}
