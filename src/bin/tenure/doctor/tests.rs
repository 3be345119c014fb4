//! The judges over made-up facts: each finding by one thing that is wrong with a healthy database.

use std::time::Duration;

use tenure::{PostgresExamination, PostgresTable, SqliteExamination, StoreError};

use super::finding::{Finding, Level, verdict};
use super::{postgres, sqlite};

const TIMEOUT: Duration = Duration::from_secs(3);

fn healthy() -> PostgresExamination {
    let mut table = PostgresTable::default();
    (table.may_select, table.may_insert, table.may_update) = (true, true, true);
    (table.fillfactor, table.autovacuum, table.live_rows) = (70, true, 5);
    (table.updates, table.hot_updates, table.bytes) = (10_000, 10_000, 40_960);
    table.name = "\"public\".\"leader_election\"".into();
    let mut found = PostgresExamination::default();
    (found.version, found.version_number, found.role) = ("15.18".into(), 150_018, "app".into());
    (found.tls, found.pooled, found.timeline) = (Some("TLSv1.3".into()), Some(false), Some(1));
    found.verified = Some(true);
    (found.fsync, found.full_page_writes, found.synchronous_commit) = (true, true, "on".into());
    (found.schema_exists, found.may_use_schema, found.may_create_table) = (true, true, false);
    found.lock_timeout = Duration::from_secs(2);
    found.table = Some(table);
    found
}

/// What is found when one thing is different from a healthy database.
fn found(change: impl FnOnce(&mut PostgresExamination)) -> Vec<Finding> {
    let mut found = healthy();
    change(&mut found);
    postgres::judge(&found, TIMEOUT)
}

/// That thing, and that it is the only one.
fn one(change: impl FnOnce(&mut PostgresExamination)) -> (Level, &'static str, String) {
    only(found(change))
}

fn only(findings: Vec<Finding>) -> (Level, &'static str, String) {
    let bad: Vec<_> = findings.into_iter().filter(|finding| finding.level > Level::Ok).collect();
    assert_eq!(bad.len(), 1, "{bad:#?}");
    let finding = bad.into_iter().next().unwrap();
    let advice = finding.advice.expect("what to do");
    (finding.level, finding.topic, format!("{} {advice}", finding.what))
}

fn with_table(change: impl FnOnce(&mut PostgresTable)) -> (Level, &'static str, String) {
    one(|found| change(found.table.as_mut().unwrap()))
}

fn is(found: &(Level, &'static str, String), level: Level, topic: &str, words: &str) {
    assert_eq!((found.0, found.1), (level, topic), "{found:?}");
    assert!(found.2.contains(words), "{words}: {found:?}");
}

#[test]
fn a_healthy_database_is_fit() {
    let findings = found(|_| ());
    assert_eq!(verdict(&findings), Level::Ok, "{findings:#?}");
    let topics: Vec<_> = findings.iter().map(|finding| finding.topic).collect();
    assert_eq!(topics[..3], ["version", "primary", "path"]);
    assert!(Level::Ok < Level::Note && Level::Note < Level::Broken && Level::Broken < Level::Unsafe);
}

#[test]
fn servers_that_nobody_can_lead_through_are_broken() {
    is(&one(|found| found.version_number = 110_000), Level::Broken, "version", "12");
    is(&one(|found| found.read_only = true), Level::Broken, "primary", "default_transaction_read_only");
    let standby = one(|found| (found.standby, found.read_only, found.timeline) = (true, true, None));
    is(&standby, Level::Broken, "primary", "target_session_attrs=read-write");
}

#[test]
fn the_way_to_the_server_is_noted() {
    is(&one(|found| found.pooled = Some(true)), Level::Note, "path", "server_login_retry = 1");
    is(&one(|found| found.pooled = None), Level::Note, "path", "no second connection");
    is(&one(|found| found.tls = None), Level::Note, "encryption", "plain text to the server");
    is(&one(|found| found.verified = Some(false)), Level::Note, "encryption", "sslmode=verify-full");
    assert_eq!(verdict(&found(|found| found.verified = None)), Level::Ok, "the application's affair");
    assert_eq!(verdict(&found(|found| (found.tls, found.local) = (None, true))), Level::Ok);
    let pooled = found(|found| (found.tls, found.pooled) = (None, Some(true)));
    assert!(pooled.iter().any(|finding| finding.what.contains("between the pooler and the server")));
}

#[test]
fn a_table_that_is_missing_says_who_can_make_it() {
    is(&one(|found| found.table = None), Level::Broken, "table", "this role may not create it");
    is(
        &one(|found| (found.table, found.may_create_table) = (None, true)),
        Level::Broken,
        "table",
        "tenure init",
    );
    let nowhere = one(|found| (found.table, found.schema_exists) = (None, false));
    is(&nowhere, Level::Broken, "table", "the schema does not exist");
}

#[test]
fn what_is_wrong_with_the_table_is_found() {
    is(
        &with_table(|table| table.complaint = Some("it is UNLOGGED".into())),
        Level::Unsafe,
        "table",
        "UNLOGGED",
    );
    is(&with_table(|table| table.may_update = false), Level::Broken, "rights", "GRANT UPDATE ON \"public\"");
    is(&with_table(|table| table.row_security = true), Level::Unsafe, "bystanders", "row-level security");
    is(&with_table(|table| table.rules = vec!["r".into()]), Level::Unsafe, "bystanders", "rules");
    is(&with_table(|table| table.triggers = vec!["audit".into()]), Level::Note, "bystanders", "audit");
    is(&one(|found| found.may_use_schema = false), Level::Broken, "rights", "GRANT USAGE");
    is(&with_table(|table| table.autovacuum = false), Level::Note, "upkeep", "autovacuum");
    is(&with_table(|table| table.dead_rows = 10_001), Level::Note, "upkeep", "backend_xmin");
    is(&with_table(|table| table.bytes = LARGE), Level::Note, "upkeep", "VACUUM FULL");
    is(&with_table(|table| table.hot_updates = 8_000), Level::Note, "upkeep", "write the index");
    is(&with_table(|table| table.fillfactor = 100), Level::Note, "upkeep", "fillfactor = 70");
    let few = |table: &mut PostgresTable| (table.updates, table.hot_updates) = (900, 0);
    assert_eq!(verdict(&found(|found| few(found.table.as_mut().unwrap()))), Level::Ok, "too few to tell");
}

const LARGE: i64 = (64 << 20) + 1;

#[test]
fn what_a_crash_or_a_fail_over_can_lose_is_found() {
    is(&one(|found| found.fsync = false), Level::Unsafe, "durability", "fsync = on");
    is(&one(|found| found.full_page_writes = false), Level::Unsafe, "durability", "full_page_writes = on");
    for setting in ["off", "local"] {
        is(&one(|found| found.synchronous_commit = setting.into()), Level::Note, "commits", "raise it to on");
    }
    assert_eq!(verdict(&found(|found| found.synchronous_commit = "remote_apply".into())), Level::Ok);
    is(&one(|found| found.replications = 2), Level::Note, "fail-over", "2 replicate");
    let synchronous = found(|found| (found.replications, found.synchronous_standbys) = (1, "*".into()));
    assert_eq!(verdict(&synchronous), Level::Ok);
    is(
        &one(|found| found.synchronous_standbys = "*".into()),
        Level::Broken,
        "fail-over",
        "nobody replicates",
    );
    let standby = found(|found| (found.synchronous_standbys, found.standby) = ("*".into(), true));
    assert!(standby.iter().all(|finding| finding.topic != "fail-over" || finding.level == Level::Ok));
    is(&one(|found| found.timeline = None), Level::Unsafe, "timeline", "GRANT EXECUTE");
    let waits = one(|found| {
        (found.timeline, found.synchronous_standbys, found.replications) = (None, "*".into(), 1);
    });
    is(&waits, Level::Note, "timeline", "pg_walfile_name");
}

#[test]
fn limits_of_the_role_are_noted() {
    is(&one(|found| found.lock_timeout = Duration::ZERO), Level::Note, "limits", "ALTER ROLE app");
    is(&one(|found| found.statement_timeout = Duration::from_secs(1)), Level::Note, "limits", "cancelled");
    assert_eq!(verdict(&found(|found| found.statement_timeout = TIMEOUT)), Level::Ok);
}

fn file(change: impl FnOnce(&mut SqliteExamination)) -> Vec<Finding> {
    let mut found = SqliteExamination::default();
    (found.path, found.file_system, found.table_exists) = ("/x".into(), "ext4".into(), true);
    (found.journal_mode, found.synchronous) = ("wal".into(), "3".into());
    change(&mut found);
    sqlite::judge(&found)
}

#[test]
fn a_file_is_judged_by_its_place_its_table_and_its_lock() {
    assert_eq!(verdict(&file(|_| ())), Level::Ok);
    let one = |change: fn(&mut SqliteExamination)| only(file(change));
    let in_memory = one(|found| (found.file_system, found.in_memory) = ("tmpfs".into(), true));
    is(&in_memory, Level::Unsafe, "place", "fences begin at 1 again");
    is(&one(|found| found.file_system = "overlay".into()), Level::Note, "place", "mount a directory");
    is(&one(|found| found.table_exists = false), Level::Broken, "table", "tenure init");
    is(
        &one(|found| found.complaint = Some("has a column".into())),
        Level::Unsafe,
        "table",
        "the file has a column",
    );
    let kept = one(|found| found.write_lock = Err(StoreError::timeout("was kept locked")));
    is(&kept, Level::Broken, "write lock", "was kept locked");
    is(&one(|found| found.write_lock = Ok(Duration::from_secs(1))), Level::Note, "write lock", "took 1s");
    is(&one(|found| found.journal_mode = "delete".into()), Level::Note, "durability", "delete");
    is(&one(|found| found.wal_bytes = 65 << 20), Level::Note, "durability", "-wal");
    let users = file(|found| found.others = vec![7, 9]);
    assert!(users.iter().any(|finding| finding.what == "open in processes 7, 9."), "{users:?}");
}
