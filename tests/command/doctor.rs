//! `doctor`: what it finds on real servers and files, and the code that it ends with.

use std::time::Duration;

use serde_json::Value;
use tenure::{Bid, SqliteStore, Store};
use tenure_testground::{Database, PgBouncer, Postgres, Proxy};

use crate::{Ended, OP, create, fine, store, tenure};

const GRANTS: &str = "GRANT SELECT, INSERT, UPDATE ON leader_election TO app";

/// A server that keeps what it acknowledges, with the role `app`, and the table.
fn sound(settings: &[(&str, &str)]) -> Postgres {
    let builder = settings
        .iter()
        .fold(Postgres::builder().fsync(true), |builder, (name, value)| builder.setting(name, value));
    let server = builder.start();
    server.create_role("app", "");
    server
}

fn prepared(server: &Postgres) -> Database<'_> {
    let database = server.create_database("app");
    store(&database);
    database.execute(GRANTS);
    database
}

/// The findings that are not ok, as `level topic`.
#[track_caller]
fn bad(url: &str, code: i32) -> Vec<String> {
    let ended = tenure(url, &["doctor", "--json"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(code), ""), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .filter(|finding| finding["level"] != "ok")
        .map(|finding| {
            format!("{} {}", finding["level"].as_str().unwrap(), finding["topic"].as_str().unwrap())
        })
        // What the address and the defaults of the test ground lead to.
        .filter(|finding| finding != "note encryption" && finding != "note limits")
        // A busy machine may be slow; that nothing could be read is another matter.
        .filter(|finding| finding != "note round trips" || report["round_trips"]["count"] == 0)
        .collect()
}

fn text(url: &str, arguments: &[&str]) -> Ended {
    let mut ended = tenure(url, &[&["doctor"], arguments].concat());
    assert!(ended.out.lines().all(|line| line.chars().count() <= 80), "{}", ended.out);
    // Sentences are broken where the line ends.
    ended.out = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    ended
}

#[test]
fn a_healthy_server_is_fit_directly_and_through_a_pooler() {
    let server = sound(&[]);
    let database = prepared(&server);
    let url = database.dsn_for("app");
    assert_eq!(bad(&url, 0), [""; 0]);
    text(&url, &[]).says(&[
        "database app, role app",
        "ok path each of two connections kept a server process of its own",
        "ok table \"public\".\"leader_election\" has the right columns",
        "ok timeline 1;",
        "round trips 200 reads: half of them within ",
        "ok clock the database's is",
        ".operation_timeout(Duration::from_secs(3))",
        "--operation-timeout=3s",
        "Fit to carry elections; see the notes.",
    ]);
    database.execute("ALTER ROLE app SET lock_timeout = '2s'");
    text(&database.dsn_for("app"), &[]).says(&["ok limits lock_timeout 2s"]);
    let pooler = PgBouncer::builder(server.port()).user("app").start();
    let url = pooler.dsn_for("app", database.name());
    assert_eq!(bad(&url, 0), ["note path"]);
    text(&url, &[]).says(&[
        "through a pooler that shares",
        "server_login_retry = 1",
        "plain text between the pooler",
    ]);
    // It reads: not even the timed reads have left a row.
    let store = tenure::PostgresStore::connect(&database.dsn()).unwrap();
    assert_eq!(store.list(OP).unwrap().len(), 0);
}

#[test]
fn what_is_unsafe_or_broken_is_told_by_its_name_and_the_code_is_1() {
    let server = sound(&[]);
    let database = prepared(&server);
    let url = database.dsn_for("app");
    database.execute("REVOKE UPDATE ON leader_election FROM app");
    assert_eq!(bad(&url, 1), ["broken rights"]);
    text(&url, &[]).says(&["the role app lacks UPDATE", "GRANT UPDATE ON \"public\".\"leader_election\""]);
    database.execute("REVOKE ALL ON leader_election FROM app");
    assert_eq!(bad(&url, 1), ["broken rights", "note round trips"]);
    text(&url, &[]).says(&["lacks SELECT, INSERT, UPDATE", "Nobody can lead here"]);
    database.execute(&format!("{GRANTS}; ALTER ROLE app SET synchronous_commit = off"));
    assert_eq!(bad(&url, 0), ["note commits"]);
    text(&url, &[]).says(&["synchronous_commit is off for this role", "raise it to on"]);
    database.execute("ALTER ROLE app SET default_transaction_read_only = on");
    assert_eq!(bad(&url, 1), ["broken primary", "note commits"]);
    database.execute("ALTER ROLE app RESET ALL; ALTER TABLE leader_election SET UNLOGGED");
    assert_eq!(bad(&url, 1), ["unsafe table", "note round trips"]);
    text(&url, &[]).says(&["unsafe table", "UNLOGGED", "NOT SAFE"]);
    database.execute("DROP TABLE leader_election");
    assert_eq!(bad(&url, 1), ["broken table", "note round trips"]);
    text(&url, &[]).says(&["there is no table", "this role may not create it"]);
    text(&database.dsn(), &["--table", "no_such.leases"]).says(&["the schema does not exist"]);
    text(&database.dsn(), &[]).says(&["run `tenure init`"]);
}

#[test]
fn servers_that_forget_are_unsafe() {
    let server = Postgres::builder().setting("full_page_writes", "off").start();
    store(&server.create_database("app"));
    assert_eq!(bad(&server.dsn_for("postgres", "app"), 1), ["unsafe durability"]);
    text(&server.dsn_for("postgres", "app"), &[]).says(&["fsync is off"]);
    let server = sound(&[("full_page_writes", "off")]);
    let database = prepared(&server);
    assert_eq!(bad(&database.dsn_for("app"), 1), ["unsafe durability"]);
    database.execute("REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC");
    assert_eq!(bad(&database.dsn_for("app"), 1), ["unsafe durability", "unsafe timeline"]);
}

#[test]
fn standbys_are_told_from_their_primary_and_passed_over_where_there_is_one() {
    let server = sound(&[]);
    let database = prepared(&server);
    let standby = Postgres::standby_of(&server);
    server.await_replay(&standby);
    assert_eq!(bad(&database.dsn_for("app"), 0), ["note fail-over"]);
    text(&database.dsn_for("app"), &[]).says(&["can lose acknowledged leases"]);
    let alone = bad(&standby.dsn_for("app", "app"), 1);
    assert_eq!(
        alone,
        ["broken primary", "unsafe durability", "note round trips"],
        "the standby's fsync is off"
    );
    let both = format!("postgres://app@127.0.0.1:{},127.0.0.1:{}/app", standby.port(), server.port());
    assert_eq!(bad(&both, 0), ["note fail-over"]);
}

#[test]
fn a_server_that_waits_for_a_standby_that_is_not_there_is_broken() {
    let server = sound(&[]);
    let database = prepared(&server);
    database.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    database.execute("SELECT pg_reload_conf()");
    let url = database.dsn_for("app");
    tenure_testground::await_until(OP, "the setting is in force", || bad(&url, 1) == ["broken fail-over"]);
    let elector = crate::elector(&tenure::PostgresStore::connect(&url).unwrap(), "n", "a");
    let led = elector.wait_for_leadership_timeout(Duration::from_secs(2));
    assert!(led.is_err(), "nobody can lead: {led:?}");
}

#[test]
fn encryption_that_anybody_may_have_done_is_noted() {
    let authority = tenure_testground::Authority::new("ours");
    let server = Postgres::builder().fsync(true).tls(&authority.server(&["localhost"])).start();
    store(&server.create_database("app"));
    let directory = tempfile::tempdir().unwrap();
    let root = authority.write(directory.path(), "ca.crt");
    let url = format!("postgres://postgres@localhost:{}/app?sslmode", server.port());
    for mode in ["prefer", "require"] {
        let said = text(&format!("{url}={mode}"), &[]);
        said.says(&["note encryption TLSv1.3 to the server, but nobody made sure", "-> sslmode=verify-full"]);
    }
    let root = root.display();
    for mode in ["require", "verify-ca", "verify-full"] {
        text(&format!("{url}={mode}&sslrootcert={root}"), &[])
            .says(&["ok encryption TLSv1.3 to the server."]);
    }
}

#[test]
fn the_verdict_is_that_of_the_database_though_nobody_reads_it() {
    let server = Postgres::start_new();
    let url = store_of(&server);
    let mut child = crate::command(&url, &["doctor"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1), "its fsync is off");
}

fn store_of(server: &Postgres) -> String {
    store(&server.create_database("app"));
    server.dsn_for("postgres", "app")
}

#[test]
fn what_cannot_be_examined_is_a_failure_with_a_hint() {
    let server = sound(&[]);
    let database = prepared(&server);
    tenure(&database.dsn_for("nobody"), &["doctor"]).complains(125, &["28000", "hint: check the user"]);
    tenure(&server.dsn_for("app", "none"), &["doctor"]).complains(125, &["3D000"]);
    let url = database.dsn_for("app");
    server.stop_fast();
    let ended = tenure(&url, &["doctor"]);
    ended.complains(125, &["can't connect", "hint: this may pass by itself"]);
    assert_eq!(ended.out, "");
    let mute = tenure_testground::mute_listener();
    let url = format!("postgres://app:S3cr3t@127.0.0.1:{}/app", mute.port());
    let tight = ["--operation-timeout", "500ms"];
    tenure(&url, &[&["doctor"][..], &tight].concat()).complains(125, &["hint:"]);
    tenure("memory:", &["doctor"]).complains(125, &["nothing to examine"]);
}

#[test]
fn a_distant_database_gets_longer_timings() {
    let server = sound(&[]);
    let database = prepared(&server);
    let proxy = Proxy::to(server.addr());
    let delay = Duration::from_millis(4);
    proxy.set(tenure_testground::Mode::Delay { by: delay, jitter: Duration::ZERO });
    let url = format!("postgres://app@127.0.0.1:{}/{}", proxy.port(), database.name());
    // For a tenth of a second, eight milliseconds are far away; for three, they are not.
    let tight = ["--lease-duration=2s", "--renew-interval=500ms", "--operation-timeout=100ms"];
    let ended = text(&url, &tight);
    ended.says(&["note round trips", "renewals would fail on a bad day", "It needs longer timings:"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // What it recommends it accepts, and finds fit, unless the machine has become slower meanwhile.
    let mut recommended = ended.out;
    for _ in 0..10 {
        let options = recommended.split("tenure exec ").nth(1).unwrap().split("Fit").next().unwrap();
        let options: Vec<&str> = options.split_whitespace().filter(|word| *word != "\\").collect();
        assert_eq!(options.len(), 4, "{options:?}");
        let again = text(&url, &options);
        assert_eq!(again.code, Some(0), "{again:?}");
        if again.out.contains("These timings suit it:") {
            return;
        }
        recommended = again.out;
    }
    panic!("no recommendation is ever enough: {recommended}");
}

#[test]
fn a_file_is_examined() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("lease.db");
    let url = format!("sqlite:{}", path.display());
    tenure(&url, &["doctor"]).complains(125, &["does not exist", "hint: `tenure init`"]);
    let store = SqliteStore::open(&path).unwrap();
    store.ensure_schema().unwrap();
    create(&store, "n", "h", OP);
    // Where the build is may be a place that is noted, or refused.
    let place = |finding: &String| !finding.ends_with(" place");
    let report: Value = serde_json::from_str(&tenure(&url, &["doctor", "--json"]).out).unwrap();
    let code = i32::from(report["verdict"] == "unsafe");
    assert_eq!(bad(&url, code).into_iter().filter(place).collect::<Vec<_>>(), [""; 0]);
    text(&url, &[]).says(&[
        "ok table has the right columns",
        "ok write lock was there within",
        "journal mode wal, synchronous 3",
        &format!("open in processes {}", std::process::id()),
        "round trips 200 reads",
    ]);
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let locked = bad(&url, 1);
    assert!(locked.contains(&"broken write lock".to_owned()), "{locked:?}");
    other.execute_batch("ROLLBACK; DROP TABLE leader_election").unwrap();
    let missing = bad(&url, 1);
    assert!(missing.contains(&"broken table".to_owned()), "{missing:?}");
    assert!(fine(&url, &["init"]).contains("has been created"));
    assert!(store.acquire(&Bid::new("n", "h", OP), OP).unwrap().is_some());
}

/// A URL that leads to a file of another application's.
#[test]
fn another_applications_file_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE app (x)").unwrap();
    let before = std::fs::read(&path).unwrap();
    let url = format!("sqlite:{}", path.display());
    tenure(&url, &["status"]).complains(125, &["has no table"]);
    tenure(&url, &["resign", "--election", "n", "--yes"]).complains(125, &["has no table"]);
    let findings = bad(&url, 1);
    assert!(
        findings.contains(&"broken table".to_owned()) && !findings.contains(&"note durability".to_owned())
    );
    assert!(std::fs::read(&path).unwrap() == before, "it was changed");
}
