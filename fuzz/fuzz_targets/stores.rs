//! The memory store and a real PostgreSQL, which is started for it and goes with it.
#![no_main]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure::{MemoryStore, PostgresStore, Store};
use tenure_testground::Postgres;

/// Elections are made by the thousand; after so many inputs the table is emptied.
const EMPTY_AFTER: u64 = 2_000;

static INPUTS: AtomicU64 = AtomicU64::new(0);

fn postgres() -> &'static (PostgresStore, String) {
    static STORE: OnceLock<(PostgresStore, String)> = OnceLock::new();
    STORE.get_or_init(|| {
        let dsn = Postgres::shared().database().dsn();
        let store = PostgresStore::connect(&dsn).expect("a usable connection string");
        store.ensure_schema().expect("a table");
        (store, dsn)
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (postgres, dsn) = postgres();
    let input = INPUTS.fetch_add(1, Ordering::Relaxed);
    if input % EMPTY_AFTER == EMPTY_AFTER - 1 {
        let mut client =
            tenure_testground::postgres::Client::connect(dsn, tenure_testground::postgres::NoTls)
                .expect("a connection");
        client.batch_execute("TRUNCATE leader_election").expect("an empty table");
    }
    let memory = MemoryStore::new();
    memory.set_timeline(Some(1));
    tenure::fuzzing::stores(bytes, &format!("n{input}"), [&memory as &dyn Store, postgres]);
});
