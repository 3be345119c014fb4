//! `schema`, `init`, `completions`, and what all commands have in common.

use tenure_testground::Postgres;

use crate::{command, fine, tenure};

#[test]
fn what_schema_prints_makes_the_table_that_init_finds() {
    let database = Postgres::shared().database();
    database.execute("CREATE SCHEMA ops");
    for (arguments, name) in [
        (&["--table", "ops.Leases"][..], "\"ops\".\"Leases\""),
        (&["--table", "leases"][..], "\"public\".\"leases\""),
        (&[][..], "\"public\".\"leader_election\""),
    ] {
        let ddl = fine(&database.dsn(), &[&["schema"], arguments].concat());
        assert!(ddl.contains(name) && ddl.ends_with(";\n"), "{ddl}");
        database.execute(&ddl);
        let said = fine(&database.dsn(), &[&["init"], arguments].concat());
        assert_eq!(said, format!("the table {name} is there already, and can carry elections\n"));
        assert!(tenure(&database.dsn(), &[&["status"], arguments].concat()).err.contains("no elections yet"));
    }
    // The URL says what it is for; nothing is connected to.
    let ddl = fine("postgres://app:S3cr3t@nowhere.invalid/app", &["schema"]);
    assert!(ddl.starts_with("CREATE TABLE IF NOT EXISTS"), "{ddl}");
}

#[test]
fn init_says_what_it_did() {
    let database = Postgres::shared().database();
    tenure(&database.dsn(), &["status"]).complains(125, &["does not exist", "hint: `tenure init` creates"]);
    assert!(fine(&database.dsn(), &["init"]).contains("has been created"));
    assert!(fine(&database.dsn(), &["init"]).contains("is there already"));
    let server = Postgres::start_new();
    server.create_role("poor", "");
    let refused = tenure(&server.dsn_for("poor", "postgres"), &["init"]);
    refused.complains(125, &["lacks the CREATE privilege", "hint:"]);
}

#[test]
fn a_file_is_made_where_it_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/lease.db", directory.path().display());
    tenure(&url, &["status"]).complains(125, &["lease.db does not exist", "hint: `tenure init` creates"]);
    assert!(fine(&url, &["init"]).ends_with("lease.db has been created\n"));
    assert!(fine(&url, &["init"]).contains("is there already"));
    tenure(&url, &["status", "--table", "leases"]).complains(125, &["leases", "`tenure init` creates"]);
    assert!(fine(&url, &["init", "--table", "leases"]).contains("has been created"));
    tenure(&url, &["init", "--table", "ops.leases"]).complains(125, &["--table: there are no schemas"]);
}

#[test]
fn what_cannot_be_used_is_named_before_anything_is_sent() {
    let url = "postgres://app:S3cr3t@nowhere.invalid/app";
    for (arguments, words) in [
        (&["status", "--operation-timeout", "0s"][..], "--operation-timeout"),
        (&["status", "--table", "a.b.c"][..], "--table"),
        (&["watch", "--retry-period", "soon"][..], "--retry-period"),
        (&["resign", "--election", "x", "--fence", "0"][..], "fences start at 1"),
        (&["doctor", "--lease-duration", "long"][..], "--lease-duration"),
    ] {
        tenure(url, arguments).complains(2, &[words]);
    }
    tenure(url, &["resign", "--election", "", "--yes"]).complains(125, &["name: is empty"]);
    tenure(url, &["doctor", "--lease-duration", "4s"])
        .complains(125, &["renew_interval", "lengthen lease_duration"]);
    tenure("mysql://app:S3cr3t@db/app", &["status"]).complains(125, &["the scheme mysql"]);
    tenure("postgres://app:S3cr3t@db:x/app", &["status"]).complains(125, &["port"]);
    let mut without = command("", &["status"]);
    let output = without.env_remove("TENURE_STORE").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("--store <URL>"), "{output:?}");
}

#[test]
fn a_wrong_password_is_told_without_it() {
    let server = Postgres::start_new();
    server.create_role("app", "PASSWORD 'right'");
    let rules = server.data_dir().join("pg_hba.conf");
    std::fs::write(rules, "host all postgres all trust\nhost all all all scram-sha-256\n").unwrap();
    server.reload();
    let url = format!("postgres://app:S3cr3t@127.0.0.1:{}/postgres", server.port());
    let refused = || tenure(&url, &["-vv", "status"]);
    tenure_testground::await_until(crate::OP, "the rules are read", || refused().code == Some(125));
    refused().complains(125, &["SQLSTATE 28P01", "hint: check the user and the password", "PGPASSWORD"]);
    for arguments in
        [&["watch"][..], &["doctor"][..], &["init"][..], &["resign", "--election", "x", "--yes"][..]]
    {
        tenure(&url, arguments).complains(125, &["28P01"]);
    }
}

#[test]
fn shells_get_what_they_need() {
    for (shell, word) in [("bash", "complete -F"), ("zsh", "#compdef tenure"), ("fish", "complete -c tenure")]
    {
        let script = fine("", &["completions", shell]);
        assert!(script.contains(word) && script.contains("resign"), "{shell}: {script}");
    }
    tenure("", &["completions", "csh"]).complains(2, &["csh"]);
}
