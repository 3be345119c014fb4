//! The command `tenure`, as people and scripts call it, on real servers and files.
#![allow(clippy::unwrap_used, reason = "tests")]

mod doctor;
mod manual;
mod resign;
mod schema;
mod status;
mod terminal;
mod watch;

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tenure::{Bid, Config, ConfigBuilder, Elector, Lease, PostgresStore, Store};
use tenure_testground::Database;

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
/// Long enough for a busy machine.
const OP: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);

/// The command with these arguments and this store, and nothing from outside that would change what it does.
fn command(store: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(TENURE);
    command.args(arguments).env("TENURE_STORE", store).stdin(Stdio::null());
    for variable in ["PGPASSWORD", "RUST_LOG", "COLUMNS", "SUDO_USER"] {
        command.env_remove(variable);
    }
    command
}

/// What it printed, and how it ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    fn of(output: Output) -> Ended {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// All of these are in what it printed.
    #[track_caller]
    fn says(&self, words: &[&str]) {
        for word in words {
            assert!(self.out.contains(word), "{word:?} is not in:\n{}\n{}", self.out, self.err);
        }
    }

    /// All of these are in what it complained of.
    #[track_caller]
    fn complains(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in: {}", self.err);
        }
    }
}

#[track_caller]
fn tenure(store: &str, arguments: &[&str]) -> Ended {
    let ended = Ended::of(command(store, arguments).output().unwrap());
    for text in [&ended.out, &ended.err] {
        assert!(!text.contains("S3cr3t"), "a password was shown: {text}");
        let obeyed = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(obeyed, None, "a terminal would obey it: {text:?}");
    }
    ended
}

/// One that must succeed and say nothing on stderr.
#[track_caller]
fn fine(store: &str, arguments: &[&str]) -> String {
    let ended = tenure(store, arguments);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    ended.out
}

fn store(database: &Database<'_>) -> PostgresStore {
    let store = PostgresStore::connect(&database.dsn()).unwrap();
    store.ensure_schema().unwrap();
    store
}

fn create(store: &impl Store, name: &str, holder: &str, lease: Duration) -> Lease {
    store.acquire(&Bid::new(name, holder, lease), OP).unwrap().expect("no row yet")
}

fn quick(name: &str) -> ConfigBuilder {
    Config::builder(name)
        .lease_duration(Duration::from_secs(3))
        .renew_interval(Duration::from_millis(500))
        .retry_period(Duration::from_millis(300))
        .operation_timeout(Duration::from_millis(600))
        .safety_margin(Duration::from_millis(500))
}

fn elector(store: &PostgresStore, name: &str, label: &str) -> Elector {
    Elector::start(store.clone(), quick(name).label(label).build().unwrap()).unwrap()
}
