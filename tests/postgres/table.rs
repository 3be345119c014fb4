//! `ensure_schema`: creates what is missing, from everywhere at once; refuses what is wrong, by name.

use std::sync::Barrier;

use std::time::Duration;

use tenure::{Bid, CampaignError, Config, Elector, PostgresStore, Store};
use tenure_testground::{Database, Postgres};

use crate::{LEASE, OP, create, look, store};

#[test]
fn b23_many_replicas_create_it_at_the_same_instant() {
    let database = Postgres::shared().database();
    let mut client = database.client();
    for round in 0..20 {
        let stores: Vec<_> = (0..12).map(|_| PostgresStore::connect(&database.dsn()).unwrap()).collect();
        for store in &stores {
            // Connected already, so that they start together.
            let missing = store.observe("n", OP).unwrap_err();
            assert_eq!(missing.sqlstate(), Some("42P01"), "{missing}");
            assert!(missing.is_fatal() && missing.to_string().contains("ensure_schema"), "{missing}");
        }
        let barrier = Barrier::new(stores.len());
        std::thread::scope(|scope| {
            for store in &stores {
                scope.spawn(|| {
                    barrier.wait();
                    store.ensure_schema().unwrap_or_else(|error| panic!("round {round}: {error}"));
                });
            }
        });
        create(&stores[0], "n", "a");
        client.batch_execute("DROP TABLE leader_election").unwrap();
    }
}

#[test]
fn b23_a_role_that_may_only_use_the_table_needs_no_more() {
    let server = Postgres::start_new();
    let database = server.database();
    server.create_role("app", "");
    let app = PostgresStore::connect(&database.dsn_for("app")).unwrap();
    let error = app.ensure_schema().unwrap_err();
    assert!(error.is_fatal());
    assert_eq!(error.sqlstate(), Some("42501"));
    for part in ["CREATE privilege", "public", "CREATE TABLE IF NOT EXISTS"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    // The text of schema() is what the owner runs.
    database.execute(&app.schema());
    database.execute(&app.schema());
    app.ensure_schema().expect("nothing has to be created");
    let error = app.observe("n", OP).unwrap_err();
    assert_eq!(error.sqlstate(), Some("42501"));
    assert!(error.is_fatal() && error.to_string().contains("SELECT, INSERT and UPDATE"), "{error}");
    database.execute("GRANT SELECT ON leader_election TO app");
    app.observe("n", OP).expect("observers need only SELECT");
    assert_eq!(app.acquire(&Bid::new("n", "a", LEASE), OP).unwrap_err().sqlstate(), Some("42501"));
    database.execute("GRANT INSERT, UPDATE ON leader_election TO app");
    let lease = create(&app, "n", "a");
    let taken = app.acquire(&Bid::new("n", "b", LEASE).over(Some(lease.version())), OP).unwrap().unwrap();
    assert!(app.renew(&crate::renewal(&taken, "b"), OP).unwrap().is_some());
    app.release("n", "b", taken.fence(), OP).unwrap();
    assert_eq!(app.timeline_available(), Some(true), "any role may read it");
}

#[test]
fn b23_missing_on_a_read_only_server_or_in_a_missing_schema() {
    let server = Postgres::start_new();
    let database = server.database();
    let lost = PostgresStore::builder(&database.dsn()).schema("no_such").build().unwrap();
    let error = lost.ensure_schema().unwrap_err();
    assert!(error.is_fatal() && error.sqlstate() == Some("3F000"), "{error}");
    assert!(error.to_string().contains("\"no_such\""), "{error}");
    server.execute(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", database.name()));
    let error = PostgresStore::connect(&database.dsn()).unwrap().ensure_schema().unwrap_err();
    assert!(error.is_retryable() && error.sqlstate() == Some("25006"), "{error}");
}

fn refusal(database: &Database<'_>, ddl: &str) -> String {
    database.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
    database.execute(ddl);
    let error = PostgresStore::connect(&database.dsn()).unwrap().ensure_schema().unwrap_err();
    assert!(error.is_fatal(), "{ddl}: {error}");
    error.to_string()
}

/// Whoever made it, whenever it became so: nobody leads by what a crash empties.
#[test]
fn rule_16_nobody_is_elected_on_an_unlogged_table() {
    let database = Postgres::shared().database();
    let ddl = store(&database).schema();
    let refused = || {
        let store = PostgresStore::connect(&database.dsn()).unwrap();
        let elector = Elector::start(store, Config::builder("e").build().unwrap()).unwrap();
        let Err(CampaignError::Store(error)) = elector.wait_for_leadership_timeout(OP) else {
            panic!("elected")
        };
        assert!(error.is_fatal() && error.to_string().contains("UNLOGGED"), "{error}");
    };
    database.execute("DROP TABLE leader_election");
    database.execute(&ddl.replace("CREATE TABLE", "CREATE UNLOGGED TABLE"));
    refused();
    database.execute("ALTER TABLE leader_election SET LOGGED");
    let store = PostgresStore::connect(&database.dsn()).unwrap();
    let elector = Elector::start(store, Config::builder("e").build().unwrap()).unwrap();
    elector.wait_for_leadership_timeout(OP).unwrap().resign().unwrap();
    database.execute("ALTER TABLE leader_election SET UNLOGGED");
    refused();
}

#[test]
fn rule_16_a_table_of_the_wrong_shape_is_refused_by_name() {
    let database = Postgres::shared().database();
    let right = store(&database).schema();
    let cases = [
        (right.replace("CREATE TABLE", "CREATE UNLOGGED TABLE"), "UNLOGGED"),
        (right.replace("acquired_at timestamptz", "acquired_at timestamp"), "acquired_at"),
        (right.replace(",\n    payload     bytea", ""), "payload is missing"),
        (right.replace("PRIMARY KEY", "NOT NULL"), "primary key"),
        (right.replace("PRIMARY KEY", "PRIMARY KEY DEFERRABLE"), "primary key"),
        (
            right.replace("PRIMARY KEY", "NOT NULL").replace("bytea", "bytea, PRIMARY KEY (name, holder)"),
            "primary key",
        ),
        (right.replace("bigint      NOT NULL", "bigint"), "fence must be NOT NULL"),
        (right.replace("fence       bigint", "fence       integer"), "fence is of type integer"),
        (
            right.replace("name        text", "name        varchar(20)"),
            "name is of type character varying(20)",
        ),
        (right.replace("bytea", "bytea, extra int NOT NULL"), "extra"),
        (right.replace("bytea", "bytea NOT NULL"), "payload must allow NULL"),
        ("CREATE VIEW leader_election AS SELECT 1 AS name".to_owned(), "a view"),
        ("CREATE TABLE leader_election (name text) PARTITION BY LIST (name)".to_owned(), "partitioned"),
        ("CREATE TABLE leader_election ()".to_owned(), "name is missing"),
        ("CREATE MATERIALIZED VIEW leader_election AS SELECT 1 AS name".to_owned(), "a materialized view"),
        ("CREATE SEQUENCE leader_election".to_owned(), "a sequence"),
        ("CREATE TYPE leader_election AS (name text)".to_owned(), "a composite type"),
        ("CREATE TABLE t (name text); CREATE INDEX leader_election ON t (name)".to_owned(), "an index"),
        (
            "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;
          CREATE FOREIGN TABLE leader_election (name text) SERVER s"
                .to_owned(),
            "a foreign table",
        ),
    ];
    for (ddl, named) in cases {
        let complaint = refusal(&database, &ddl);
        assert!(complaint.contains(named), "{named}: {complaint}");
        database.execute("DROP FOREIGN DATA WRAPPER IF EXISTS w CASCADE");
    }
    database.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
    let more = right.replace(
        "bytea",
        "bytea, note text, at timestamptz NOT NULL DEFAULT now(), n int GENERATED ALWAYS AS IDENTITY,
         mark int, version_mark text, now text, timeline text, standby text, lease text, moment text, ok text",
    );
    database.execute(&more);
    let store = store(&database);
    let lease = create(&store, "n", "a");
    let renewed = store.renew(&tenure::Renewal::new("n", "a", lease.fence(), OP), OP).unwrap().unwrap();
    assert_eq!(store.observe("n", OP).unwrap().lease().unwrap().version(), renewed.version());
    assert_eq!(store.list(OP).unwrap()[0].version(), renewed.version());
    assert!(store.examine(OP).unwrap().table.unwrap().complaint.is_none());
    store.release("n", "a", lease.fence(), OP).unwrap();
    assert!(store.list(OP).unwrap()[0].is_released());
}

#[test]
fn rule_16_a_temporary_table_is_refused() {
    let database = Postgres::shared().database();
    let mut client = database.client();
    client.batch_execute("CREATE TEMPORARY TABLE leader_election (name text)").unwrap();
    let schema = "SELECT nspname::text FROM pg_namespace WHERE oid = pg_my_temp_schema()";
    let schema: String = client.query_one(schema, &[]).unwrap().get(0);
    let store = PostgresStore::builder(&database.dsn()).schema(schema).build().unwrap();
    let error = store.ensure_schema().unwrap_err();
    assert!(error.is_fatal() && error.to_string().ends_with("it is temporary"), "{error}");
}

#[test]
fn a_server_that_creates_no_table_is_told_from_one_that_takes_it_away() {
    let database = Postgres::shared().database();
    let after_creating = |body: &str| {
        database.execute(&format!(
            "CREATE OR REPLACE FUNCTION meddle() RETURNS event_trigger LANGUAGE plpgsql
             AS $$ BEGIN {body}; END $$;
             DROP EVENT TRIGGER IF EXISTS meddle;
             CREATE EVENT TRIGGER meddle ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
             EXECUTE FUNCTION meddle()"
        ));
        PostgresStore::connect(&database.dsn()).unwrap().ensure_schema().unwrap_err()
    };
    let raise = |code: &str| format!("RAISE EXCEPTION 'not now' USING ERRCODE = '{code}'");
    let error = after_creating(&raise("53100"));
    assert!(error.is_retryable() && error.sqlstate() == Some("53100"), "{error}");
    assert!(error.to_string().contains("not now"), "{error}");
    let error = after_creating(&raise("42P07"));
    assert_eq!(error.sqlstate(), Some("42P07"), "tried again and again, in vain: {error}");
    let error = after_creating("DROP TABLE public.leader_election");
    assert!(error.is_retryable() && error.sqlstate().is_none(), "{error}");
    let text = r#"the table "public"."leader_election" vanishes as soon as it is created"#;
    assert_eq!(error.to_string(), text);
    database.execute("DROP EVENT TRIGGER meddle");
    store(&database);
}

#[test]
fn b16_any_schema_and_table_name() {
    let database = Postgres::shared().database();
    let longest = "é".repeat(31) + "x";
    for (schema, table) in
        [("we ird.x", "My\"Tab"), ("UPPER", "UPPER"), ("settings", "settings"), ("s'\\", &*longest)]
    {
        database.execute(&format!("CREATE SCHEMA \"{schema}\""));
        let builder = PostgresStore::builder(&database.dsn()).schema(schema).table(table);
        let store = builder.build().unwrap();
        store.ensure_schema().unwrap();
        store.ensure_schema().unwrap();
        let lease = create(&store, "n", "a");
        assert!(store.renew(&crate::renewal(&lease, "a"), OP).unwrap().is_some());
        let bid = Bid::new("n", "b", LEASE).over(Some(look(&store, "n").version()));
        let taken = store.acquire(&bid, OP).unwrap().unwrap();
        store.release("n", "b", taken.fence(), OP).unwrap();
        let rows = format!("SELECT count(*) FROM \"{schema}\".\"{}\"", table.replace('"', "\"\""));
        assert_eq!(database.client().query_one(&rows, &[]).unwrap().get::<_, i64>(0), 1);
    }
}

/// Nobody leads by the table as it is now, whether `ensure_schema` was called or not.
fn nobody_leads(database: &Database<'_>, what: &str) {
    let store = PostgresStore::connect(&database.dsn()).unwrap();
    let elector = Elector::start(store, Config::builder("n").build().unwrap()).unwrap();
    let outcome = elector.wait_for_leadership_timeout(Duration::from_secs(20));
    match outcome {
        Err(CampaignError::Store(error)) => assert!(error.is_fatal(), "{what}: {error}"),
        other => panic!("{what}: {other:?}"),
    }
    assert!(!elector.is_leader() && elector.status().terms == 0, "{what}");
}

#[test]
fn b05_times_without_a_zone_are_refused_by_name_and_nobody_leads() {
    let database = Postgres::shared().database();
    let right = store(&database).schema();
    let row = "INSERT INTO leader_election VALUES ('n', 'old', 3, 'epoch', 'epoch', 'epoch')";
    for column in ["acquired_at", "renewed_at", "expires_at"] {
        let padding = " ".repeat("acquired_at".len() - column.len());
        let wrong = right.replace(&format!("{column}{padding} timestamptz"), &format!("{column} timestamp"));
        assert_ne!(wrong, right, "{column}");
        let complaint = refusal(&database, &wrong);
        let named = format!("{column} is of type timestamp without time zone");
        assert!(complaint.contains(&named), "{complaint}");
        database.execute(row);
        nobody_leads(&database, column);
        let kept = "SELECT fence = 3 AND holder = 'old' FROM leader_election";
        assert!(database.client().query_one(kept, &[]).unwrap().get::<_, bool>(0), "{column}: it was taken");
    }
}

#[test]
fn b23_a_table_that_cannot_carry_an_election_carries_none() {
    let database = Postgres::shared().database();
    let right = store(&database).schema();
    let without_payload = right.replace(",\n    payload     bytea", "");
    assert!(refusal(&database, &without_payload).contains("payload is missing"));
    nobody_leads(&database, "without a payload");
    let without_key = right.replace("PRIMARY KEY", "NOT NULL");
    assert!(refusal(&database, &without_key).contains("primary key"));
    nobody_leads(&database, "without a key");
}

#[test]
fn b16_identifiers_that_postgresql_would_truncate_are_refused() {
    let long = "x".repeat(64);
    let builder = || PostgresStore::builder("host=db.invalid");
    for bad in ["", "a\0b", &long, &"\u{e9}".repeat(32)] {
        assert_eq!(builder().table(bad).build().unwrap_err().field(), "table", "{bad:?}");
        assert_eq!(builder().schema(bad).build().unwrap_err().field(), "schema", "{bad:?}");
    }
    let text = builder().table(&long).build().unwrap_err().to_string();
    assert!(text.contains("63"), "{text}");
}
