//! A setting that cannot be used, by its name.

use std::error::Error;
use std::fmt;

use crate::store::StoreError;

/// A setting of the store that can't be used, found before anything was sent. Never shows a password.
///
/// ```
/// use tenure::PostgresStore;
///
/// let error = PostgresStore::builder("host=db").table("").build().unwrap_err();
/// assert_eq!(error.field(), "table");
/// assert_eq!(error.to_string(), "table is empty");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresConfigError {
    field: &'static str,
    complaint: String,
}

impl PostgresConfigError {
    pub(super) fn new(field: &'static str, complaint: impl Into<String>) -> PostgresConfigError {
        PostgresConfigError { field, complaint: complaint.into() }
    }

    /// The setting: one of the builder's, an option of the connection string, or `dsn` for all of that.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for PostgresConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.complaint)
    }
}

/// Readable where a `main` returns it.
impl fmt::Debug for PostgresConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for PostgresConfigError {}

/// For functions that return the store's error for both: fatal.
impl From<PostgresConfigError> for StoreError {
    fn from(error: PostgresConfigError) -> StoreError {
        StoreError::fatal(error.to_string()).with_source(error)
    }
}
