//! Rights that are taken away, rows that vanish or are held, and a table that everybody creates at once.

use std::time::Duration;

use tenure_testground::{Postgres, await_until};

use crate::figures::figure;
use crate::fleet::{Fleet, Ground, LIMIT, RowLock, Way};
use crate::line::{Line, now};
use crate::node::{Form, Options};
use crate::profile::{P3, SLACK};
use crate::stillness::promised;

pub(crate) fn b01_a_leader_that_may_not_write_any_more_steps_down() {
    let server = Postgres::start_new();
    let ground = Ground::on(&server, Way::Direct);
    for role in ["app_a", "app_b"] {
        server.create_role(role, "");
        ground.database.execute(&format!("GRANT SELECT, INSERT, UPDATE ON leader_election TO {role}"));
    }
    let options = |label: &str, role| Options {
        dsn: ground.database.dsn_for(role),
        form: Form::Run,
        ..ground.options(label)
    };
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&options("a", "app_a"));
    let b = fleet.start(&options("b", "app_b"));
    fleet.await_held(&first, P3.renew * 2);
    ground.database.execute("REVOKE UPDATE ON leader_election FROM app_a");
    let revoked = now();
    let down = fleet.stepped_down(&first, revoked, P3);
    let next = fleet.await_lead(P3.take(), "the other one leads", |led| led.fence != first.fence);
    assert_eq!((next.node, next.fence), (b, first.fence + 1));
    let refused =
        |line: &Line| matches!(line, Line::Err { sqlstate, fatal: true, .. } if sqlstate == "42501");
    assert!(fleet.nodes[first.node].story.lines.iter().any(refused), "{}", fleet.told());
    fleet.await_held(&next, P3.lease);
    let denied = server.log().matches("permission denied for table leader_election").count();
    // From the revocation to the end of the term in the rhythm of retries, afterwards not oftener than it polls.
    let at_most = 2 + (P3.term().as_millis() / 125 + P3.lease.as_millis() * 2 / 200);
    assert!((denied as u128) < at_most, "{denied} attempts");
    ground.database.execute("GRANT UPDATE ON leader_election TO app_a");
    fleet.terminate(b);
    let again = fleet.await_lead(P3.hand(), "the first one leads again", |led| led.fence > next.fence);
    assert_eq!(again.node, first.node);
    figure(format_args!("B01: stepped down {down:.1?} after REVOKE, {denied} refused statements"));
    fleet.verify(&ground, P3, 3);
}

pub(crate) fn b06_a_truncated_table_ends_the_term_at_the_next_renewal(way: Way) {
    let ground = Ground::shared(way);
    let mut fleet = Fleet::new();
    let form = Form::Run;
    let first = fleet.start_leader(&Options { form, ..ground.options("a") });
    fleet.start(&Options { form, ..ground.options("b") });
    fleet.await_held(&first, P3.renew * 3);
    ground.database.execute("TRUNCATE leader_election");
    let truncated = now();
    let lost = fleet.await_lost(P3.step(), first.fence).saturating_sub(truncated);
    assert!(lost <= P3.renew + P3.op + Duration::from_millis(250) + SLACK, "{lost:?}");
    let next = fleet.await_lead(P3.take() + P3.retry, "somebody leads again", |led| led.fence != first.fence);
    assert!(next.fence > first.fence, "{}", fleet.told());
    figure(format_args!(
        "{way:?}: TRUNCATE: lost after {lost:.1?}, led again after {:.1?}",
        next.at - truncated
    ));
    fleet.await_held(&next, P3.renew * 2);
    fleet.verify(&ground, P3, 2);
}

pub(crate) fn b07_a_row_that_is_held_for_longer_than_the_term(way: Way) {
    let ground = Ground::shared(way);
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&ground.options("a"));
    fleet.start(&ground.options("b"));
    fleet.await_held(&first, P3.renew * 2);
    ground.await_renewal();
    let lock = RowLock::take(&ground);
    let held = now();
    let down = fleet.stepped_down(&first, held, P3);
    std::thread::sleep((held + Duration::from_secs(4)).saturating_sub(now()));
    fleet.read();
    promised!(fleet.leads().len() == 1, "{}", fleet.told());
    let released = now();
    lock.release();
    let next = fleet.await_lead(P3.take(), "somebody leads again", |led| led.fence != first.fence);
    figure(format_args!(
        "{way:?}: row held for 4 s: stepped down after {down:.1?}, led again {:.1?} after the release",
        next.at - released
    ));
    fleet.await_held(&next, P3.renew * 2);
    fleet.verify(&ground, P3, 2);
}

pub(crate) fn b23_twenty_four_processes_create_the_table_and_elect_one(way: Way) {
    let ground = Ground::empty(Postgres::shared(), way);
    let mut fleet = Fleet::new();
    for n in 0..24 {
        fleet.start(&Options { schema: true, ..ground.options(&format!("n{n}")) });
    }
    fleet.await_story(LIMIT, "the table is there for all", |fleet| {
        (0..24).all(|node| fleet.identity(node).is_some()).then_some(())
    });
    let led = fleet.await_lead(LIMIT, "somebody leads", |_| true);
    fleet.await_held(&led, P3.renew);
    assert_eq!(fleet.leads().len(), 1, "{}", fleet.told());
    let failed = fleet.lines().find(|(_, line)| matches!(line, Line::Err { .. }));
    assert_eq!(failed, None);
    // All but the leader first, so that nobody takes over on the way out.
    for node in (0..24).filter(|node| *node != led.node) {
        fleet.terminate(node);
    }
    for node in (0..24).filter(|node| *node != led.node) {
        assert!(fleet.await_exit(node, LIMIT).0.success());
    }
    fleet.finish();
    let mut client = ground.database.client();
    await_until(LIMIT, "the lease is released", || {
        let sql = "SELECT fence = 1 AND expires_at = 'epoch' FROM leader_election WHERE name = 'e'";
        client.query_one(sql, &[]).expect("a row").get(0)
    });
    fleet.judge(1);
}
