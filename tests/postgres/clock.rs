//! Rule 17: a statement that waited for the row reads the clock after the wait.

use std::thread;
use std::time::{Duration, Instant};

use tenure::{Bid, Lease, PostgresStore, Renewal, Store};
use tenure_testground::{ClockShim, Database, Postgres, await_until};

use crate::{LEASE, OP, create, look, store};

const SHORT: Duration = Duration::from_secs(3);
const WAIT: Duration = Duration::from_millis(1500);

/// Runs `call` while another session holds `lock`, which ends with `end` after the call has waited for a
/// while.
fn behind<R: Send>(database: &Database<'_>, lock: &str, end: &str, call: impl FnOnce() -> R + Send) -> R {
    let mut locker = database.client();
    locker.batch_execute(&format!("BEGIN; {lock}")).unwrap();
    let mut watch = database.client();
    thread::scope(|scope| {
        let call = scope.spawn(call);
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                       AND datname = current_database()";
        await_until(OP, "the call waits for the lock", || {
            watch.query_one(waiting, &[]).unwrap().get::<_, i64>(0) == 1
        });
        let since = Instant::now();
        await_until(OP, "the wait is long enough", || since.elapsed() > WAIT);
        locker.batch_execute(end).unwrap();
        call.join().unwrap()
    })
}

/// What is left of the lease by the database's clock, now.
fn left(store: &PostgresStore, lease: &Lease) -> Duration {
    let seen = look(store, lease.name());
    assert_eq!(seen.version(), lease.version());
    seen.ttl()
}

const LOCK: &str = "SELECT FROM leader_election WHERE name = 'j' FOR UPDATE";

#[test]
fn b07_an_acquire_that_waited_grants_the_whole_lease() {
    let write = "UPDATE leader_election SET holder = 'thief' WHERE name = 'j'";
    for (lock, end) in [(LOCK, "COMMIT"), (LOCK, "ROLLBACK"), (write, "ROLLBACK")] {
        let database = Postgres::shared().database();
        let store = store(&database);
        create(&store, "j", "old");
        database.execute("UPDATE leader_election SET expires_at = clock_timestamp()");
        let bid = Bid::new("j", "new", SHORT).over(Some(look(&store, "j").version()));
        let lease = behind(&database, lock, end, || store.acquire(&bid, OP)).unwrap();
        let lease = lease.expect("the row came through unchanged");
        assert_eq!((lease.fence().get(), lease.ttl()), (2, SHORT));
        assert!(left(&store, &lease) > SHORT - Duration::from_millis(500), "{lock} {end}");
    }
}

#[test]
fn b07_an_acquire_whose_row_changed_while_it_waited_is_refused() {
    for write in ["UPDATE leader_election SET holder = holder", "DELETE FROM leader_election"] {
        let database = Postgres::shared().database();
        let store = store(&database);
        let bid = Bid::new("j", "new", SHORT).over(Some(create(&store, "j", "old").version()));
        let lost = behind(&database, write, "COMMIT", || store.acquire(&bid, OP)).unwrap();
        assert_eq!(lost, None, "{write}");
    }
}

#[test]
fn b07_a_renewal_that_waited_grants_the_whole_lease() {
    let write = "UPDATE leader_election SET payload = 'x' WHERE name = 'j'";
    for (lock, end) in [(LOCK, "COMMIT"), (LOCK, "ROLLBACK"), (write, "COMMIT"), (write, "ROLLBACK")] {
        let database = Postgres::shared().database();
        let store = store(&database);
        let lease = create(&store, "j", "a");
        let renewal = Renewal::new("j", "a", lease.fence(), SHORT);
        let renewed = behind(&database, lock, end, || store.renew(&renewal, OP)).unwrap().unwrap();
        assert_eq!(renewed.ttl(), SHORT);
        assert!(left(&store, &renewed) > SHORT - Duration::from_millis(500), "{lock} {end}");
    }
}

#[test]
fn b07_a_renewal_does_not_outlive_its_own_expiry() {
    let write = "UPDATE leader_election SET payload = 'x' WHERE name = 'j'";
    for (lock, end) in [(LOCK, "COMMIT"), (LOCK, "ROLLBACK"), (write, "COMMIT"), (write, "ROLLBACK")] {
        let database = Postgres::shared().database();
        let store = store(&database);
        let short = Bid::new("j", "a", Duration::from_millis(900));
        let lease = store.acquire(&short, OP).unwrap().unwrap();
        let renewal = Renewal::new("j", "a", lease.fence(), SHORT);
        let renewed = behind(&database, lock, end, || store.renew(&renewal, OP)).unwrap();
        assert_eq!(renewed, None, "{lock} {end}");
        assert!(look(&store, "j").is_expired());
    }
}

#[test]
fn b07_a_creation_behind_one_that_is_rolled_back_grants_the_whole_lease() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let insert = "INSERT INTO leader_election VALUES ('j', 'thief', 1, now(), now(), now())";
    let bid = Bid::new("j", "new", SHORT);
    let lease = behind(&database, insert, "ROLLBACK", || store.acquire(&bid, OP)).unwrap().unwrap();
    assert_eq!((lease.holder(), lease.ttl()), ("new", SHORT));
    assert!(left(&store, &lease) > SHORT - Duration::from_millis(500));
    let other = insert.replace("'j'", "'k'");
    let lost =
        behind(&database, &other, "COMMIT", || store.acquire(&Bid::new("k", "new", SHORT), OP)).unwrap();
    assert_eq!(lost, None);
}

#[test]
fn a_statement_that_nobody_waits_for_does_not_queue_for_the_row() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let lease = create(&store, "j", "a");
    let mut locker = database.client();
    locker.batch_execute(&format!("BEGIN; {LOCK}")).unwrap();
    let timeout = Duration::from_millis(600);
    let release = store.release("j", "a", lease.fence(), timeout).unwrap_err();
    let renew = store.renew(&Renewal::new("j", "a", lease.fence(), LEASE), timeout).unwrap_err();
    let bid = Bid::new("j", "b", LEASE).over(Some(lease.version()));
    let acquire = store.acquire(&bid, timeout).unwrap_err();
    for error in [release, renew, acquire] {
        assert_eq!(error.sqlstate(), Some("55P03"), "{error}");
        assert!(error.is_retryable());
    }
    locker.batch_execute("COMMIT").unwrap();
    assert_eq!(look(&store, "j").version(), lease.version());
}

/// B05 (c): the night after this noon has 23 hours in New York.
#[test]
fn b05_c_a_lease_of_a_day_is_a_day_across_the_change_of_the_hour() {
    let clock = ClockShim::new();
    let server = Postgres::builder().envs(clock.env()).start();
    let database = server.database();
    store(&database);
    server.create_role("ny", "");
    server.execute("ALTER ROLE ny SET timezone = 'America/New_York'");
    database.execute("GRANT SELECT, INSERT, UPDATE ON leader_election TO ny");
    let mut client = database.client();
    let off = "SELECT extract(epoch FROM timestamptz '2026-03-07 12:00 America/New_York' - clock_timestamp())::float8";
    clock.step(client.query_one(off, &[]).unwrap().get(0));
    let days = "SELECT extract(epoch FROM clock_timestamp() + interval '1 day' - clock_timestamp())::int8";
    let mut session = tenure_testground::postgres::Client::connect(
        &database.dsn_for("ny"),
        tenure_testground::postgres::NoTls,
    )
    .unwrap();
    let day: i64 = session.query_one(days, &[]).unwrap().get(0);
    assert_eq!(day, 23 * 3_600, "it is the wrong day, or the wrong place");

    let seconds = || {
        let sql = "SELECT extract(epoch FROM expires_at - renewed_at)::text FROM leader_election";
        database.client().query_one(sql, &[]).unwrap().get::<_, String>(0)
    };
    let day = Duration::from_secs(86_400);
    let store = PostgresStore::connect(&database.dsn_for("ny")).unwrap();
    let lease = store.acquire(&Bid::new("d", "a", day), OP).unwrap().unwrap();
    assert_eq!((seconds().as_str(), lease.length()), ("86400.000000", day));
    let renewed = store.renew(&Renewal::new("d", "a", lease.fence(), day), OP).unwrap().unwrap();
    assert_eq!((seconds().as_str(), renewed.length()), ("86400.000000", day));
    let taken = store.acquire(&Bid::new("d", "b", day).over(Some(renewed.version())), OP).unwrap().unwrap();
    assert_eq!((seconds().as_str(), taken.length()), ("86400.000000", day));
}
