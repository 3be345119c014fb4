//! What the file, its place and the table are like. Facts for a person; elections use none of them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::engine::Engine;
use super::error::Failure;
use super::file::{self, Identity};
use crate::store::StoreError;

/// What [`SqliteStore::examine`](super::SqliteStore::examine) found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteExamination {
    /// The file.
    pub path: PathBuf,
    /// The version of SQLite in this program.
    pub version: String,
    /// What kind of file system it is on: a name, or the number of one without.
    pub file_system: String,
    /// Whether that is in memory, and gone after a reboot.
    pub in_memory: bool,
    /// How commits are kept: `wal` where all is as it should be.
    pub journal_mode: String,
    /// `synchronous` of this store's connections: 3 is `extra`, where every commit waits for the disk.
    pub synchronous: String,
    /// How long it took to get the lock under which everybody writes, or why it was not to be had.
    pub write_lock: Result<Duration, StoreError>,
    /// Whether there is a table of that name.
    pub table_exists: bool,
    /// Why it can't carry elections; `None` where it can, or is missing.
    pub complaint: Option<String>,
    /// The file's size in bytes, without what is in the next.
    pub bytes: u64,
    /// What has been written and is not in the file yet, in bytes.
    pub wal_bytes: u64,
    /// Other processes that have it open, as far as this one may look at them.
    pub others: Vec<u32>,
}

/// Nothing found: something to start from in tests of what reads it.
impl Default for SqliteExamination {
    fn default() -> SqliteExamination {
        SqliteExamination {
            path: PathBuf::new(),
            version: String::new(),
            file_system: String::new(),
            in_memory: false,
            journal_mode: String::new(),
            synchronous: String::new(),
            write_lock: Ok(Duration::ZERO),
            table_exists: false,
            complaint: None,
            bytes: 0,
            wal_bytes: 0,
            others: Vec::new(),
        }
    }
}

pub(super) fn examine(engine: &Engine, until: Instant) -> Result<SqliteExamination, StoreError> {
    let path = engine.path().to_owned();
    let (journal_mode, synchronous, table) = engine.read(until, |rows| {
        let table = match rows.has_table() {
            Ok(there) => Ok(there),
            // The sentence that names what is wrong. Others are failures of the look itself.
            Err(Failure::Found(_, complaint)) => Err(complaint),
            Err(failure) => return Err(failure),
        };
        Ok((rows.setting("journal_mode")?, rows.setting("synchronous")?, table))
    })?;
    let begun = Instant::now();
    let half = begun + until.saturating_duration_since(begun) / 2;
    let write_lock = engine.write(half, |_| Ok(())).map(|()| begun.elapsed());
    let (file_system, in_memory) = file_system(&path);
    let size = |path: &Path| path.metadata().map_or(0, |file| file.len());
    let mut wal = path.canonicalize().unwrap_or_else(|_| path.clone()).into_os_string();
    wal.push("-wal");
    let identity = file::identity(&path).ok().flatten();
    Ok(SqliteExamination {
        version: rusqlite::version().to_owned(),
        file_system,
        in_memory,
        journal_mode,
        synchronous,
        write_lock,
        table_exists: table.as_ref().map_or(true, |there| *there),
        complaint: table.err(),
        bytes: size(&path),
        wal_bytes: size(Path::new(&wal)),
        others: identity.map(users).unwrap_or_default(),
        path,
    })
}

/// Every descriptor of every process that the system lets us look into.
fn users(identity: Identity) -> Vec<u32> {
    let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let has_it_open = |pid: &u32| {
        entries(format!("/proc/{pid}/fd").into()).any(|descriptor| {
            let file = descriptor.path().metadata();
            file.is_ok_and(|file| file.dev() == identity.device && file.ino() == identity.inode)
        })
    };
    let processes = entries("/proc".into()).filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut users: Vec<u32> =
        processes.filter(|pid| *pid != std::process::id()).filter(has_it_open).collect();
    users.sort_unstable();
    users
}

/// Kinds of file systems by their number, and whether they are in memory.
const FILE_SYSTEMS: [(u32, &str, bool); 9] = [
    (0x0000_ef53, "ext4", false),
    (0x5846_5342, "XFS", false),
    (0x9123_683e, "Btrfs", false),
    (0x2fc1_2fc1, "ZFS", false),
    (0xf2f5_2010, "F2FS", false),
    (0xca45_1a4e, "bcachefs", false),
    (0x794c_7630, "overlay", false),
    (0x0102_1994, "tmpfs", true),
    (0x8584_58f6, "ramfs", true),
];

fn file_system(path: &Path) -> (String, bool) {
    match kernel::kind(path) {
        Some(kind) => named(kind),
        None => ("unknown".to_owned(), false),
    }
}

fn named(kind: u32) -> (String, bool) {
    match FILE_SYSTEMS.iter().find(|(magic, ..)| *magic == kind) {
        Some((_, name, in_memory)) => ((*name).to_owned(), *in_memory),
        None => (format!("{kind:#x}"), false),
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod kernel {
    use std::path::Path;

    /// The type is as wide as the machine's words, and signed on some.
    pub(super) fn kind(path: &Path) -> Option<u32> {
        rustix::fs::statfs(path).ok().map(|place| place.f_type as u32)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod kernel {
    use std::path::Path;

    pub(super) fn kind(_: &Path) -> Option<u32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use crate::store::sqlite::SqliteStore;

    const OP: Duration = Duration::from_secs(10);

    fn store(directory: &Path) -> SqliteStore {
        let store = SqliteStore::open(directory.join("lease.db")).unwrap();
        store.ensure_schema().unwrap();
        store
    }

    #[test]
    fn a_file_in_use_is_described_and_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let bid = crate::Bid::new("n", "h", OP);
        let lease = store.acquire(&bid, OP).unwrap().unwrap();
        let found = store.examine(OP).unwrap();
        assert_eq!(found.path, directory.path().join("lease.db"));
        assert_eq!((found.journal_mode.as_str(), found.synchronous.as_str()), ("wal", "3"));
        assert!(found.write_lock.as_ref().is_ok_and(|took| *took < OP), "{found:?}");
        assert!(found.table_exists && found.complaint.is_none() && found.wal_bytes > 0, "{found:?}");
        assert!(found.version.starts_with("3.") && !found.file_system.is_empty(), "{found:?}");
        assert_eq!(found.others, [] as [u32; 0], "nobody but this process");
        assert_eq!(store.list(OP).unwrap()[0].version(), lease.version());
    }

    #[test]
    fn a_table_that_is_missing_or_unfit_and_a_lock_that_is_kept_are_findings() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let other = rusqlite::Connection::open(store.path()).unwrap();
        other.execute_batch("DROP TABLE leader_election").unwrap();
        let found = store.examine(OP).unwrap();
        assert!(!found.table_exists && found.complaint.is_none(), "{found:?}");
        other.execute_batch("CREATE TABLE leader_election (name TEXT NOT NULL); BEGIN IMMEDIATE").unwrap();
        let found = store.examine(Duration::from_millis(600)).unwrap();
        assert!(found.table_exists, "{found:?}");
        assert!(found.complaint.unwrap().contains("the column holder is missing"));
        assert!(found.write_lock.unwrap_err().is_timeout());
    }

    #[test]
    fn who_else_has_it_open_is_told_by_process() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        // Opened there: this process must not close what it has locks on.
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "exec 3<\"$0\"; echo; exec sleep 600"]).arg(store.path());
        let mut other = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut started = [0];
        std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut started).unwrap();
        let found = store.examine(OP).unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(found.others, [other.id()]);
    }

    #[test]
    fn without_a_file_there_is_nothing_to_examine() {
        let directory = tempfile::tempdir().unwrap();
        let error = SqliteStore::open(directory.path().join("lease.db")).unwrap().examine(OP).unwrap_err();
        assert!(error.is_fatal() && error.to_string().contains("call ensure_schema()"), "{error}");
        assert!(!directory.path().join("lease.db").exists());
    }

    #[test]
    fn file_systems_are_named() {
        assert_eq!(SqliteExamination::default().file_system, "", "nothing was looked at");
        assert_eq!(named(0xef53), ("ext4".to_owned(), false));
        assert_eq!(named(0x0102_1994), ("tmpfs".to_owned(), true));
        assert_eq!(named(7), ("0x7".to_owned(), false));
        assert_eq!(file_system(Path::new("/no/such/place")).0, "unknown");
    }
}
