//! Every input that the fuzzers found worth keeping, through the same doors.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

fn replay(target: &str, door: impl Fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display()); // shown when it panics
        door(&std::fs::read(&path).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "nothing in {}", directory.display());
}

#[test]
fn config() {
    replay("config", tenure::fuzzing::config);
}

#[test]
fn election() {
    replay("election", tenure::fuzzing::election);
}

#[test]
fn schedule() {
    replay("schedule", tenure::fuzzing::schedule);
}

#[cfg(feature = "postgres")]
#[test]
fn dsn() {
    replay("dsn", tenure::fuzzing::dsn);
}

#[cfg(feature = "postgres")]
#[test]
fn table() {
    replay("table", tenure::fuzzing::table);
}

/// The memory store and a real PostgreSQL decide the same.
#[cfg(feature = "postgres")]
#[test]
fn stores() {
    use std::cell::Cell;
    use tenure::{MemoryStore, PostgresStore, Store};

    let server = tenure_testground::Postgres::start_new();
    let postgres = PostgresStore::connect(&server.database().dsn()).unwrap();
    postgres.ensure_schema().unwrap();
    let input = Cell::new(0);
    replay("stores", |bytes| {
        let memory = MemoryStore::new();
        memory.set_timeline(Some(1));
        input.set(input.get() + 1);
        tenure::fuzzing::stores(bytes, &format!("n{}", input.get()), [&memory as &dyn Store, &postgres]);
    });
}
