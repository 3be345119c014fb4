//! An observer on a real server.

use std::time::{Duration, Instant};

use tenure::{Config, Elector, PostgresStore, Role};
use tenure_testground::{Postgres, await_until};

use crate::OP;

/// Where the server's log and its transaction counter stand.
fn position(client: &mut tenure_testground::postgres::Client) -> (String, String) {
    let sql = "SELECT pg_current_wal_insert_lsn()::text, pg_snapshot_xmax(pg_current_snapshot())::text";
    let row = client.query_one(sql, &[]).unwrap();
    (row.get(0), row.get(1))
}

/// The lease has been free for an hour, so a candidate would bid at once; and the role may only read.
#[test]
fn rule_14_an_observer_needs_no_right_to_write_and_writes_nothing() {
    let server = Postgres::builder().writes_nothing_unasked().start();
    let database = server.database();
    crate::store(&database);
    server.create_role("reader", "");
    database.execute(
        "INSERT INTO leader_election (name, holder, fence, acquired_at, renewed_at, expires_at, payload)
         SELECT 'watched', 'ghost', 5, at, at, at + interval '15 seconds', 'here'
         FROM (VALUES (now() - interval '1 hour')) AS hour (at);
         GRANT USAGE ON SCHEMA public TO reader; GRANT SELECT ON leader_election TO reader; CHECKPOINT",
    );
    let store = PostgresStore::connect(&database.dsn_for("reader")).unwrap();
    let config = Config::builder("watched").retry_period(Duration::from_millis(20)).observer(true);
    let observer = Elector::start(store, config.build().unwrap()).unwrap();
    let status = || observer.status();
    let looks = |count: u32| {
        for _ in 0..count {
            let asked = Instant::now();
            let answered = || status().observed_age.is_some_and(|age| age < asked.elapsed());
            await_until(OP, "another answer", answered);
        }
    };
    looks(3);
    let mut client = database.client();
    let before = position(&mut client);
    looks(20);
    assert_eq!(position(&mut client), before);
    let seen = status();
    assert_eq!((seen.role, seen.failures, seen.leader), (Role::Observer, 0, None), "the lease is free");
    // The measure itself: a write moves both. It is seen, too.
    database.execute("UPDATE leader_election SET fence = 6, expires_at = now() + interval '1 hour'");
    let after = position(&mut client);
    assert!(before.0 != after.0 && before.1 != after.1, "{before:?} {after:?}");
    await_until(OP, "the ghost", || status().leader.as_deref() == Some("ghost"));
    assert_eq!(status().leader_payload.as_deref(), Some(&b"here"[..]));
}
