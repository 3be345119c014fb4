//! `watch`: what it reports, and how it ends.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tenure::{Bid, PostgresStore, Renewal, SqliteStore, Store};
use tenure_testground::{Postgres, Process, await_until, mute_listener};

use crate::{LIMIT, OP, command, create, store};

const LEASE: Duration = Duration::from_secs(600);
const QUICK: [&str; 5] = ["watch", "--retry-period", "50ms", "--operation-timeout", "1s"];

fn watch(url: &str, more: &[&str]) -> Process {
    Process::spawn(command(url, &[&QUICK, more].concat()))
}

#[track_caller]
fn expect(watch: &mut Process, words: &str) -> String {
    watch.expect_line(LIMIT, words, |line| line.contains(words))
}

fn take(store: &impl Store, name: &str, holder: &str, lease: Duration) -> tenure::Lease {
    let seen = store.observe(name, OP).unwrap();
    let bid = Bid::new(name, holder, lease).over(seen.lease().map(tenure::Lease::version));
    store.acquire(&bid, OP).unwrap().unwrap()
}

/// A life of an election, and the line that each step of it leads to.
fn life(store: &impl Store, remove: &dyn Fn(), mut watch: Process) {
    expect(&mut watch, "n: nobody has ever led");
    let lease = create(store, "n", "a-1", LEASE);
    expect(&mut watch, "n: new term: a-1 (fence 1), for 10m 0s at a time");
    let renewal = Renewal::new("n", "a-1", lease.fence(), LEASE).payload(Some(b"10.0.0.7"));
    store.renew(&renewal, OP).unwrap().unwrap();
    expect(&mut watch, "n: payload of a-1 (fence 1): 10.0.0.7");
    store.release("n", "a-1", lease.fence(), OP).unwrap();
    expect(&mut watch, "n: released by a-1 (fence 1)");
    take(store, "n", "b-2", Duration::from_millis(500));
    expect(&mut watch, "n: new term: b-2 (fence 2)");
    expect(&mut watch, "b-2 (fence 2) did not renew, nobody leads");
    remove();
    expect(&mut watch, "n: THE ROW IS GONE; its fence was 2");
    create(store, "n", "c-3", LEASE);
    expect(&mut watch, "n: FENCE WENT BACK from 2 to 1");
    expect(&mut watch, "n: new term: c-3 (fence 1)");
    // Renewals are no news: the next line is of something else.
    let seen = watch.seen().len();
    let fence = store.observe("n", OP).unwrap().lease().unwrap().fence();
    for _ in 0..5 {
        store.renew(&Renewal::new("n", "c-3", fence, LEASE), OP).unwrap().unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    store.release("n", "c-3", fence, OP).unwrap();
    expect(&mut watch, "n: released by c-3");
    assert_eq!(watch.seen().len(), seen + 1, "{:#?}", watch.seen());
    watch.terminate();
    assert_eq!(watch.wait(LIMIT).code(), Some(0));
}

#[test]
fn each_change_is_a_line() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let remove = || database.execute("DELETE FROM leader_election");
    life(&store, &remove, watch(&database.dsn(), &["--election", "n"]));
}

#[test]
fn each_change_of_a_file_is_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lease.db");
    let store = SqliteStore::open(&path).unwrap();
    store.ensure_schema().unwrap();
    let remove = || {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.busy_timeout(OP).unwrap();
        connection.execute("DELETE FROM leader_election", []).unwrap();
    };
    let url = format!("sqlite:{}", path.display());
    life(&store, &remove, watch(&url, &["--election", "n"]));
}

#[test]
fn without_a_name_all_are_followed_and_new_ones_join() {
    let database = Postgres::shared().database();
    let store = store(&database);
    create(&store, "one", "a", LEASE);
    let mut all = watch(&database.dsn(), &["--json"]);
    let first: serde_json::Value = serde_json::from_str(&expect(&mut all, "one")).unwrap();
    assert_eq!(
        (&first["change"], &first["state"], &first["fence"]),
        (&"found".into(), &"leading".into(), &1.into())
    );
    let at = first["at"].as_str().unwrap();
    assert!(humantime_like(at), "{at}");
    create(&store, "two", "b", LEASE);
    let second: serde_json::Value = serde_json::from_str(&expect(&mut all, "two")).unwrap();
    assert_eq!((&second["change"], &second["holder"]), (&"new_term".into(), &"b".into()));
    database.execute("DELETE FROM leader_election WHERE name = 'one'");
    let gone: serde_json::Value = serde_json::from_str(&expect(&mut all, "gone")).unwrap();
    assert_eq!((&gone["election"], &gone["state"]), (&"one".into(), &"vacant".into()));
}

#[test]
fn what_a_full_list_has_no_room_for_is_not_gone() {
    let database = Postgres::shared().database();
    let store = store(&database);
    database.execute(
        "INSERT INTO leader_election SELECT 'n' || lpad(i::text, 4, '0'), 'h', 1, now(), now(), now() + '1h'
           FROM generate_series(1, 1000) AS i",
    );
    let mut all = watch(&database.dsn(), &[]);
    expect(&mut all, "n1000: h (fence 1) leads");
    create(&store, "a", "web-0", LEASE);
    expect(&mut all, "a: new term: web-0 (fence 1)");
    database.execute("DELETE FROM leader_election WHERE name IN ('n0002', 'n0003')");
    expect(&mut all, "n0002: THE ROW IS GONE");
    expect(&mut all, "n0003: THE ROW IS GONE");
    // The last one is back on the list, as it was.
    create(&store, "b", "web-1", LEASE);
    expect(&mut all, "b: new term: web-1 (fence 1)");
    let of_last = all.seen().iter().filter(|line| line.contains(" n1000: ")).count();
    assert_eq!(of_last, 1, "{:#?}", all.seen().iter().rev().take(9).collect::<Vec<_>>());
}

/// 2026-11-30T01:29:14.123Z
fn humantime_like(at: &str) -> bool {
    at.len() == 24 && at.ends_with('Z') && at.as_bytes()[10] == b'T' && at.as_bytes()[19] == b'.'
}

#[test]
fn a_hand_over_by_an_operator_is_followed_to_its_end() {
    let database = Postgres::shared().database();
    create(&store(&database), "n", "web-0", Duration::from_secs(3));
    let mut watch = watch(&database.dsn(), &[]);
    expect(&mut watch, "n: web-0 (fence 1) leads");
    let ended = crate::tenure(&database.dsn(), &["resign", "--election", "n", "--yes"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    expect(&mut watch, "n: the leader was made to step down by operator-");
    expect(&mut watch, "is over: anybody may lead");
}

#[test]
fn a_store_that_fails_is_told_once_and_so_is_its_return() {
    let server = Postgres::start_new();
    let database = server.database();
    let store = store(&database);
    create(&store, "n", "a", LEASE);
    let mut watch = watch(&database.dsn(), &[]);
    expect(&mut watch, "a (fence 1) leads");
    server.stop_fast();
    expect(&mut watch, "the store is failing: ");
    server.start();
    expect(&mut watch, "the store answers again after ");
    take(&store, "n", "b", LEASE);
    expect(&mut watch, "new term: b (fence 2)");
    let failing = watch.seen().iter().filter(|line| line.contains("is failing")).count();
    // The server says one thing while it ends, another when it has gone, and a third while it starts.
    assert!((1..=6).contains(&failing), "{:#?}", watch.seen());
    drop(store);
}

#[test]
fn what_a_person_must_mend_ends_it_at_the_start_and_an_outage_does_not() {
    let database = Postgres::shared().database();
    let mut watch = Process::spawn({
        let mut command = command(&database.dsn(), &QUICK);
        command.stderr(Stdio::null());
        command
    });
    assert_eq!(watch.wait(LIMIT).code(), Some(125), "there is no table");
    let server = Postgres::start_new();
    PostgresStore::connect(&server.dsn()).unwrap().ensure_schema().unwrap();
    server.stop_fast();
    let mut watch = self::watch(&server.dsn(), &["--election", "n"]);
    expect(&mut watch, "the store is failing: ");
    server.start();
    expect(&mut watch, "n: nobody has ever led");
}

#[test]
fn a_signal_ends_it_whatever_it_waits_for() {
    let database = Postgres::shared().database();
    store(&database);
    let mut idle =
        Process::spawn(command(&database.dsn(), &["watch", "--election", "n", "--retry-period", "10m"]));
    expect(&mut idle, "n: nobody has ever led");
    idle.terminate();
    assert_eq!(idle.wait(LIMIT).code(), Some(0), "between two looks");
    let mute = mute_listener();
    let url = format!("postgres://app@127.0.0.1:{}/app", mute.port());
    let mut busy = Process::spawn(command(&url, &["watch", "--operation-timeout", "10m"]));
    await_until(OP, "it waits for an answer", || mute.accepted() > 0);
    busy.terminate();
    assert_eq!(busy.wait(LIMIT).code(), Some(0), "in the middle of one");
}

#[test]
fn it_ends_quietly_when_nobody_reads_any_more() {
    let database = Postgres::shared().database();
    store(&database);
    let mut child = command(&database.dsn(), &[&QUICK[..], &["--election", "n"]].concat());
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    std::io::BufRead::read_line(&mut out, &mut first).unwrap();
    assert!(first.contains("nobody has ever led"), "{first}");
    // Nothing happens in the election: it is not a line that it could not write.
    drop(out);
    let mut status = None;
    let begun = Instant::now();
    while status.is_none() && begun.elapsed() < LIMIT {
        status = child.try_wait().unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    if status.is_none() {
        child.kill().unwrap();
    }
    let ended = crate::Ended::of(child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
}
