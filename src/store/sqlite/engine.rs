//! The connections, and how long a call may try.
//!
//! SQLite's own waiting is switched off: it sleeps for up to 100 ms between two looks at a lock, with which a
//! renewal would hardly ever get between the transactions of a busy writer. Here a locked file is tried again
//! every other millisecond until the call's time is over. What failed with "busy" has changed nothing.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::boot::Boot;
use super::error::Failure;
use super::file::{self, Identity, Shared};
use super::operations::Rows;
use super::schema::{self, Table};
use crate::store::StoreError;

/// Between two tries to get a lock.
const TRY_AGAIN: Duration = Duration::from_millis(2);

pub(super) struct Engine {
    path: PathBuf,
    table: Table,
    boot: Boot,
    idle: Mutex<Vec<Session>>,
}

/// A connection without a transaction, and which files it has open.
struct Session {
    connection: Connection,
    identity: Identity,
    shared: Shared,
}

fn replaced(when: &str) -> Failure {
    Failure::retryable(format!("was replaced, or the files beside it, {when}"))
}

impl Engine {
    pub(super) fn new(path: PathBuf, table: Table, boot: Boot) -> Engine {
        Engine { path, table, boot, idle: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// Runs `work` under the write lock, at a time of the clock that is read under it (rule 17), and commits.
    pub(super) fn write<R>(
        &self,
        until: Instant,
        work: impl Fn(&Rows<'_>) -> Result<R, Failure>,
    ) -> Result<R, StoreError> {
        self.in_transaction(until, TransactionBehavior::Immediate, work)
    }

    /// Runs `work` on one state of the file, and takes no lock that a writer would have to wait for.
    pub(super) fn read<R>(
        &self,
        until: Instant,
        work: impl Fn(&Rows<'_>) -> Result<R, Failure>,
    ) -> Result<R, StoreError> {
        self.in_transaction(until, TransactionBehavior::Deferred, work)
    }

    fn in_transaction<R>(
        &self,
        until: Instant,
        behavior: TransactionBehavior,
        work: impl Fn(&Rows<'_>) -> Result<R, Failure>,
    ) -> Result<R, StoreError> {
        self.until_not_busy(until, || {
            let mut session = self.session()?;
            let result = self.transaction(&mut session.connection, behavior, &work);
            let session = self.if_current(session, "during the call")?;
            // After any other failure a fresh connection is the safer one.
            let sound = result.as_ref().map_or_else(Failure::is_busy, |_| true);
            if sound && session.connection.is_autocommit() {
                self.idle.lock().push(session);
            }
            result
        })
    }

    fn transaction<R>(
        &self,
        connection: &mut Connection,
        behavior: TransactionBehavior,
        work: impl Fn(&Rows<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        // Dropped without a commit it is rolled back.
        let transaction = connection.transaction_with_behavior(behavior)?;
        let result = work(&Rows::new(&transaction, &self.table, &self.boot))?;
        transaction.commit()?;
        Ok(result)
    }

    /// Creates the file and the table where they are missing. Its connection is not kept: which file it has open
    /// is certain only where there was one before.
    pub(super) fn ensure_schema(&self, until: Instant) -> Result<(), StoreError> {
        self.until_not_busy(until, || {
            file::check(&self.path)?;
            let mut connection = self.connect(OpenFlags::SQLITE_OPEN_CREATE)?;
            if schema::is_there(&connection, &self.table)? {
                return Ok(());
            }
            self.transaction(&mut connection, TransactionBehavior::Immediate, |rows| rows.create_table())
        })
    }

    /// Repeats what fails with "busy" until it does not.
    fn until_not_busy<R>(
        &self,
        until: Instant,
        attempt: impl Fn() -> Result<R, Failure>,
    ) -> Result<R, StoreError> {
        loop {
            let failure = match attempt() {
                Ok(result) => return Ok(result),
                Err(failure) => failure,
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !failure.is_busy() {
                return Err(failure.into_store_error(&self.path, &self.table));
            }
            thread::sleep(TRY_AGAIN.min(left));
        }
    }

    /// A connection to the files that are there now.
    fn session(&self) -> Result<Session, Failure> {
        let kept = self.idle.lock().pop();
        if let Some(session) = kept {
            // If not, a new one may be.
            if let Ok(session) = self.if_current(session, "before the call") {
                return Ok(session);
            }
        }
        let Some(identity) = file::identity(&self.path)? else { return Err(file::missing(&self.path)) };
        file::check(&self.path)?;
        let connection = self.connect(OpenFlags::empty())?;
        let session = Session { connection, identity, shared: Shared::beside(&self.path) };
        let when = "while it was opened";
        let session = self.if_current(session, when)?;
        if session.shared.is_another_in_use() {
            self.abandon(session);
            return Err(replaced(when));
        }
        Ok(session)
    }

    /// The session, if others see what is written through it: to files that were replaced or deleted they don't. One of
    /// which that is not certain is abandoned.
    fn if_current(&self, session: Session, when: &str) -> Result<Session, Failure> {
        let failure = match file::identity(&self.path) {
            Ok(identity) if identity == Some(session.identity) && session.shared.is_there() => {
                return Ok(session);
            }
            Ok(_) => replaced(when),
            Err(failure) => failure,
        };
        self.abandon(session);
        Err(failure)
    }

    /// Closes it, and all that are idle: as long as one has the old files, SQLite gives them to new ones too. What they
    /// have not yet written to the file itself is not for the one that may be there now.
    fn abandon(&self, session: Session) {
        let mut all = std::mem::take(&mut *self.idle.lock());
        all.push(session);
        for session in &all {
            session.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).ok();
        }
    }

    fn connect(&self, flags: OpenFlags) -> Result<Connection, Failure> {
        let flags = flags | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        // Not of a file in which nobody elects anybody: whoever looks into another application's changes nothing there.
        // Where it were not to be had, all would be as correct and slower; and `extra`, which is `full` in that mode,
        // keeps a power failure from bringing the last transaction back.
        if flags.contains(OpenFlags::SQLITE_OPEN_CREATE) || schema::exists(&connection, &self.table)? {
            connection.pragma_update(None, "journal_mode", "wal")?;
        }
        connection.pragma_update(None, "synchronous", "extra")?;
        // The first look makes the files beside it where they are missing, so that from now on they stay what they are.
        connection.pragma_query(None, "schema_version", |_| Ok(()))?;
        Ok(connection)
    }
}
