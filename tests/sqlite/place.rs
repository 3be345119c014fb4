//! A file with the table in it, in a directory of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure::SqliteStore;
use tenure_testground::Process;

use crate::fleet::LIMIT;
use crate::node::Options;

#[derive(Debug)]
pub(crate) struct Place {
    directory: TempDir,
    pub(crate) store: SqliteStore,
}

impl Place {
    pub(crate) fn new() -> Place {
        let place = Place::empty();
        place.store.ensure_schema().expect("a new file");
        place
    }

    /// Without the file.
    pub(crate) fn empty() -> Place {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("db")).expect("a directory");
        let store = SqliteStore::open(directory.path().join("db/lease.db")).expect("a usable path");
        Place { directory, store }
    }

    /// Where there is room for more than the directory of the database.
    pub(crate) fn around(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.path().join("db")
    }

    pub(crate) fn path(&self) -> &Path {
        self.store.path()
    }

    /// A further store in the same file, as another process has one.
    pub(crate) fn another(&self) -> SqliteStore {
        SqliteStore::open(self.path()).expect("a usable path")
    }

    /// What a node here is started with, unless a test wants something else.
    pub(crate) fn options(&self, label: &str) -> Options {
        Options::new(format!("sqlite:{}", self.path().display()), label)
    }

    /// A connection of somebody else's.
    pub(crate) fn connection(&self) -> Connection {
        connection(self.path())
    }

    /// Stops a process that is not in the middle of a transaction: it would keep everybody from writing.
    pub(crate) fn freeze(&self, process: &Process) {
        let connection = self.connection();
        connection.busy_timeout(ms(20)).expect("a busy time-out");
        loop {
            process.stop();
            if connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok() {
                return;
            }
            process.cont();
        }
    }

    /// The write lock, held until the answer is dropped.
    pub(crate) fn lock(&self) -> Connection {
        let connection = self.connection();
        connection.execute_batch("BEGIN IMMEDIATE").expect("the lock");
        connection
    }
}

pub(crate) fn connection(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("a connection");
    connection.busy_timeout(LIMIT).expect("a busy time-out");
    connection
}

/// Whether the tests run in the size that takes minutes.
pub(crate) fn in_full() -> bool {
    std::env::var_os("TENURE_SQLITE_FULL").is_some()
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
