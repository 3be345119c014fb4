//! What the manual shows is what the program prints, but for numbers.

use tenure::{SqliteStore, Store};
use tenure_testground::{PgBouncer, Postgres, await_until};

use crate::{OP, create, store, tenure};

const PAGE: &str = include_str!("../../src/docs/doctor.rs");
const README: &str = include_str!("../../README.md");

/// The block of the page that begins with this call: the rest of its lines.
fn shown(url: &str) -> String {
    let page: String = PAGE
        .lines()
        .map(|line| line.trim_start_matches("//!").trim_start_matches(' ').to_owned() + "\n")
        .collect();
    let call = format!("```text\n$ tenure doctor --store {url}\n");
    let blocks: Vec<_> = page.split(&call).skip(1).collect();
    assert_eq!(blocks.len(), 1, "blocks of {url}");
    blocks[0].split("```").next().unwrap().to_owned()
}

/// Without what differs from run to run and from machine to machine: numbers, and where lines end.
fn words(text: &str) -> String {
    let mut words = String::new();
    for c in text.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        match c {
            c if !c.is_ascii_digit() => words.push(c),
            _ if words.ends_with('#') => {}
            _ => words.push('#'),
        }
    }
    words.replace(" behind this machine's", " ahead of this machine's").replace("#.#", "#")
}

/// All of the block is in what was printed; a line of dots stands for what is left out.
#[track_caller]
fn agree(url: &str, printed: &str) {
    let (block, mut rest) = (shown(url), words(printed));
    assert!(block.lines().count() > 1, "nothing is shown for {url}");
    for part in block.split("\n...\n") {
        let part = words(part);
        let Some(at) = rest.find(&part) else {
            panic!(
                "the manual shows, for {url}:\n{block}\nand the program printed:\n{printed}\nnot found: {part}"
            );
        };
        rest = rest.split_off(at + part.len());
    }
}

/// What the doctor prints, on a machine that is not too busy to read 200 times.
fn printed(url: &str, code: i32) -> String {
    for _ in 0..20 {
        let ended = tenure(url, &["doctor"]);
        assert_eq!((ended.code, ended.err.as_str()), (Some(code), ""), "{ended:?}");
        if !ended.out.contains("on a bad day") {
            return ended.out;
        }
    }
    panic!("this machine is too slow for the doctor");
}

#[test]
fn the_doctors_page_shows_what_the_doctor_prints() {
    let server = Postgres::builder().fsync(true).start();
    let version: String = server.client().query_one("SHOW server_version", &[]).unwrap().get(0);
    let printed = |url: &str, code| printed(url, code).replace(&version, "15.18");
    server.create_role("app", "");
    let database = server.create_database("app");
    agree("postgres://app@new/app", &printed(&database.dsn_for("app"), 1));
    store(&database);
    database.execute(
        "GRANT SELECT, INSERT, UPDATE ON leader_election TO app; ALTER ROLE app SET lock_timeout = '2s'",
    );
    agree("postgres://app@db/app", &printed(&database.dsn_for("app"), 0));
    let pooler = PgBouncer::builder(server.port()).user("app").start();
    agree("postgres://app@pooler:6432/app", &printed(&pooler.dsn_for("app", "app"), 0));
    database.execute(
        "REVOKE UPDATE ON leader_election FROM app; ALTER TABLE leader_election SET UNLOGGED;
         ALTER ROLE app SET synchronous_commit = off",
    );
    agree("postgres://app@staging/app", &printed(&database.dsn_for("app"), 1));
    database.execute(
        "ALTER TABLE leader_election SET LOGGED; GRANT UPDATE ON leader_election TO app;
         ALTER ROLE app RESET ALL; ALTER ROLE app SET default_transaction_read_only = on",
    );
    agree("postgres://app@reports/app", &printed(&database.dsn_for("app"), 1));
    let rules = server.data_dir().join("pg_hba.conf");
    std::fs::write(rules, "host all postgres all trust\nhost all all all scram-sha-256\n").unwrap();
    server.reload();
    let url = format!("postgres://app:S3cr3t@127.0.0.1:{}/app", server.port());
    await_until(OP, "the rules are read", || tenure(&url, &["doctor"]).code == Some(125));
    agree("postgres://app@typo/app", &tenure(&url, &["doctor"]).err);
    server.stop_fast();
    agree("postgres://app@gone/app", &tenure(&url, &["doctor"]).err);
}

#[test]
fn the_doctors_page_shows_what_it_prints_of_a_file() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("lease.db");
    let store = SqliteStore::open(&path).unwrap();
    store.ensure_schema().unwrap();
    let found = store.examine(OP).unwrap();
    drop(store);
    if found.in_memory || found.file_system == "overlay" {
        // There it says more; what it says there is tested with made-up facts.
        eprintln!("the build is on {}: the place of a file is not compared", found.file_system);
        return;
    }
    let printed = printed(&format!("sqlite:{}", path.display()), 0).replace('\n', " \n");
    // Long paths are broken where there is room.
    let printed = printed.replace(&path.display().to_string(), "/var/lib/app/lease.db");
    agree(
        "sqlite:/var/lib/app/lease.db",
        &printed.replace(&format!("on {}.", found.file_system), "on ext4."),
    );
}

#[test]
fn the_readme_shows_the_tables_titles() {
    let database = Postgres::shared().database();
    let store = store(&database);
    create(&store, "n", "h", OP);
    let titles = crate::fine(&database.dsn(), &["status"]).lines().next().unwrap().to_owned();
    let titles: Vec<_> = titles.split_whitespace().collect();
    let has = |line: &str| line.split_whitespace().collect::<Vec<_>>() == titles;
    assert!(README.lines().any(has), "{titles:?}");
    assert_eq!(store.list(OP).unwrap().len(), 1);
}
