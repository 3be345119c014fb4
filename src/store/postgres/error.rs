//! From the driver's errors to the store's: classified by SQLSTATE and by type, never by text.

use std::error::Error as _;
use std::fmt::Display;
use std::io;

use postgres::Error;
use postgres::error::{DbError, Severity};

use super::tls;
use crate::store::{StoreError, worker};

/// "Read-only transaction": also what a standby and a demoted primary say.
pub(super) const READ_ONLY: &str = "25006";
const UNDEFINED_TABLE: &str = "42P01";
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// Whether a person has to mend something before the same call can succeed.
///
/// Everything unknown is retryable: an elector that goes on trying can be mended from outside, one that gave
/// up cannot.
fn is_fatal(sqlstate: &str) -> bool {
    match sqlstate {
        // No such database; no such schema; the fences are exhausted.
        "3D000" | "3F000" | "22003" => true,
        // The row can't be stored whatever one does: characters that the database's encoding lacks, a name
        // too long for the index, a column or constraint that the table should not have.
        "22021" | "22P05" | "54000" | "23502" | "23514" => true,
        // Wrong password and the like; wrong table, wrong rights.
        _ => sqlstate.starts_with("28") || sqlstate.starts_with("42"),
    }
}

/// The transaction was rolled back so that another one could go on: the same statement may succeed at once.
pub(super) fn is_repeatable(error: &Error) -> bool {
    matches!(sqlstate(error), Some("40001" | "40P01"))
}

/// The creating statement's own refusal to grant a lease late; it divides by zero.
pub(super) fn is_late_creation(error: &Error) -> bool {
    sqlstate(error) == Some("22012")
}

/// What a server answers that hides its timeline: no such function, no right, not supported.
pub(super) fn may_lack_timeline(error: &Error) -> bool {
    matches!(sqlstate(error), Some("42883" | "42501" | "0A000"))
}

/// Whether the session is known to be of further use after this error. One that turned out to be read-only is
/// not: the next connection may find the primary.
pub(super) fn session_survives(error: &Error) -> bool {
    error.as_db_error().is_some_and(|db| is_plain_error(db) && db.code().code() != READ_ONLY)
}

/// PgBouncer's own errors lack the severity that is never translated.
fn is_plain_error(db: &DbError) -> bool {
    match db.parsed_severity() {
        Some(severity) => severity == Severity::Error,
        None => db.severity() == "ERROR",
    }
}

/// Whether the connection, and not the statement, is what failed: closed, reset, or ended by the server.
pub(super) fn is_connection_loss(error: &Error) -> bool {
    match error.as_db_error() {
        Some(db) => !is_plain_error(db),
        None => error.is_closed() || io_cause(error).is_some(),
    }
}

pub(super) fn sqlstate(error: &Error) -> Option<&str> {
    error.code().map(postgres::error::SqlState::code)
}

/// The failure of a statement.
pub(super) fn of_statement(error: Error, table: &dyn Display) -> StoreError {
    let Some(db) = error.as_db_error() else { return of_connection(error) };
    let said = db.message();
    let message = match db.code().code() {
        UNDEFINED_TABLE => format!(
            "the table {table} does not exist: call ensure_schema(), or have its owner run what schema() says"
        ),
        INSUFFICIENT_PRIVILEGE => format!(
            "{said}: the role needs USAGE on the schema and SELECT, INSERT and UPDATE on the table {table}"
        ),
        READ_ONLY => format!("the server accepts no writes at the moment: {said}"),
        "55P03" => format!("somebody else held a lock on the election's row for too long: {said}"),
        "22003" => "the fences of this election are exhausted".to_owned(),
        code if code.starts_with("42") => {
            format!("the table {table} does not have the expected shape: {said}")
        }
        _ => format!("the database refused the statement: {said}"),
    };
    of_server(message, error)
}

/// The failure of a `COMMIT`.
pub(super) fn of_commit(error: Error) -> StoreError {
    match error.as_db_error() {
        Some(db) => {
            let message = format!("the database refused to commit: {}", db.message());
            of_server(message, error)
        }
        None => of_connection(error),
    }
}

/// Whether the failure of a `COMMIT` means that it did not happen. A session that is ended while it waits for a
/// standby may have committed.
pub(super) fn is_undone(error: &Error) -> bool {
    error.as_db_error().is_some_and(is_plain_error) && sqlstate(error).is_some_and(leaves_nothing)
}

/// Not so where a pooler tells of a connection that it lost, nor where the server itself does not know.
fn leaves_nothing(code: &str) -> bool {
    !code.starts_with("08") && code != "40003"
}

fn of_connection(error: Error) -> StoreError {
    let message = format!("the connection to the database was lost: {}", innermost(&error));
    StoreError::retryable(message).with_source(error)
}

/// The failure to connect to `place`.
pub(super) fn of_connect(error: Error, place: &str, has_password: bool) -> StoreError {
    if let Some(db) = error.as_db_error() {
        let message = format!("{place} refused the connection: {}", db.message());
        return of_server(message, error);
    }
    if let Some(failure) = error.source().and_then(|cause| cause.downcast_ref::<tls::Failure>()) {
        let failure = (failure.to_string(), failure.is_fatal());
        return of_tls(failure, place, error);
    }
    #[cfg(feature = "tls")]
    if let Some(failure) = io_cause(&error).and_then(tls::alert) {
        return of_tls((failure.to_string(), failure.is_fatal()), place, error);
    }
    let message = format!("can't connect to {place}: {}", innermost(&error));
    match error.source() {
        // Neither the server's word nor the network's: the driver can't log in with what it was given.
        Some(cause) if !cause.is::<io::Error>() && io_cause(&error).is_none() => {
            let hint = if has_password {
                ""
            } else {
                "; there is no password in the connection string, nor in PGPASSWORD"
            };
            StoreError::fatal(format!("{message}{hint}")).with_source(error)
        }
        _ if io_cause(&error).is_some_and(|io| io.kind() == io::ErrorKind::TimedOut) => {
            StoreError::timeout(message).with_source(error)
        }
        _ => StoreError::retryable(message).with_source(error),
    }
}

fn of_tls((why, is_fatal): (String, bool), place: &str, error: Error) -> StoreError {
    let new = if is_fatal { StoreError::fatal } else { StoreError::retryable };
    new(format!("can't connect to {place} with TLS: {why}")).with_source(error)
}

fn of_server(message: String, error: Error) -> StoreError {
    let code = sqlstate(&error).unwrap_or_default().to_owned();
    let new = if is_fatal(&code) { StoreError::fatal } else { StoreError::retryable };
    new(message).with_sqlstate(code).with_source(error)
}

pub(super) fn timeout() -> StoreError {
    worker::timed_out()
}

pub(super) fn standby() -> StoreError {
    StoreError::retryable("the server is a standby, which can't carry an election").with_sqlstate(READ_ONLY)
}

/// A value that does not have the type that the column should have.
pub(super) fn wrong_shape(error: Error) -> StoreError {
    StoreError::fatal("the table does not have the expected shape: see ensure_schema()").with_source(error)
}

fn io_cause(error: &Error) -> Option<&io::Error> {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref() {
            return Some(io);
        }
        next = cause.source();
    }
    None
}

fn innermost(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_12_a_commit_is_undone_only_where_somebody_knows() {
        for code in ["40001", "40P01", "23505", "25P02", "57014"] {
            assert!(leaves_nothing(code), "{code}");
        }
        for code in ["08000", "08003", "08006", "08007", "08P01", "40003"] {
            assert!(!leaves_nothing(code), "{code}");
        }
    }

    #[test]
    fn errors_are_told_apart_by_sqlstate() {
        for code in ["42P01", "42501", "28P01", "28000", "3D000", "3F000", "22003", "42703", "42804", "42883"]
        {
            assert!(is_fatal(code), "{code}");
        }
        for code in [
            "08006", "08P01", "53300", "57P01", "57P03", "57014", "40001", "40P01", "55P03", "25006", "XX000",
        ] {
            assert!(!is_fatal(code), "{code}");
        }
    }
}
