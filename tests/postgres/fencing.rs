//! The SQL of the manual's page on fencing, run as it stands there.

use tenure_testground::postgres::Client;
use tenure_testground::{Postgres, await_until};

use crate::OP;

const PAGE: &str = include_str!("../../src/docs/fencing.rs");

/// The one block of SQL that contains `word`.
fn sql(word: &str) -> String {
    let text: String = PAGE.lines().map(|line| line.trim_start_matches("//!").to_owned() + "\n").collect();
    let blocks: Vec<&str> =
        text.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let found: Vec<_> = blocks.into_iter().filter(|block| block.contains(word)).collect();
    assert_eq!(found.len(), 1, "blocks with {word:?}");
    found[0].to_owned()
}

const ACCOUNT: &str =
    "CREATE TABLE account (id int, balance bigint, fence bigint); INSERT INTO account VALUES (7, 0, 0)";

#[test]
fn rule_12_the_fenced_update_refuses_a_stale_leader() {
    let database = Postgres::shared().database();
    database.execute(ACCOUNT);
    let mut db = database.client();
    let mut write =
        |fence: i64, balance: i64| db.execute(&sql("UPDATE account"), &[&fence, &balance]).unwrap();
    assert_eq!(write(2, 200), 1);
    assert_eq!(write(1, 100), 0, "a stale leader");
    assert_eq!(write(2, 201), 1);
}

#[test]
fn rule_12_one_row_for_all_fences_what_is_inserted_and_what_waited() {
    let database = Postgres::shared().database();
    database.execute(&sql("CREATE TABLE ledger_fence"));
    database.execute("CREATE TABLE ledger (fence bigint)");
    let write = |db: &mut Client, fence: i64| {
        let mut transaction = db.transaction().unwrap();
        if transaction.execute(&sql("UPDATE ledger_fence"), &[&fence]).unwrap() == 1 {
            transaction.execute("INSERT INTO ledger VALUES ($1)", &[&fence]).unwrap();
            transaction.commit().unwrap();
            return true;
        }
        false
    };
    let (mut old, mut new, mut watch) = (database.client(), database.client(), database.client());
    assert!(write(&mut old, 1));
    let mut newer = new.transaction().unwrap();
    newer.execute(&sql("UPDATE ledger_fence"), &[&2_i64]).unwrap();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| write(&mut old, 1));
        let waiting = "SELECT count(*) FROM pg_stat_activity
                        WHERE wait_event_type = 'Lock' AND datname = current_database()";
        await_until(OP, "the old leader waits", || {
            watch.query_one(waiting, &[]).unwrap().get::<_, i64>(0) == 1
        });
        newer.commit().unwrap();
        assert!(!late.join().unwrap(), "judged by what it found after the wait");
    });
    assert!(write(&mut new, 2));
}

#[test]
fn rule_12_the_trigger_refuses_a_falling_fence() {
    let database = Postgres::shared().database();
    database.execute(ACCOUNT);
    database.execute(&sql("CREATE TRIGGER"));
    let mut db = database.client();
    let mut write =
        |fence: i64| db.execute("UPDATE account SET balance = 1, fence = $1 WHERE id = 7", &[&fence]);
    assert_eq!(write(5).unwrap(), 1);
    assert_eq!(write(5).unwrap(), 1);
    let error = write(4).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "TF001");
    assert_eq!(error.as_db_error().unwrap().message(), "fence 4 is stale: 5 has been here");
    assert_eq!(write(6).unwrap(), 1);
    assert_eq!(
        db.execute("UPDATE account SET balance = 2", &[]).unwrap(),
        1,
        "one that sets no fence passes"
    );
}
