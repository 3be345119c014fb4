//! The lease in a PostgreSQL table.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postgres::Socket;
use postgres::tls::{MakeTlsConnect, TlsConnect};
use postgres::types::Type;
use r2d2_postgres::PostgresConnectionManager;

use super::worker::Workers;
use super::{Store, StoreError};
use crate::lease::{Bid, Fence, Lease, Observation, Renewal};

mod borrowed;
mod builder;
mod config_error;
mod connect;
mod connection;
mod dsn;
mod engine;
mod error;
mod examine;
pub(crate) mod fenced;
mod pool;
mod resolver;
mod row;
mod schema;
mod session;
mod sql;
mod table;
mod tls;

pub use builder::PostgresBuilder;
pub use config_error::PostgresConfigError;

pub use examine::{PostgresExamination, PostgresTable};

use engine::{Call, Engine, Kind, Parameter};
use row::Micros;

/// What the names of the store's threads begin with.
const THREADS: &str = "tenure-pg";
/// The time that [`PostgresStore::ensure_schema`] may take.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(10);

/// Elections in a table of a PostgreSQL database, directly or through a pooler such as PgBouncer.
///
/// Every operation is one statement and one round trip, and leaves nothing behind in the session: no `SET`,
/// no prepared statement, no advisory lock. It therefore works through transaction pooling.
///
/// # Bounds
///
/// Every call returns within its timeout and about a tenth of a second, whatever the network, the server or
/// the resolver do. A connection on which a call ran out of time is closed. The driver runs on the store's
/// own threads (`tenure-pg-0` and so on, as many as the pool has connections, started when they are first
/// needed), so that calls may be made on any thread; inside an async runtime they block it, as every blocking
/// call does.
///
/// Clones share connections and threads, which end with the last clone. Dropping it does not wait for them.
///
/// What the server does with a statement whose caller has left is bounded too where it waits for the row, but
/// not where somebody holds a lock on the whole table (`ALTER TABLE`, `VACUUM FULL`): until that ends, every
/// call that times out leaves a waiting session on the server. Where tables are locked for long, give the
/// role a limit (`ALTER ROLE app SET lock_timeout = '2s'`), or lock with one.
///
/// # Where the table is
///
/// In the schema `public` unless [`PostgresBuilder::schema`] names another one. The server's `search_path` is
/// not consulted: through a transaction pooler it may be whatever another client has left there.
///
/// # TLS
///
/// With the feature `tls` the connection string, or the environment where the string is silent, has libpq's parameters:
///
/// | parameter | variable | |
/// | --- | --- | --- |
/// | `sslmode` | `PGSSLMODE` | see below; `prefer` by default |
/// | `sslrootcert` | `PGSSLROOTCERT` | a file with the certificates that sign the server's, or itself; or `system` |
/// | `sslcert`, `sslkey` | `PGSSLCERT`, `PGSSLKEY` | the client's own certificate and its key |
/// | `sslnegotiation` | `PGSSLNEGOTIATION` | `postgres`, or `direct`: without asking first, from PostgreSQL 17 on |
/// | `channel_binding` | `PGCHANNELBINDING` | `require`: the log-in (SCRAM) must prove that nobody is in between |
///
/// | `sslmode` | the connection is | who listens learns | who sits in between can do |
/// | --- | --- | --- | --- |
/// | `disable` | plain | everything | everything |
/// | `allow` | plain, or encrypted if the server turns that away | everything | everything |
/// | `prefer` | encrypted, or plain if the server says that it has no TLS | then everything | everything |
/// | `require` | encrypted | nothing | everything; with an `sslrootcert` it is `verify-ca` |
/// | `verify-ca` | to a server with a certificate of one in `sslrootcert` | nothing | everything, with such a certificate |
/// | `verify-full` | the same, and the certificate is for this host | nothing | nothing |
///
/// As with libpq: a root certificate that is there is used in every mode; files that are not named are looked for in
/// `.postgresql` at home (`root.crt`, `postgresql.crt`, `postgresql.key`), once, when the store is made: `HOME`, or what
/// the system's list of users says;
/// `sslrootcert=system` means, and takes, `verify-full`; a key that others can read is refused; with `hostaddr` the
/// certificate must be for `host`; Unix-domain sockets are never encrypted, whatever `sslmode` says.
///
/// Unlike libpq: `verify-full` without any root certificate means the system's (or those that `SSL_CERT_FILE` and
/// `SSL_CERT_DIR` name), read once, and `verify-ca` without one is refused; a certificate that is itself in `sslrootcert`
/// is trusted, whoever has signed it; a host without a name is verified by its address; the names of a certificate are
/// its alternative names, not its common name; of a root certificate itself the dates are not looked at. And stricter: a
/// file that is named and can't be used is an error in every mode; `prefer` goes on in plain text only where the server
/// says that it has no TLS, and not where the handshake or the log-in fails; a server's certificate must be of version 3
/// even where nobody verifies it (`openssl x509 -req` of OpenSSL 3.0 makes others unless it is given extensions);
/// revocation lists, passphrases and libpq's other parameters are refused by name, and so are the variables
/// `PGREQUIREAUTH`, `PGREQUIREPEER` and `PGGSSENCMODE=require`.
///
/// The files are read when the store is made, and again for a new connection if they have changed: certificates can be
/// replaced under a running program. (While what is there can't be used, no new connection is made.) A certificate
/// that does not hold is a [fatal](StoreError::is_fatal) error; a handshake that breaks off is retryable. The
/// handshake is a part of a call's time.
///
/// Any other TLS library goes through [`connect_with_tls`](PostgresStore::connect_with_tls), without the feature.
///
/// # Fail-over
///
/// Fences follow the server's timeline, which every promotion raises, so that they go on rising above those
/// that a fail-over lost. Servers that hide it are noticed, with one warning in the log; see
/// [`timeline_available`](PostgresStore::timeline_available). A server found to be read-only or a standby is
/// an error that waiting can mend, and the next connection begins with another server of the connection
/// string.
#[derive(Clone)]
pub struct PostgresStore(Arc<Workers<Engine>>);

impl PostgresStore {
    fn new(workers: Workers<Engine>) -> PostgresStore {
        PostgresStore(Arc::new(workers))
    }

    /// A store with a small pool of its own (two connections), for the table `public.leader_election`.
    ///
    /// `dsn` is a URL or a list of `keyword=value` pairs, as for `psql`; several hosts are tried in turn,
    /// each with its share of the time (`target_session_attrs=read-write` passes read-only ones over at
    /// once). Hosts may be directories of Unix-domain sockets; each connection to one listens for a moment on
    /// a free port of the loopback interface. Without a password in it, that of the environment variable
    /// `PGPASSWORD` is used. How connections are encrypted is said [above](PostgresStore#tls); a string that asks for
    /// TLS is refused in a build without it.
    ///
    /// Sends nothing: the first call connects. Reads the files that are named for TLS.
    ///
    /// ```no_run
    /// use tenure::PostgresStore;
    ///
    /// let store = PostgresStore::connect("postgres://app@db/app")?;
    /// store.ensure_schema()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The string can't be used; the error says which part of it, and never shows the password.
    pub fn connect(dsn: &str) -> Result<PostgresStore, PostgresConfigError> {
        PostgresStore::builder(dsn).build()
    }

    /// The same, encrypted by a connector of the application's: see [`PostgresBuilder::tls_connector`]. Does not take
    /// the feature `tls`.
    ///
    /// # Errors
    /// As [`connect`](PostgresStore::connect), and where the string asks for what only the crate's own connector does.
    pub fn connect_with_tls<T>(dsn: &str, connector: T) -> Result<PostgresStore, PostgresConfigError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::TlsConnect: Send,
        T::Stream: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        PostgresStore::builder(dsn).tls_connector(connector).build()
    }

    /// The settings of a store with a pool of its own; `dsn` as for [`connect`](PostgresStore::connect).
    pub fn builder(dsn: &str) -> PostgresBuilder {
        PostgresBuilder::new(builder::Origin::Dsn(dsn.to_owned()), builder::DEFAULT_POOL_SIZE)
    }

    /// A store that takes its connections from a pool that the application already has.
    ///
    /// Callers are back in time here too, but what they leave behind is not bounded: such a connection has no
    /// deadline, so a call that hangs in it keeps the pool's connection, and one of the store's (at most two)
    /// threads, until the server answers or the system gives the connection up; while all of them hang, calls
    /// return with a time-out. Nor can the store take a connection out of that pool that has become
    /// read-only, or keep the pool's own test of connections (on by default) from costing a second round
    /// trip. Where that matters, use [`connect`](PostgresStore::connect).
    ///
    /// ```no_run
    /// use r2d2_postgres::{PostgresConnectionManager, postgres::NoTls, r2d2};
    /// use tenure::PostgresStore;
    ///
    /// let manager = PostgresConnectionManager::new("host=db user=app".parse()?, NoTls);
    /// let pool = r2d2::Pool::builder().max_size(10).build(manager)?;
    /// let store = PostgresStore::from_pool(pool.clone());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn from_pool<T>(pool: r2d2::Pool<PostgresConnectionManager<T>>) -> PostgresStore
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::TlsConnect: Send,
        T::Stream: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let engine = Engine::new(Box::new(borrowed::BorrowedPool(pool)), table::Table::default());
        PostgresStore::new(Workers::new(THREADS, engine, builder::DEFAULT_POOL_SIZE as usize))
    }

    /// The settings of a store on the application's pool; see [`from_pool`](PostgresStore::from_pool).
    pub fn pool_builder<T>(pool: r2d2::Pool<PostgresConnectionManager<T>>) -> PostgresBuilder
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::TlsConnect: Send,
        T::Stream: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let origin = builder::Origin::Pool(Box::new(borrowed::BorrowedPool(pool)));
        PostgresBuilder::new(origin, builder::DEFAULT_POOL_SIZE)
    }

    /// The DDL of the table, for migration tools: idempotent, ends with a semicolon.
    ///
    /// ```
    /// use tenure::PostgresStore;
    ///
    /// let store = PostgresStore::connect("host=db user=app")?;
    /// assert!(store.schema().starts_with(r#"CREATE TABLE IF NOT EXISTS "public"."leader_election""#));
    /// # Ok::<(), tenure::PostgresConfigError>(())
    /// ```
    #[must_use]
    pub fn schema(&self) -> String {
        self.0.context().table().ddl()
    }

    /// Creates the table if it is missing, and checks the one that is there. Safe from every replica at every
    /// start: where the table exists it only reads, so it needs no right to create anything and works on a
    /// read-only server. Blocks for 10 s at the most, and does not ride out a database that is down: a program
    /// that starts with this call wants to be started again, or to have its table made by a migration.
    ///
    /// It looks at the table and not at the role's rights on it; those show in the first operation.
    ///
    /// # Errors
    /// Fatal: the table can't carry elections (the message says which column or property is wrong), or the
    /// role can't create it (the message names the right, and contains the DDL). Otherwise as any call.
    pub fn ensure_schema(&self) -> Result<(), StoreError> {
        self.0.call(SCHEMA_TIMEOUT, schema::ensure)
    }

    /// Whether the server shows its timeline, which keeps fences rising over a fail-over that loses
    /// acknowledged writes; `None` before the first answer. Does not block.
    #[must_use]
    pub fn timeline_available(&self) -> Option<bool> {
        self.0.context().timeline_available()
    }

    /// Looks at the server, its settings, the role, the path to it and the table: everything that a person wants to
    /// know who is about to run elections there. Judges nothing but the table's shape, and needs no right on it.
    ///
    /// Writes nothing and leaves nothing behind. About a dozen round trips, on up to two connections at the same
    /// time; what it waits for, and what the server waits for on its behalf, is bounded by `timeout`.
    /// Calls of an elector on the same store wait for those connections, so give it a store of its own.
    ///
    /// # Errors
    /// As any call: no connection, no log-in. A table that is missing, or can't be used, is a finding and no error.
    pub fn examine(&self, timeout: Duration) -> Result<PostgresExamination, StoreError> {
        self.0.call(timeout, examine::examine)
    }

    fn lease(&self, call: Call, name: &str, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        let name = name.to_owned();
        self.0.call(timeout, move |engine, until| {
            let rows = engine.rows(&call, until)?;
            rows.first().map(|row| row::lease(row, &name)).transpose()
        })
    }
}

/// Without the password.
impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.0.context();
        f.debug_struct("PostgresStore")
            .field("table", &engine.table().to_string())
            .field("servers", &engine.source())
            .field("pool_size", &self.0.size())
            .field("timeline_available", &engine.timeline_available())
            .finish()
    }
}

impl Store for PostgresStore {
    fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        let mut parameters = vec![
            Parameter::text(bid.name),
            Parameter::text(bid.holder),
            Parameter::new(micros(bid.lease_duration), Type::INT8),
            Parameter::new(bid.payload.map(<[u8]>::to_vec), Type::BYTEA),
            Parameter::new(bid.above, Type::INT8),
            Parameter::new(bid.timeline.map(i64::from), Type::INT8),
        ];
        let kind = match &bid.over {
            None => Kind::Create,
            Some(version) => {
                // The mark is the 32 bits of `xmin`; no row has a larger one.
                let mark = i64::try_from(version.mark()).unwrap_or(i64::MAX);
                parameters.extend([
                    Parameter::text(version.holder()),
                    Parameter::new(version.fence(), Type::INT8),
                    Parameter::new(Micros(version.renewed_at()), Type::TIMESTAMPTZ),
                    Parameter::new(Micros(version.expires_at()), Type::TIMESTAMPTZ),
                    Parameter::new(mark, Type::INT8),
                ]);
                Kind::TakeOver
            }
        };
        self.lease(Call::new(kind, parameters), bid.name, timeout)
    }

    fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        let parameters = vec![
            Parameter::text(renewal.name),
            Parameter::text(renewal.holder),
            Parameter::new(micros(renewal.lease_duration), Type::INT8),
            Parameter::new(renewal.payload.map(<[u8]>::to_vec), Type::BYTEA),
            Parameter::new(renewal.fence, Type::INT8),
        ];
        self.lease(Call::new(Kind::Renew, parameters), renewal.name, timeout)
    }

    fn release(&self, name: &str, holder: &str, fence: Fence, timeout: Duration) -> Result<(), StoreError> {
        let parameters =
            vec![Parameter::text(name), Parameter::text(holder), Parameter::new(fence, Type::INT8)];
        let call = Call::new(Kind::Release, parameters);
        self.0.call(timeout, move |engine, until| engine.rows(&call, until).map(drop))
    }

    fn observe(&self, name: &str, timeout: Duration) -> Result<Observation, StoreError> {
        let name = name.to_owned();
        self.0.call(timeout, move |engine, until| {
            let parameters = vec![Parameter::text(&name), Parameter::text(&engine.table().to_string())];
            let rows = engine.rows(&Call::new(Kind::Observe, parameters), until)?;
            match rows.first() {
                Some(row) if row::is_unlogged(row)? => Err(schema::unlogged(engine.table())),
                Some(row) => row::observation(row, &name),
                None => Err(StoreError::retryable("the database answered an observation with nothing")),
            }
        })
    }

    fn list(&self, timeout: Duration) -> Result<Vec<Lease>, StoreError> {
        self.0.call(timeout, |engine, until| {
            let rows = engine.rows(&Call::new(Kind::List, Vec::new()), until)?;
            rows.iter().filter_map(|row| row::listed(row).transpose()).collect()
        })
    }

    fn lease_table(&self) -> Option<String> {
        Some(self.0.context().table().to_string())
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
