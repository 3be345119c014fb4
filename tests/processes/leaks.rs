//! What time-outs leave behind: nothing. Counted in processes of their own.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use tenure::{PostgresStore, Store};
#[cfg(feature = "tls")]
use tenure_testground::Credentials;
use tenure_testground::{Database, Postgres, Process, await_until, descriptors, mute_listener, threads};

use crate::alone;
use crate::crowd;
use crate::figures::figure;
use crate::scarce;
use crate::secrets;

/// Long enough for a busy machine.
const OP: Duration = Duration::from_secs(10);
const DSN: &str = "TENURE_CHILD_DSN";
const CHILD: &str = "TENURE_CHILD";
/// What a call may take beyond its timeout.
const SLACK: Duration = Duration::from_millis(250);
/// An address for a name server that never answers.
const RESOLVER: &str = "127.91.53.7";
const LIMIT: Duration = Duration::from_secs(120);

type Child = (&'static str, fn(&str));

/// The children: this binary, started again with a name and a DSN in its environment.
const CHILDREN: &[Child] = &[
    ("times_out", child_times_out),
    ("drops", child_drops),
    ("resolves", child_resolves),
    ("runs_out", child_runs_out),
    ("logs_in", secrets::child_logs_in),
    ("terms", alone::child_terms),
    ("spins", alone::child_spins),
    ("starved", alone::child_starved),
    ("clock", alone::child_clock),
    ("starved_store", alone::child_starved_store),
    ("crowd", crowd::child_crowd),
    ("refused", scarce::child_refused),
    ("starved_elector", scarce::child_starved_elector),
    ("runs_dry", scarce::child_runs_dry),
    ("shows_all", secrets::child_shows_all),
    #[cfg(feature = "tls")]
    ("tries", secrets::child_tries),
];

/// Runs the child that this process is, if it is one.
pub(crate) fn child_main() -> Option<ExitCode> {
    let name = std::env::var(CHILD).ok()?;
    let dsn = std::env::var(DSN).expect("a child has a DSN");
    let (_, child) = CHILDREN.iter().find(|(known, _)| *known == name).expect("a child of that name");
    child(&dsn);
    Some(ExitCode::SUCCESS)
}

pub(crate) fn as_child<'a>(command: &'a mut Command, name: &str, dsn: &str) -> &'a mut Command {
    command.env(CHILD, name).env(DSN, dsn)
}

pub(crate) fn child(name: &str, dsn: &str) -> Process {
    Process::spawn_self(|command| {
        as_child(command, name, dsn);
    })
}

pub(crate) fn prepare(database: &Database<'_>) {
    PostgresStore::connect(&database.dsn()).unwrap().ensure_schema().unwrap();
}

/// Threads and descriptors of this process.
pub(crate) fn counts() -> (usize, usize) {
    let me = std::process::id();
    (threads(me), descriptors(me))
}

/// Says `what` to the parent, on a line of its own.
#[allow(clippy::print_stdout, reason = "how the child talks to its parent")]
pub(crate) fn say(what: &str) {
    println!(">{what}");
}

pub(crate) fn await_word(child: &mut Process, word: &str) -> String {
    child.expect_line(LIMIT, word, |line| line.starts_with(&format!(">{word}")))
}

pub(crate) fn rule_7_two_hundred_time_outs_leave_nothing_behind() {
    leaves_nothing_behind(&Postgres::start_new(), "");
}

/// The handshake of each new connection stalls.
#[cfg(feature = "tls")]
pub(crate) fn rule_7_two_hundred_time_outs_over_tls_leave_nothing_behind() {
    let own = Credentials::self_signed(&["127.0.0.1"]);
    let files = tempfile::tempdir().unwrap();
    let (root, _) = own.write(files.path(), "own");
    let options = format!("?sslmode=verify-full&sslrootcert={}", root.display());
    leaves_nothing_behind(&Postgres::builder().tls(&own).start(), &options);
}

fn leaves_nothing_behind(server: &Postgres, options: &str) {
    let database = server.database();
    prepare(&database);
    let mut child = child("times_out", &format!("{}{options}", database.dsn()));
    await_word(&mut child, "ready");
    server.pause();
    await_word(&mut child, "paused?");
    let report = await_word(&mut child, "after");
    figure(report.trim_start_matches('>'));
    server.resume();
    let mut client = database.client();
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'";
    await_until(LIMIT, format_args!("the abandoned sessions are gone; {report}"), || {
        client.query_one(sessions, &[]).unwrap().get::<_, i64>(0) <= 2
    });
    await_word(&mut child, "recovered");
    assert!(child.wait(LIMIT).success());
}

fn child_times_out(dsn: &str) {
    let bare = counts();
    let store = PostgresStore::connect(dsn).unwrap();
    let idle = PostgresStore::connect(dsn).unwrap();
    std::thread::scope(|scope| {
        // Both threads and both connections.
        for _ in 0..2 {
            scope.spawn(|| store.observe("n", OP).unwrap());
        }
    });
    idle.observe("n", OP).unwrap();
    let before = counts();
    say("ready");
    await_until(LIMIT, "the server is stopped", || store.observe("n", Duration::from_millis(50)).is_err());
    say("paused?");
    // The server does not take note of a farewell either.
    drop(idle);
    let timeout = Duration::from_millis(40);
    let mut slowest = Duration::ZERO;
    for _ in 0..200 {
        let begun = Instant::now();
        assert!(store.observe("n", timeout).unwrap_err().is_timeout());
        slowest = slowest.max(begun.elapsed());
    }
    assert!(slowest < timeout + SLACK, "{slowest:?}");
    // Two threads and the pool's one stay, and no descriptor, though the server is still stopped.
    await_until(OP, format_args!("{:?} is no more than {bare:?} and three threads", counts()), || {
        let after = counts();
        after.0 <= bare.0 + 3 && after.1 <= bare.1
    });
    say(&format!("after 200 time-outs: {bare:?}, {before:?} -> {:?}, slowest {slowest:?}", counts()));
    await_until(LIMIT, "the server answers again", || store.observe("n", OP).is_ok());
    say("recovered");
    drop(store);
    await_until(OP, format_args!("all threads end: {:?}, {bare:?}", counts()), || counts() == bare);
}

pub(crate) fn rule_7_dropping_the_store_ends_its_threads_and_connections() {
    let database = Postgres::shared().database();
    prepare(&database);
    let mut child = child("drops", &database.dsn());
    assert!(child.wait(LIMIT).success());
}

fn child_drops(dsn: &str) {
    let before = counts();
    let mute = mute_listener();
    for round in 0..20 {
        let store = PostgresStore::connect(dsn).unwrap();
        store.clone().observe("n", OP).unwrap();
        drop(store);
        // Also one that is in the middle of a call that will never end.
        let stuck = PostgresStore::connect(&format!("host=127.0.0.1 user=x port={}", mute.port())).unwrap();
        assert!(stuck.observe("n", Duration::from_millis(10)).unwrap_err().is_timeout(), "round {round}");
    }
    drop(mute);
    await_until(OP, format_args!("{:?} is no more than {before:?}", counts()), || {
        let after = counts();
        after.0 <= before.0 && after.1 <= before.1
    });
}

pub(crate) fn rule_7_a_resolver_that_never_answers() {
    let directory = tempfile::tempdir().unwrap();
    let resolv = directory.path().join("resolv.conf");
    std::fs::write(&resolv, format!("nameserver {RESOLVER}\noptions timeout:30 attempts:3\n")).unwrap();
    // The file is laid over the system's in a mount namespace: as root, or as root of a user namespace, which
    // needs a network of its own for the port.
    let ways = [("-m", ""), ("-rmn", "ip link set lo up && ")];
    let command = |(flags, network): (&str, &str), then: &str| {
        let mut command = Command::new("unshare");
        let script = format!("{network}mount --bind {} /etc/resolv.conf && {then}", resolv.display());
        command.args([flags, "sh", "-c", &script]).arg(std::env::current_exe().unwrap());
        command
    };
    let possible = |way| {
        let mut attempt = command(way, "true");
        attempt.stdout(Stdio::null()).stderr(Stdio::null());
        attempt.status().is_ok_and(|status| status.success())
    };
    let Some(way) = ways.into_iter().find(|way| possible(*way)) else {
        figure("skipped: no namespace for a resolver of its own");
        return;
    };
    let mut run = command(way, "exec \"$0\" \"$@\"");
    as_child(&mut run, "resolves", "");
    let mut child = Process::spawn(run);
    let report = await_word(&mut child, "resolver");
    figure(report.trim_start_matches('>'));
    assert!(child.wait(LIMIT).success(), "{report}");
}

fn child_resolves(_: &str) {
    // Mute: bound, never read.
    let resolver = std::net::UdpSocket::bind((RESOLVER, 53)).unwrap();
    let store = PostgresStore::connect("postgres://u@db.example.com/d").unwrap();
    let timeout = Duration::from_millis(100);
    let before = {
        let _ = store.observe("n", timeout);
        counts()
    };
    let mut slowest = Duration::ZERO;
    for _ in 0..50 {
        let begun = Instant::now();
        let error = store.observe("n", timeout).unwrap_err();
        assert!(error.is_timeout(), "{error}");
        slowest = slowest.max(begun.elapsed());
    }
    assert!(slowest < timeout + SLACK, "{slowest:?}");
    assert_eq!(counts(), before, "threads and descriptors");
    let begun = Instant::now();
    let both = PostgresStore::connect("host=db.example.com,127.0.0.1 port=5432,1 user=u").unwrap();
    let error = both.observe("n", Duration::from_secs(1)).unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1"), "the second host had its turn: {error}");
    assert!(begun.elapsed() < Duration::from_secs(1) + SLACK);
    drop((store, both));
    assert!(begun.elapsed() < Duration::from_secs(1) + SLACK, "dropping waits for nothing");
    let mut query = [0; 512];
    resolver.set_nonblocking(true).unwrap();
    assert!(resolver.recv(&mut query).is_ok(), "the resolver was asked");
    say(&format!("resolver: 50 time-outs, slowest {slowest:?}, {before:?}"));
}

pub(crate) fn a_process_without_descriptors_gets_an_error_and_recovers() {
    let database = Postgres::shared().database();
    prepare(&database);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 60 && exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    as_child(&mut command, "runs_out", &database.dsn());
    let mut child = Process::spawn(command);
    await_word(&mut child, "done");
    assert!(child.wait(LIMIT).success());
}

fn child_runs_out(dsn: &str) {
    let store = PostgresStore::connect(dsn).unwrap();
    for spare in 0..8 {
        // So many descriptors are left for a connection that takes a handful.
        let mut hoard: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        hoard.truncate(hoard.len() - spare);
        let fresh = PostgresStore::connect(dsn).unwrap();
        if let Err(error) = fresh.observe("n", Duration::from_secs(1)) {
            assert!(error.is_retryable(), "{spare}: {error}");
            assert!(!error.to_string().contains("panicked"), "{spare}: {error}");
        }
        drop(hoard);
        store.observe("n", OP).unwrap();
        fresh.observe("n", OP).unwrap_or_else(|error| panic!("{spare}: {error}"));
    }
    say("done");
}
