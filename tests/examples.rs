//! The examples, as a reader runs them: each a program of its own, the ones that need a database on a throw-away
//! server. What they print is what the README quotes.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tenure_testground::{Database, Postgres, Process};

/// Long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Builds the examples once, with the features and the profile that this test has, and says where they are.
fn examples() -> &'static PathBuf {
    static EXAMPLES: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLES.get_or_init(|| {
        // target/PROFILE/deps/this-test
        let this = std::env::current_exe().unwrap();
        let profile = this.parent().and_then(|deps| deps.parent()).expect("a target directory");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--locked", "--examples", "--all-features", "--quiet"]);
        cargo.current_dir(env!("CARGO_MANIFEST_DIR")).arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        let status = cargo.status().unwrap_or_else(|error| panic!("can't run {cargo:?}: {error}"));
        assert!(status.success(), "{cargo:?}: {status}");
        profile.join("examples")
    })
}

fn start(name: &str, database: Option<&Database<'_>>) -> Process {
    let mut command = Command::new(examples().join(name));
    command.env_remove("DATABASE_URL");
    if let Some(database) = database {
        command.env("DATABASE_URL", database.dsn());
    }
    Process::spawn(command)
}

/// Everything that it prints, up to its end, which has to be a good one.
#[track_caller]
fn output(mut example: Process) -> Vec<String> {
    let begun = Instant::now();
    while example.line(LIMIT).is_some() {
        assert!(begun.elapsed() < LIMIT, "does not end");
    }
    let lines = example.seen().to_vec();
    let status = example.wait(LIMIT);
    assert!(status.success(), "{status}: {lines:#?}");
    lines
}

/// Compares line by line; `*` in a pattern stands for anything.
#[track_caller]
fn assert_reads(lines: &[String], patterns: &[&str]) {
    let fits = lines.len() == patterns.len() && lines.iter().zip(patterns).all(|(line, p)| matches(line, p));
    assert!(fits, "expected {patterns:#?}, got {lines:#?}");
}

fn matches(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or("")) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The number before ` ms`.
fn milliseconds(line: &str) -> u64 {
    let before = line.split(" ms").next().unwrap_or(line);
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
    digits.parse().unwrap_or_else(|_| panic!("no milliseconds in {line:?}"))
}

#[test]
fn patterns_fit_what_they_should() {
    assert!(matches("a leads, fence 1", "* leads, fence 1"));
    assert!(matches("a leads, fence 12, 5 ms after", "*leads, fence *, * ms after"));
    assert!(!matches("a leads, fence 2", "* leads, fence 1"));
    assert!(!matches("leads", "leads now") && !matches("leads now", "leads"));
    assert_eq!(milliseconds("b leads, fence 2, 214 ms after the resignation"), 214);
}

const QUICKSTART: &[&str] = &[
    "* leads, fence 1, * ms after the start",
    "  *s left unless it is renewed",
    "* resigns",
    "* leads, fence 2, * ms after the resignation",
    "* crashes",
    "  * ms later it knows: the term with fence 2 is over: the deadline passed without a renewal",
    "* leads, fence 3, * ms after the crash",
    "* resigns, the end",
];

#[test]
fn the_readme_shows_what_quickstart_prints() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let shown = readme.split("$ cargo run --example quickstart\n").nth(1).expect("the command");
    let shown: Vec<String> = shown.lines().take_while(|line| *line != "```").map(str::to_owned).collect();
    assert_reads(&shown, QUICKSTART);
}

#[test]
fn quickstart_shows_a_resignation_and_a_crash_without_a_server() {
    let lines = output(start("quickstart", None));
    assert_reads(&lines, QUICKSTART);
    let leader = |line: usize| lines[line].split(' ').next().unwrap();
    assert_ne!(leader(3), leader(0), "whoever resigned lets others go first");
    // 3 s of lease, 1 s of margin, a poll every 0.3 s.
    assert!(milliseconds(&lines[3]) <= 300 + 1_000, "{lines:#?}");
    assert!(milliseconds(&lines[5]) <= 2_000 + 1_000, "{lines:#?}");
    assert!((2_000..=3_300 + 1_000).contains(&milliseconds(&lines[6])), "{lines:#?}");
    assert!(milliseconds(&lines[5]) < milliseconds(&lines[6]), "it knew before the next one led: {lines:#?}");
}

#[test]
fn without_a_database_url_they_say_what_they_need() {
    let all = ["callbacks", "discover", "fenced_commit", "fenced_write", "polling", "prometheus", "service"];
    for example in all {
        let mut command = Command::new(examples().join(example));
        let output = command.env_remove("DATABASE_URL").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("set DATABASE_URL"), "{example}: {said}");
    }
}

#[test]
fn b09_service_ends_cleanly_on_sigterm_and_releases() {
    let database = Postgres::shared().database();
    let mut service = start("service", Some(&database));
    service.expect_line(LIMIT, "the campaign", |line| line.ends_with("waits for leadership"));
    service.expect_line(LIMIT, "the term", |line| line == "leading, fence 1");
    service.expect_line(LIMIT, "some work", |line| line == "working, fence 1");
    let mut second = start("service", Some(&database));
    second.expect_line(LIMIT, "its campaign", |line| line.ends_with("waits for leadership"));
    // So that there is somebody who waits.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(second.try_line(), None, "the second one waits");
    service.terminate();
    let lines = output(service);
    let end: Vec<&str> = lines.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(end, ["bye", "the term with fence 1 is over: the elector was stopped"], "{lines:#?}");
    // Default timings: a candidate polls every 3 s; a crash would cost 15.
    second.expect_line(Duration::from_secs(8), "the second one leads", |line| line == "leading, fence 2");
    second.terminate();
    output(second);
    let row = database.client().query_one(
        "SELECT fence, expires_at = 'epoch' FROM leader_election WHERE name = 'example-service'",
        &[],
    );
    let row = row.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, bool>(1)), (2, true), "released, with its fence");
}

#[test]
fn fenced_write_refuses_the_old_leader() {
    let database = Postgres::shared().database();
    assert_reads(
        &output(start("fenced_write", Some(&database))),
        &[
            "first leader, fence 1: written: true",
            "second leader, fence 2: written: true",
            "first leader again, fence 1: written: false",
            "balance 200 of fence 2",
        ],
    );
    // Once more, on what the first run left behind.
    let again = output(start("fenced_write", Some(&database)));
    assert_eq!(again.last().map(String::as_str), Some("balance 200 of fence 4"), "{again:#?}");
}

#[test]
fn fenced_commit_refuses_the_superseded_leader() {
    let database = Postgres::shared().database();
    assert_reads(
        &output(start("fenced_commit", Some(&database))),
        &[
            "balance 100: committed",
            "balance 101: not committed, the term is over",
            "leading: false",
            "balance 100",
        ],
    );
}

#[test]
fn discover_finds_the_leader() {
    let database = Postgres::shared().database();
    assert_reads(
        &output(start("discover", Some(&database))),
        &[
            "the leader is at 10.0.0.7:8080",
            "the leader moved to 10.0.0.7:9090",
            "nobody leads; the last one was at 10.0.0.7:9090",
        ],
    );
}

#[test]
fn callbacks_are_called_in_order() {
    let database = Postgres::shared().database();
    let lines = output(start("callbacks", Some(&database)));
    let (announced, rest): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line.contains(" leads, fence "));
    assert_eq!(announced.len(), 1, "its own term is news, too: {announced:#?}");
    assert_reads(
        &rest,
        &[
            "batch 1 with fence 1",
            "batch 2 with fence 1",
            "batch 3 with fence 1",
            "stopped: the term with fence 1 is over: the elector was stopped",
        ],
    );
}

fn start_with(name: &str, arguments: &[&str]) -> Process {
    let mut command = Command::new(examples().join(name));
    command.args(arguments);
    Process::spawn(command)
}

/// The tick and the fence of each run that was told of.
fn runs(lines: &[String]) -> Vec<(i64, i64)> {
    let runs = lines.iter().filter(|line| line.contains(" runs send-reports, fence "));
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("no number: {text:?}"));
    runs.map(|line| {
        let (tick, rest) = line.strip_prefix("tick ").and_then(|line| line.split_once(": ")).expect("a tick");
        (number(tick), number(rest.rsplit(' ').next().expect("a fence")))
    })
    .collect()
}

/// No tick twice, and no tick by an earlier leader than the one before it.
#[track_caller]
fn assert_each_once(mut runs: Vec<(i64, i64)>) {
    runs.sort_unstable();
    assert!(runs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1), "{runs:?}");
}

#[test]
fn cron_like_runs_each_tick_once_though_two_hosts_lead_in_it() {
    let lines = output(start_with("cron_like", &[]));
    let known = |line: &&String| {
        let ends = ["is rebooted", "leads, and finds that it has been run"];
        line.starts_with("tick ") && (line.contains(" runs ") || ends.iter().any(|end| line.ends_with(end)))
    };
    assert!(lines.iter().all(|line| known(&line)), "{lines:#?}");
    let runs = runs(&lines);
    assert_each_once(runs.clone());
    assert!(runs.len() >= 9 && runs.last().unwrap().1 >= 3, "{lines:#?}");
    assert!(lines.iter().any(|line| line.ends_with("finds that it has been run")), "{lines:#?}");
}

#[test]
fn two_crons_on_one_database_run_each_tick_once() {
    let database = Postgres::shared().database();
    let dsn = database.dsn();
    let crons = [(), ()].map(|()| start_with("cron_like", &[&dsn]));
    let lines: Vec<String> = crons.into_iter().flat_map(output).collect();
    let mut told = runs(&lines);
    assert_each_once(told.clone());
    told.sort_unstable();
    let rows = "SELECT tick, fence FROM example_runs WHERE finished AND job = 'send-reports' ORDER BY tick";
    let rows = database.client().query(rows, &[]).unwrap();
    let written: Vec<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(written, told, "{lines:#?}");
    assert!(written.len() >= 6, "{lines:#?}");
}

#[test]
fn embed_async_works_under_one_term_and_gives_it_back() {
    let mut lines = output(start_with("embed_async", &[]));
    // The thread and the task tell of the end at one moment.
    lines[3..5].sort();
    let [told, stopped] = ["the term with fence 1 is over: the elector was stopped", "stopped working"];
    let batches = [1, 2, 3].map(|batch| format!("batch {batch} with fence 1"));
    let [one, two, three] = batches.each_ref().map(String::as_str);
    assert_reads(&lines, &[one, two, three, stopped, told, "bye"]);
}

#[cfg(feature = "sqlite")]
#[test]
fn two_embed_async_on_one_file_work_one_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("lease.db").display());
    let both = [(), ()].map(|()| start_with("embed_async", &[&url]));
    let mut lines: Vec<String> = both.into_iter().flat_map(output).collect();
    lines.retain(|line| line.starts_with("batch"));
    lines.sort();
    let batches = [1, 2, 3].into_iter().flat_map(|batch| [1, 2].map(move |fence| (batch, fence)));
    let expected: Vec<String> =
        batches.map(|(batch, fence)| format!("batch {batch} with fence {fence}")).collect();
    assert_eq!(lines, expected);
}

#[test]
fn select_does_all_the_work_and_ends() {
    let mut lines = output(start_with("select", &[]));
    lines.retain(|line| !line.contains("pieces so far"));
    let pieces = [1, 2, 3, 4, 5].map(|piece| format!("piece {piece} with fence 1"));
    let pieces = pieces.each_ref().map(String::as_str);
    let waits: &[&str] = &["* waits for leadership"];
    assert_reads(&lines, &[waits, &pieces[..], &["5 pieces done", "bye"]].concat());
}

#[test]
fn select_ends_in_order_on_sigterm_leading_or_waiting() {
    let database = Postgres::shared().database();
    let dsn = database.dsn();
    let mut leader = start_with("select", &[&dsn, "100000"]);
    leader.expect_line(LIMIT, "some work", |line| line == "piece 3 with fence 1");
    let mut waiting = start_with("select", &[&dsn, "100000"]);
    waiting.expect_line(LIMIT, "its campaign", |line| line.ends_with("waits for leadership"));
    // So that there is somebody who waits.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(waiting.try_line(), None, "somebody else leads");
    waiting.terminate();
    assert_eq!(output(waiting)[1..], ["bye"]);
    leader.terminate();
    assert_eq!(output(leader).last().map(String::as_str), Some("bye"));
    let row = "SELECT fence, expires_at = 'epoch' FROM leader_election WHERE name = 'example-select'";
    let row = database.client().query_one(row, &[]).unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, bool>(1)), (1, true), "released, with its fence");
}

#[test]
fn simulate_finds_no_violation() {
    let mut command = Command::new(examples().join("simulate"));
    command.args(["--schedules", "20"]);
    let lines = output(Process::spawn(command));
    assert_eq!(
        lines.last().map(String::as_str),
        Some("violations: 0 in 20 schedules from seed 1"),
        "{lines:#?}"
    );
}

/// The body of an HTTP answer, and its content type.
fn scrape(address: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let content_type = head.lines().find_map(|line| line.strip_prefix("Content-Type: ")).unwrap();
    (body.to_owned(), content_type.to_owned())
}

/// The samples of a text in the OpenMetrics format, after a look at its grammar: descriptions first, each sample
/// belongs to the family that was described last, each once, and an end.
#[track_caller]
fn samples(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut described) = (BTreeMap::new(), BTreeSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    let lines: Vec<&str> = text.lines().collect();
    let (last, lines) = lines.split_last().unwrap();
    assert_eq!((*last, text.ends_with('\n')), ("# EOF", true));
    let name_fits = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    for line in lines {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                assert!(name_fits(name) && !help.is_empty() && described.insert(name), "{line}");
                name.clone_into(&mut family);
            }
            ["#", "TYPE", name, of] => {
                assert!(name == family && ["counter", "gauge"].contains(&of), "{line}");
                of.clone_into(&mut kind);
            }
            ["#", "UNIT", name, unit] => {
                assert!(name == family && name.ends_with(&format!("_{unit}")), "{line}");
            }
            _ => {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = sample.split_once('{').unwrap();
                let total = if kind == "counter" { "_total" } else { "" };
                assert_eq!(name, format!("{family}{total}"), "{line}");
                let labels = labels.strip_suffix('}').unwrap();
                assert!(
                    labels.split(',').all(|label| {
                        let (key, value) = label.split_once('=').unwrap();
                        name_fits(key) && value.len() > 2 && value.starts_with('"') && value.ends_with('"')
                    }),
                    "{line}"
                );
                let value: f64 = value.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
                let earlier = samples
                    .insert(sample.replace("election=\"example-prometheus\"", "").replace("{,", "{"), value);
                assert_eq!(earlier, None, "{line}");
            }
        }
    }
    samples
}

#[test]
fn prometheus_scrapes_the_numbers() {
    let database = Postgres::shared().database();
    let mut command = Command::new(examples().join("prometheus"));
    command.env("DATABASE_URL", database.dsn()).arg("127.0.0.1:0");
    let mut service = Process::spawn(command);
    let line = service.expect_line(LIMIT, "the address", |line| line.starts_with("metrics at http://"));
    let address = line.trim_start_matches("metrics at http://").trim_end_matches("/metrics").to_owned();
    service.expect_line(LIMIT, "the term", |line| line == "leading, fence 1");
    tenure_testground::await_until(LIMIT, "a renewal", || {
        samples(&scrape(&address).0)["tenure_renewals_total{}"] >= 1.0
    });
    let (text, content_type) = scrape(&address);
    assert!(content_type.starts_with("application/openmetrics-text; version=1.0.0"), "{content_type}");
    let samples = samples(&text);
    let value = |name: &str| *samples.get(name).unwrap_or_else(|| panic!("no {name} in {text}"));
    for (name, expected) in [
        ("tenure_leader{}", 1.0),
        ("tenure_leader_known{}", 1.0),
        ("tenure_fence{}", 1.0),
        ("tenure_terms_total{}", 1.0),
        ("tenure_overrun_seconds{}", 0.0),
        ("tenure_losses_total{cause=\"expired\"}", 0.0),
        ("tenure_failures_total{operation=\"renew\"}", 0.0),
        ("tenure_failures_by_kind_total{kind=\"fatal\"}", 0.0),
        ("tenure_log_lines_dropped_total{}", 0.0),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    // Default timings.
    assert!((0.0..=13.5).contains(&value("tenure_remaining_seconds{}")));
    assert!((0.0..=8.5).contains(&value("tenure_headroom_seconds{}")));
    assert!((0.0..=3.0).contains(&value("tenure_round_trip_seconds{}")));
    assert!(value("tenure_least_headroom_seconds{}") <= value("tenure_headroom_seconds{}"));
    assert!(value("tenure_worst_round_trip_seconds{}") >= value("tenure_round_trip_seconds{}"));
    assert!(value("tenure_in_role_seconds{}") >= 5.0, "a renewal is due after five seconds");
    // Every name in the rules is one of a metric.
    let example =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/prometheus.rs")).unwrap();
    let rules: Vec<&str> = example.lines().filter_map(|line| line.strip_prefix("//!     expr: ")).collect();
    assert_eq!(rules.len(), 6, "{rules:?}");
    for rule in rules {
        let names =
            rule.split(|c: char| !c.is_ascii_lowercase() && c != '_').filter(|w| w.starts_with("tenure_"));
        for name in names {
            assert!(
                samples.keys().any(|sample| sample.starts_with(&format!("{name}{{"))),
                "{name} in {rule}"
            );
        }
    }
    service.terminate();
    assert_eq!(output(service).last().map(String::as_str), Some("bye"));
}

#[test]
fn polling_asks_at_every_tick() {
    let database = Postgres::shared().database();
    let led = output(start("polling", Some(&database)));
    assert_eq!(led.len(), 20, "{led:#?}");
    assert!(led[0].starts_with("tick 0: "), "{led:#?}");
    assert_eq!(led[19], "tick 19: leading, fence 1", "{led:#?}");
    // Now somebody else has the lease, for longer than the program runs.
    database.execute(
        "UPDATE leader_election SET holder = 'ghost', fence = 7, expires_at = now() + interval '1 hour'",
    );
    let followed = output(start("polling", Some(&database)));
    assert_eq!(followed[19], "tick 19: following Some(\"ghost\")", "{followed:#?}");
    assert!(!followed.iter().any(|line| line.contains("leading")), "{followed:#?}");
}
