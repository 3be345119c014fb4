//! The children: this binary, started again with a name and a path in its environment.

use std::any::Any;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use rusqlite::Connection;
use tenure::acceptance::{self, Subject};
use tenure::{Elector, SqliteStore, Store};
use tenure_testground::Process;

use crate::fleet::LIMIT;
use crate::line::now;
use crate::place::connection;
use crate::profile::HASTY;

const CHILD: &str = "TENURE_SQLITE_CHILD";
const PATH: &str = "TENURE_SQLITE_PATH";
const TERMS: &str = "TENURE_SQLITE_TERMS";

type Child = (&'static str, fn(&Path));

const CHILDREN: &[Child] =
    &[("lock", keep_the_lock), ("suite", run_the_suite), ("terms", lead_again_and_again), ("open", open)];

/// Runs the child that this process is, if it is one.
pub(crate) fn main() -> Option<ExitCode> {
    let name = std::env::var(CHILD).ok()?;
    let path = std::env::var(PATH).expect("a child has a path");
    let (_, child) = CHILDREN.iter().find(|(known, _)| *known == name).expect("a child of that name");
    child(path.as_ref());
    Some(ExitCode::SUCCESS)
}

pub(crate) fn start(name: &str, path: &Path) -> Process {
    Process::spawn_self(|command| {
        command.env(CHILD, name).env(PATH, path);
    })
}

pub(crate) fn start_in(directory: &Path, name: &str, path: &str) -> Process {
    Process::spawn_self(|command| {
        command.env(CHILD, name).env(PATH, path).current_dir(directory);
    })
}

pub(crate) fn start_for_terms(terms: usize, path: &Path) -> Process {
    Process::spawn_self(|command| {
        command.env(CHILD, "terms").env(PATH, path).env(TERMS, terms.to_string());
    })
}

/// Says `what` to the parent, on a line of its own.
#[allow(clippy::print_stdout, reason = "how the child talks to its parent")]
fn say(what: impl std::fmt::Display) {
    println!(">{what}");
}

/// What the child says next.
#[track_caller]
pub(crate) fn word(child: &mut Process) -> Option<String> {
    loop {
        if let Some(word) = child.line(LIMIT * 4)?.strip_prefix('>') {
            return Some(word.to_owned());
        }
    }
}

/// Until it is killed.
fn keep_the_lock(path: &Path) {
    let connection = connection(path);
    connection.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    say("locked");
    loop {
        std::thread::park();
    }
}

fn open(path: &Path) {
    match SqliteStore::open(path) {
        Ok(store) => say(format_args!("opened {}", store.path().display())),
        Err(error) => say(format_args!("fatal {}: {error}", error.is_fatal())),
    }
}

#[derive(Debug)]
struct File(SqliteStore);

impl Subject for File {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    fn hold(&self, _: &str) -> Box<dyn Any> {
        let connection: Connection = connection(self.0.path());
        connection.execute_batch("BEGIN IMMEDIATE").expect("the lock");
        Box::new(connection)
    }
}

fn run_the_suite(path: &Path) {
    let store = SqliteStore::open(path).expect("a usable path");
    acceptance::run_all(&File(store));
    say("passed");
}

/// Says of each term when it was certainly live: `fence from to`.
fn lead_again_and_again(path: &Path) {
    let terms: usize = std::env::var(TERMS).expect("how many").parse().expect("a number");
    let store = SqliteStore::open(path).expect("a usable path");
    store.ensure_schema().expect("a table");
    let config = HASTY.config("e").build().expect("a usable profile");
    let elector = Elector::start(store, config).expect("two threads");
    for _ in 0..terms {
        let guard = elector.wait_for_leadership().expect("a term");
        guard.check().expect("a fresh term");
        let (from, to) = (now(), now());
        if guard.check().is_ok() {
            say(format_args!("{} {} {}", guard.fence(), from.as_nanos(), to.as_nanos()));
        }
        guard.resign().expect("a release");
    }
    elector.shutdown(LIMIT).expect("a clean end");
}
