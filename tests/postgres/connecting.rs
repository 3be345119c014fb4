//! Ways to a server: sockets, addresses, several hosts, passwords, and how failures to connect read.

use std::time::Duration;

use tenure::{Bid, PostgresStore, Store, StoreError};
use tenure_testground::{PgBouncer, Postgres, free_port};

use crate::{LEASE, OP, SLACK, create, look, store, timed};

#[test]
fn a_unix_socket_in_both_forms() {
    let database = Postgres::shared().database();
    store(&database);
    let server = database.server();
    let directory = server.socket_dir().display().to_string();
    let encoded = directory.replace('/', "%2F");
    let url = format!("postgres://postgres@{encoded}:{}/{}", server.port(), database.name());
    for (name, dsn) in [("a", database.socket_dsn()), ("b", url)] {
        let store = PostgresStore::connect(&dsn).unwrap();
        for round in 0..20 {
            // Each round opens a connection of its own.
            let fresh = PostgresStore::connect(&dsn).unwrap();
            fresh.observe(name, OP).unwrap_or_else(|error| panic!("{round}: {error}"));
        }
        create(&store, name, "h");
        assert_eq!(look(&store, name).holder(), "h");
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'
                        AND client_addr IS NULL AND datname = current_database()";
        let count: i64 = database.client().query_one(sessions, &[]).unwrap().get(0);
        assert!(count >= 1, "not by the socket");
    }
    let nobody = PostgresStore::connect("host=/nonexistent user=x").unwrap();
    let (error, took) = timed(|| nobody.observe("a", OP).unwrap_err());
    assert!(error.is_retryable() && took < Duration::from_secs(2), "{error}");
    assert!(error.to_string().contains("/nonexistent/.s.PGSQL.5432"), "{error}");
}

#[test]
fn an_address_without_a_name() {
    let database = Postgres::shared().database();
    store(&database);
    let (port, name) = (database.server().port(), database.name());
    for host in ["hostaddr=127.0.0.1", "host=db.invalid hostaddr=127.0.0.1", "host=localhost"] {
        let store =
            PostgresStore::connect(&format!("{host} port={port} user=postgres dbname={name}")).unwrap();
        store.observe("a", OP).unwrap_or_else(|error| panic!("{host}: {error}"));
    }
}

#[test]
fn b17_a_standby_named_first_is_passed_over() {
    let primary = Postgres::start_new();
    let database = primary.database();
    let direct = store(&database);
    let lease = create(&direct, "s", "a");
    let standby = Postgres::standby_of(&primary);
    primary.await_replay(&standby);
    let name = database.name();
    let hosts = format!("host=127.0.0.1,127.0.0.1 port={},{}", standby.port(), primary.port());

    // Alone it is an error that waiting can mend, and never an observation.
    let alone = PostgresStore::connect(&standby.dsn_for("postgres", name)).unwrap();
    alone.ensure_schema().expect("the table is there");
    let observed = alone.observe("s", OP).unwrap_err();
    assert!(observed.is_retryable(), "{observed}");
    assert_eq!(observed.sqlstate(), Some("25006"));
    let renewed = alone.renew(&crate::renewal(&lease, "a"), OP).unwrap_err();
    assert!(renewed.is_retryable());
    assert_eq!(renewed.sqlstate(), Some("25006"));

    // With the primary behind it the second attempt gets there, or the first where the string says so.
    let two = PostgresStore::connect(&format!("{hosts} user=postgres dbname={name}")).unwrap();
    assert_eq!(two.observe("s", OP).unwrap_err().sqlstate(), Some("25006"));
    assert_eq!(look(&two, "s").version(), lease.version());
    let picky = format!("{hosts} user=postgres dbname={name} target_session_attrs=read-write");
    assert_eq!(look(&PostgresStore::connect(&picky).unwrap(), "s").version(), lease.version());
    let standby_only = format!("{hosts} user=postgres dbname={name} target_session_attrs=read-only");
    let error = PostgresStore::connect(&standby_only).unwrap().observe("s", OP).unwrap_err();
    assert_eq!(error.sqlstate(), Some("25006"), "{error}");
    let primary_only = format!("{}?target_session_attrs=read-write", standby.dsn_for("postgres", name));
    let error = PostgresStore::connect(&primary_only).unwrap().observe("s", OP).unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("does not allow writes"), "{error}");

    // The promoted standby is on another timeline, where a bid from before is refused.
    let bid = Bid::new("s", "b", LEASE).over(Some(lease.version())).timeline(Some(1));
    standby.promote();
    assert_eq!(alone.acquire(&bid, OP).unwrap(), None);
    let seen = look(&alone, "s");
    assert_eq!((seen.version(), seen.timeline()), (lease.version(), Some(2)), "the row is the same");
    let taken = alone.acquire(&bid.timeline(Some(2)), OP).unwrap().unwrap();
    assert_eq!(taken.fence().get(), (1 << 40) + 1);
}

#[test]
fn b17_a_read_only_server_is_left_and_tried_again_on_a_new_connection() {
    let server = Postgres::start_new();
    let database = server.database();
    let store = store(&database);
    let lease = create(&store, "ro", "a");
    server.execute("ALTER SYSTEM SET default_transaction_read_only = on");
    server.reload();
    let mut client = server.client();
    let sessions = "SELECT coalesce(string_agg(pid::text, ','), '') FROM pg_stat_activity
                    WHERE application_name = 'tenure'";
    let mut pids = std::collections::BTreeSet::new();
    for _ in 0..4 {
        tenure_testground::await_until(OP, "25006", || {
            let renewed = store.renew(&crate::renewal(&lease, "a"), OP);
            renewed.is_err_and(|error| error.sqlstate() == Some("25006"))
        });
        let open: String = client.query_one(sessions, &[]).unwrap().get(0);
        pids.insert(open);
        store.observe("ro", OP).expect("reading goes on");
        pids.insert(client.query_one(sessions, &[]).unwrap().get(0));
    }
    assert!(pids.len() >= 4, "always the same session: {pids:?}");
    store.ensure_schema().expect("b23 c: the table is there");
    client.batch_execute("SET default_transaction_read_only = off").unwrap();
    client.batch_execute("ALTER SYSTEM RESET default_transaction_read_only").unwrap();
    server.reload();
    tenure_testground::await_until(OP, "it can be written again", || {
        store.renew(&crate::renewal(&lease, "a"), OP).is_ok_and(|renewed| renewed.is_some())
    });
}

/// A server that wants passwords over TCP.
fn with_passwords() -> Postgres {
    let server = Postgres::start_new();
    server.create_role("app", &format!("PASSWORD '{}'", PASSWORD.replace('\'', "''")));
    let rules = "local all all trust\nhost all postgres all trust\nhost all all all scram-sha-256\n";
    std::fs::write(server.data_dir().join("pg_hba.conf"), rules).unwrap();
    server.reload();
    let bare = format!("postgres://app@127.0.0.1:{}/postgres", server.port());
    tenure_testground::await_until(OP, "the new rules hold", || {
        let error = PostgresStore::connect(&bare).unwrap().observe("p", OP).unwrap_err();
        error.is_fatal() && error.to_string().contains("no password")
    });
    server
}

const PASSWORD: &str = "S3cr3t-%40 x'";
const ENCODED: &str = "S3cr3t-%2540%20x%27";
const QUOTED: &str = r"'S3cr3t-%40 x\''";

fn shown(error: &StoreError) -> String {
    use std::error::Error;
    let mut text = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(next) = cause {
        text += &format!(" {next} {next:?}");
        cause = next.source();
    }
    text
}

#[test]
fn b20_passwords_work_in_every_form_and_are_never_shown() {
    crate::log_sink::install();
    let server = with_passwords();
    let port = server.port();
    let url = format!("postgres://app:{ENCODED}@127.0.0.1:{port}/postgres");
    let pairs = format!("host=127.0.0.1 port={port} user=app password={QUOTED} dbname=postgres");
    for dsn in [&url, &pairs] {
        let store = PostgresStore::connect(dsn).unwrap();
        let error = store.observe("p", OP).unwrap_err();
        assert_eq!(error.sqlstate(), Some("42P01"), "logged in: {error}");
        assert!(!format!("{store:?} {}", shown(&error)).contains("S3cr3t"));
    }
    let refused = free_port().to_string();
    for dsn in [
        url.replace("S3cr3t", "S3cr3tWrong"),
        pairs.replace("S3cr3t", "S3cr3tWrong"),
        url.replace(&port.to_string(), &refused),
        url.replace("/postgres", "/S3cr3tLess").replace("S3cr3tLess", "nothing_here"),
    ] {
        let store = PostgresStore::connect(&dsn).unwrap();
        let (error, took) = timed(|| store.observe("p", OP).unwrap_err());
        let text = format!("{} {store:?} {:?}", shown(&error), PostgresStore::builder(&dsn));
        assert!(!text.contains("S3cr3t"), "{text}");
        assert!(took < Duration::from_secs(3), "{took:?}: {error}");
    }
    let kept = crate::log_sink::kept();
    // Of all that was logged, only the test itself has spelled it out.
    let leaks = kept.lines().filter(|line| line.contains("S3cr3t") && !line.contains("CREATE ROLE"));
    let leaks: Vec<_> = leaks.collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[test]
fn a_refusal_comes_at_once_and_with_its_code() {
    let server = with_passwords();
    let port = server.port();
    for (user, database, code) in [
        ("app:wrong", "postgres", "28P01"),
        ("postgres", "nothing_here", "3D000"),
        ("nobody_here:x", "postgres", "28P01"),
    ] {
        let store =
            PostgresStore::connect(&format!("postgres://{user}@127.0.0.1:{port}/{database}")).unwrap();
        let (error, took) = timed(|| store.observe("n", OP).unwrap_err());
        assert_eq!(error.sqlstate(), Some(code), "{error}");
        assert!(error.is_fatal() && took < Duration::from_secs(2) + SLACK, "{took:?}: {error}");
        assert_eq!(store.ensure_schema().unwrap_err().sqlstate(), Some(code));
    }
    let nobody = PostgresStore::connect(&format!("host=127.0.0.1 user=x port={}", free_port())).unwrap();
    let (error, took) = timed(|| nobody.observe("n", OP).unwrap_err());
    assert!(error.is_retryable() && took < Duration::from_secs(2), "{took:?}: {error}");
}

#[test]
fn a_server_without_free_sessions_is_waited_for() {
    let server = Postgres::builder().setting("max_connections", "6").start();
    let database = server.database();
    store(&database);
    server.create_role("app", "");
    let held: Vec<_> = (0..3).map(|_| database.client()).collect();
    let store = PostgresStore::connect(&database.dsn_for("app")).unwrap();
    let error = store.observe("n", OP).unwrap_err();
    assert_eq!(error.sqlstate(), Some("53300"), "{error}");
    assert!(error.is_retryable());
    drop(held);
    tenure_testground::await_until(OP, "a free session", || {
        !store.observe("n", OP).is_err_and(|error| error.sqlstate() == Some("53300"))
    });
}

#[test]
fn b22_options_are_passed_on_and_explained_behind_a_pooler() {
    let server = Postgres::shared();
    let database = server.database();
    store(&database);
    let options = "options='-c statement_timeout=7777'";
    let direct =
        format!("host=127.0.0.1 port={} user=postgres dbname={} {options}", server.port(), database.name());
    PostgresStore::connect(&direct).unwrap().observe("n", OP).unwrap();
    let pooler = PgBouncer::in_front_of(server);
    let pooled = direct.replace(&server.port().to_string(), &pooler.port().to_string());
    for options in [options, "options='-c search_path=ops'"] {
        let dsn = pooled.replace("options='-c statement_timeout=7777'", options);
        let store = PostgresStore::connect(&dsn).unwrap();
        let (error, took) = timed(|| store.observe("n", OP).unwrap_err());
        assert!(error.to_string().contains("unsupported startup parameter: options"), "{error}");
        assert_eq!(error.sqlstate(), Some("08P01"));
        assert!(error.is_retryable() && took < Duration::from_secs(2));
    }
    // Without them nothing is sent that the pooler refuses; it is told to ignore nothing.
    let (bare, _) = pooled.split_once(" options=").unwrap();
    PostgresStore::connect(bare).unwrap().observe("n", OP).unwrap();
    let ignored =
        pooler.admin("SHOW CONFIG").into_iter().find(|row| row["key"] == "ignore_startup_parameters");
    assert_eq!(ignored.unwrap()["value"], "");
    assert!(!pooler.log().contains("unsupported startup parameter: application_name"), "{}", pooler.log());
}
