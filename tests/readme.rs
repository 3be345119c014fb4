//! The README's SQL, run as it stands there.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use tenure::{Config, Elector, LossCause, PostgresStore};
use tenure_testground::Postgres;

const README: &str = include_str!("../README.md");
const LIMIT: Duration = Duration::from_secs(60);

/// The one block of SQL that contains `word`.
fn sql(word: &str) -> &'static str {
    let blocks: Vec<&str> = README
        .split("```sql\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|block| block.contains(word))
        .collect();
    assert_eq!(blocks.len(), 1, "blocks with {word:?}");
    blocks[0]
}

fn elector(store: &PostgresStore, label: &str) -> Elector {
    let config = Config::builder("invoice-reconciler")
        .label(label)
        .lease_duration(Duration::from_secs(3))
        .renew_interval(Duration::from_millis(500))
        .retry_period(Duration::from_millis(300))
        .operation_timeout(Duration::from_millis(600))
        .safety_margin(Duration::from_millis(500))
        .build()
        .unwrap();
    Elector::start(store.clone(), config).unwrap()
}

#[test]
fn the_table_of_the_readme_is_the_table_of_the_crate() {
    let database = Postgres::shared().database();
    database.execute(sql("CREATE TABLE"));
    let store = PostgresStore::connect(&database.dsn()).unwrap();
    store.ensure_schema().unwrap();
    let words =
        |text: &str| text.replace(['"', ';', '\n'], " ").split_whitespace().collect::<Vec<_>>().join(" ");
    let ours = words(&store.schema()).replace("public . leader_election", "leader_election");
    let ours = ours.replace("public.leader_election", "leader_election");
    assert_eq!(words(sql("CREATE TABLE")), ours);
}

#[test]
fn an_operator_can_make_a_leader_step_down() {
    let database = Postgres::shared().database();
    let store = PostgresStore::connect(&database.dsn()).unwrap();
    store.ensure_schema().unwrap();
    let (first, second) = (elector(&store, "first"), elector(&store, "second"));
    let guard = first.wait_for_leadership().unwrap();
    let waiting = std::thread::spawn(move || {
        let guard = second.wait_for_leadership_timeout(LIMIT).unwrap();
        (guard.fence(), Instant::now())
    });
    // Both statements: who leads, then the step-down.
    let stepped_down_at = Instant::now();
    database.execute(sql("make the leader step down"));
    let lost = guard.lost().recv_timeout(LIMIT).unwrap();
    assert_eq!(lost.cause, LossCause::Superseded);
    let (fence, elected_at) = waiting.join().unwrap();
    assert!(fence > guard.fence());
    // The old leader might still have been inside its term: the successor waited out the whole lease.
    let waited = elected_at - stepped_down_at;
    assert!(waited > Duration::from_millis(2_900), "{waited:?}");
    assert!(waited < LIMIT);
}

#[test]
fn a_fenced_write_refuses_the_stale_leader() {
    let database = Postgres::shared().database();
    database.execute(
        "CREATE TABLE account (id int, balance bigint, fence bigint); INSERT INTO account VALUES (7, 0, 0)",
    );
    let mut client = database.client();
    let statement = sql("UPDATE account").split("--").next().unwrap();
    let mut write = |fence: i64, balance: i64| client.execute(statement, &[&fence, &balance]).unwrap();
    assert_eq!(write(2, 200), 1);
    assert_eq!(write(1, 100), 0, "a stale leader");
    assert_eq!(write(2, 201), 1);
}
