//! A place for elections, `tenure exec` in it, and what can be seen of it from outside.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tenure::{AnyStore, Clock, Lease, Store, SystemClock, Time};
use tenure_testground::{Process, await_until};

use crate::fleet::LIMIT;
use crate::stillness::promised;
use crate::worker::{Kind, Life, lives, words};

/// A lease of two seconds, a term of 1.8 s, the kill 300 ms before its end, SIGTERM 360 ms before that.
pub(crate) const HASTY: &[&str] = &[
    "--lease-duration=2s",
    "--safety-margin=200ms",
    "--renew-interval=400ms",
    "--operation-timeout=300ms",
    "--retry-period=100ms",
];
pub(crate) const MARGIN: Duration = Duration::from_millis(200);
pub(crate) const LEASE: Duration = Duration::from_secs(2);

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) fn now() -> Time {
    SystemClock::new().now()
}

/// A directory, and a store: an SQLite file in it, unless it is told otherwise.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: TempDir,
    pub(crate) store: String,
    pub(crate) election: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let store = format!("sqlite:{}", directory.path().join("lease.db").display());
        Place { directory, store, election: "e".to_owned() }
    }

    pub(crate) fn on(store: String, election: String) -> Place {
        Place { store, election, ..Place::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where workers write.
    pub(crate) fn stamps(&self) -> PathBuf {
        let stamps = self.path("stamps");
        std::fs::create_dir_all(&stamps).unwrap();
        stamps
    }

    /// `tenure exec` with the hasty timings and more options, and a command.
    pub(crate) fn exec<S: AsRef<OsStr>>(&self, options: &[&str], command: &[S]) -> Command {
        let mut tenure = tenure();
        tenure.args(["exec", "--election", &self.election]).args(HASTY).args(options).arg("--").args(command);
        tenure.env("TENURE_STORE", &self.store);
        tenure
    }

    /// As `exec`, with a worker for the command.
    pub(crate) fn work(&self, options: &[&str], kind: Kind, deaf: bool) -> Command {
        self.exec(options, &words(&self.stamps(), kind, deaf))
    }

    /// The lease as it is now.
    pub(crate) fn lease(&self) -> Lease {
        lease(&AnyStore::open(&self.store).unwrap(), &self.election)
    }

    pub(crate) fn lives(&self) -> Vec<Life> {
        lives(&self.stamps(), &self.election)
    }

    /// Waits until all processes of the latest of so many terms are at work.
    #[track_caller]
    pub(crate) fn await_life(&self, terms: usize, processes: usize) -> Life {
        let life = || self.lives().into_iter().nth(terms - 1).filter(|life| life.processes >= processes);
        await_until(LIMIT, format_args!("term {terms} works"), || life().is_some());
        life().unwrap()
    }

    /// No two terms at once, and fences that rise. Says what there was.
    pub(crate) fn judge(&self) -> Vec<Life> {
        let lives = self.lives();
        for pair in lives.windows(2) {
            promised!(pair[0].last < pair[1].first && pair[0].fence < pair[1].fence, "two at once: {pair:?}");
        }
        lives
    }
}

pub(crate) fn tenure() -> Command {
    let mut tenure = Command::new(env!("CARGO_BIN_EXE_tenure"));
    tenure.env_remove("RUST_LOG").env_remove("TENURE_STORE").stdin(Stdio::null());
    tenure
}

/// Runs it to its end: its exit code, and what it and its command have written.
#[track_caller]
pub(crate) fn run(mut command: Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (status.code().unwrap_or(-1), text(&stdout), text(&stderr))
}

/// Starts it; its standard error goes to a file.
pub(crate) fn start(mut command: Command, errors: &Path) -> Process {
    command.stderr(std::fs::File::create(errors).unwrap());
    Process::spawn(command)
}

pub(crate) fn lease(store: &AnyStore, election: &str) -> Lease {
    store.observe(election, LIMIT).unwrap().into_lease().unwrap()
}

/// When the lease expires, on the boot clock, never later than it does: that clock is read before the database's is.
pub(crate) fn expiry(store: &AnyStore, election: &str) -> Time {
    let before = now();
    let lease = lease(store, election);
    assert!(!lease.is_released(), "{lease:?}");
    before.saturating_before(lease.now().saturating_since(lease.expires_at())) + lease.ttl()
}

/// The process below `parent` that has `name` as its first argument.
#[track_caller]
pub(crate) fn await_child(parent: u32, name: &str) -> u32 {
    let mut found = None;
    await_until(LIMIT, format_args!("{name} below {parent}"), || {
        found = children(parent)
            .into_iter()
            .find(|child| arguments(*child).get(1).is_some_and(|first| first == name));
        found.is_some()
    });
    found.unwrap()
}

pub(crate) fn children(parent: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten();
    let lists =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

pub(crate) fn arguments(pid: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).split_terminator('\0').map(str::to_owned).collect()
}

/// SIGSTOP, and no waiting until it stands: `tenure` may continue its guardian at any moment.
pub(crate) fn stop_at_once(pid: u32) {
    let mut kill = Command::new("kill");
    // It may be gone, and say so.
    let _ = kill.args(["-STOP", &pid.to_string()]).stderr(Stdio::null()).status();
}
