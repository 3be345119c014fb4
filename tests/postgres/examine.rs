//! Looking at a server, and at all elections in it: what is found, and that nothing is changed by it.

use std::time::{Duration, Instant};

use tenure::{PostgresExamination, PostgresStore, Store};
use tenure_testground::{Database, PgBouncer, Postgres, Proxy, await_until};

use crate::pooler::FOREIGN_OPERATORS;
use crate::{LEASE, OP, SLACK, create, renewal, store, timed};

fn examined(dsn: &str) -> PostgresExamination {
    PostgresStore::connect(dsn).unwrap().examine(OP).unwrap()
}

fn database_with_table(server: &Postgres) -> Database<'_> {
    let database = server.database();
    store(&database);
    database
}

#[test]
fn a_plain_server_is_described() {
    let server = Postgres::start_new();
    let database = database_with_table(&server);
    let found = examined(&database.dsn());
    assert!(found.servers.ends_with(&format!(":{}", server.port())), "{found:?}");
    assert_eq!((found.database.as_str(), found.role.as_str()), (database.name(), "postgres"));
    assert!(found.version_number >= 130_000 && found.version.contains('.'), "{found:?}");
    assert_eq!((found.tls.as_deref(), found.local, found.pooled), (None, false, Some(false)));
    assert_eq!((found.standby, found.read_only, found.timeline), (false, false, Some(1)));
    assert_eq!((found.synchronous_commit.as_str(), found.fsync, found.full_page_writes), ("on", false, true));
    assert_eq!((found.synchronous_standbys.as_str(), found.replications), ("", 0));
    assert_eq!((found.lock_timeout, found.idle_in_transaction_timeout), (Duration::ZERO, Duration::ZERO));
    assert!(found.schema_exists && found.may_use_schema && found.may_create_table);
    let table = found.table.unwrap();
    assert_eq!((table.name.as_str(), table.complaint), (r#""public"."leader_election""#, None));
    assert!(table.may_select && table.may_insert && table.may_update && !table.row_security);
    assert_eq!(
        (table.triggers.len(), table.rules.len(), table.fillfactor, table.autovacuum),
        (0, 0, 70, true)
    );
    // The two clocks are of one machine.
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = Duration::from_micros(found.now.as_micros().unsigned_abs());
    assert!(wall.abs_diff(now) < Duration::from_secs(60), "{now:?}");
    assert!(found.asked_at < found.answered_at && found.answered_at <= Instant::now());
    assert!(examined(&database.socket_dsn()).local);
}

#[test]
fn what_roles_and_databases_set_is_shown_as_it_is_for_them() {
    let server = Postgres::start_new();
    let database = database_with_table(&server);
    server.create_role("app", "");
    database.execute(
        "ALTER ROLE app SET synchronous_commit = off; ALTER ROLE app SET lock_timeout = '2500ms';
         ALTER ROLE app SET statement_timeout = '1min'; ALTER ROLE app SET default_transaction_read_only = on;
         ALTER ROLE app SET idle_in_transaction_session_timeout = '1h'",
    );
    let found = examined(&database.dsn_for("app"));
    assert_eq!((found.role.as_str(), found.synchronous_commit.as_str()), ("app", "off"));
    assert_eq!(
        found.lock_timeout,
        Duration::from_millis(2_500),
        "and not what the statement sets for itself"
    );
    assert_eq!(found.statement_timeout, Duration::from_secs(60));
    assert_eq!(found.idle_in_transaction_timeout, Duration::from_secs(3_600));
    assert!(found.read_only && !found.standby);
    let table = found.table.unwrap();
    assert!(!table.may_select && !table.may_insert && !table.may_update, "{table:?}");
    assert!(!found.may_create_table && found.may_use_schema);
    assert_eq!(found.timeline, Some(1), "any role may read it");
}

#[test]
fn rights_on_all_the_columns_are_as_good_as_those_on_the_table() {
    let server = Postgres::start_new();
    let database = database_with_table(&server);
    server.create_role("app", "");
    database.execute("GRANT SELECT ON leader_election TO app");
    let rights = || {
        let table = examined(&database.dsn_for("app")).table.unwrap();
        (table.may_select, table.may_insert, table.may_update)
    };
    assert_eq!(rights(), (true, false, false));
    database.execute(
        "GRANT UPDATE (holder, fence, acquired_at, renewed_at, expires_at) ON leader_election TO app",
    );
    assert_eq!(rights(), (true, false, false), "the payload is missing");
    let all = "(name, holder, fence, acquired_at, renewed_at, expires_at, payload)";
    database.execute(&format!("GRANT UPDATE (payload), INSERT {all} ON leader_election TO app"));
    assert_eq!(rights(), (true, true, true));
    // And so they are.
    let app = PostgresStore::connect(&database.dsn_for("app")).unwrap();
    let lease = create(&app, "n", "a");
    assert!(app.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
    database.execute("REVOKE USAGE ON SCHEMA public FROM PUBLIC");
    assert!(!examined(&database.dsn_for("app")).may_use_schema);
}

#[test]
fn what_others_have_done_to_the_table_is_found() {
    let server = Postgres::start_new();
    let database = database_with_table(&server);
    server.create_role("app", "");
    database.execute(
        "GRANT SELECT, INSERT, UPDATE ON leader_election TO app;
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
         CREATE TRIGGER audit BEFORE UPDATE ON leader_election FOR EACH ROW EXECUTE FUNCTION f();
         CREATE TRIGGER asleep BEFORE UPDATE ON leader_election FOR EACH ROW EXECUTE FUNCTION f();
         ALTER TABLE leader_election DISABLE TRIGGER asleep;
         CREATE RULE quiet AS ON DELETE TO leader_election DO INSTEAD NOTHING;
         ALTER TABLE leader_election ENABLE ROW LEVEL SECURITY;
         ALTER TABLE leader_election SET (autovacuum_enabled = off); ALTER TABLE leader_election RESET (fillfactor)",
    );
    let table = examined(&database.dsn_for("app")).table.unwrap();
    assert_eq!((table.triggers, table.rules), (vec!["audit".to_owned()], vec!["quiet".to_owned()]));
    assert!(table.row_security && !table.autovacuum);
    assert_eq!(table.fillfactor, 100);
    assert!(!examined(&database.dsn()).table.unwrap().row_security, "superusers are exempt");
    database.execute("DROP TABLE leader_election; CREATE UNLOGGED TABLE leader_election (name text)");
    let complaint = examined(&database.dsn()).table.unwrap().complaint.unwrap();
    assert!(complaint.contains("UNLOGGED"), "{complaint}");
}

#[test]
fn no_table_and_no_schema_are_findings() {
    let database = Postgres::shared().database();
    let found = examined(&database.dsn());
    assert!(found.table.is_none() && found.schema_exists && found.may_create_table);
    let store = PostgresStore::builder(&database.dsn()).schema("no_such").build().unwrap();
    let found = store.examine(OP).unwrap();
    assert!(found.table.is_none() && !found.schema_exists && !found.may_use_schema, "{found:?}");
}

#[test]
fn updates_are_counted() {
    let server = Postgres::start_new();
    let database = server.database();
    let store = store(&database);
    let lease = create(&store, "n", "a");
    for _ in 0..50 {
        store.renew(&renewal(&lease, "a"), OP).unwrap().unwrap();
    }
    // The server counts when a session ends.
    drop(store);
    await_until(OP, "the statistics of all updates", || {
        let table = examined(&database.dsn()).table.unwrap();
        table.updates == 50 && table.hot_updates == 50 && table.live_rows == 1 && table.bytes > 0
    });
}

#[test]
fn a_pooler_that_shares_server_processes_is_told_from_one_that_does_not() {
    let server = Postgres::shared();
    let database = database_with_table(server);
    let pooled = |pooler: &PgBouncer| examined(&pooler.dsn_for("postgres", database.name())).pooled;
    assert_eq!(pooled(&PgBouncer::in_front_of(server)), Some(true));
    assert_eq!(pooled(&PgBouncer::builder(server.port()).pool_size(1).start()), Some(true));
    assert_eq!(pooled(&PgBouncer::builder(server.port()).pool_mode("session").start()), Some(false));
    // Others use it at the same time.
    let pooler = PgBouncer::builder(server.port()).pool_size(4).start();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (pooler, database, over) = (&pooler, &database, &over);
            scope.spawn(move || {
                let store = PostgresStore::connect(&pooler.dsn_for("postgres", database.name())).unwrap();
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    store.observe(&format!("n{n}"), OP).unwrap();
                }
            });
        }
        let all: Vec<_> = (0..10).map(|_| pooled(&pooler)).collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(all.iter().all(|pooled| *pooled == Some(true)), "{all:?}");
    });
    // With one connection there is nothing to compare.
    let store = PostgresStore::builder(&database.dsn()).pool_size(1).build().unwrap();
    assert_eq!(store.examine(OP).unwrap().pooled, None);
}

#[test]
fn a_standby_is_examined_and_lists_nothing() {
    let primary = Postgres::start_new();
    let database = primary.database();
    let store = store(&database);
    create(&store, "n", "a");
    let standby = Postgres::standby_of(&primary);
    primary.await_replay(&standby);
    let database = standby.existing_database(database.name());
    let found = examined(&database.dsn());
    assert!(found.standby && found.read_only && found.timeline.is_none(), "{found:?}");
    assert!(found.table.unwrap().complaint.is_none());
    let error = PostgresStore::connect(&database.dsn()).unwrap().list(OP).unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("standby"), "{error}");
    // A role without the right to see more is told that somebody replicates.
    primary.create_role("app", "");
    await_until(OP, "the standby is counted", || {
        examined(&primary.dsn_for("app", database.name())).replications == 1
    });
}

#[test]
fn a_hidden_timeline_is_shown_as_none() {
    let server = Postgres::start_new();
    let database = database_with_table(&server);
    server.create_role("app", "");
    database.execute("REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC");
    let store = PostgresStore::connect(&database.dsn_for("app")).unwrap();
    assert_eq!(store.examine(OP).unwrap().timeline, None);
    assert_eq!(store.timeline_available(), Some(false));
}

#[test]
fn rule_13_and_14_looking_leaves_nothing_and_writes_nothing() {
    let server = Postgres::start_new();
    let database = server.database();
    let store = store(&database);
    create(&store, "n", "a");
    let mut client = database.client();
    let mut next_xid = || -> String {
        client.query_one("SELECT pg_snapshot_xmax(pg_current_snapshot())::text", &[]).unwrap().get(0)
    };
    let before = next_xid();
    let proxy = Proxy::to(server.addr());
    let store = PostgresStore::builder(&database.dsn_through(proxy.port())).pool_size(1).build().unwrap();
    assert_eq!(store.list(OP).unwrap().len(), 1);
    for _ in 0..5 {
        proxy.reset_counters();
        assert_eq!(store.list(OP).unwrap()[0].length(), LEASE);
        assert_eq!(proxy.snapshot().round_trips, 1, "a list");
        let found = store.examine(OP).unwrap();
        assert_eq!(found.lock_timeout, Duration::ZERO, "set for the statement and no longer");
    }
    assert_eq!(next_xid(), before, "a transaction id was used");
}

#[test]
fn b22_a_foreign_search_path_slips_nothing_in() {
    let server = Postgres::shared();
    let database = database_with_table(server);
    create(&store(&database), "n", "a");
    database.execute(FOREIGN_OPERATORS);
    for path in ["pg_catalog,evil", "evil,pg_catalog"] {
        let dsn = format!("{}?options=-csearch_path%3D{path}", database.dsn());
        let store = PostgresStore::connect(&dsn).unwrap();
        assert_eq!(store.list(OP).unwrap().len(), 1);
        assert!(store.examine(OP).unwrap().table.is_some());
    }
}

#[test]
fn a_list_is_ordered_by_bytes_whatever_the_collation() {
    let database = Postgres::shared().database();
    let store = store(&database);
    database.execute(r#"ALTER TABLE leader_election ALTER name TYPE text COLLATE "en-x-icu""#);
    let names = ["B", "Z", "a", "b", "\u{e4}"];
    for name in names.iter().rev() {
        create(&store, name, "h");
    }
    let dictionary: Vec<String> = database
        .client()
        .query("SELECT name FROM leader_election ORDER BY 1", &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_ne!(dictionary, names, "the collation is another");
    let list = store.list(OP).unwrap();
    assert_eq!(list.iter().map(tenure::Lease::name).collect::<Vec<_>>(), names);
}

#[test]
fn rule_7_a_locked_table_holds_nobody_up() {
    let database = Postgres::shared().database();
    let store = store(&database);
    store.examine(OP).unwrap();
    let mut client = database.client();
    client.batch_execute("BEGIN; LOCK TABLE leader_election").unwrap();
    let patience = Duration::from_secs(1);
    let (result, took) = timed(|| store.examine(patience));
    assert!(result.unwrap_err().is_retryable());
    assert!(took < patience + SLACK, "{took:?}");
    client.batch_execute("ROLLBACK").unwrap();
    store.examine(OP).unwrap();
}

#[test]
fn who_cannot_log_in_learns_why() {
    let server = Postgres::shared();
    let error =
        PostgresStore::connect(&server.dsn_for("nobody", "postgres")).unwrap().examine(OP).unwrap_err();
    assert!(error.is_fatal() && error.sqlstate() == Some("28000"), "{error}");
}
