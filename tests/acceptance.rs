//! The acceptance suite on every store that the crate brings: one test per store and check.
//!
//! A further store is one line in [`SUBJECTS`].

use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};
use tenure::MemoryStore;
use tenure::acceptance::{self, Check, Subject};

type Start = fn() -> Box<dyn Subject>;

/// A name, and how to start what it takes. Started by the first test that needs it, dropped after the last.
const SUBJECTS: &[(&str, Start)] = &[
    ("memory", || Box::new(MemoryStore::new())),
    ("memory_promoted", || Box::new(promoted_memory())),
    #[cfg(feature = "sqlite")]
    ("sqlite", || Box::new(sqlite::Files::new())),
    #[cfg(feature = "postgres")]
    ("postgres", || Box::new(postgres::Direct::start())),
    #[cfg(feature = "tls")]
    ("postgres_tls", || Box::new(postgres::Encrypted::start())),
    #[cfg(feature = "postgres")]
    ("postgres_pgbouncer", || Box::new(postgres::Pooled::start())),
];

fn promoted_memory() -> MemoryStore {
    let store = MemoryStore::new();
    store.set_timeline(Some(7));
    store
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use std::any::Any;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use rusqlite::Connection;
    use tempfile::TempDir;
    use tenure::acceptance::Subject;
    use tenure::{SqliteStore, Store};

    /// A file for each check: there is only the lock of the whole file, and checks that run side by side would wait
    /// for each other's.
    #[derive(Debug)]
    pub(crate) struct Files {
        directory: TempDir,
        stores: Mutex<Vec<SqliteStore>>,
    }

    impl Files {
        pub(crate) fn new() -> Files {
            Files { directory: tempfile::tempdir().expect("a directory"), stores: Mutex::default() }
        }
    }

    impl Subject for Files {
        fn store(&self) -> Arc<dyn Store> {
            let mut stores = self.stores.lock();
            let path = self.directory.path().join(format!("{}.db", stores.len()));
            let store = SqliteStore::open(path).expect("a usable path");
            store.ensure_schema().expect("a new file");
            stores.push(store.clone());
            Arc::new(store)
        }

        fn hold(&self, name: &str) -> Box<dyn Any> {
            let has_the_row = |store: &&SqliteStore| {
                store.observe(name, self.timeout()).expect("an observation").lease().is_some()
            };
            let stores = self.stores.lock();
            let store = stores.iter().find(has_the_row).expect("a row to hold");
            let connection = Connection::open(store.path()).expect("a connection");
            connection.execute_batch("BEGIN IMMEDIATE").expect("the lock");
            // Closed it is rolled back.
            Box::new(connection)
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::any::Any;
    use std::sync::Arc;

    use tenure::acceptance::Subject;
    use tenure::{PostgresStore, Store};
    #[cfg(feature = "tls")]
    use tenure_testground::Credentials;
    use tenure_testground::postgres::Client;
    use tenure_testground::{Database, PgBouncer, Postgres};

    /// The whole suite shares one server; each subject has a database in it.
    fn database() -> (Database<'static>, PostgresStore) {
        let database = Postgres::shared().database();
        let store = PostgresStore::connect(&database.dsn()).expect("a DSN of the test ground's");
        store.ensure_schema().expect("a new database");
        (database, store)
    }

    #[derive(Debug)]
    pub(crate) struct Direct {
        database: Database<'static>,
        store: PostgresStore,
    }

    impl Direct {
        pub(crate) fn start() -> Direct {
            let (database, store) = database();
            Direct { database, store }
        }
    }

    impl Subject for Direct {
        fn store(&self) -> Arc<dyn Store> {
            Arc::new(self.store.clone())
        }

        fn hold(&self, name: &str) -> Box<dyn Any> {
            Box::new(hold(&self.database, name))
        }
    }

    /// A server of its own, with a certificate.
    #[cfg(feature = "tls")]
    #[derive(Debug)]
    pub(crate) struct Encrypted {
        server: Postgres,
        store: PostgresStore,
        _files: tempfile::TempDir,
    }

    #[cfg(feature = "tls")]
    impl Encrypted {
        pub(crate) fn start() -> Encrypted {
            let own = Credentials::self_signed(&["127.0.0.1"]);
            let files = tempfile::tempdir().expect("a directory");
            let (root, _) = own.write(files.path(), "own");
            let server = Postgres::builder().tls(&own).start();
            let dsn = format!("{}?sslmode=verify-full&sslrootcert={}", server.dsn(), root.display());
            let store = PostgresStore::connect(&dsn).expect("a DSN of the test ground's");
            store.ensure_schema().expect("a new server");
            Encrypted { server, store, _files: files }
        }
    }

    #[cfg(feature = "tls")]
    impl Subject for Encrypted {
        fn store(&self) -> Arc<dyn Store> {
            Arc::new(self.store.clone())
        }

        fn hold(&self, name: &str) -> Box<dyn Any> {
            Box::new(hold(&self.server.existing_database("postgres"), name))
        }
    }

    /// Transaction mode, two server connections for everything.
    #[derive(Debug)]
    pub(crate) struct Pooled {
        database: Database<'static>,
        store: PostgresStore,
        _pooler: PgBouncer,
    }

    impl Pooled {
        pub(crate) fn start() -> Pooled {
            let (database, _) = database();
            let pooler = PgBouncer::in_front_of(database.server());
            let dsn = pooler.dsn_for("postgres", database.name());
            let store = PostgresStore::connect(&dsn).expect("a DSN of the test ground's");
            Pooled { database, store, _pooler: pooler }
        }
    }

    impl Subject for Pooled {
        fn store(&self) -> Arc<dyn Store> {
            Arc::new(self.store.clone())
        }

        fn hold(&self, name: &str) -> Box<dyn Any> {
            Box::new(hold(&self.database, name))
        }
    }

    /// A transaction on a connection of its own, direct to the server, that has locked the row. Dropping the
    /// connection rolls it back.
    fn hold(database: &Database<'_>, name: &str) -> Holder {
        let mut client = database.client();
        client.batch_execute("BEGIN").expect("a transaction");
        let locked = client.query("SELECT 1 FROM leader_election WHERE name = $1 FOR UPDATE", &[&name]);
        assert_eq!(locked.expect("the row's lock").len(), 1, "there is no row to hold");
        Holder(client)
    }

    struct Holder(Client);

    impl Drop for Holder {
        fn drop(&mut self) {
            // Over when this returns, which closing the connection would not be.
            let _ = self.0.batch_execute("ROLLBACK");
        }
    }
}

type Shared = Arc<OnceLock<Box<dyn Subject>>>;

fn run(check: &Check, subject: &dyn Subject) -> Result<(), Failed> {
    check.run(subject).map_err(|failure| Failed::from(format!("{}: {failure}", check.rule())))
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (name, start) in SUBJECTS {
        let shared = Shared::default();
        for check in acceptance::checks() {
            let shared = Arc::clone(&shared);
            let trial = format!("{name}::{}", check.name());
            trials.push(Trial::test(trial, move || run(check, shared.get_or_init(start).as_ref())));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
