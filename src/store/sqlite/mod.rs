//! The lease in an SQLite file that the processes of one host share.

use std::error::Error as _;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::worker::Workers;
use super::{Store, StoreError};
use crate::lease::{Bid, Fence, Lease, Observation, Renewal};

mod boot;
mod builder;
mod engine;
mod error;
mod examine;
mod file;
mod operations;
mod row;
mod schema;

pub use builder::SqliteBuilder;
pub use examine::SqliteExamination;

use engine::Engine;
use error::Failure;
use operations::{Acquire, Release, Renew, Rows};

/// What the threads are called; more of a name the system does not show.
const WRITER: &str = "tenure-sqlite-w";
const READER: &str = "tenure-sqlite-r";
/// Calls that may wait for a thread. Where the disk does not answer, what they carry is kept until it does.
const QUEUE: usize = 64;
/// The time that [`SqliteStore::ensure_schema`] may take.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(10);

/// Elections between the processes of one host, in a file that they share. No server.
///
/// All participants open the same file, each with a store of its own; several electors of one process may share
/// a store and its clones. One host is one kernel: containers on it that have the same directory mounted are
/// participants, virtual machines are not. The file may be a database that the application has already: the store keeps to its
/// one table.
///
/// ```
/// use tenure::{Config, Elector, SqliteStore};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("lease.db"); /*
/// let path = "/var/lib/reports/lease.db";
/// # */
/// let store = SqliteStore::open(path)?;
/// store.ensure_schema()?;
/// let elector = Elector::start(store, Config::builder("nightly-report").build()?)?;
/// let guard = elector.wait_for_leadership()?;
/// assert_eq!(guard.check()?.get(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # The file
///
/// Its path has to be absolute, so that processes started in different directories mean the same file. There must
/// be one such file in one place: a network file system (NFS, SMB, 9P, Ceph, AFS, Coda, Lustre, GPFS, and so on)
/// and whatever goes through FUSE, which can't be told from one, is refused, as is a file with several hard links
/// and one that is mounted by itself (mount its directory into a container instead). A file that is replaced or
/// deleted while the store is in use is noticed at the next call, and so are the two beside it (below). It should be on a disk: in a `tmpfs` it is gone
/// after a reboot, and fences begin at 1 again.
///
/// The store puts the file into WAL mode, so that whoever looks never waits for whoever writes, and syncs every
/// commit to the disk: a fence that was given out is still there after a power failure. In WAL mode there are two
/// more files beside it, with `-wal` and `-shm` at the end of their names; they belong to it, and whoever uses it
/// needs the right to create files in its directory. **Never delete them** while somebody uses the file: what was
/// written last goes with them, as with a restored backup.
///
/// Other programs may use the file, but only through SQLite, of version 3.51.3 or later also where they only read.
/// A process that has a participant must not open the file by other means (to copy it, say): closing it gives
/// the locks of all of the process away, and an older library elsewhere then takes the two files for left over.
/// Nor must it have the file open through two copies of the library.
///
/// # Time
///
/// The host's boot clock in microseconds, read under the write lock; the wall clock is not read at all. Beside it
/// the row has the identity of the boot. A lease of an earlier boot is over, since whoever held it is: it is
/// shown as expired and can be taken over at once, with the next fence. [`Timestamp`](crate::Timestamp)s of this
/// store count from the boot, those of an earlier boot are before zero. There is no timeline. (A disk that is taken
/// from a host that still runs and attached to another one carries a lease of "another boot" whose holder lives on:
/// where that can happen, [`Strict`](crate::ClockTrust::Strict) waits it out.)
///
/// Only on Linux and Android; on other systems, which do not tell one boot from another, opening fails.
///
/// # Bounds
///
/// Every call returns within its timeout and about a tenth of a second, also where another process keeps the
/// file locked, or the disk does not answer. SQLite runs on two threads of the store's own, one for what writes and
/// one for what only looks, started when they are first needed, each with a connection. They end with the last
/// clone; dropping it does not wait for them. Between calls no transaction is open.
///
/// SQLite has one writer for the whole file. A transaction of another program's that stays open for long, or of a
/// process that is stopped in the middle of one, keeps everybody from renewing and taking over until it ends: the
/// leader's term runs out, and nobody leads. The error is retryable.
///
/// # Errors
///
/// Fatal, for a person to mend: no file or no table (call [`ensure_schema`](SqliteStore::ensure_schema)), no
/// directory, no right to write, a file that is no database or is damaged, a table of the wrong shape, a file in a
/// place that is refused (above). Retryable: a file that is locked for the whole time (a time-out), a full
/// disk, a failing one, too few descriptors. They show the path.
#[derive(Clone)]
pub struct SqliteStore(Arc<Threads>);

/// One for each kind of call, so that nobody who looks stands in line behind somebody who waits for a lock. More would
/// be of no use: a file has one writer.
struct Threads {
    writer: Workers<Arc<Engine>>,
    reader: Workers<Arc<Engine>>,
}

impl SqliteStore {
    fn new(engine: Engine) -> SqliteStore {
        let engine = Arc::new(engine);
        let thread = |label| Workers::with_queue(label, Arc::clone(&engine), 1, QUEUE);
        SqliteStore(Arc::new(Threads { writer: thread(WRITER), reader: thread(READER) }))
    }

    fn write<R: Send + 'static>(
        &self,
        timeout: Duration,
        work: impl Fn(&Rows<'_>) -> Result<R, Failure> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.call(&self.0.writer, timeout, move |engine, until| engine.write(until, work))
    }

    fn call<R: Send + 'static>(
        &self,
        thread: &Workers<Arc<Engine>>,
        timeout: Duration,
        work: impl FnOnce(&Engine, Instant) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        thread.call(timeout, move |engine, until| work(engine, until)).map_err(|error| match error.source() {
            // The word of whoever waits for the thread, who knows no path.
            None if error.is_timeout() => {
                StoreError::timeout(format!("the database {} did not answer in time", self.path().display()))
            }
            _ => error,
        })
    }

    /// A store in the table `leader_election` of this file. Does not touch the file: the first call does.
    ///
    /// # Errors
    /// Fatal: the path is empty, relative, a URI or `:memory:`; or the system does not tell one boot from another.
    ///
    /// ```
    /// use tenure::SqliteStore;
    ///
    /// let error = SqliteStore::open("lease.db").unwrap_err();
    /// assert!(error.to_string().contains("is relative"), "{error}");
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore, StoreError> {
        SqliteStore::builder(path).open()
    }

    /// The settings of a store in this file.
    pub fn builder(path: impl AsRef<Path>) -> SqliteBuilder {
        SqliteBuilder::new(path.as_ref())
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.writer.context().path()
    }

    /// The DDL of the table, for migration tools: idempotent, ends with a semicolon.
    #[must_use]
    pub fn schema(&self) -> String {
        self.0.writer.context().table().ddl()
    }

    /// Creates the file and the table where they are missing, and checks the table that is there. Safe from every
    /// process at every start. The directory has to exist. Blocks for 10 s at the most.
    ///
    /// # Errors
    /// Fatal: the table can't carry elections (the message says which column is wrong), or the file can't be used
    /// or created where it is. Otherwise as any call.
    pub fn ensure_schema(&self) -> Result<(), StoreError> {
        self.call(&self.0.writer, SCHEMA_TIMEOUT, |engine, until| engine.ensure_schema(until))
    }

    /// Looks at the file, where it is, who else has it open, and the table: what a person wants to know who is about to
    /// run elections there. Opens it as every participant does, takes the write lock for a moment, and writes nothing.
    /// Blocks for no longer than `timeout`, and for half of it other writes of the same store where the file is locked.
    ///
    /// # Errors
    /// As any call: no file, or one that can't be used where it is. A table that is missing or of the wrong shape, and
    /// a write lock that was not to be had in half the time, are findings and no errors.
    pub fn examine(&self, timeout: Duration) -> Result<SqliteExamination, StoreError> {
        self.call(&self.0.writer, timeout, examine::examine)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.0.writer.context();
        f.debug_struct("SqliteStore")
            .field("path", &engine.path())
            .field("table", &engine.table().to_string())
            .finish()
    }
}

impl Store for SqliteStore {
    fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        let acquire = Acquire::of(bid);
        self.write(timeout, move |rows| acquire.run(rows))
    }

    fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        let renew = Renew::of(renewal);
        self.write(timeout, move |rows| renew.run(rows))
    }

    fn release(&self, name: &str, holder: &str, fence: Fence, timeout: Duration) -> Result<(), StoreError> {
        let release = Release { name: name.to_owned(), holder: holder.to_owned(), fence };
        self.write(timeout, move |rows| release.run(rows))
    }

    fn observe(&self, name: &str, timeout: Duration) -> Result<Observation, StoreError> {
        let name = name.to_owned();
        let lease = self.call(&self.0.reader, timeout, move |engine, until| {
            engine.read(until, |rows| rows.find(&name))
        })?;
        // No timeline: see `operations`.
        Ok(lease.map_or(Observation::vacant(None), Observation::of))
    }

    fn list(&self, timeout: Duration) -> Result<Vec<Lease>, StoreError> {
        self.call(&self.0.reader, timeout, |engine, until| engine.read(until, |rows| rows.all()))
    }
}
