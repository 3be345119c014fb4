//! Rule 12: the fenced commit, the take-over and the renewal wait for each other, and none of them for long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tenure::{Bid, CommitError, Config, Elector, PostgresStore, Store};
use tenure_testground::Postgres;

use crate::commit::{WORK, await_session, lead, write, written};
use crate::{LEASE, OP, SLACK, look, store, timed};

fn elector(store: &PostgresStore, operation_timeout: Duration) -> Elector {
    let config = Config::builder("j")
        .lease_duration(Duration::from_secs(6))
        .renew_interval(Duration::from_millis(500))
        .operation_timeout(operation_timeout)
        .safety_margin(Duration::from_millis(500))
        .build()
        .unwrap();
    Elector::start(store.clone(), config).unwrap()
}

/// Takes the lease over, whatever its clock says; waits for the row.
fn take_over(
    store: &PostgresStore,
    name: &str,
    timeout: Duration,
) -> Result<tenure::Lease, tenure::StoreError> {
    let seen = look(store, name);
    let bid = Bid::new(name, "successor", LEASE).over(Some(seen.version())).timeline(seen.timeline());
    store.acquire(&bid, timeout).map(|lease| lease.expect("nobody else writes to the row"))
}

#[test]
fn rule_12_a_term_begins_after_the_commit_that_it_waited_for() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    // A commit that takes its time, and writes down when it is done.
    database.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_sleep(0.5);
             UPDATE work SET at = clock_timestamp() WHERE id = NEW.id;
             RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON work DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let store = store(&database);
    let guard = lead(store.clone(), "j");
    let mut db = database.client();
    thread::scope(|scope| {
        let commit = scope.spawn(|| guard.commit(write(&mut db, "x")));
        await_session(&database, "query = 'COMMIT' AND wait_event = 'PgSleep'");
        // It still waits for the row when its turn comes.
        take_over(&store, "j", OP).unwrap();
        commit.join().unwrap().unwrap();
    });
    let sql = "SELECT lease.acquired_at > work.at FROM leader_election AS lease, work";
    assert!(database.client().query_one(sql, &[]).unwrap().get::<_, bool>(0));
}

#[test]
fn rule_12_a_check_that_waited_for_a_take_over_fails() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    let guard = lead(store(&database), "j");
    let mut db = database.client();
    let mut other = database.client();
    let mut successor = other.transaction().unwrap();
    successor.execute("UPDATE leader_election SET holder = 'b', fence = fence + 1", &[]).unwrap();
    thread::scope(|scope| {
        let commit = scope.spawn(|| guard.commit(write(&mut db, "x")));
        await_session(&database, "wait_event_type = 'Lock'");
        successor.commit().unwrap();
        let error = commit.join().unwrap().unwrap_err();
        assert!(matches!(error, CommitError::Stale(_)), "{error:?}");
    });
    assert_eq!(written(&database), 0);
}

/// Rule 17: the clock is read after the wait.
#[test]
fn rule_12_a_check_that_waited_past_the_expiry_fails() {
    for end in ["COMMIT", "ROLLBACK"] {
        let database = Postgres::shared().database();
        database.execute(WORK);
        let guard = lead(store(&database), "j");
        database.execute("UPDATE leader_election SET expires_at = clock_timestamp() + '0.7 s'");
        let mut db = database.client();
        let mut locker = database.client();
        locker.batch_execute("BEGIN; SELECT FROM leader_election FOR UPDATE").unwrap();
        thread::scope(|scope| {
            let commit = scope.spawn(|| guard.commit(write(&mut db, "x")));
            await_session(&database, "wait_event_type = 'Lock'");
            thread::sleep(Duration::from_millis(900));
            locker.batch_execute(end).unwrap();
            let error = commit.join().unwrap().unwrap_err();
            assert!(matches!(error, CommitError::Stale(_)), "{end}: {error:?}");
        });
        assert_eq!(written(&database), 0);
    }
}

#[test]
fn rule_16_the_wait_for_the_row_is_bounded() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    let limit = Duration::from_millis(800);
    let elector = elector(&store(&database), limit);
    let guard = elector.wait_for_leadership().unwrap();
    let mut db = database.client();
    let transaction = write(&mut db, "x");
    let mut locker = database.client();
    // At its own limit it would let go, so that the test ends in any case.
    locker.batch_execute("SET idle_in_transaction_session_timeout = '5s'").unwrap();
    locker.batch_execute("BEGIN; SELECT FROM leader_election FOR UPDATE").unwrap();
    let (result, took) = timed(|| guard.commit(transaction));
    drop(locker);
    match result {
        Err(CommitError::NotCommitted(error)) => {
            assert!(error.is_retryable() && error.sqlstate() == Some("55P03"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(took < limit + SLACK, "{took:?}");
    assert_eq!(written(&database), 0);
    guard.check().expect("that says nothing about the term");
}

#[test]
fn a_leader_that_stands_still_while_it_holds_the_row_does_not_hold_up_the_election() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    let store = store(&database);
    let limit = Duration::from_millis(800);
    let elector = elector(&store, limit);
    let guard = elector.wait_for_leadership().unwrap();
    let mut db = database.client();
    let mut transaction = write(&mut db, "x");
    guard.verify(&mut transaction).unwrap();
    // Here it is frozen. The server ends its session, and the row is free.
    let (taken, took) = timed(|| take_over(&store, "j", OP));
    assert!(taken.unwrap().fence() > guard.fence());
    assert!(took < limit + SLACK, "{took:?}");
    transaction.commit().expect_err("the session has ended");
    assert_eq!(written(&database), 0);
}

#[test]
fn what_the_caller_has_set_is_kept() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    let guard = lead(store(&database), "j");
    let shows = |settings: &str| {
        let mut db = database.client();
        db.batch_execute(settings).unwrap();
        let mut transaction = db.transaction().unwrap();
        guard.verify(&mut transaction).unwrap();
        let show =
            "SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')";
        let row = transaction.query_one(show, &[]).unwrap();
        (row.get::<_, String>(0), row.get::<_, String>(1))
    };
    // The operation timeout is 3 s; the server is to give up first.
    let ours = "2700ms";
    for (idle, then) in [("0", ours), ("1min", ours), ("1s", "1s"), ("250ms", "250ms"), ("2d", ours)] {
        let settings = format!(
            "SET lock_timeout = '7s'; SET idle_in_transaction_session_timeout = '{idle}'; SET intervalstyle = sql_standard"
        );
        assert_eq!(shows(&settings), ("7s".to_owned(), then.to_owned()), "{idle}");
    }
}

/// Sixteen workers whose transactions overlap without a gap. With a shared lock, renewals waited for seconds.
#[test]
fn commits_without_a_pause_leave_room_for_the_renewals() {
    let server = Postgres::start_new();
    let database = server.database();
    database.execute(WORK);
    let store = store(&database);
    let elector = elector(&store, Duration::from_millis(1_500));
    let guard = elector.wait_for_leadership().unwrap();
    let over = AtomicBool::new(false);
    let before = elector.status();
    thread::scope(|scope| {
        for _ in 0..16 {
            let (term, mut db, over) = (guard.term(), database.client(), &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let mut transaction = write(&mut db, "x");
                    term.verify(&mut transaction).unwrap();
                    // A client at the other end of a network.
                    thread::sleep(Duration::from_millis(2));
                    transaction.commit().unwrap();
                }
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(8) && guard.is_leader() {
            thread::sleep(Duration::from_millis(50));
        }
        over.store(true, Ordering::Relaxed);
    });
    guard.check().unwrap();
    let after = elector.status();
    assert_eq!(after.failures, before.failures, "{:?}", after.last_error);
    assert!(after.renewals >= before.renewals + 6, "{} renewals in 8 s", after.renewals - before.renewals);
}
