//! `status`: the table and the JSON.

use std::process::{Command, Stdio};
use std::time::Duration;

use tenure::{Bid, SqliteStore, Store};
use tenure_testground::{PgBouncer, Postgres, await_until};

use crate::{OP, TENURE, create, fine, store, tenure};

const LEASE: Duration = Duration::from_secs(600);

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn all_elections_or_those_that_are_named() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let bid = Bid::new("reports", "web-0-1", LEASE).payload(Some(b"10.0.0.7:8080"));
    store.acquire(&bid, OP).unwrap().unwrap();
    let released = create(&store, "billing", "web-1-2", LEASE);
    store.release("billing", "web-1-2", released.fence(), OP).unwrap();
    create(&store, "archive", "web-2-3", Duration::from_millis(1));
    let pooler = PgBouncer::in_front_of(database.server());
    for url in [database.dsn(), pooler.dsn_for("postgres", database.name())] {
        let text = fine(&url, &["status"]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let titles = ["ELECTION", "STATE", "LEFT", "AGE", "LENGTH", "FENCE", "HOLDER", "PAYLOAD"];
        assert_eq!(lines[0], titles);
        assert_eq!(lines[1][..3], ["archive", "expired", "-"]);
        assert_eq!(lines[2][..3], ["billing", "released", "-"]);
        assert_eq!(lines[3][..2], ["reports", "leading"]);
        assert!(text.lines().nth(3).unwrap().contains("10m 0s  1      web-0-1  10.0.0.7:8080"), "{text}");
        let named = fine(&url, &["status", "--election", "nobody", "--election", "reports"]);
        let lines: Vec<_> = named.lines().skip(1).map(|line| line.split("  ").next().unwrap()).collect();
        assert_eq!(lines, ["nobody", "reports"], "in the order of the question");
        assert!(named.contains("vacant"), "{named}");
    }
    let all = json(&fine(&database.dsn(), &["status", "--json"]));
    let states: Vec<_> =
        all.as_array().unwrap().iter().map(|election| election["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["expired", "released", "leading"]);
    let reports = &all[2];
    assert_eq!((&reports["holder"], &reports["fence"]), (&"web-0-1".into(), &1.into()));
    assert_eq!((&reports["payload"], &reports["length_ms"]), (&"10.0.0.7:8080".into(), &600_000.into()));
    assert_eq!(reports["timeline"], 1);
    assert!((540_000..=600_000).contains(&reports["remaining_ms"].as_u64().unwrap()), "{reports}");
    let vacant = json(&fine(&database.dsn(), &["status", "--json", "--election", "nobody"]));
    assert_eq!((&vacant[0]["state"], &vacant[0]["fence"]), (&"vacant".into(), &serde_json::Value::Null));
}

#[test]
fn what_cannot_be_said_changes_no_code() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("lease.db").display());
    fine(&url, &["init"]);
    for (arguments, code) in [
        (&["status"][..], 0),
        (&["resign", "--election", "n", "--yes"], 1),
        (&["schema", "--table", "a.b"], 125),
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let status = crate::command(&url, arguments).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn what_no_election_can_be_called_is_refused() {
    let long = "x".repeat(256);
    for name in ["", &long] {
        for arguments in [["status", "--election", name], ["watch", "--election", name]] {
            tenure("sqlite:/nonexistent/lease.db", &arguments).complains(125, &["name"]);
        }
    }
}

#[test]
fn a_password_that_was_typed_in_the_wrong_place_is_not_repeated() {
    let url = "postgres://app:S3cr3t@db/app";
    for arguments in [
        &["status", url][..],
        &[url],
        &["resign", "--election", "n", "--fence", url],
        &["status", &format!("--sotre={url}")],
        &["status", "--operation-timeout", "host=db password=S3cr3t"],
    ] {
        tenure("sqlite:/x", arguments).complains(2, &["error: "]);
    }
    tenure("sqlite:/x", &["status", url]).complains(2, &["'postgres://app:***@db/app' found", "Usage: "]);
}

#[test]
fn what_somebody_wrote_into_the_database_commands_no_terminal() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let hostile = "a\u{1b}]0;owned\u{7}\u{9b}31m\r\n\u{202e}b";
    let bid = Bid::new(hostile, hostile, LEASE).payload(Some(hostile.as_bytes()));
    store.acquire(&bid, OP).unwrap().unwrap();
    // `tenure` looks for control characters in everything.
    let text = fine(&database.dsn(), &["status"]);
    assert_eq!(text.matches("\\u{1b}]0;owned\\u{7}\\u{9b}31m\\r\\n\\u{202e}b").count(), 3, "{text}");
    let text = fine(&database.dsn(), &["status", "--json"]);
    assert!(!text.contains('\u{202e}'), "{text}");
    assert_eq!(json(&text)[0]["holder"], hostile);
    tenure(&database.dsn(), &["resign", "--election", hostile]).complains(1, &["no terminal"]);
    tenure(&database.dsn(), &["resign", "--election", hostile, "--fence", "9"]).complains(1, &["\\u{1b}"]);
    // An error may quote what a server says.
    let url = format!("postgres://x%1b%5b2J@127.0.0.1:{}/postgres", database.server().port());
    tenure(&url, &["status"]).complains(125, &["\\u{1b}[2J"]);
}

#[test]
fn a_file_is_looked_at_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lease.db");
    let store = SqliteStore::open(&path).unwrap();
    store.ensure_schema().unwrap();
    create(&store, "n", "h", LEASE);
    let url = format!("sqlite:{}", path.display());
    assert!(fine(&url, &["status"]).contains("leading"));
    assert_eq!(json(&fine(&url, &["status", "--json"]))[0]["timeline"], serde_json::Value::Null);
}

#[test]
fn a_list_that_is_cut_off_says_so() {
    let database = Postgres::shared().database();
    store(&database);
    database.execute(
        "INSERT INTO leader_election SELECT 'e' || n, 'h', 1, now(), now(), now(), NULL
           FROM generate_series(1, 1001) AS n",
    );
    let ended = tenure(&database.dsn(), &["status"]);
    assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 1_001), "with the titles");
    assert!(ended.err.contains("more than these 1000; name them with --election"), "{}", ended.err);
}

#[test]
fn a_reader_that_leaves_is_no_failure_and_a_full_disk_is() {
    let database = Postgres::shared().database();
    create(&store(&database), "n", "h", LEASE);
    let mut child = crate::command(&database.dsn(), &["status"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = crate::Ended::of(child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = crate::command(&database.dsn(), &["status"]).stdout(full).output().unwrap();
    crate::Ended::of(output).complains(125, &["can't write to stdout"]);
}

#[test]
fn a_server_that_is_away_is_told_with_a_hint() {
    let server = Postgres::start_new();
    server.stop_fast();
    let ended = tenure(&server.dsn(), &["status", "--operation-timeout", "2s"]);
    ended.complains(125, &["can't connect", "hint: this may pass by itself; `tenure doctor` looks closer"]);
    let mute = tenure_testground::mute_listener();
    let url = format!("postgres://app:S3cr3t@127.0.0.1:{}/app", mute.port());
    let begun = std::time::Instant::now();
    tenure(&url, &["status", "--operation-timeout", "300ms"]).complains(125, &["hint:"]);
    assert!(begun.elapsed() < OP);
}

#[test]
fn a_password_in_the_environment_is_in_no_list_of_processes() {
    let mute = tenure_testground::mute_listener();
    let url = format!("postgres://app:S3cr3t@127.0.0.1:{}/app", mute.port());
    let mut child = Command::new(TENURE)
        .args(["status", "--operation-timeout", "60s"])
        .env("TENURE_STORE", url)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    await_until(OP, "it has connected", || mute.accepted() > 0);
    let arguments = std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!String::from_utf8_lossy(&arguments).contains("S3cr3t"));
}
