//! Settings of the store, checked before the file is touched.

use std::path::{Path, PathBuf};

use super::SqliteStore;
use super::boot::Boot;
use super::engine::Engine;
use super::schema::{DEFAULT_TABLE, Table};
use crate::store::StoreError;

/// Settings for an [`SqliteStore`], made by [`SqliteStore::builder`].
///
/// ```
/// use tenure::SqliteStore;
///
/// let store = SqliteStore::builder("/var/lib/app/app.db").table("leases").open()?;
/// assert!(store.schema().starts_with(r#"CREATE TABLE IF NOT EXISTS "leases""#));
/// # Ok::<(), tenure::StoreError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "does nothing until opened"]
pub struct SqliteBuilder {
    path: PathBuf,
    table: String,
}

impl SqliteBuilder {
    pub(super) fn new(path: &Path) -> SqliteBuilder {
        SqliteBuilder { path: path.to_owned(), table: DEFAULT_TABLE.to_owned() }
    }

    /// The table; `leader_election` by default. Not empty, no NUL, and not one of SQLite's own (`sqlite_..`);
    /// special characters are kept. SQLite does not tell upper case from lower case in it.
    pub fn table(mut self, table: impl Into<String>) -> SqliteBuilder {
        self.table = table.into();
        self
    }

    /// Checks the settings and makes the store. Does not touch the file, starts no thread.
    ///
    /// # Errors
    /// As [`SqliteStore::open`], and where the table's name can't be one.
    pub fn open(self) -> Result<SqliteStore, StoreError> {
        let path = absolute(&self.path)?;
        let table = Table::new(&self.table)?;
        let boot = Boot::current()?;
        Ok(SqliteStore::new(Engine::new(path, table, boot)))
    }
}

/// The path without detours, if it names a file in one and the same place for every process.
fn absolute(path: &Path) -> Result<PathBuf, StoreError> {
    let refused = |why: &str| Err(StoreError::fatal(format!("the path {path:?} of the database {why}")));
    let text = path.as_os_str().as_encoded_bytes();
    if text.is_empty() {
        return refused("is empty: SQLite would make a temporary one that nobody shares");
    }
    if text.contains(&0) {
        return refused("contains a NUL byte");
    }
    if text == b":memory:" {
        return refused("means one in memory, which no other process shares; use MemoryStore");
    }
    if text.starts_with(b"file:") {
        return refused("is a URI, whose options could take the locks away; give the plain path");
    }
    if path.is_relative() {
        let meant = std::env::current_dir().unwrap_or_default().join(path);
        return refused(&format!(
            "is relative: processes in other directories would use other databases; here it would be {meant:?}"
        ));
    }
    if path.file_name().is_none() {
        return refused("does not name a file");
    }
    Ok(path.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b29_paths_that_nobody_could_share_are_refused_with_a_reason() {
        for (path, why) in [
            ("", "is empty"),
            (":memory:", "memory"),
            ("file::memory:", "URI"),
            ("file::memory:?cache=shared", "URI"),
            ("file:/var/lib/lease.db?nolock=1", "URI"),
            ("lease.db", "is relative"),
            ("./lease.db", "is relative"),
            ("a\0b", "NUL"),
            ("/", "name a file"),
            ("/var/..", "name a file"),
        ] {
            let error = SqliteStore::open(path).unwrap_err();
            assert!(error.is_fatal() && error.to_string().contains(why), "{path:?}: {error}");
        }
        // What it would have been is said, so that it can be written down.
        let here = std::env::current_dir().unwrap().join("lease.db");
        let error = SqliteStore::open("lease.db").unwrap_err().to_string();
        assert!(error.contains(&format!("{here:?}")), "{error}");
    }

    #[test]
    fn the_path_and_the_table_are_shown() {
        let store = SqliteStore::builder("/var//lib/./app/lease.db").table("my \"table").open().unwrap();
        assert_eq!(store.path(), Path::new("/var/lib/app/lease.db"));
        let shown = format!("{store:?}");
        assert!(shown.contains("/var/lib/app/lease.db") && shown.contains("my \\\"\\\"table"), "{shown}");
    }

    #[test]
    fn tables_that_cannot_be_are_refused() {
        for (table, why) in [("", "is empty"), ("a\0", "NUL"), ("SQLite_x", "SQLite's own")] {
            let error = SqliteStore::builder("/x").table(table).open().unwrap_err();
            assert!(error.is_fatal() && error.to_string().contains(why), "{error}");
        }
    }
}
