//! `tenure doctor`: whether a database can carry elections, and what to mend.
//!
//! The library reads facts, `postgres` and `sqlite` judge them, `pace` measures and recommends, `report` prints.

mod finding;
mod pace;
mod postgres;
mod report;
mod sqlite;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::{AnyStore, PostgresStore, SqliteStore, Store, StoreError};

use crate::failure::{FAILED, Failure, REFUSED, is_missing};
use crate::options::{StoreOptions, Timings};
use crate::output::{json_lines, say};
use finding::Level;
use pace::{ClockOffset, Recommended, RoundTrips};
use report::Report;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure doctor --store postgres://app@db/app
  tenure doctor --store sqlite:/var/lib/app/lease.db
  tenure doctor --lease-duration 6s --renew-interval 1500ms \\
      --operation-timeout 1200ms --json

It only reads, and takes SQLite's write lock for a moment. Run it as the role
and from the host that will run elections: rights, settings and round trips are
theirs. Each finding is one of

  ok      as it should be
  note    elections are safe; somebody should know
  broken  nobody can lead until it is mended
  unsafe  two may lead, or a fence may be given out twice

Exits with 0 where there is nothing but ok and note, with 1 otherwise, and with
125 where nothing could be examined at all.

With --json: an object with store, subject, verdict (the worst level), findings
(level, topic, what, advice), round_trips (count, median_us, p99_us), clock
(ahead_us, uncertainty_us; null for SQLite), timings (in ms) and
timings_as_asked.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    store: StoreOptions,
    /// A JSON object in place of the text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    timings: Timings,
}

impl Doctor {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        // Timings that no database could bear are refused before any is asked.
        let timeout = self.timings.config("NAME").build()?.operation_timeout();
        let report = match self.store.open()? {
            AnyStore::Postgres(store) => self.postgres(&store, timeout)?,
            AnyStore::Sqlite(store) => self.sqlite(&store, timeout)?,
            _ => return Err(Failure::new(FAILED, "there is nothing to examine in this store")),
        };
        say(&if self.json { json_lines(&report.json()) } else { report.text() })
            .or_else(Failure::unless_unread)?;
        Ok(match report.verdict() {
            Level::Ok | Level::Note => ExitCode::SUCCESS,
            Level::Broken | Level::Unsafe => ExitCode::from(REFUSED),
        })
    }

    fn postgres(&self, store: &PostgresStore, timeout: Duration) -> Result<Report, Failure> {
        // Of several servers the first look settles on one that can be written, if there is one.
        if let Err(error) = store.observe("tenure-doctor", timeout) {
            unless_a_finding(error)?;
        }
        let found = store.examine(timeout)?;
        let (trips, failed) = RoundTrips::measure(store, timeout);
        let clock = ClockOffset::new(found.now, found.asked_at, found.answered_at);
        let mut findings = postgres::judge(&found, timeout);
        findings.extend([measured(&trips, failed, timeout)?, clock.finding()]);
        let subject = format!("{}, database {}, role {}", found.servers, found.database, found.role);
        let recommended = Recommended::new(&self.timings, &trips)?;
        Ok(Report { store: "postgres", subject, findings, trips, clock: Some(clock), recommended })
    }

    fn sqlite(&self, store: &SqliteStore, timeout: Duration) -> Result<Report, Failure> {
        let found = store.examine(timeout)?;
        let (trips, failed) = RoundTrips::measure(store, timeout);
        let mut findings = sqlite::judge(&found);
        findings.push(measured(&trips, failed, timeout)?);
        let subject = found.path.display().to_string();
        let recommended = Recommended::new(&self.timings, &trips)?;
        Ok(Report { store: "sqlite", subject, findings, trips, clock: None, recommended })
    }
}

/// What keeps a row from being read and is found by the examination too: no table, no right, a standby.
fn unless_a_finding(error: StoreError) -> Result<(), Failure> {
    let known =
        is_missing(&error) || error.sqlstate().is_some_and(|code| code == "25006" || code.starts_with("42"));
    if known { Ok(()) } else { Err(error.into()) }
}

fn measured(
    trips: &RoundTrips,
    failed: Option<StoreError>,
    timeout: Duration,
) -> Result<finding::Finding, Failure> {
    match failed {
        None => Ok(trips.finding(timeout)),
        Some(error) => unless_a_finding(error).map(|()| RoundTrips::unreadable()),
    }
}
