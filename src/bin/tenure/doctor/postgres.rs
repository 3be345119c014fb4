//! Judges what a PostgreSQL server, the way to it, the role and the table are like. Knows no database.

use std::time::Duration;

use tenure::{PostgresExamination, PostgresTable};

use super::finding::{Finding, Level};

/// `MATERIALIZED`, which the statements need.
const OLDEST_VERSION: u32 = 120_000;
/// So many updates tell something.
const SOME_UPDATES: i64 = 1_000;
const MANY_DEAD_ROWS: i64 = 10_000;
const LARGE_BYTES: i64 = 64 << 20;
/// Above it there is no room on a page for another version of its rows.
const FULL_PAGES: u32 = 90;

pub(crate) fn judge(found: &PostgresExamination, timeout: Duration) -> Vec<Finding> {
    let mut findings = vec![version(found), writable(found), path(found), encryption(found)];
    match &found.table {
        None => findings.push(no_table(found)),
        Some(table) => {
            findings.extend([shape(table), rights(found, table), bystanders(table), upkeep(table)]);
        }
    }
    findings.extend([
        durability(found),
        commits(found),
        failover(found),
        timeline(found),
        limits(found, timeout),
    ]);
    findings
}

fn version(found: &PostgresExamination) -> Finding {
    let version = format!("PostgreSQL {}.", found.version);
    if found.version_number >= OLDEST_VERSION {
        return Finding::ok("version", version);
    }
    Finding::broken("version", format!("{version} The statements need PostgreSQL 12."))
        .advice("upgrade the server")
}

fn writable(found: &PostgresExamination) -> Finding {
    if found.standby {
        let what = "the server is a standby: it can't be written, and what it shows may lag behind.";
        return Finding::broken("primary", what)
            .advice("name all servers in the URL and add target_session_attrs=read-write");
    }
    if found.read_only {
        let what = "transactions are read-only (default_transaction_read_only): nobody can lead.";
        return Finding::broken("primary", what).advice("reset it for this role or this database");
    }
    Finding::ok("primary", "the server accepts writes.")
}

fn path(found: &PostgresExamination) -> Finding {
    match found.pooled {
        Some(true) => {
            let what = "through a pooler that shares server processes between connections (transaction or \
                        statement mode). Every operation is one statement that leaves nothing behind, so that is fine.";
            Finding::note("path", what).advice(
                "if it is PgBouncer, set server_login_retry = 1: with its default it refuses logins for 15 s \
                 after the database is back",
            )
        }
        Some(false) => Finding::ok(
            "path",
            "each of two connections kept a server process of its own: direct, or a pooler in session mode.",
        ),
        None => Finding::note("path", "there was no second connection, so a pooler would not have shown.")
            .advice("see that the server's max_connections, or the pooler's, leave room"),
    }
}

fn encryption(found: &PostgresExamination) -> Finding {
    let between =
        if found.pooled == Some(true) { "between the pooler and the server" } else { "to the server" };
    let pooled = if found.pooled == Some(true) { " What is before the pooler does not show." } else { "" };
    match &found.tls {
        Some(protocol) if found.pooled != Some(true) && found.verified == Some(false) => {
            let what = format!(
                "{protocol} {between}, but nobody made sure that it is the server: whoever is on the way can pass for it."
            );
            Finding::note("encryption", what).advice(
                "sslmode=verify-full in the URL, with sslrootcert=FILE where the system does not know the authority",
            )
        }
        Some(protocol) => Finding::ok("encryption", format!("{protocol} {between}.{pooled}")),
        None if found.local => {
            Finding::ok("encryption", format!("a Unix-domain socket {between}; nobody else can listen.{pooled}"))
        }
        None => Finding::note("encryption", format!("plain text {between}.{pooled}")).advice(
            "fine on one host, or in a network that nobody else is in; elsewhere whoever is on the way can read \
             leases, and write some of their own",
        ),
    }
}

fn no_table(found: &PostgresExamination) -> Finding {
    let what = "there is no table: nobody can lead.";
    let advice = if !found.schema_exists {
        "the schema does not exist: create it, then run `tenure init`"
    } else if found.may_create_table {
        "run `tenure init`, or put what `tenure schema` prints into a migration"
    } else {
        "this role may not create it: let one that may run `tenure init`, or what `tenure schema` prints, and grant \
         SELECT, INSERT, UPDATE to this one"
    };
    Finding::broken("table", what).advice(advice)
}

fn shape(table: &PostgresTable) -> Finding {
    match &table.complaint {
        None => Finding::ok("table", format!("{} has the right columns, key and persistence.", table.name)),
        Some(complaint) => Finding::unsafe_(
            "table",
            format!("{} can't carry elections: {complaint}.", table.name),
        )
        .advice(
            "compare it with what `tenure schema` prints; UNLOGGED is mended by ALTER TABLE .. SET LOGGED",
        ),
    }
}

fn rights(found: &PostgresExamination, table: &PostgresTable) -> Finding {
    let rights = [("SELECT", table.may_select), ("INSERT", table.may_insert), ("UPDATE", table.may_update)];
    let missing: Vec<_> = rights.iter().filter(|(_, has)| !has).map(|(right, _)| *right).collect();
    if missing.is_empty() && found.may_use_schema {
        return Finding::ok("rights", format!("the role {} may do what it needs.", found.role));
    }
    let mut lacks = missing.clone();
    let mut grants = Vec::new();
    if !found.may_use_schema {
        lacks.insert(0, "USAGE on the schema");
        grants.push(format!("GRANT USAGE ON SCHEMA .. TO {}", found.role));
    }
    if !missing.is_empty() {
        grants.push(format!("GRANT {} ON {} TO {}", missing.join(", "), table.name, found.role));
    }
    Finding::broken("rights", format!("the role {} lacks {}: nobody can lead.", found.role, lacks.join(", ")))
        .advice(grants.join("; "))
}

fn bystanders(table: &PostgresTable) -> Finding {
    if table.row_security {
        let what = "row-level security applies to this role: a lease that a policy hides looks like none.";
        return Finding::unsafe_("bystanders", what).advice(
            "ALTER TABLE .. DISABLE ROW LEVEL SECURITY, or a policy that shows and accepts every row",
        );
    }
    if !table.rules.is_empty() {
        let what = format!("rewrite rules change the statements: {}.", table.rules.join(", "));
        return Finding::unsafe_("bystanders", what).advice("DROP RULE");
    }
    if !table.triggers.is_empty() {
        let what = format!(
            "triggers run inside every renewal: {}. One that is slow or fails ends terms; one that changes what is \
             written breaks the election.",
            table.triggers.join(", ")
        );
        return Finding::note("bystanders", what).advice("see that they only look, and quickly");
    }
    Finding::ok("bystanders", "no triggers, rules or row-level security.")
}

fn upkeep(table: &PostgresTable) -> Finding {
    let what = format!(
        "{} rows, {} dead versions, {} kB; {} of {} updates were HOT; fillfactor {}.",
        table.live_rows,
        table.dead_rows,
        table.bytes / 1024,
        table.hot_updates,
        table.updates,
        table.fillfactor
    );
    let advice = if !table.autovacuum {
        Some(
            "autovacuum is off for it, so that dead versions stay: ALTER TABLE .. RESET (autovacuum_enabled)",
        )
    } else if table.dead_rows > MANY_DEAD_ROWS.max(table.live_rows * 10) || table.bytes > LARGE_BYTES {
        Some(
            "something keeps dead versions from being removed: look for old transactions in pg_stat_activity \
              (backend_xmin), pg_prepared_xacts and pg_replication_slots, then VACUUM FULL",
        )
    } else if table.updates >= SOME_UPDATES && table.hot_updates < table.updates / 10 * 9 {
        Some(
            "many renewals write the index too: drop indexes other than the primary key's, keep payloads small, \
              and look for transactions that stay open",
        )
    } else if table.fillfactor > FULL_PAGES {
        Some("ALTER TABLE .. SET (fillfactor = 70), so that a renewal finds room beside the row")
    } else {
        None
    };
    match advice {
        None => Finding::ok("upkeep", what),
        Some(advice) => Finding::note("upkeep", what).advice(advice),
    }
}

fn durability(found: &PostgresExamination) -> Finding {
    if !found.fsync {
        let what = "fsync is off: after a crash of the machine the server may have forgotten leases and fences that \
                    it acknowledged, or be damaged.";
        return Finding::unsafe_("durability", what).advice("fsync = on");
    }
    if !found.full_page_writes {
        let what = "full_page_writes is off: a page that a crash of the machine tears can't be mended, unless the \
                    file system writes pages as a whole (ZFS does).";
        return Finding::unsafe_("durability", what).advice("full_page_writes = on");
    }
    Finding::ok("durability", "acknowledged writes survive a crash (fsync, full_page_writes).")
}

fn commits(found: &PostgresExamination) -> Finding {
    let setting = &found.synchronous_commit;
    match setting.as_str() {
        "off" | "local" => {
            let what = format!(
                "synchronous_commit is {setting} for this role; the statements of elections raise it to on."
            );
            Finding::note("commits", what).advice(
                "nothing to do for elections; what the leader writes otherwise may be lost in a crash",
            )
        }
        _ => Finding::ok("commits", format!("synchronous_commit is {setting}.")),
    }
}

fn failover(found: &PostgresExamination) -> Finding {
    let (names, count) = (&found.synchronous_standbys, found.replications);
    if !names.is_empty() && count == 0 && !found.standby {
        let what = format!(
            "commits wait for a synchronous standby ({names}), and nobody replicates: no write is ever acknowledged."
        );
        return Finding::broken("fail-over", what)
            .advice("bring a standby back, or take it out of synchronous_standby_names");
    }
    if !names.is_empty() {
        let what =
            format!("commits wait for a synchronous standby ({names}); {count} replicate at the moment.");
        return Finding::ok("fail-over", what);
    }
    if count == 0 || found.standby {
        return Finding::ok("fail-over", "nobody replicates from this server at the moment.");
    }
    let what = format!(
        "{count} replicate, and commits wait for none of them (synchronous_standby_names is empty): a fail-over can \
         lose acknowledged leases. Candidates wait those out, and fences go on above them, since they follow the \
         server's timeline."
    );
    Finding::note("fail-over", what).advice("nothing to do for elections where the timeline shows (next)")
}

fn timeline(found: &PostgresExamination) -> Finding {
    if let Some(timeline) = found.timeline {
        return Finding::ok("timeline", format!("{timeline}; every promotion raises it, and fences follow."));
    }
    if found.standby {
        return Finding::ok("timeline", "only the primary tells.");
    }
    let what = "the server does not show it (pg_walfile_name, pg_current_wal_lsn): after a fail-over that loses \
                acknowledged writes, fences may repeat and two may lead.";
    let level = if found.synchronous_standbys.is_empty() { Level::Unsafe } else { Level::Note };
    Finding::new(level, "timeline", what).advice(
        "GRANT EXECUTE on both functions; where the provider refuses, have commits wait for a standby",
    )
}

fn limits(found: &PostgresExamination, timeout: Duration) -> Finding {
    let shown = |limit: Duration| match limit {
        Duration::ZERO => "none".to_owned(),
        limit => format!("{limit:?}"),
    };
    let what = format!(
        "lock_timeout {}, statement_timeout {}, idle_in_transaction_session_timeout {}.",
        shown(found.lock_timeout),
        shown(found.statement_timeout),
        shown(found.idle_in_transaction_timeout)
    );
    if found.statement_timeout > Duration::ZERO && found.statement_timeout < timeout {
        let what = format!("{what} Statements are cancelled before operation_timeout ({timeout:?}) is over.");
        return Finding::note("limits", what)
            .advice("raise statement_timeout for this role, or see it as the bound");
    }
    if found.lock_timeout.is_zero() {
        return Finding::note("limits", what).advice(format!(
            "where tables are locked for long (ALTER TABLE, VACUUM FULL), keep abandoned statements from queueing: \
             ALTER ROLE {} SET lock_timeout = '2s'",
            found.role
        ));
    }
    Finding::ok("limits", what)
}
