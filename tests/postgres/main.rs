//! The PostgreSQL store on real servers: what it writes, what it refuses, and how long it takes to fail.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod bloat;
mod borrowed;
mod bounds;
mod clock;
mod commit;
mod commit_waits;
mod connecting;
mod durability;
mod errors;
mod examine;
mod fencing;
mod frozen;
mod log_sink;
mod observer;
mod operations;
mod pooler;
mod table;
#[cfg(feature = "tls")]
mod tls;
mod tls_connector;
#[cfg(feature = "tls")]
mod tls_peers;

use std::time::{Duration, Instant};

use tenure::{Bid, Lease, PostgresStore, Renewal, Store, StoreError};
use tenure_testground::Database;

/// Long enough for a busy machine.
const OP: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(15);
/// What a call may take beyond its timeout.
const SLACK: Duration = Duration::from_millis(250);

fn store(database: &Database<'_>) -> PostgresStore {
    let store = PostgresStore::connect(&database.dsn()).unwrap();
    store.ensure_schema().unwrap();
    store
}

fn create(store: &PostgresStore, name: &str, holder: &str) -> Lease {
    store.acquire(&Bid::new(name, holder, LEASE), OP).unwrap().expect("no row yet")
}

fn look(store: &PostgresStore, name: &str) -> Lease {
    store.observe(name, OP).unwrap().into_lease().expect("a row")
}

fn renewal<'a>(lease: &'a Lease, holder: &'a str) -> Renewal<'a> {
    Renewal::new(lease.name(), holder, lease.fence(), LEASE)
}

/// The result of a call and how long it took.
fn timed<R>(call: impl FnOnce() -> R) -> (R, Duration) {
    let begun = Instant::now();
    let result = call();
    (result, begun.elapsed())
}

/// Each of the four operations, as something that fails or not.
fn operations(
    store: &PostgresStore,
    timeout: Duration,
) -> [(&'static str, Result<(), StoreError>, Duration); 4] {
    let fence = tenure::Fence::try_from(1).unwrap();
    let run = |name, call: &dyn Fn() -> Result<(), StoreError>| {
        let (result, took) = timed(call);
        (name, result, took)
    };
    [
        run("observe", &|| store.observe("bound", timeout).map(drop)),
        run("acquire", &|| store.acquire(&Bid::new("bound", "h", LEASE), timeout).map(drop)),
        run("renew", &|| store.renew(&Renewal::new("bound", "h", fence, LEASE), timeout).map(drop)),
        run("release", &|| store.release("bound", "h", fence, timeout)),
    ]
}
