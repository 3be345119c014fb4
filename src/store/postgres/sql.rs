//! The statements. Each is one statement and, sent with its parameter types, one round trip.
//!
//! What they have in common:
//!
//! - Nothing outlives them: settings are made by `set_config(.., true)` inside the statement (rules 13, 16).
//! - Whatever may wait for the row waits in a CTE of its own, and the clock is read from that CTE's output,
//!   hence after the wait, once for all columns (rule 17). `MATERIALIZED` keeps the planner from merging the
//!   steps.
//! - Names are qualified, those of operators too, so that a foreign `search_path` neither hides the table nor slips
//!   in other code. Operators need it even where the server's own come first: one that somebody made for exactly
//!   these types, in any schema of the path, is preferred to one that converts. Qualified, they all have the same
//!   precedence and group from the left; parentheses say what is meant.

use super::table::Table;
use crate::lease::Lease;

const EQ: &str = "OPERATOR(pg_catalog.=)";
const NE: &str = "OPERATOR(pg_catalog.<>)";
const GT: &str = "OPERATOR(pg_catalog.>)";
const LT: &str = "OPERATOR(pg_catalog.<)";
const PLUS: &str = "OPERATOR(pg_catalog.+)";
const MINUS: &str = "OPERATOR(pg_catalog.-)";
const TIMES: &str = "OPERATOR(pg_catalog.*)";
const OVER: &str = "OPERATOR(pg_catalog./)";
const MASK: &str = "OPERATOR(pg_catalog.&)";
const SHIFT: &str = "OPERATOR(pg_catalog.>>)";

/// The server's timeline: the first eight hexadecimal digits of the current WAL file's name (rule 15). A
/// standby has none to write to, and asking it would be an error.
const TIMELINE: &str = "CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL ELSE \
    ('x' OPERATOR(pg_catalog.||) \
    pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))\
    ::bit(32)::bigint END";

/// In its place, where the server doesn't expose it.
const NO_TIMELINE: &str = "NULL::bigint";

/// Asks for the timeline and nothing else.
pub(super) fn probe() -> String {
    format!("SELECT {TIMELINE}")
}

/// The statements for one table.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) create: String,
    pub(super) take_over: String,
    pub(super) renew: String,
    pub(super) release: String,
    pub(super) observe: String,
    pub(super) list: String,
    pub(super) examine: String,
}

impl Statements {
    pub(super) fn new(table: &Table, with_timeline: bool) -> Statements {
        let timeline = if with_timeline { TIMELINE } else { NO_TIMELINE };
        Statements {
            create: create(table, timeline),
            take_over: take_over(table, timeline),
            renew: renew(table, timeline),
            release: release(table),
            observe: observe(table, timeline),
            list: list(table, timeline),
            examine: super::examine::statement(timeline),
        }
    }
}

/// $1 is the time that the statement may wait for a lock: one that nobody waits for any more must not queue
/// for the row. An acknowledged write must be durable, whatever the role's or the database's defaults are;
/// stronger settings are kept.
const SETTINGS: &str = "WITH settings AS MATERIALIZED (
    SELECT pg_catalog.set_config('lock_timeout', $1, true) AS patience,
           CASE WHEN pg_catalog.current_setting('synchronous_commit')
                     OPERATOR(pg_catalog.=) ANY (ARRAY['off', 'local'])
                THEN pg_catalog.set_config('synchronous_commit', 'on', true)
                ELSE 'kept' END AS durability
)";

/// Without a use the settings would not be made.
const SETTINGS_MADE: &str = "settings.patience IS NOT NULL AND settings.durability IS NOT NULL";

/// `Fence::after`, from `premise.highest` and `premise.timeline`. The multiplication raises 22003 on
/// overflow, where a shift would wrap; an unknown timeline makes the condition unknown and takes the last
/// branch.
fn next_fence() -> String {
    let high = format!("(premise.highest {SHIFT} 40)");
    let ahead = format!("((premise.timeline {MINUS} 1 {MINUS} {high}) {MASK} 1023)");
    format!(
        "CASE WHEN {ahead} {NE} 0
                THEN (({high} {PLUS} {ahead}) {TIMES} 1099511627776) {PLUS} 1
                ELSE premise.highest {PLUS} 1 END"
    )
}

/// The columns of every answer, in the order that `row` decodes.
fn returning(timeline: &str) -> String {
    format!(
        "RETURNING lease.holder, lease.fence, lease.acquired_at, lease.renewed_at, lease.expires_at,
          lease.payload, lease.xmin::pg_catalog.text::bigint, lease.renewed_at, {timeline}"
    )
}

/// $2 name, $3 holder, $4 duration in microseconds, $5 payload, $6 above, $7 timeline.
///
/// An insertion that meets another one of the same name, still uncommitted, waits for it, and goes on with
/// the clock read before the wait if that one is rolled back. There is no row that could be locked first, so
/// a row that comes out older than it should divides by zero: nothing is written, and the caller tries again.
fn create(table: &Table, timeline: &str) -> String {
    format!(
        "{SETTINGS}, premise AS MATERIALIZED (
    SELECT pg_catalog.clock_timestamp() AS now, GREATEST($6, 0) AS highest, {timeline} AS timeline
      FROM settings
     WHERE {SETTINGS_MADE}
), term AS MATERIALIZED (
    SELECT premise.now, {next_fence} AS fence
      FROM premise
     WHERE $7 IS NULL OR premise.timeline {EQ} $7
)
INSERT INTO {table} AS lease (name, holder, fence, acquired_at, renewed_at, expires_at, payload)
SELECT $2, $3, term.fence, term.now, term.now, term.now {PLUS} ($4 {TIMES} interval '1 microsecond'), $5
  FROM term
ON CONFLICT (name) DO NOTHING
{returning},
          1 {OVER} CASE WHEN (pg_catalog.clock_timestamp() {MINUS} lease.renewed_at)
                        {GT} (GREATEST($4 {OVER} 40, 20000) {TIMES} interval '1 microsecond')
                   THEN 0 ELSE 1 END",
        next_fence = next_fence(),
        returning = returning(timeline),
    )
}

/// $2 to $7 as for [`create`]; the version: $8 holder, $9 fence, $10 renewed_at, $11 expires_at, $12 mark.
fn take_over(table: &Table, timeline: &str) -> String {
    format!(
        "{SETTINGS}, found AS MATERIALIZED (
    SELECT lease.name, lease.fence
      FROM settings, {table} AS lease
     WHERE {SETTINGS_MADE}
       AND lease.name {EQ} $2 AND lease.holder {EQ} $8 AND lease.fence {EQ} $9
       AND {renewed} AND {expires}
       AND lease.xmin::pg_catalog.text::bigint {EQ} $12
       FOR NO KEY UPDATE OF lease
), premise AS MATERIALIZED (
    SELECT found.name, pg_catalog.clock_timestamp() AS now,
           GREATEST(found.fence, $6, 0) AS highest, {timeline} AS timeline
      FROM found
), term AS MATERIALIZED (
    SELECT premise.name, premise.now, {next_fence} AS fence
      FROM premise
     WHERE $7 IS NULL OR premise.timeline {EQ} $7
)
UPDATE {table} AS lease
   SET holder = $3, fence = term.fence, acquired_at = term.now, renewed_at = term.now,
       expires_at = term.now {PLUS} ($4 {TIMES} interval '1 microsecond'), payload = $5
  FROM term
 WHERE lease.name {EQ} term.name
{returning}",
        next_fence = next_fence(),
        renewed = same_instant("lease.renewed_at", "$10"),
        expires = same_instant("lease.expires_at", "$11"),
        returning = returning(timeline),
    )
}

/// The last decades that PostgreSQL can count lie beyond our timestamps and were read as infinity.
fn same_instant(column: &str, parameter: &str) -> String {
    format!(
        "({column} {EQ} {parameter} OR {parameter} {EQ} 'infinity'::timestamp with time zone
            AND {column} {GT} '294246-01-01 00:00:00+00'::timestamp with time zone)"
    )
}

/// $2 name, $3 holder, $4 duration in microseconds, $5 payload, $6 fence.
fn renew(table: &Table, timeline: &str) -> String {
    format!(
        "{SETTINGS}, found AS MATERIALIZED (
    SELECT lease.name
      FROM settings, {table} AS lease
     WHERE {SETTINGS_MADE}
       AND lease.name {EQ} $2 AND lease.holder {EQ} $3 AND lease.fence {EQ} $6
       FOR NO KEY UPDATE OF lease
), moment AS MATERIALIZED (
    SELECT found.name, pg_catalog.clock_timestamp() AS now FROM found
)
UPDATE {table} AS lease
   SET renewed_at = moment.now, expires_at = moment.now {PLUS} ($4 {TIMES} interval '1 microsecond'), payload = $5
  FROM moment
 WHERE lease.name {EQ} moment.name AND lease.holder {EQ} $3 AND lease.fence {EQ} $6
   AND lease.expires_at {GT} moment.now
{returning}",
        returning = returning(timeline),
    )
}

/// $2 name, $3 holder, $4 fence. Reads no clock.
fn release(table: &Table) -> String {
    format!(
        "{SETTINGS}
UPDATE {table} AS lease
   SET expires_at = 'epoch'::timestamp with time zone
  FROM settings
 WHERE {SETTINGS_MADE}
   AND lease.name {EQ} $2 AND lease.holder {EQ} $3 AND lease.fence {EQ} $4
   AND lease.expires_at {NE} 'epoch'::timestamp with time zone",
    )
}

/// $1 name, $2 the table as SQL. Always one row: without a lease all of its columns are null.
///
/// Nobody leads without having looked, so this is where it shows that the table is one that a crash empties, also where
/// nobody has called `ensure_schema`, and where somebody changed it since (rule 16).
fn observe(table: &Table, timeline: &str) -> String {
    format!(
        "SELECT lease.holder, lease.fence, lease.acquired_at, lease.renewed_at, lease.expires_at,
       lease.payload, lease.xmin::pg_catalog.text::bigint, moment.now, moment.timeline, moment.standby,
       (SELECT class.relpersistence::pg_catalog.text {EQ} 'u' FROM pg_catalog.pg_class AS class
         WHERE class.oid {EQ} pg_catalog.to_regclass($2)::pg_catalog.oid)
  FROM (SELECT pg_catalog.clock_timestamp() AS now, {timeline} AS timeline,
               pg_catalog.pg_is_in_recovery() AS standby) AS moment
  LEFT JOIN {table} AS lease ON lease.name {EQ} $1"
    )
}

/// All rows in the order of their names, byte by byte, as those of [`observe`] with the name behind. Always one at
/// least: without any election all of its columns are null but those of the moment, which is the same for all.
fn list(table: &Table, timeline: &str) -> String {
    let limit = Lease::MAX_LISTED;
    format!(
        "SELECT lease.holder, lease.fence, lease.acquired_at, lease.renewed_at, lease.expires_at,
       lease.payload, lease.version_mark, moment.now, moment.timeline, moment.standby, lease.name
  FROM (SELECT pg_catalog.clock_timestamp() AS now, {timeline} AS timeline,
               pg_catalog.pg_is_in_recovery() AS standby) AS moment
  LEFT JOIN (SELECT name, holder, fence, acquired_at, renewed_at, expires_at, payload,
                    xmin::pg_catalog.text::bigint AS version_mark
               FROM {table}
              ORDER BY name COLLATE pg_catalog.\"C\" LIMIT {limit}) AS lease ON true
 ORDER BY lease.name COLLATE pg_catalog.\"C\""
    )
}

/// $1 the time that it may take, $2 name, $3 holder, $4 fence. Always one row: whether the row is this term's (null:
/// there is none), and the isolation level.
///
/// It locks the row to the end of the transaction, so that nobody takes over before. Not `FOR SHARE`: others that share
/// the row pass by whoever waits to write to it, so transactions that overlap without end would keep the leader's
/// own renewals from it. This way they take turns. A lease is found by its name only, since in a transaction with an
/// older snapshot a row that has changed since must be seen to have changed.
///
/// A client that is silent while it holds the lock holds up the election, hence the second setting. The first is as it
/// was when the statement is done.
pub(super) fn check(table: &str) -> String {
    let idle = "pg_catalog.current_setting('idle_in_transaction_session_timeout')::interval";
    format!(
        "WITH settings AS MATERIALIZED (
    SELECT pg_catalog.current_setting('lock_timeout') AS earlier,
           pg_catalog.set_config('lock_timeout', $1, true) AS patience,
           CASE WHEN {idle} {GT} '0'::interval AND {idle} {LT} $1::interval
                THEN 'kept'
                ELSE pg_catalog.set_config('idle_in_transaction_session_timeout', $1, true) END AS silence
), found AS MATERIALIZED (
    SELECT lease.holder, lease.fence, lease.expires_at
      FROM settings, {table} AS lease
     WHERE settings.patience IS NOT NULL AND settings.silence IS NOT NULL
       AND lease.name {EQ} $2
       FOR NO KEY UPDATE OF lease
), moment AS MATERIALIZED (
    SELECT found.holder, found.fence, found.expires_at, pg_catalog.clock_timestamp() AS now FROM found
)
SELECT moment.holder {EQ} $3 AND moment.fence {EQ} $4 AND moment.expires_at {GT} moment.now,
       pg_catalog.current_setting('transaction_isolation'),
       pg_catalog.set_config('lock_timeout', settings.earlier, true)
  FROM settings LEFT JOIN moment ON true"
    )
}
