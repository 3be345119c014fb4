//! Through PgBouncer in transaction mode, and with neighbours that leave things behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure::{Bid, PostgresStore, Store};
use tenure_testground::postgres::{Client, NoTls};
use tenure_testground::{Database, PgBouncer, Postgres, Proxy};

use crate::{LEASE, OP, SLACK, create, look, renewal, store, timed};

fn pooled(pooler: &PgBouncer, database: &Database<'_>) -> PostgresStore {
    PostgresStore::connect(&pooler.dsn_for("postgres", database.name())).unwrap()
}

/// Four operations of a participant of its own.
fn cycle(store: &PostgresStore, name: &str, me: &str) {
    let seen = store.observe(name, OP).unwrap();
    let bid =
        Bid::new(name, me, LEASE).over(seen.lease().map(tenure::Lease::version)).timeline(seen.timeline());
    let lease = store.acquire(&bid, OP).unwrap().expect("nobody else bids");
    assert!(store.renew(&renewal(&lease, me), OP).unwrap().is_some());
    store.release(name, me, lease.fence(), OP).unwrap();
}

#[test]
fn ten_thousand_operations_from_eight_threads() {
    let server = Postgres::shared();
    let database = server.database();
    store(&database);
    let pooler = PgBouncer::in_front_of(server);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (pooler, database) = (&pooler, &database);
            scope.spawn(move || {
                let (store, name) = (pooled(pooler, database), format!("e{thread}"));
                (0..313).for_each(|_| cycle(&store, &name, "h"));
            });
        }
    });
}

#[test]
fn one_round_trip_through_the_pooler_too() {
    let server = Postgres::shared();
    let database = server.database();
    store(&database);
    let pooler = PgBouncer::in_front_of(server);
    let proxy = Proxy::to(pooler.addr());
    let store = PostgresStore::connect(&database.dsn_through(proxy.port())).unwrap();
    store.observe("r", OP).unwrap();
    proxy.reset_counters();
    cycle(&store, "r", "a");
    assert_eq!(proxy.snapshot().round_trips, 4);
}

#[test]
fn b21_connections_and_columns_come_and_go() {
    let server = Postgres::shared();
    let database = server.database();
    store(&database);
    let pooler = PgBouncer::in_front_of(server);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (pooler, database, over) = (&pooler, &database, &over);
            scope.spawn(move || {
                let (store, name) = (pooled(pooler, database), format!("e{thread}"));
                while !over.load(Ordering::Relaxed) {
                    cycle(&store, &name, "h");
                }
            });
        }
        let mut client = database.client();
        for _ in 0..4 {
            pooler.admin("RECONNECT");
            client.batch_execute("ALTER TABLE leader_election ADD COLUMN x int").unwrap();
            std::thread::sleep(Duration::from_millis(300));
            client.batch_execute("ALTER TABLE leader_election DROP COLUMN x").unwrap();
            std::thread::sleep(Duration::from_millis(300));
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Leaves settings behind on all server connections of the pool.
fn leave_behind(pooler: &PgBouncer, database: &Database<'_>, settings: &str) {
    let connect = || Client::connect(&pooler.dsn_for("postgres", database.name()), NoTls).unwrap();
    let mut neighbours: Vec<_> = (0..2).map(|_| connect()).collect();
    for neighbour in &mut neighbours {
        neighbour.batch_execute("BEGIN").unwrap();
    }
    for neighbour in &mut neighbours {
        neighbour.batch_execute(settings).unwrap();
    }
    for neighbour in &mut neighbours {
        neighbour.batch_execute("COMMIT").unwrap();
    }
}

#[test]
fn b22_what_a_neighbour_has_set_does_not_matter() {
    let server = Postgres::builder().setting("log_statement", "all").start();
    let database = server.database();
    store(&database);
    let pooler = PgBouncer::in_front_of(&server);
    leave_behind(
        &pooler,
        &database,
        "SET search_path = pg_catalog; SET timezone = 'Asia/Tokyo'; SET lock_timeout = '1ms';
         SET datestyle = 'German'; SET intervalstyle = 'sql_standard';
         SET synchronous_commit = off; SET bytea_output = 'escape'",
    );
    let said = server.log().len();
    let store = pooled(&pooler, &database);
    store.ensure_schema().unwrap();
    for _ in 0..50 {
        cycle(&store, "n", "a");
    }
    // A lock that is held for a moment is waited for, in spite of the leaked millisecond.
    let lease = create(&store, "m", "a");
    let mut locker = database.client();
    locker.batch_execute("BEGIN; UPDATE leader_election SET holder = holder WHERE name = 'm'").unwrap();
    std::thread::scope(|scope| {
        let renewed = scope.spawn(|| store.renew(&renewal(&lease, "a"), OP));
        std::thread::sleep(Duration::from_millis(300));
        locker.batch_execute("COMMIT").unwrap();
        assert!(renewed.join().unwrap().unwrap().is_some());
    });
    // The pooler itself restores what it tracks; nothing else sets anything for a session.
    let log = server.log();
    let set = |line: &&str| line.contains(": SET ") && !line.contains("SET application_name='tenure'");
    let foreign: Vec<_> = log[said..].lines().filter(set).collect();
    assert!(foreign.is_empty(), "{foreign:#?}");
}

#[test]
fn b22_functions_of_a_foreign_search_path_are_not_called() {
    let server = Postgres::shared();
    let database = server.database();
    store(&database);
    database.execute(
        "CREATE SCHEMA evil;
         CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
             $$ SELECT 'infinity'::timestamptz $$;
         CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS
             $$ SELECT NULL::text $$;
         CREATE TABLE evil.leader_election (name text)",
    );
    let pooler = PgBouncer::in_front_of(server);
    leave_behind(&pooler, &database, "SET search_path = evil, pg_catalog");
    let store = pooled(&pooler, &database);
    let lease = create(&store, "n", "a");
    assert_eq!(lease.ttl(), LEASE);
    assert!(lease.now().as_micros() < i64::MAX);
    assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
}

/// Each operator that the statements use, for each pair of types: one that matches exactly is preferred to one of the
/// server's own that needs a conversion, wherever it lies; and to any, where its schema comes first.
pub(crate) const FOREIGN_OPERATORS: &str = r#"CREATE SCHEMA evil;
    DO $do$ DECLARE op text; l text; r text; BEGIN
        FOREACH op IN ARRAY '{=,<>,<,>,+,-,*,/,&,>>,||}'::text[] LOOP
        FOREACH l IN ARRAY '{bigint,int,smallint,oid,text,name,"\"char\"",timestamptz,interval}'::text[] LOOP
        FOREACH r IN ARRAY '{bigint,int,smallint,oid,text,name,"\"char\"",timestamptz,interval}'::text[] LOOP
            EXECUTE format($$ CREATE OR REPLACE FUNCTION evil.called(%s, %s) RETURNS boolean
                LANGUAGE plpgsql AS 'BEGIN RAISE ''a foreign operator''; END' $$, l, r);
            EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil.called)',
                op, l, r);
        END LOOP; END LOOP; END LOOP;
    END $do$"#;

#[test]
fn b22_operators_of_a_foreign_search_path_are_not_called() {
    let server = Postgres::shared();
    let database = server.database();
    database.execute(FOREIGN_OPERATORS);
    for path in ["pg_catalog,evil", "evil,pg_catalog"] {
        let dsn = format!("{}?options=-csearch_path%3D{path}", database.dsn());
        let store = PostgresStore::connect(&dsn).unwrap();
        store.ensure_schema().unwrap();
        let lease = create(&store, path, "a");
        assert_eq!(lease.ttl(), LEASE, "{path}");
        assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some(), "{path}");
        let bid = Bid::new(path, "b", LEASE).over(Some(look(&store, path).version()));
        let next = store.acquire(&bid.timeline(lease.timeline()), OP).unwrap().expect("unchanged");
        assert_eq!((next.ttl(), next.fence().get()), (LEASE, lease.fence().get() + 1), "{path}");
        store.release(path, "b", next.fence(), OP).unwrap();
        assert!(look(&store, path).is_released(), "{path}");
        assert_eq!(store.timeline_available(), Some(true), "{path}");
    }
}

#[test]
fn b22_a_leaked_statement_timeout_is_visible_and_passes() {
    let server = Postgres::shared();
    let database = server.database();
    let lease = create(&store(&database), "n", "a");
    let pooler = PgBouncer::in_front_of(server);
    // Every update takes longer than that.
    database.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM pg_catalog.pg_sleep(0.02); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE UPDATE ON leader_election FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    leave_behind(&pooler, &database, "SET statement_timeout = '1ms'");
    let store = pooled(&pooler, &database);
    let error = store.renew(&renewal(&lease, "a"), OP).unwrap_err();
    assert_eq!(error.sqlstate(), Some("57014"));
    assert!(error.is_retryable());
    pooler.admin("RECONNECT");
    tenure_testground::await_until(OP, "new server connections", || {
        store.renew(&renewal(&lease, "a"), OP).is_ok_and(|renewed| renewed.is_some())
    });
}

#[test]
fn a_pooler_that_is_paused_stopped_or_without_its_server() {
    let server = Postgres::start_new();
    let database = server.database();
    let lease = create(&store(&database), "n", "a");
    let pooler = PgBouncer::in_front_of(&server);
    let store = pooled(&pooler, &database);
    let timeout = Duration::from_millis(400);
    look(&store, "n");
    pooler.admin("PAUSE");
    let (error, took) = timed(|| store.renew(&renewal(&lease, "a"), timeout).unwrap_err());
    assert!(error.is_timeout() && took < timeout + SLACK, "{took:?}: {error}");
    pooler.admin("RESUME");
    assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
    pooler.pause_process();
    let (error, took) = timed(|| store.renew(&renewal(&lease, "a"), timeout).unwrap_err());
    assert!(error.is_timeout() && took < timeout + SLACK, "{took:?}: {error}");
    pooler.resume_process();
    assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
    pooler.restart();
    assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some(), "one fresh connection is enough");
    server.stop_fast();
    let begun = Instant::now();
    let error = store.renew(&renewal(&lease, "a"), OP).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(begun.elapsed() < OP + SLACK);
    server.start();
    tenure_testground::await_until(OP, "the pooler has its server again", || {
        store.renew(&renewal(&lease, "a"), OP).is_ok_and(|renewed| renewed.is_some())
    });
}
