//! What a server, the way to it, the role and the table are like. Facts for a person; elections use none of them.

use std::time::{Duration, Instant};

use postgres::Row;
use postgres::types::FromSql;

use super::engine::{Call, Engine, Kind, Parameter};
use super::row::Micros;
use super::schema::{self, Found};
use super::{error, session::Session};
use crate::lease::Timestamp;
use crate::store::StoreError;

/// How often each of two connections is asked which process serves it.
const ROUNDS: usize = 4;
/// How long to wait for a second connection: whoever has a pool of one can't have it.
const SECOND_CONNECTION: Duration = Duration::from_secs(1);
/// PostgreSQL's own, where the table sets none.
const DEFAULT_FILLFACTOR: u32 = 100;

/// What [`PostgresStore::examine`](super::PostgresStore::examine) found.
///
/// The server's word about the session that answered: behind a pooler, `tls` and `local` are about the connection from
/// the pooler to the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresExamination {
    /// The servers of the connection string; without a password.
    pub servers: String,
    /// The server's version, as people write it.
    pub version: String,
    /// As a number: 150004 for 15.4.
    pub version_number: u32,
    /// The database.
    pub database: String,
    /// The role that statements run as.
    pub role: String,
    /// The protocol of the session's TLS; `None` where it is in plain text.
    pub tls: Option<String>,
    /// Whether the certificate of the server (or pooler) that was connected to had to hold: by a `verify-` mode or a
    /// root certificate. `None` where nothing is encrypted, or by a connector of the application's.
    pub verified: Option<bool>,
    /// Whether the session came through a Unix-domain socket.
    pub local: bool,
    /// Whether a pooler lends the same server process to several connections. False: each of two had one of its own
    /// all the time, so there is no pooler, or one that lends for a whole session. `None`: there was no second
    /// connection to compare with.
    pub pooled: Option<bool>,
    /// Whether the server is a standby.
    pub standby: bool,
    /// Whether transactions are read-only unless they ask for more.
    pub read_only: bool,
    /// The WAL timeline; `None` from a standby, and from servers that hide it.
    pub timeline: Option<u32>,
    /// `synchronous_commit` of this role's sessions.
    pub synchronous_commit: String,
    /// Whether the server waits for the disk at all.
    pub fsync: bool,
    /// Whether pages that were torn by a crash can be mended.
    pub full_page_writes: bool,
    /// `synchronous_standby_names`; empty where commits wait for no standby.
    pub synchronous_standbys: String,
    /// Connections that replicate from this server at the moment.
    pub replications: i64,
    /// `lock_timeout` of this role's sessions; zero is none.
    pub lock_timeout: Duration,
    /// `statement_timeout`; zero is none.
    pub statement_timeout: Duration,
    /// `idle_in_transaction_session_timeout`; zero is none.
    pub idle_in_transaction_timeout: Duration,
    /// The server's clock, read between the next two.
    pub now: Timestamp,
    /// Just before the question was sent.
    pub asked_at: Instant,
    /// When the answer was there.
    pub answered_at: Instant,
    /// Whether there is a schema of that name.
    pub schema_exists: bool,
    /// Whether the role has `USAGE` on it.
    pub may_use_schema: bool,
    /// Whether the role may create a table in it.
    pub may_create_table: bool,
    /// The table, if there is one of that name.
    pub table: Option<PostgresTable>,
}

/// Nothing found: something to start from in tests of what reads it.
impl Default for PostgresExamination {
    fn default() -> PostgresExamination {
        let now = Instant::now();
        PostgresExamination {
            servers: String::new(),
            version: String::new(),
            version_number: 0,
            database: String::new(),
            role: String::new(),
            tls: None,
            verified: None,
            local: false,
            pooled: None,
            standby: false,
            read_only: false,
            timeline: None,
            synchronous_commit: String::new(),
            fsync: false,
            full_page_writes: false,
            synchronous_standbys: String::new(),
            replications: 0,
            lock_timeout: Duration::ZERO,
            statement_timeout: Duration::ZERO,
            idle_in_transaction_timeout: Duration::ZERO,
            now: Timestamp::EPOCH,
            asked_at: now,
            answered_at: now,
            schema_exists: false,
            may_use_schema: false,
            may_create_table: false,
            table: None,
        }
    }
}

/// The table, as [`PostgresStore::examine`](super::PostgresStore::examine) found it. The counts are the server's
/// statistics: they may lag, and begin again when somebody resets them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PostgresTable {
    /// With its schema, quoted.
    pub name: String,
    /// Why it can't carry elections; `None` where it can.
    pub complaint: Option<String>,
    /// Whether the role may read it.
    pub may_select: bool,
    /// Whether the role may insert into it.
    pub may_insert: bool,
    /// Whether the role may update it.
    pub may_update: bool,
    /// Whether row-level security applies to this role.
    pub row_security: bool,
    /// Triggers that fire, by name.
    pub triggers: Vec<String>,
    /// Rewrite rules, by name.
    pub rules: Vec<String>,
    /// How full its pages are made, in per cent.
    pub fillfactor: u32,
    /// Whether autovacuum may look after it.
    pub autovacuum: bool,
    /// Rows that are there.
    pub live_rows: i64,
    /// Versions of rows that nobody needs any more and that are still there.
    pub dead_rows: i64,
    /// Updates so far.
    pub updates: i64,
    /// How many of them needed no new entry in the index.
    pub hot_updates: i64,
    /// With its index and everything else, in bytes.
    pub bytes: i64,
}

pub(super) fn examine(engine: &Engine, until: Instant) -> Result<PostgresExamination, StoreError> {
    let table = engine.table();
    let parameters = || vec![Parameter::text(table.schema()), Parameter::text(table.name())];
    // The first answer is the one that may have to connect: the second tells how far the clock is.
    engine.rows(&Call::new(Kind::Inspect, parameters()), until)?;
    let asked_at = Instant::now();
    let rows = engine.rows(&Call::new(Kind::Examine, parameters()), until)?;
    let answered_at = Instant::now();
    let Some(row) = rows.first() else {
        return Err(StoreError::retryable("the database answered an examination with nothing"));
    };
    let mut found =
        read(&mut Columns(row, 0), engine, (asked_at, answered_at)).map_err(error::wrong_shape)?;
    if let Some(table) = &mut found.table {
        table.complaint = match schema::look(engine, until)? {
            Found::Fit => None,
            Found::Nothing => Some("it has just vanished".to_owned()),
            Found::Unfit(complaint) => Some(complaint),
        };
    }
    found.pooled = are_backends_shared(engine, until)?;
    Ok(found)
}

/// Whether two connections that are open at the same time are served by the same process now and then, or one of them
/// by several in turn. Only a pooler does that.
fn are_backends_shared(engine: &Engine, until: Instant) -> Result<Option<bool>, StoreError> {
    let first = engine.session(until)?;
    // Why there is none is of no interest: the first one works.
    let Ok(second) = engine.session(until.min(Instant::now() + SECOND_CONNECTION)) else { return Ok(None) };
    let mut sessions = [(first, Vec::new()), (second, Vec::new())];
    for _ in 0..ROUNDS {
        for (session, seen) in &mut sessions {
            match backend(&mut **session, until) {
                Ok(backend) => seen.push(backend),
                // One that fails now has told nothing; it is closed with the others.
                Err(_) => return Ok(None),
            }
        }
    }
    let [(_, one), (_, other)] = &sessions;
    Ok(Some(is_shared(one, other)))
}

fn is_shared(one: &[i32], other: &[i32]) -> bool {
    let changes = |seen: &[i32]| seen.windows(2).any(|pair| pair[0] != pair[1]);
    changes(one) || changes(other) || one.iter().any(|backend| other.contains(backend))
}

fn backend(session: &mut dyn Session, until: Instant) -> Result<i32, postgres::Error> {
    let rows = session.query("SELECT pg_catalog.pg_backend_pid()", &[], until)?;
    rows.first().map_or(Ok(0), |row| row.try_get(0))
}

/// $1 the time that it may wait for a lock (the table's size asks for a weak one), $2 schema, $3 table. One row.
pub(super) fn statement(timeline: &str) -> String {
    let millis = |setting: &str| {
        format!("(EXTRACT(epoch FROM {setting}::interval) OPERATOR(pg_catalog.*) 1000)::bigint")
    };
    let setting = |name: &str| format!("pg_catalog.current_setting('{name}')");
    let is = |name: &str, value: &str| format!("{} OPERATOR(pg_catalog.=) '{value}'", setting(name));
    format!(
        "WITH settings AS MATERIALIZED (
    SELECT {lock_timeout} AS earlier, pg_catalog.set_config('lock_timeout', $1, true) AS patience
), place AS MATERIALIZED (
    SELECT namespace.oid FROM pg_catalog.pg_namespace AS namespace
     WHERE namespace.nspname OPERATOR(pg_catalog.=) $2
), {TABLE}
SELECT {version}, {number}::int4, pg_catalog.current_database()::text, CURRENT_USER::text,
       (SELECT ssl.version FROM pg_catalog.pg_stat_ssl AS ssl
         WHERE ssl.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND ssl.ssl),
       pg_catalog.inet_client_addr() IS NULL,
       pg_catalog.pg_is_in_recovery(), {read_only}, {timeline},
       {synchronous_commit}, {fsync}, {full_page_writes}, {standbys},
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication),
       {earlier}, {statement_timeout}, {idle_timeout},
       place.oid IS NOT NULL,
       COALESCE(pg_catalog.has_schema_privilege(place.oid, 'USAGE'), false),
       COALESCE(pg_catalog.has_schema_privilege(place.oid, 'CREATE'), false),
       found.*, pg_catalog.clock_timestamp()
  FROM settings LEFT JOIN place ON true LEFT JOIN found ON true
 WHERE settings.patience IS NOT NULL",
        lock_timeout = setting("lock_timeout"),
        version = setting("server_version"),
        number = setting("server_version_num"),
        read_only = is("transaction_read_only", "on"),
        synchronous_commit = setting("synchronous_commit"),
        fsync = is("fsync", "on"),
        full_page_writes = is("full_page_writes", "on"),
        standbys = setting("synchronous_standby_names"),
        earlier = millis("settings.earlier"),
        statement_timeout = millis(&setting("statement_timeout")),
        idle_timeout = millis(&setting("idle_in_transaction_session_timeout")),
    )
}

/// A right on the table is one on the whole table, or on each column that our statements name. Those that read also
/// name `xmin`, which nobody grants by itself.
const TABLE: &str = "found AS (
    SELECT class.oid IS NOT NULL AS there,
           pg_catalog.has_table_privilege(class.oid, 'SELECT') AS may_select,
           pg_catalog.has_table_privilege(class.oid, 'INSERT') OR columns.may_insert AS may_insert,
           pg_catalog.has_table_privilege(class.oid, 'UPDATE') OR columns.may_update AS may_update,
           pg_catalog.row_security_active(class.oid) AS row_security,
           ARRAY(SELECT hook.tgname::text FROM pg_catalog.pg_trigger AS hook
                  WHERE hook.tgrelid OPERATOR(pg_catalog.=) class.oid AND NOT hook.tgisinternal
                    AND hook.tgenabled OPERATOR(pg_catalog.<>) 'D' ORDER BY 1) AS triggers,
           ARRAY(SELECT rule.rulename::text FROM pg_catalog.pg_rewrite AS rule
                  WHERE rule.ev_class OPERATOR(pg_catalog.=) class.oid
                    AND rule.ev_enabled OPERATOR(pg_catalog.<>) 'D' ORDER BY 1) AS rules,
           (SELECT option.option_value::int4 FROM pg_catalog.pg_options_to_table(class.reloptions) AS option
             WHERE option.option_name OPERATOR(pg_catalog.=) 'fillfactor') AS fillfactor,
           pg_catalog.current_setting('autovacuum') OPERATOR(pg_catalog.=) 'on' AND COALESCE(
               (SELECT option.option_value::bool FROM pg_catalog.pg_options_to_table(class.reloptions) AS option
                 WHERE option.option_name OPERATOR(pg_catalog.=) 'autovacuum_enabled'), true) AS autovacuum,
           pg_catalog.pg_stat_get_live_tuples(class.oid) AS live,
           pg_catalog.pg_stat_get_dead_tuples(class.oid) AS dead,
           pg_catalog.pg_stat_get_tuples_updated(class.oid) AS updates,
           pg_catalog.pg_stat_get_tuples_hot_updated(class.oid) AS hot,
           pg_catalog.pg_total_relation_size(class.oid) AS bytes
      FROM settings, place, pg_catalog.pg_class AS class, LATERAL (
           SELECT pg_catalog.bool_and(
                      pg_catalog.has_column_privilege(class.oid, ours.attnum, 'INSERT')) AS may_insert,
                  pg_catalog.bool_and(ours.attname OPERATOR(pg_catalog.=) 'name'
                      OR pg_catalog.has_column_privilege(class.oid, ours.attnum, 'UPDATE')) AS may_update
             FROM pg_catalog.pg_attribute AS ours
            WHERE ours.attrelid OPERATOR(pg_catalog.=) class.oid
              AND ours.attnum OPERATOR(pg_catalog.>) 0 AND NOT ours.attisdropped) AS columns
     WHERE settings.patience IS NOT NULL
       AND class.relnamespace OPERATOR(pg_catalog.=) place.oid
       AND class.relname OPERATOR(pg_catalog.=) $3)";

/// The columns of the answer, one after the other.
struct Columns<'a>(&'a Row, usize);

impl<'a> Columns<'a> {
    fn next<T: FromSql<'a>>(&mut self) -> Result<T, postgres::Error> {
        self.1 += 1;
        self.0.try_get(self.1 - 1)
    }

    fn millis(&mut self) -> Result<Duration, postgres::Error> {
        self.next::<i64>().map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
    }
}

/// In the order of [`statement`].
fn read(
    next: &mut Columns<'_>,
    engine: &Engine,
    (asked_at, answered_at): (Instant, Instant),
) -> Result<PostgresExamination, postgres::Error> {
    Ok(PostgresExamination {
        servers: engine.source(),
        version: next.next()?,
        version_number: next.next::<i32>()?.unsigned_abs(),
        database: next.next()?,
        role: next.next()?,
        tls: next.next()?,
        verified: engine.verifies(),
        local: next.next()?,
        pooled: None,
        standby: next.next()?,
        read_only: next.next()?,
        timeline: next.next::<Option<i64>>()?.and_then(|timeline| u32::try_from(timeline).ok()),
        synchronous_commit: next.next()?,
        fsync: next.next()?,
        full_page_writes: next.next()?,
        synchronous_standbys: next.next()?,
        replications: next.next()?,
        lock_timeout: next.millis()?,
        statement_timeout: next.millis()?,
        idle_in_transaction_timeout: next.millis()?,
        schema_exists: next.next()?,
        may_use_schema: next.next()?,
        may_create_table: next.next()?,
        table: match next.next::<Option<bool>>()? {
            Some(_) => Some(table(next, engine.table().to_string())?),
            None => None,
        },
        now: Columns(next.0, next.0.len() - 1).next::<Micros>()?.0,
        asked_at,
        answered_at,
    })
}

fn table(next: &mut Columns<'_>, name: String) -> Result<PostgresTable, postgres::Error> {
    Ok(PostgresTable {
        name,
        complaint: None,
        may_select: next.next()?,
        may_insert: next.next()?,
        may_update: next.next()?,
        row_security: next.next()?,
        triggers: next.next()?,
        rules: next.next()?,
        fillfactor: next.next::<Option<i32>>()?.map_or(DEFAULT_FILLFACTOR, i32::unsigned_abs),
        autovacuum: next.next()?,
        live_rows: next.next()?,
        dead_rows: next.next()?,
        updates: next.next()?,
        hot_updates: next.next()?,
        bytes: next.next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_looked_at_is_not_there() {
        let found = PostgresExamination::default();
        assert!(found.table.is_none() && found.timeline.is_none() && !found.fsync && found.pooled.is_none());
    }

    #[test]
    fn processes_that_are_shared_are_told_from_those_that_are_not() {
        assert!(!is_shared(&[7, 7, 7], &[8, 8, 8]), "direct, or a pooler in session mode");
        assert!(is_shared(&[7, 7, 7], &[7, 7, 7]), "two connections, one process");
        assert!(is_shared(&[7, 9, 7], &[8, 8, 8]), "one connection, two processes");
        assert!(is_shared(&[7, 7, 7], &[8, 8, 7]));
    }
}
