//! What goes wrong: one sentence, a hint, and an exit code of its own.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use tenure::{ConfigError, StoreError};

use crate::output::printable;
use crate::voice::say;

/// The command has looked, and what it found is not what it wants.
pub(crate) const REFUSED: u8 = 1;
/// The leadership was lost while the command ran.
pub(crate) const LOST: u8 = 123;
/// This participant could not lead in the time that it was given.
pub(crate) const NOT_IN_TIME: u8 = 124;
/// `tenure` itself failed: the store refuses, or a setting cannot be used.
pub(crate) const FAILED: u8 = 125;

/// Why a command ended, for a person.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    sentence: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, sentence: impl Display) -> Failure {
        Failure { code, sentence: sentence.to_string(), hint: None }
    }

    /// What to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Says it on stderr.
    pub(crate) fn tell(&self) -> ExitCode {
        // Nobody reads any more what the command was made to say.
        if self.sentence.is_empty() {
            return ExitCode::SUCCESS;
        }
        // Some of it may be a server's word.
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!("  hint: {hint}\n"));
        say(format!("tenure: {}\n{hint}", printable(&self.sentence)));
        ExitCode::from(self.code)
    }
}

impl From<io::Error> for Failure {
    /// Of writing to stdout.
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::new(0, ""),
            _ => Failure::new(FAILED, format!("can't write to stdout: {error}")),
        }
    }
}

/// Whether the table, or the file, has not been made yet.
pub(crate) fn is_missing(error: &StoreError) -> bool {
    match error.sqlstate() {
        Some(code) => matches!(code, "42P01" | "3F000"),
        // What the store of a file says, which has no codes.
        None => error.is_fatal() && error.to_string().contains("call ensure_schema()"),
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let failure = Failure::new(FAILED, &error);
        match error.sqlstate() {
            _ if is_missing(&error) => failure.hint("`tenure init` creates the table"),
            Some("42501") => failure
                .hint("grant the role USAGE on the schema and SELECT, INSERT, UPDATE on the table; `tenure doctor` looks closer"),
            Some("28P01" | "28000") => failure.hint("check the user and the password in the URL, or PGPASSWORD"),
            _ if error.is_retryable() => failure.hint("this may pass by itself; `tenure doctor` looks closer"),
            _ => failure,
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::new(FAILED, error)
    }
}
