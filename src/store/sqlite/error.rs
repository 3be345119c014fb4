//! From SQLite's errors to the store's: classified by code, never by text.

use std::path::Path;

use rusqlite::{Error, ErrorCode};

use super::file;
use super::schema::Table;
use crate::store::StoreError;

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlite(Error),
    /// Something that we found ourselves: of which kind, and what the database is, has or lacks.
    Found(fn(String) -> StoreError, String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Sqlite(error)
    }
}

impl Failure {
    pub(super) fn fatal(complaint: impl Into<String>) -> Failure {
        Failure::Found(StoreError::fatal, complaint.into())
    }

    pub(super) fn retryable(complaint: impl Into<String>) -> Failure {
        Failure::Found(StoreError::retryable, complaint.into())
    }

    /// Whether somebody else has a lock, and nothing was changed.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Failure::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy))
    }

    pub(super) fn into_store_error(self, path: &Path, table: &Table) -> StoreError {
        match self {
            Failure::Found(new, complaint) => new(format!("the database {} {complaint}", path.display())),
            Failure::Sqlite(error) => of_sqlite(error, path, table),
        }
    }
}

fn of_sqlite(error: Error, path: &Path, table: &Table) -> StoreError {
    let Some(code) = error.sqlite_error_code() else {
        // Not SQLite's word: a value that is not what the column should have.
        let complaint = format!("has a table {table} without the expected shape: {error}");
        return Failure::fatal(complaint).into_store_error(path, table).with_source(error);
    };
    let (new, complaint): (fn(String) -> StoreError, _) = match code {
        ErrorCode::DatabaseBusy => {
            (StoreError::timeout, "was kept locked by somebody else for the whole time".into())
        }
        ErrorCode::NotADatabase => (StoreError::fatal, "is not an SQLite database".into()),
        ErrorCode::DatabaseCorrupt => (StoreError::fatal, "is damaged".into()),
        // A statement that can't be prepared: no such table, no such column.
        ErrorCode::Unknown => {
            (StoreError::fatal, format!("has no table {table} as it should be; call ensure_schema()"))
        }
        ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig => {
            (StoreError::fatal, format!("has a table {table} that can't store the lease"))
        }
        // Most of it is found out before anything is opened, with better words; but rights can change.
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => match file::check(path) {
            Err(better) => return better.into_store_error(path, table).with_source(error),
            Ok(()) => (StoreError::fatal, "can't be written".into()),
        },
        // Everything unknown is retryable: an elector that goes on trying can be mended from outside.
        _ => (StoreError::retryable, "can't be used at the moment".into()),
    };
    Failure::Found(new, format!("{complaint}: {error}")).into_store_error(path, table).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_code(code: i32) -> StoreError {
        let error = Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        Failure::from(error).into_store_error(Path::new("/no/such/lease.db"), &Table::default())
    }

    #[test]
    fn errors_are_told_apart_by_code_and_show_the_path() {
        use rusqlite::ffi;
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_RECOVERY, ffi::SQLITE_BUSY_SNAPSHOT] {
            assert!(of_code(code).is_timeout(), "{code}");
        }
        let fatal = [
            ffi::SQLITE_ERROR,
            ffi::SQLITE_NOTADB,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_READONLY,
            ffi::SQLITE_PERM,
            ffi::SQLITE_CONSTRAINT_NOTNULL,
            ffi::SQLITE_MISMATCH,
            ffi::SQLITE_TOOBIG,
        ];
        let retryable = [
            ffi::SQLITE_FULL,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_CANTOPEN,
            ffi::SQLITE_PROTOCOL,
            ffi::SQLITE_NOMEM,
        ];
        for code in fatal {
            assert!(of_code(code).is_fatal(), "{code}");
        }
        for code in retryable {
            assert!(of_code(code).is_retryable() && !of_code(code).is_timeout(), "{code}");
        }
        for code in fatal.into_iter().chain(retryable) {
            assert!(of_code(code).to_string().contains("/no/such"), "{code}: {}", of_code(code));
        }
    }

    #[test]
    fn only_a_busy_file_is_tried_again() {
        let failure = |code| Failure::from(Error::SqliteFailure(rusqlite::ffi::Error::new(code), None));
        assert!(failure(rusqlite::ffi::SQLITE_BUSY).is_busy());
        assert!(!failure(rusqlite::ffi::SQLITE_FULL).is_busy());
        assert!(!Failure::retryable("no").is_busy());
        assert!(!Failure::from(Error::QueryReturnedNoRows).is_busy());
    }
}
