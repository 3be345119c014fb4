//! What an operation costs on a throw-away PostgreSQL, against the smallest statement of the driver.
//!
//!     cargo bench --bench postgres
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tenure::{Bid, PostgresStore, Renewal, Store};
use tenure_testground::Postgres;

const TIMEOUT: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(3_600);

fn operations(c: &mut Criterion) {
    // With durable commits, as in production.
    let server = Postgres::builder().fsync(true).start();
    let store = PostgresStore::connect(&server.dsn()).unwrap();
    store.ensure_schema().unwrap();
    let mut client = server.client();
    let lease = store.acquire(&Bid::new("bench", "me", LEASE), TIMEOUT).unwrap().unwrap();
    let mut group = c.benchmark_group("postgres");
    group.measurement_time(Duration::from_secs(8));
    group.bench_function("driver, SELECT 1", |b| {
        b.iter(|| black_box(client.query_typed("SELECT 1", &[])).unwrap())
    });
    group.bench_function("observe", |b| b.iter(|| black_box(store.observe("bench", TIMEOUT)).unwrap()));
    let renewal = Renewal::new("bench", "me", lease.fence(), LEASE);
    group.bench_function("renew", |b| b.iter(|| black_box(store.renew(&renewal, TIMEOUT)).unwrap().unwrap()));
    group.finish();
}

criterion_group!(benches, operations);
criterion_main!(benches);
