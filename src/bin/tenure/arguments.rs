//! What was typed; and where that can't be understood, the complaint about it, without a password.
//!
//! clap repeats what it does not understand. That may be a store's URL in the wrong place, and stderr may be a log.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::Cli;

/// # Errors
/// What to end with; all is said.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|error| {
        let secrets: Vec<_> =
            std::env::args_os().flat_map(|argument| secrets(&argument.to_string_lossy())).collect();
        if secrets.is_empty() {
            // Help is one of these too, and has colours on a terminal. A reader that has left is no failure.
            error.print().ok();
        } else {
            write(error.use_stderr(), without(&error.render().to_string(), &secrets));
        }
        if error.kind() == ErrorKind::MissingRequiredArgument && error.to_string().contains("--store") {
            write(true, "\n  hint: the store can be in the variable TENURE_STORE, too\n");
        }
        u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
    })
}

fn write(to_stderr: bool, text: impl fmt::Display) {
    let written =
        if to_stderr { write!(std::io::stderr(), "{text}") } else { write!(std::io::stdout(), "{text}") };
    written.ok();
}

/// The passwords in an argument, each with what is around it, so that a short one is not found everywhere; and what to
/// show in its place.
fn secrets(argument: &str) -> Vec<(String, String)> {
    let mut secrets = Vec::new();
    if let Some((userinfo, _)) = argument.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')) {
        if let Some((user, password)) = userinfo.split_once(':') {
            secrets.push((format!("{user}:{password}@"), format!("{user}:***@")));
        }
    }
    for (at, key) in argument.match_indices("password=") {
        let value = &argument[at + key.len()..];
        let end = value.find(['&', ' ']).filter(|_| !value.starts_with('\'')).unwrap_or(value.len());
        secrets.push((format!("{key}{}", &value[..end]), format!("{key}***")));
    }
    secrets
}

fn without(text: &str, secrets: &[(String, String)]) -> String {
    secrets.iter().fold(text.to_owned(), |text, (secret, shown)| text.replace(secret, shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_the_wrong_place_is_not_repeated() {
        for (typed, shown) in [
            ("postgres://app:S3cr3t@db/app", "postgres://app:***@db/app"),
            ("postgres://app:S3@cr3t/x@db/app", "postgres://app:***@db/app"),
            ("--sotre=postgres://app:S3cr3t@db/app", "--sotre=postgres://app:***@db/app"),
            ("postgres://app@db/app?password=S3cr3t&x=y", "postgres://app@db/app?password=***&x=y"),
            ("host=db password=S3cr3t user=app", "host=db password=*** user=app"),
            ("host=db password='S3cr3t S3cr3t'", "host=db password=***"),
            ("postgres://app:e@db/e", "postgres://app:***@db/e"),
            ("postgres://app@db/app", "postgres://app@db/app"),
            ("--election", "--election"),
        ] {
            let text = format!("error: unexpected argument '{typed}' found");
            let expected = format!("error: unexpected argument '{shown}' found");
            assert_eq!(without(&text, &secrets(typed)), expected);
        }
    }
}
