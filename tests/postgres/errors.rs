//! What the server refuses while it runs, and a server that hides its timeline.

use std::time::Duration;

use tenure::{Bid, PostgresStore, Store};
use tenure_testground::Postgres;

use crate::{LEASE, OP, create, look, renewal, store, timed};

#[test]
fn waiting_helps_or_it_does_not() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let lease = create(&store, "e", "a");
    let renew = || store.renew(&renewal(&lease, "a"), OP);
    let fails = |ddl: &str, undo: &str, code: &str, fatal: bool| {
        database.execute(ddl);
        let (error, took) = timed(|| renew().unwrap_err());
        assert_eq!(error.sqlstate(), Some(code), "{ddl}: {error}");
        assert_eq!((error.is_fatal(), error.is_retryable()), (fatal, !fatal), "{ddl}: {error}");
        assert!(took < Duration::from_secs(3), "{took:?}");
        database.execute(undo);
        assert!(renew().unwrap().is_some(), "after {undo}");
    };
    fails(
        "ALTER TABLE leader_election RENAME TO gone",
        "ALTER TABLE gone RENAME TO leader_election",
        "42P01",
        true,
    );
    fails(
        "ALTER TABLE leader_election RENAME payload TO load",
        "ALTER TABLE leader_election RENAME load TO payload",
        "42703",
        true,
    );
    let raise = |code: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$;
             CREATE OR REPLACE TRIGGER refuse BEFORE UPDATE ON leader_election EXECUTE FUNCTION refuse()"
        )
    };
    for (code, fatal) in
        [("53100", false), ("57014", false), ("XX000", false), ("57P03", false), ("42804", true)]
    {
        fails(&raise(code), "DROP TRIGGER refuse ON leader_election", code, fatal);
    }
}

#[test]
fn deadlocks_and_serialization_failures_are_repeated() {
    let server = Postgres::shared();
    let database = server.database();
    server.execute(&format!(
        "ALTER DATABASE {} SET default_transaction_isolation = serializable",
        database.name()
    ));
    let store = PostgresStore::builder(&database.dsn()).pool_size(8).build().unwrap();
    store.ensure_schema().unwrap();
    let lease = create(&store, "s", "a");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
                }
            });
        }
    });
    // Refused twice, then let through: the caller sees nothing of it.
    database.execute(
        "CREATE SEQUENCE tries;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF nextval('tries') < 3 THEN RAISE EXCEPTION 'again' USING ERRCODE = '40P01'; END IF;
             RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON leader_election FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
}

#[test]
fn rule_15_a_server_that_hides_its_timeline_is_used_without() {
    // The warning goes to a sink that never returns; that must not cost a call.
    crate::log_sink::install();
    let server = Postgres::start_new();
    let database = server.database();
    store(&database);
    server.create_role("app", "");
    database.execute("GRANT SELECT, INSERT, UPDATE ON leader_election TO app");
    database.execute("REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC");
    let store = PostgresStore::connect(&database.dsn_for("app")).unwrap();
    assert_eq!(store.timeline_available(), None);
    let lease = create(&store, "t", "a");
    assert_eq!((lease.timeline(), store.timeline_available()), (None, Some(false)));
    assert_eq!(store.observe("other", OP).unwrap().timeline(), None);
    assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
    let bid = Bid::new("t", "b", LEASE).over(Some(look(&store, "t").version()));
    assert_eq!(store.acquire(&bid.clone().timeline(Some(1)), OP).unwrap(), None, "can't be vouched for");
    let taken = store.acquire(&bid, OP).unwrap().unwrap();
    assert_eq!(taken.fence().get(), 2);
    let warnings = || crate::log_sink::kept().matches("does not show its timeline").count();
    tenure_testground::await_until(OP, "the warning", || warnings() == 1);
    // A right that is missing on the table is not mistaken for it.
    let other = PostgresStore::connect(&database.dsn()).unwrap();
    database.execute("ALTER TABLE leader_election RENAME holder TO owner");
    assert!(other.observe("t", OP).unwrap_err().is_fatal());
    assert_eq!(other.timeline_available(), None);
}

#[test]
fn a_fence_that_nobody_issued_is_reported() {
    let database = Postgres::shared().database();
    let store = store(&database);
    database.execute("INSERT INTO leader_election VALUES ('z', 'x', 0, 'epoch', 'epoch', 'epoch')");
    let error = store.observe("z", OP).unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("fence"), "{error}");
}

#[test]
fn a_column_of_another_type_is_named_as_the_cause() {
    let database = Postgres::shared().database();
    let store = store(&database);
    create(&store, "w", "a");
    database.execute("ALTER TABLE leader_election ALTER payload TYPE text USING encode(payload, 'hex')");
    let error = store.observe("w", OP).unwrap_err();
    assert!(error.is_fatal(), "{error}");
    assert_eq!(error.to_string(), "the table does not have the expected shape: see ensure_schema()");
    assert!(std::error::Error::source(&error).is_some());
    let advice = store.ensure_schema().unwrap_err().to_string();
    assert!(advice.contains("payload is of type text, not bytea"), "{advice}");
}

#[test]
fn a_fence_is_a_statement_parameter() {
    let database = Postgres::shared().database();
    let lease = create(&store(&database), "f", "a");
    let row =
        database.client().query_one("SELECT fence = $1 FROM leader_election", &[&lease.fence()]).unwrap();
    assert!(row.get::<_, bool>(0));
}

/// A server that ends every connection with a FATAL error of this code: before it lets the client in, or in answer
/// to the first statement.
fn refusing_server(code: &'static str, lets_in: bool) -> u16 {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            let mut said = [0; 1024];
            if client.read(&mut said).unwrap_or(0) == 0 {
                continue;
            }
            if lets_in {
                let _ = client.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I");
                let _ = client.read(&mut said);
            }
            let fields = format!("SFATAL\0VFATAL\0C{code}\0Mgood-bye\0\0");
            let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
            let _ = client.write_all(&[b"E", &length[..], fields.as_bytes()].concat());
        }
    });
    port
}

#[test]
fn b26_whatever_an_outage_says_is_retryable() {
    for code in ["57P01", "57P02", "57P03", "08006"] {
        for lets_in in [false, true] {
            let port = refusing_server(code, lets_in);
            let dsn = format!("host=127.0.0.1 user=x port={port} sslmode=disable");
            let store = PostgresStore::connect(&dsn).unwrap();
            let (error, took) = timed(|| store.observe("n", OP).unwrap_err());
            assert_eq!(error.sqlstate(), Some(code), "{lets_in}: {error}");
            assert!(error.is_retryable() && !error.is_fatal() && !error.is_timeout(), "{lets_in}: {error}");
            assert!(took < Duration::from_secs(3), "{took:?}");
        }
    }
    let nobody = format!("host=127.0.0.1 user=x port={}", tenure_testground::free_port());
    let error = PostgresStore::connect(&nobody).unwrap().observe("n", OP).unwrap_err();
    assert!(error.is_retryable() && !error.is_fatal() && error.sqlstate().is_none(), "{error}");
    let mut cause = std::error::Error::source(&error);
    let mut kinds = Vec::new();
    while let Some(next) = cause {
        kinds.extend(next.downcast_ref::<std::io::Error>().map(std::io::Error::kind));
        cause = next.source();
    }
    assert!(kinds.contains(&std::io::ErrorKind::ConnectionRefused), "{kinds:?}: {error}");
}
