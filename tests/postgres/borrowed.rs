//! A store on a pool that the application already has: without a deadline of its own below, and back in time all
//! the same.

use std::time::Duration;

use r2d2_postgres::postgres::NoTls;
use r2d2_postgres::{PostgresConnectionManager, r2d2};
use tenure::{PostgresStore, Store};
use tenure_testground::{Mode, Postgres, Proxy, await_until};

use crate::{OP, SLACK, create, look, operations, renewal, store, timed};

type Pool = r2d2::Pool<PostgresConnectionManager<NoTls>>;

const TIMEOUT: Duration = Duration::from_millis(300);

fn pool(dsn: &str, size: u32) -> Pool {
    let manager = PostgresConnectionManager::new(dsn.parse().unwrap(), NoTls);
    r2d2::Pool::builder().max_size(size).test_on_check_out(false).build(manager).unwrap()
}

#[test]
fn every_operation_works_and_the_pool_stays_the_applications() {
    let database = Postgres::shared().database();
    store(&database);
    let pool = pool(&database.dsn(), 3);
    let borrowed = PostgresStore::from_pool(pool.clone());
    let lease = create(&borrowed, "p", "a");
    assert!(borrowed.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
    borrowed.release("p", "a", lease.fence(), OP).unwrap();
    assert!(look(&borrowed, "p").is_released());
    let named = PostgresStore::pool_builder(pool.clone()).table("other").build().unwrap();
    assert_eq!(named.observe("p", OP).unwrap_err().sqlstate(), Some("42P01"));
    let shown = format!("{borrowed:?}");
    assert!(shown.contains(r#"servers: "the application's pool""#), "{shown}");
    drop((borrowed, named));
    assert_eq!(pool.get().unwrap().query_one("SELECT 1", &[]).unwrap().get::<_, i32>(0), 1);
}

#[test]
fn rule_7_an_exhausted_pool_and_one_that_hangs_cost_no_more_than_the_timeout() {
    let database = Postgres::shared().database();
    store(&database);
    let pool = pool(&database.dsn(), 3);
    let borrowed = PostgresStore::from_pool(pool.clone());
    let all: Vec<_> = (0..3).map(|_| pool.get().unwrap()).collect();
    let (error, took) = timed(|| borrowed.observe("p", TIMEOUT).unwrap_err());
    assert!(error.is_timeout() && took < TIMEOUT + SLACK, "{took:?}: {error}");
    assert_eq!(error.to_string(), "the application's pool gave no connection in time");
    assert!(std::error::Error::source(&error).is_some());
    drop(all);
    let mut locker = database.client();
    locker.batch_execute("BEGIN; LOCK TABLE leader_election").unwrap();
    for (operation, result, took) in operations(&borrowed, TIMEOUT) {
        let error = result.expect_err(operation);
        assert!(error.is_timeout() && took < TIMEOUT + SLACK, "{operation}, {took:?}: {error}");
    }
    locker.batch_execute("COMMIT").unwrap();
    borrowed.observe("p", OP).expect("the threads have come back");
}

#[test]
fn rule_7_a_path_that_fails_under_the_pool_is_an_error_until_the_pool_has_another() {
    let server = Postgres::shared();
    let database = server.database();
    store(&database);
    let proxy = Proxy::to(server.addr());
    let pool = pool(&database.dsn_through(proxy.port()), 2);
    let borrowed = PostgresStore::from_pool(pool.clone());
    let lease = create(&borrowed, "b", "a");
    proxy.set(Mode::BlackHole);
    let (error, took) = timed(|| borrowed.observe("b", TIMEOUT).unwrap_err());
    assert!(error.is_timeout() && took < TIMEOUT + SLACK, "{took:?}: {error}");
    proxy.set(Mode::Pass);
    borrowed.observe("b", OP).expect("what was held up has been delivered");

    // One dead connection is made up for by another one, but the pool can't be asked for a fresh one. What broke
    // is not used again. Both have to be there first, or the second one is fresh.
    await_until(Duration::from_secs(20), format_args!("the pool is full again: {:?}", pool.state()), || {
        pool.state().idle_connections == 2
    });
    proxy.reset_all();
    let (error, took) = timed(|| borrowed.renew(&renewal(&lease, "a"), OP).unwrap_err());
    assert!(error.is_retryable() && !error.is_timeout() && error.sqlstate().is_none(), "{error}");
    assert!(error.to_string().starts_with("the connection to the database was lost: "), "{error}");
    assert!(took < Duration::from_secs(5) && std::error::Error::source(&error).is_some(), "{took:?}");
    assert!(borrowed.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
}
