//! PgBouncer with two server connections for all: connections that come and go under many nodes, and neighbours
//! that leave settings behind.

use std::thread::sleep;
use std::time::{Duration, Instant};

use tenure_testground::Postgres;
use tenure_testground::postgres::{Client, NoTls};

use crate::figures::figure;
use crate::fleet::{Fleet, Ground, LIMIT, Way};
use crate::line::{Line, now};
use crate::profile::P3;

fn sqlstates(fleet: &Fleet) -> Vec<String> {
    let states = fleet.lines().filter_map(|(_, line)| match line {
        Line::Err { sqlstate, text, .. } => Some(format!("{sqlstate} {text}")),
        _ => None,
    });
    states.collect()
}

fn start_many(ground: &Ground<'_>, count: usize) -> (Fleet, crate::fleet::Led) {
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&ground.options("n0"));
    for n in 1..count {
        fleet.start(&ground.options(&format!("n{n}")));
    }
    fleet.await_story(LIMIT, "all have started", |fleet| {
        (0..count).all(|node| fleet.identity(node).is_some()).then_some(())
    });
    (fleet, first)
}

pub(crate) fn b21_connections_and_columns_come_and_go_under_eight_nodes() {
    let ground = Ground::shared(Way::Pooled);
    let pooler = ground.pooler.as_ref().expect("there is one");
    let (mut fleet, _) = start_many(&ground, 8);
    let begun = Instant::now();
    let mut columns = ["ADD COLUMN x int", "DROP COLUMN x"].into_iter();
    for second in 1..=20 {
        sleep(Duration::from_secs(second).saturating_sub(begun.elapsed()));
        if second % 2 == 0 {
            pooler.admin("RECONNECT");
        }
        if second % 7 == 0 {
            if let Some(change) = columns.next() {
                ground.database.execute(&format!("ALTER TABLE leader_election {change}"));
            }
        }
    }
    assert_eq!(columns.next(), None);
    fleet.read();
    fleet.no_lost();
    let failures = sqlstates(&fleet);
    let stale =
        |failure: &&String| ["26000", "42P05", "0A000"].iter().any(|state| failure.starts_with(state));
    assert_eq!(failures.iter().find(stale), None, "{failures:#?}");
    figure(format_args!(
        "B21: 8 nodes, 10 RECONNECTs, 2 ALTER TABLEs in 20 s: {} failed calls",
        failures.len()
    ));
    fleet.verify(&ground, P3, 1);
}

/// Leaves settings behind on both server connections of the pool.
fn leave_behind(ground: &Ground<'_>, settings: &str) {
    let connect = |_| Client::connect(&ground.dsn(), NoTls).expect("the pooler");
    let mut neighbours: Vec<Client> = (0..2).map(connect).collect();
    for statement in ["BEGIN", settings, "COMMIT"] {
        for neighbour in &mut neighbours {
            neighbour.batch_execute(statement).expect("a neighbour's statement");
        }
    }
}

pub(crate) fn b22_settings_of_a_neighbour_do_not_matter_to_four_nodes() {
    let server = Postgres::builder().setting("log_statement", "all").start();
    let ground = Ground::on(&server, Way::Pooled);
    leave_behind(
        &ground,
        "SET search_path = pg_catalog; SET timezone = 'Asia/Tokyo'; SET lock_timeout = '1ms'",
    );
    let said = server.log().len();
    let (mut fleet, first) = start_many(&ground, 4);
    fleet.await_held(&first, P3.lease * 2);
    fleet.no_lost();
    assert_eq!(sqlstates(&fleet), Vec::<String>::new());
    fleet.verify(&ground, P3, 1);
    // PgBouncer itself restores what it tracks for a client; nobody else sets anything for a session.
    let restored =
        ["TimeZone", "DateStyle", "client_encoding", "standard_conforming_strings", "application_name"];
    let log = server.log();
    let sets = |line: &&str| line.contains(": SET ") && !restored.iter().any(|name| line.contains(name));
    let found: Vec<&str> = log[said..].lines().filter(sets).collect();
    assert!(found.is_empty(), "{found:#?}");
    assert!(log[said..].contains("UPDATE \"public\".\"leader_election\""), "renewals are in the log");
}

pub(crate) fn b22_a_statement_timeout_left_behind_costs_the_term_and_no_more() {
    let ground = Ground::shared(Way::Pooled);
    let pooler = ground.pooler.as_ref().expect("there is one");
    ground.database.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM pg_catalog.pg_sleep(0.02); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE UPDATE ON leader_election FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let (mut fleet, first) = start_many(&ground, 2);
    fleet.await_held(&first, P3.renew * 2);
    leave_behind(&ground, "SET statement_timeout = '1ms'");
    let poisoned = now();
    fleet.stepped_down(&first, poisoned, P3);
    let failures = sqlstates(&fleet);
    assert!(failures.iter().any(|failure| failure.starts_with("57014")), "{failures:#?}");
    fleet.nothing_is_fatal();
    pooler.admin("RECONNECT");
    let reconnected = now();
    let next = fleet.await_lead(P3.take(), "somebody leads again", |led| led.fence > first.fence);
    figure(format_args!("B22: led again {:.1?} after RECONNECT", next.at.saturating_sub(reconnected)));
    fleet.await_held(&next, P3.renew * 2);
    fleet.verify(&ground, P3, 2);
}
