//! A store that is chosen by a URL.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use parking_lot::Mutex;

#[cfg(feature = "postgres")]
use super::postgres::PostgresStore;
#[cfg(feature = "sqlite")]
use super::sqlite::SqliteStore;
use super::{MemoryStore, Store, StoreError};
use crate::lease::{Bid, Fence, Lease, Observation, Renewal};

/// A store that is chosen at run time, by a URL from a program's configuration.
///
/// | URL | store | feature |
/// | --- | --- | --- |
/// | `postgres://user:password@host/database`, `postgresql://..` | `PostgresStore::connect` | `postgres`, and `tls` for `?sslmode=require` and more |
/// | `sqlite:/var/lib/app/lease.db`, `sqlite:///var/lib/app/lease.db` | `SqliteStore::open`, the path taken as it is | `sqlite` |
/// | `memory:name` | the [`MemoryStore`] of that name: the same one wherever this process asks for it, until it ends | |
/// | `memory:` | a new [`MemoryStore`] each time | |
///
/// ```
/// use tenure::{AnyStore, Config, Elector};
///
/// let url = std::env::var("ELECTION_URL").unwrap_or("memory:".into());
/// let store = AnyStore::open(&url)?;
/// store.ensure_schema()?;
/// let elector = Elector::start(store, Config::builder("nightly-report").build()?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyStore {
    /// In this process.
    Memory(MemoryStore),
    /// In a PostgreSQL table.
    #[cfg(feature = "postgres")]
    Postgres(PostgresStore),
    /// In a file.
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteStore),
}

impl AnyStore {
    /// The store that the URL names. Connects to nothing and opens no database: the first call does. Files that the URL or
    /// the environment names for TLS are read.
    ///
    /// # Errors
    /// Fatal: no scheme, one that is unknown or whose feature this build lacks, or what the store itself says of the
    /// rest. Never shows a password.
    pub fn open(url: &str) -> Result<AnyStore, StoreError> {
        let refused = |why: &str| Err(StoreError::fatal(format!("the store's URL {why}")));
        let is_scheme = |scheme: &str| scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        // What is not a scheme may be a part of a password.
        let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
            return refused("begins with no scheme; write postgres://.., sqlite:/path or memory:");
        };
        let scheme = scheme.to_ascii_lowercase();
        match scheme.as_str() {
            "memory" => Ok(AnyStore::Memory(memory(rest))),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                Ok(AnyStore::Postgres(PostgresStore::connect(&format!("{scheme}:{rest}"))?))
            }
            #[cfg(not(feature = "postgres"))]
            "postgres" | "postgresql" => refused("needs the feature `postgres`, which this build lacks"),
            #[cfg(feature = "sqlite")]
            "sqlite" if rest.contains('?') => refused("has options, and there are none for sqlite"),
            #[cfg(feature = "sqlite")]
            "sqlite" => Ok(AnyStore::Sqlite(SqliteStore::open(rest.strip_prefix("//").unwrap_or(rest))?)),
            #[cfg(not(feature = "sqlite"))]
            "sqlite" => refused("needs the feature `sqlite`, which this build lacks"),
            unknown => refused(&format!("has the scheme {unknown}, for which there is no store")),
        }
    }

    /// Creates the table where it is missing, and the file where that is; see `ensure_schema` of the store.
    ///
    /// # Errors
    /// As there. None from memory.
    pub fn ensure_schema(&self) -> Result<(), StoreError> {
        match self {
            AnyStore::Memory(_) => Ok(()),
            #[cfg(feature = "postgres")]
            AnyStore::Postgres(store) => store.ensure_schema(),
            #[cfg(feature = "sqlite")]
            AnyStore::Sqlite(store) => store.ensure_schema(),
        }
    }

    fn store(&self) -> &dyn Store {
        match self {
            AnyStore::Memory(store) => store,
            #[cfg(feature = "postgres")]
            AnyStore::Postgres(store) => store,
            #[cfg(feature = "sqlite")]
            AnyStore::Sqlite(store) => store,
        }
    }
}

fn memory(name: &str) -> MemoryStore {
    static NAMED: LazyLock<Mutex<HashMap<String, MemoryStore>>> = LazyLock::new(Mutex::default);
    match name {
        "" => MemoryStore::new(),
        name => NAMED.lock().entry(name.to_owned()).or_default().clone(),
    }
}

impl FromStr for AnyStore {
    type Err = StoreError;

    fn from_str(url: &str) -> Result<AnyStore, StoreError> {
        AnyStore::open(url)
    }
}

impl Store for AnyStore {
    fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        self.store().acquire(bid, timeout)
    }

    fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        self.store().renew(renewal, timeout)
    }

    fn release(&self, name: &str, holder: &str, fence: Fence, timeout: Duration) -> Result<(), StoreError> {
        self.store().release(name, holder, fence, timeout)
    }

    fn observe(&self, name: &str, timeout: Duration) -> Result<Observation, StoreError> {
        self.store().observe(name, timeout)
    }

    fn list(&self, timeout: Duration) -> Result<Vec<Lease>, StoreError> {
        self.store().list(timeout)
    }

    fn lease_table(&self) -> Option<String> {
        self.store().lease_table()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn refused(url: &str) -> String {
        let error = AnyStore::open(url).expect_err(url);
        assert!(error.is_fatal());
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("S3cr3t"), "{shown}");
        shown
    }

    #[test]
    fn what_names_no_store_is_refused_by_name_and_without_a_password() {
        assert!(refused("mysql://app:S3cr3t@db/app").contains("the scheme mysql,"));
        assert!(refused("host=db password=S3cr3t:x").contains("no scheme"));
        assert!(refused("/var/lib/lease.db").contains("no scheme"));
        assert!(refused("").contains("no scheme"));
        assert!(refused("://x").contains("no store"));
    }

    #[test]
    fn memory_is_shared_by_name_and_only_then() {
        let open = |url: &str| AnyStore::open(url).unwrap();
        let stores = [
            open("memory:any-test"),
            open("MEMORY:any-test"),
            open("memory:other"),
            open("memory:"),
            open("memory:"),
        ];
        let bid = Bid::new("n", "h", SECOND);
        let created: Vec<bool> = stores.iter().map(|s| s.acquire(&bid, SECOND).unwrap().is_some()).collect();
        assert_eq!(created, [true, false, true, true, true]);
        let lease = stores[1].observe("n", SECOND).unwrap().into_lease().unwrap();
        let renewal = Renewal::new("n", "h", lease.fence(), SECOND);
        assert!(stores[0].renew(&renewal, SECOND).unwrap().is_some());
        stores[0].release("n", "h", lease.fence(), SECOND).unwrap();
        assert!(stores[1].observe("n", SECOND).unwrap().lease().unwrap().is_released());
        assert_eq!(stores[1].list(SECOND).unwrap().len(), 1);
        assert!(stores[0].ensure_schema().is_ok());
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn postgres_is_named_by_either_scheme() {
        for url in
            ["postgres://app:S3cr3t@db/app", "postgresql://app:S3cr3t@db/app", "Postgres://app:S3cr3t@db/app"]
        {
            let store: AnyStore = url.parse().unwrap();
            let shown = format!("{store:?}");
            assert!(shown.contains("db:5432") && !shown.contains("S3cr3t"), "{shown}");
        }
        assert!(refused("postgres://app:S3cr3t@db/app?sslmode=strict").contains("sslmode"));
    }

    #[cfg(all(feature = "postgres", not(feature = "tls")))]
    #[test]
    fn tls_is_missing_by_name() {
        let complaint = refused("postgres://app:S3cr3t@db/app?sslmode=require");
        assert!(complaint.contains("sslmode") && complaint.contains("feature `tls`"), "{complaint}");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_is_a_part_of_the_url() {
        assert!(AnyStore::open("postgres://app@db/app?sslmode=require").is_ok());
        let complaint =
            refused("postgres://app:S3cr3t@db/app?sslmode=verify-full&sslrootcert=/nonexistent/ca.pem");
        assert!(complaint.contains("sslrootcert names /nonexistent/ca.pem"), "{complaint}");
    }

    #[cfg(not(feature = "postgres"))]
    #[test]
    fn postgres_is_missing_by_name() {
        assert!(refused("postgres://app:S3cr3t@db/app").contains("feature `postgres`"));
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn sqlite_has_a_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lease.db");
        for slashes in ["", "//"] {
            let store = AnyStore::open(&format!("sqlite:{slashes}{}", path.display())).unwrap();
            store.ensure_schema().unwrap();
            let AnyStore::Sqlite(store) = &store else { panic!("{store:?}") };
            assert_eq!(store.path(), path);
        }
        let store = AnyStore::open(&format!("sqlite:{}", path.display())).unwrap();
        assert!(store.acquire(&Bid::new("n", "h", SECOND), 10 * SECOND).unwrap().is_some());
        assert!(refused("sqlite:lease.db").contains("is relative"));
        assert!(refused("sqlite://lease.db").contains("is relative"));
        assert!(refused("sqlite::memory:").contains("memory"));
        assert!(refused("sqlite:").contains("is empty"));
        assert!(refused("sqlite:/lease.db?mode=ro").contains("options"));
    }

    #[cfg(not(feature = "sqlite"))]
    #[test]
    fn sqlite_is_missing_by_name() {
        assert!(refused("sqlite:/lease.db").contains("feature `sqlite`"));
    }
}
