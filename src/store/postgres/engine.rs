//! One call: a session, a statement, and what to do when it fails. Runs on the store's threads.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postgres::types::{ToSql, Type};
use postgres::{Error, Row};

use super::error;
use super::row;
use super::session::{Session, Source, Typed};
use super::sql::{self, Statements};
use super::table::Table;
use crate::store::StoreError;

/// Which statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    TakeOver,
    Renew,
    Release,
    Observe,
    /// All rows.
    List,
    /// The table's DDL.
    CreateTable,
    /// The catalog's account of the table.
    Inspect,
    /// What the server, the role and the table are like.
    Examine,
}

/// A parameter that can travel to another thread.
pub(super) struct Parameter(Box<dyn ToSql + Send + Sync>, Type);

impl Parameter {
    pub(super) fn new(value: impl ToSql + Send + Sync + 'static, ty: Type) -> Parameter {
        Parameter(Box::new(value), ty)
    }

    pub(super) fn text(value: &str) -> Parameter {
        Parameter::new(value.to_owned(), Type::TEXT)
    }
}

pub(super) struct Call {
    kind: Kind,
    /// Without the `lock_timeout` that the statements that write begin with.
    parameters: Vec<Parameter>,
}

impl Call {
    pub(super) fn new(kind: Kind, parameters: Vec<Parameter>) -> Call {
        Call { kind, parameters }
    }

    fn waits_for_locks(&self) -> bool {
        matches!(self.kind, Kind::Create | Kind::TakeOver | Kind::Renew | Kind::Release | Kind::Examine)
    }

    /// Its rows say whether they come from a standby.
    fn only_looks(&self) -> bool {
        matches!(self.kind, Kind::Observe | Kind::List)
    }

    fn tells_timeline(&self) -> bool {
        !matches!(self.kind, Kind::Release | Kind::CreateTable | Kind::Inspect)
    }
}

const UNKNOWN: u8 = 0;
const SHOWN: u8 = 1;
const HIDDEN: u8 = 2;

/// Everything that the store's threads share.
pub(super) struct Engine {
    source: Box<dyn Source>,
    table: Table,
    ddl: String,
    with_timeline: Statements,
    without_timeline: Statements,
    /// Whether the server shows its timeline (rule 15).
    timeline: AtomicU8,
}

impl Engine {
    pub(super) fn new(source: Box<dyn Source>, table: Table) -> Engine {
        Engine {
            ddl: table.ddl(),
            with_timeline: Statements::new(&table, true),
            without_timeline: Statements::new(&table, false),
            source,
            table,
            timeline: AtomicU8::new(UNKNOWN),
        }
    }

    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    pub(super) fn source(&self) -> String {
        self.source.describe()
    }

    pub(super) fn verifies(&self) -> Option<bool> {
        self.source.verifies()
    }

    /// A connection for something else than a [`Call`].
    pub(super) fn session(&self, until: Instant) -> Result<Box<dyn Session>, StoreError> {
        self.source.session(until, false)
    }

    pub(super) fn timeline_available(&self) -> Option<bool> {
        match self.timeline.load(Ordering::Relaxed) {
            UNKNOWN => None,
            state => Some(state == SHOWN),
        }
    }

    /// Runs the call and gives its rows, at the latest at `until`.
    ///
    /// It is repeated within that time where the server asks for it (serialization failure, deadlock), and
    /// once where a connection from earlier turns out to be dead: every statement may land twice.
    pub(super) fn rows(&self, call: &Call, until: Instant) -> Result<Vec<Row>, StoreError> {
        let mut fresh = false;
        while Instant::now() < until {
            let mut session = self.source.session(until, fresh)?;
            let with_timeline = self.timeline.load(Ordering::Relaxed) != HIDDEN;
            let error = match self.send(&mut *session, call, with_timeline, until) {
                Ok(rows) => return self.accept(call, rows, with_timeline, session),
                Err(error) => error,
            };
            let late = call.kind == Kind::Create && error::is_late_creation(&error);
            if late || error::is_repeatable(&error) {
                continue;
            }
            if error::is_connection_loss(&error) && session.is_reused() && !fresh {
                session.discard(false);
                fresh = true;
                continue;
            }
            let suspicious = with_timeline && call.tells_timeline() && error::may_lack_timeline(&error);
            if suspicious && self.is_timeline_hidden(&mut *session, until) {
                continue;
            }
            return Err(self.failure(error, session, until));
        }
        Err(error::timeout())
    }

    fn send(
        &self,
        session: &mut dyn Session,
        call: &Call,
        with_timeline: bool,
        until: Instant,
    ) -> Result<Vec<Row>, Error> {
        let statements = if with_timeline { &self.with_timeline } else { &self.without_timeline };
        let sql = match call.kind {
            Kind::Create => &statements.create,
            Kind::TakeOver => &statements.take_over,
            Kind::Renew => &statements.renew,
            Kind::Release => &statements.release,
            Kind::Observe => &statements.observe,
            Kind::List => &statements.list,
            Kind::CreateTable => &self.ddl,
            Kind::Inspect => super::schema::INSPECT,
            Kind::Examine => &statements.examine,
        };
        let patience = patience(until.saturating_duration_since(Instant::now()));
        let mut parameters: Vec<Typed<'_>> = Vec::with_capacity(call.parameters.len() + 1);
        if call.waits_for_locks() {
            parameters.push((&patience, Type::TEXT));
        }
        parameters.extend(call.parameters.iter().map(|Parameter(value, ty)| {
            let value: &(dyn ToSql + Sync) = &**value;
            (value, ty.clone())
        }));
        session.query(sql, &parameters, until)
    }

    fn accept(
        &self,
        call: &Call,
        rows: Vec<Row>,
        with_timeline: bool,
        session: Box<dyn Session>,
    ) -> Result<Vec<Row>, StoreError> {
        if call.only_looks() && rows.first().is_some_and(row::is_standby) {
            session.discard(true);
            return Err(error::standby());
        }
        if with_timeline && call.tells_timeline() && !rows.is_empty() {
            self.timeline.store(SHOWN, Ordering::Relaxed);
        }
        Ok(rows)
    }

    pub(super) fn failure(&self, error: Error, session: Box<dyn Session>, until: Instant) -> StoreError {
        if !error::session_survives(&error) {
            session.discard(error::sqlstate(&error) == Some(error::READ_ONLY));
        }
        if error.as_db_error().is_none() && Instant::now() >= until {
            return error::timeout().with_source(error);
        }
        error::of_statement(error, &self.table)
    }

    /// Whether it is the timeline, and not the table, that the server refuses. Remembered and reported once.
    fn is_timeline_hidden(&self, session: &mut dyn Session, until: Instant) -> bool {
        let refused = match session.query(&sql::probe(), &[], until) {
            Ok(_) => false,
            Err(error) => error::may_lack_timeline(&error),
        };
        if refused && self.timeline.swap(HIDDEN, Ordering::Relaxed) != HIDDEN {
            warn_without_waiting();
        }
        refused
    }
}

/// A log sink may block; that must not cost one of the store's threads.
fn warn_without_waiting() {
    let warn = || {
        log::warn!(
            target: "tenure",
            "the database server does not show its timeline (pg_walfile_name and pg_current_wal_lsn): \
             after a fail-over that loses acknowledged writes, fencing tokens may repeat"
        );
    };
    thread::Builder::new().name("tenure-pg-warn".into()).spawn(warn).ok();
}

/// How long the statement may wait for a lock: less than is left, so that the server gives up before we do.
pub(super) fn patience(left: Duration) -> String {
    let margin = Duration::from_millis(50).max(left / 10);
    format!("{}ms", left.saturating_sub(margin).as_millis().clamp(1, i32::MAX as u128))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_gives_up_first_and_never_waits_for_ever() {
        assert_eq!(patience(Duration::from_secs(3)), "2700ms");
        assert_eq!(patience(Duration::from_millis(200)), "150ms");
        assert_eq!(patience(Duration::from_millis(20)), "1ms", "0 would mean no limit");
        assert_eq!(patience(Duration::MAX), "2147483647ms");
    }
}
