//! Settings of the store, checked before anything is sent.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use postgres::Socket;
use postgres::tls::{MakeTlsConnect, TlsConnect};

use super::PostgresStore;
use super::config_error::PostgresConfigError;
use super::connect::Opener;
use super::dsn::Dsn;
use super::engine::Engine;
use super::pool::OwnPool;
use super::session::Source;
use super::table::{DEFAULT_SCHEMA, DEFAULT_TABLE, Table};
use super::tls::{Connector, Custom};

use crate::store::worker::Workers;

pub(super) const DEFAULT_POOL_SIZE: u32 = 2;
const MAX_POOL_SIZE: u32 = 64;
const DEFAULT_APPLICATION_NAME: &str = "tenure";

/// Where the connections come from.
pub(super) enum Origin {
    Dsn(String),
    Pool(Box<dyn Source>),
}

/// Settings for a [`PostgresStore`], made by [`PostgresStore::builder`] or [`PostgresStore::pool_builder`].
///
/// ```
/// use tenure::PostgresStore;
///
/// let store = PostgresStore::builder("postgres://app:secret@db1,db2/app?target_session_attrs=read-write")
///     .schema("ops")
///     .table("leases")
///     .pool_size(4)
///     .application_name("billing")
///     .build()?;
/// assert!(!format!("{store:?}").contains("secret"));
/// # Ok::<(), tenure::PostgresConfigError>(())
/// ```
#[must_use = "does nothing until built"]
pub struct PostgresBuilder {
    origin: Origin,
    schema: String,
    table: String,
    pool_size: u32,
    application_name: Option<String>,
    connector: Option<Arc<dyn Connector>>,
}

impl PostgresBuilder {
    pub(super) fn new(origin: Origin, pool_size: u32) -> PostgresBuilder {
        PostgresBuilder {
            origin,
            schema: DEFAULT_SCHEMA.to_owned(),
            table: DEFAULT_TABLE.to_owned(),
            pool_size,
            application_name: None,
            connector: None,
        }
    }

    /// The table's schema; `public` by default, whatever `search_path` says. 1 to 63 bytes, no NUL; case and
    /// special characters are kept. It has to exist.
    pub fn schema(mut self, schema: impl Into<String>) -> PostgresBuilder {
        self.schema = schema.into();
        self
    }

    /// The table; `leader_election` by default. 1 to 63 bytes, no NUL; case and special characters are kept.
    pub fn table(mut self, table: impl Into<String>) -> PostgresBuilder {
        self.table = table.into();
        self
    }

    /// How many calls can be made at the same time: so many connections at the most, and as many threads,
    /// opened and started when they are needed. 1 to 64, by default 2, which serves a few dozen electors.
    pub fn pool_size(mut self, connections: u32) -> PostgresBuilder {
        self.pool_size = connections;
        self
    }

    /// What the server shows in `pg_stat_activity`; before that of the connection string, and `tenure` where
    /// neither says anything. Without effect on connections of the application's own pool.
    pub fn application_name(mut self, name: impl Into<String>) -> PostgresBuilder {
        self.application_name = Some(name.into());
        self
    }

    /// Encrypts connections with a connector of the application's, e.g. of the crates `postgres-native-tls` or
    /// `tokio-postgres-rustls`, instead of the crate's own, and without the feature `tls`. It is called on the store's
    /// threads and must not block in between; the handshake is a part of the call's time.
    ///
    /// `sslmode` is `require` then unless the connection string or `PGSSLMODE` says otherwise (`disable`, `allow` and
    /// `prefer` are possible), and what the connector verifies is its own affair: `verify-ca` and `verify-full` are
    /// refused, and so are `sslrootcert`, `sslcert` and `sslkey` in the connection string.
    /// Connections of the application's own pool have their own; to set one for them is an error.
    pub fn tls_connector<T>(mut self, connector: T) -> PostgresBuilder
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::TlsConnect: Send,
        T::Stream: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        self.connector = Some(Arc::new(Custom(connector)));
        self
    }

    /// Checks the settings and makes the store. Sends nothing, resolves nothing, starts no thread; reads the files that
    /// are named for TLS. Where `HOME` is not set and a file for TLS is not named, a build with `tls` asks the system's list
    /// of users for the home directory, which a directory service may have to answer.
    ///
    /// # Errors
    /// A setting that can't be used, by name.
    pub fn build(self) -> Result<PostgresStore, PostgresConfigError> {
        let table = Table::new(&self.schema, &self.table)?;
        if !(1..=MAX_POOL_SIZE).contains(&self.pool_size) {
            let complaint = format!("is {}, not 1 to {MAX_POOL_SIZE}", self.pool_size);
            return Err(PostgresConfigError::new("pool_size", complaint));
        }
        if self.application_name.as_ref().is_some_and(|name| name.contains('\0')) {
            return Err(PostgresConfigError::new("application_name", "contains a NUL byte"));
        }
        let source = match self.origin {
            Origin::Pool(_) if self.connector.is_some() => {
                let complaint = "is of no use to the application's pool, which has its own";
                return Err(PostgresConfigError::new("tls_connector", complaint));
            }
            Origin::Pool(source) => source,
            Origin::Dsn(dsn) => {
                let mut dsn = Dsn::parse(&dsn, &variable, self.connector)?;
                let name = self.application_name.as_deref().or(dsn.base.get_application_name());
                let name = name.unwrap_or(DEFAULT_APPLICATION_NAME).to_owned();
                dsn.base.application_name(&name);
                Box::new(OwnPool::new(Opener::new(dsn), self.pool_size))
            }
        };
        let size = usize::try_from(self.pool_size).unwrap_or(1);
        Ok(PostgresStore::new(Workers::new(super::THREADS, Engine::new(source, table), size)))
    }
}

/// Of the environment. As to libpq, home is what the system's list of users says where nothing else says it: services
/// often run without `HOME`, and the root certificate there must not count for less than on a terminal.
fn variable(name: &str) -> Option<OsString> {
    let given = std::env::var_os(name).filter(|value| !value.is_empty());
    // Deprecated up to Rust 1.86, for what it does on Windows.
    #[allow(deprecated)]
    let home = || std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    let is_home = cfg!(feature = "tls") && name == "HOME";
    given.or_else(|| if is_home { home().map(PathBuf::into_os_string) } else { None })
}

/// Without the connection string, which may contain a password.
impl fmt::Debug for PostgresBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBuilder")
            .field("schema", &self.schema)
            .field("table", &self.table)
            .field("pool_size", &self.pool_size)
            .field("application_name", &self.application_name)
            .field("tls_connector", &self.connector.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "tls")]
    #[test]
    fn home_is_known_to_a_service_without_the_variable() {
        if std::env::var_os("HOME").is_none() {
            assert!(variable("HOME").is_some_and(|home| std::path::Path::new(&home).is_absolute()));
            return;
        }
        let name = "store::postgres::builder::tests::home_is_known_to_a_service_without_the_variable";
        let mut itself = std::process::Command::new(std::env::current_exe().unwrap());
        let output = itself.args(["--exact", name]).env_remove("HOME").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn settings_are_checked_by_name_before_anything_is_sent() {
        let builder = || PostgresStore::builder("postgres://u:S3cr3t@h/d");
        for (builder, field) in [
            (builder().pool_size(0), "pool_size"),
            (builder().pool_size(65), "pool_size"),
            (builder().schema("x".repeat(64)), "schema"),
            (builder().table("a\0b"), "table"),
            (builder().application_name("a\0b"), "application_name"),
            (PostgresStore::builder("postgres://u:S3cr3t@/d"), "host"),
        ] {
            assert!(!format!("{builder:?}").contains("S3cr3t"));
            let error = builder.build().unwrap_err();
            assert_eq!(error.field(), field);
            assert!(crate::StoreError::from(error).is_fatal());
        }
        let store = builder().build().unwrap();
        assert!(!format!("{store:?}").contains("S3cr3t"), "{store:?}");
        assert!(format!("{store:?}").contains("h:5432"), "{store:?}");
    }
}
