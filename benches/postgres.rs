//! What an operation costs on a throw-away PostgreSQL, against the smallest statement of the driver, and what it leaves
//! behind on the server.
//!
//!     cargo bench --bench postgres
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tenure::{Bid, PostgresStore, Renewal, Store};
use tenure_testground::Postgres;
use tenure_testground::postgres::Client;

const TIMEOUT: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(3_600);

/// Prints how much WAL and how many transaction ids a thousand of these take.
fn leaves_behind(what: &str, client: &mut Client, operation: impl Fn()) {
    let mut position = || -> (i64, i64) {
        let sql = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint,
                          pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
        let row = client.query_one(sql, &[]).unwrap();
        (row.get(0), row.get(1))
    };
    operation(); // What a first one leaves behind, a connection for one, is not counted.
    let before = position();
    (0..1_000).for_each(|_| operation());
    let after = position();
    println!(
        "{what}: a thousand leave {} bytes of WAL and {} transaction ids",
        after.0 - before.0,
        after.1 - before.1
    );
}

fn operations(c: &mut Criterion) {
    // With durable commits, as in production, and nobody else who writes.
    let server = Postgres::builder().fsync(true).setting("autovacuum", "off").start();
    let store = PostgresStore::connect(&server.dsn()).unwrap();
    store.ensure_schema().unwrap();
    let mut client = server.client();
    let lease = store.acquire(&Bid::new("bench", "me", LEASE), TIMEOUT).unwrap().unwrap();
    let renewal = Renewal::new("bench", "me", lease.fence(), LEASE);
    leaves_behind("observe", &mut client, || drop(store.observe("bench", TIMEOUT).unwrap()));
    leaves_behind("renew", &mut client, || drop(store.renew(&renewal, TIMEOUT).unwrap()));
    let mut group = c.benchmark_group("postgres");
    group.measurement_time(Duration::from_secs(8));
    group.bench_function("driver, SELECT 1", |b| {
        b.iter(|| black_box(client.query_typed("SELECT 1", &[])).unwrap())
    });
    group.bench_function("observe", |b| b.iter(|| black_box(store.observe("bench", TIMEOUT)).unwrap()));
    group.bench_function("renew", |b| b.iter(|| black_box(store.renew(&renewal, TIMEOUT)).unwrap().unwrap()));
    group.finish();
}

criterion_group!(benches, operations);
criterion_main!(benches);
