//! A database with the table in it, and the way to it.

use tenure::PostgresStore;
use tenure_testground::{Database, PgBouncer, Postgres, await_until};

use super::LIMIT;
use super::node::{End, Form, Options};
use super::profile::P3;
use super::rows::{self, Row};

/// How nodes reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    /// PgBouncer, transaction mode, two server connections.
    Pooled,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Direct => "direct",
            Way::Pooled => "pgbouncer",
        }
    }
}

/// A database with the table in it, whose row's history is written down.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) database: Database<'a>,
    pub(crate) pooler: Option<PgBouncer>,
}

impl Ground<'static> {
    pub(crate) fn shared(way: Way) -> Ground<'static> {
        Ground::on(Postgres::shared(), way)
    }
}

impl<'a> Ground<'a> {
    pub(crate) fn on(server: &'a Postgres, way: Way) -> Ground<'a> {
        let ground = Ground::empty(server, way);
        let store = PostgresStore::connect(&ground.database.dsn()).expect("a usable DSN");
        store.ensure_schema().expect("a new database");
        rows::audit(&ground.database);
        ground
    }

    /// Without the table.
    pub(crate) fn empty(server: &'a Postgres, way: Way) -> Ground<'a> {
        let database = server.database();
        let pooler = (way == Way::Pooled).then(|| PgBouncer::in_front_of(server));
        Ground { database, pooler }
    }

    pub(crate) fn dsn(&self) -> String {
        self.database.dsn_through(self.addr().port())
    }

    /// What nodes connect to: the target of a proxy.
    pub(crate) fn addr(&self) -> std::net::SocketAddr {
        self.pooler.as_ref().map_or(self.database.server().addr(), PgBouncer::addr)
    }

    /// What a node here is started with, unless a test wants something else.
    pub(crate) fn options(&self, label: &str) -> Options {
        Options::new(self.dsn(), label)
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        rows::history(&self.database, "e")
    }

    /// Waits until the leader has just renewed.
    #[track_caller]
    pub(crate) fn await_renewal(&self) {
        let before = self.bytes_of_the_row();
        await_until(LIMIT, "a renewal", || self.bytes_of_the_row() != before);
    }

    /// The row as it is, to the byte, with the mark of its last write.
    pub(crate) fn bytes_of_the_row(&self) -> String {
        let sql = "SELECT lease::text || ' ' || xmin::text FROM leader_election AS lease WHERE name = 'e'";
        self.database.client().query_one(sql, &[]).expect("a row").get(0)
    }
}

/// A transaction that holds the row of the tests' election, on a connection of its own direct to the server.
pub(crate) struct RowLock(tenure_testground::postgres::Client);

impl RowLock {
    pub(crate) fn take(ground: &Ground<'_>) -> RowLock {
        let mut client = ground.database.client();
        client.batch_execute("BEGIN").expect("a transaction");
        let sql = "SELECT 1 FROM leader_election WHERE name = 'e' FOR UPDATE";
        assert_eq!(client.query(sql, &[]).expect("the row's lock").len(), 1, "there is no row");
        RowLock(client)
    }

    /// Waits until somebody else waits for the row.
    #[track_caller]
    pub(crate) fn await_waiter(&mut self) {
        let sql = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))";
        await_until(LIMIT, "somebody waits for the row", || {
            self.0.query_one(sql, &[]).expect("the server's locks").get::<_, i64>(0) > 0
        });
    }

    /// Waits until so many wait in line for it, those included whom nobody wants to hear of any more.
    #[track_caller]
    pub(crate) fn await_line(&mut self, length: i64) {
        // Whoever waits for the row has locked its table.
        let sql = "SELECT count(DISTINCT pid) FROM pg_locks AS waits JOIN pg_locks AS has USING (pid)
                   WHERE NOT waits.granted AND has.relation = 'leader_election'::regclass
                   AND has.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        await_until(LIMIT, format_args!("{length} wait for the row"), || {
            self.0.query_one(sql, &[]).expect("the server's locks").get::<_, i64>(0) >= length
        });
    }

    /// Ends the transaction, which has changed nothing. Over when this returns.
    pub(crate) fn release(mut self) {
        self.0.batch_execute("COMMIT").expect("a commit");
    }
}
