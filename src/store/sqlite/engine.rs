//! The connections, and how long a call may try.
//!
//! SQLite's own waiting is switched off: it sleeps for up to 100 ms between two looks at a lock, with which a
//! renewal would hardly ever get between the transactions of a busy writer. Here a locked file is tried again
//! every other millisecond until the call's time is over. What failed with "busy" has changed nothing.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::boot::Boot;
use super::error::Failure;
use super::file::{self, Identity};
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

/// A connection without a transaction, and which file it has open.
struct Session {
    connection: Connection,
    identity: Identity,
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

    /// A connection to the file that is there now.
    fn session(&self) -> Result<Session, Failure> {
        let identity = file::identity(&self.path)?;
        let kept = self.idle.lock().pop();
        // What is written to a file that was replaced or deleted nobody else would see.
        if let Some(session) = kept.filter(|session| Some(session.identity) == identity) {
            return Ok(session);
        }
        let Some(identity) = identity else { return Err(file::missing(&self.path)) };
        file::check(&self.path)?;
        let connection = self.connect(OpenFlags::empty())?;
        if file::identity(&self.path)? != Some(identity) {
            return Err(Failure::retryable("was replaced while it was opened"));
        }
        Ok(Session { connection, identity })
    }

    fn connect(&self, flags: OpenFlags) -> Result<Connection, Failure> {
        let flags = flags | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        // Where it were not to be had, all would be as correct and slower.
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        Ok(connection)
    }
}
