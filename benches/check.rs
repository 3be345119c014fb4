//! What a check costs, against the clock read that it cannot do without.
//!
//!     cargo bench --bench check
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use tenure::{Clock, Config, Elector, MemoryStore, SystemClock};

fn checks(c: &mut Criterion) {
    let elector = Elector::start(MemoryStore::new(), Config::builder("bench").build().unwrap()).unwrap();
    let guard = elector.wait_for_leadership().unwrap();
    let mut group = c.benchmark_group("check");
    group.bench_function("clock read alone", |b| b.iter(|| black_box(SystemClock::new().now())));
    group.bench_function("LeaderGuard::check", |b| b.iter(|| black_box(guard.check()).unwrap()));
    group.bench_function("Elector::is_leader", |b| b.iter(|| assert!(black_box(elector.is_leader()))));
    group.finish();
}

criterion_group!(benches, checks);
criterion_main!(benches);
