//! Options that several commands share.

use std::fmt;
use std::time::Duration;

use clap::Args;
use tenure::{AnyStore, Config, ConfigBuilder, Lease, PostgresStore, SqliteStore, Store, StoreError};

use crate::failure::{FAILED, Failure};

/// Where the lease is.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct StoreOptions {
    /// The store: postgres://user@host/database, or sqlite:/path/of/a/file.
    ///
    /// A password in it can be read by everybody who may list processes here; the environment is the place for it.
    #[arg(long, value_name = "URL", env = "TENURE_STORE", hide_env_values = true)]
    pub(crate) store: String,
    /// The table, where it is not called leader_election, or not in the schema public.
    #[arg(long, value_name = "[SCHEMA.]NAME", value_parser = table_name)]
    table: Option<TableName>,
}

impl StoreOptions {
    /// As another process of this program was given them; `table` as [`table`](StoreOptions::table) shows it.
    pub(crate) fn handed_on(store: String, table: Option<&str>) -> Option<StoreOptions> {
        let table = table.map(table_name).transpose().ok()?;
        Some(StoreOptions { store, table })
    }

    /// The table as it was named, if it was.
    pub(crate) fn table(&self) -> Option<String> {
        self.table.as_ref().map(ToString::to_string)
    }

    /// Connects to nothing and opens no file.
    pub(crate) fn open(&self) -> Result<AnyStore, Failure> {
        let store = AnyStore::open(&self.store)?;
        let Some(table) = &self.table else { return Ok(store) };
        Ok(match (store, &table.schema) {
            (AnyStore::Postgres(_), schema) => {
                let builder = PostgresStore::builder(&self.store).table(&table.name);
                let builder = match schema {
                    Some(schema) => builder.schema(schema),
                    None => builder,
                };
                AnyStore::Postgres(builder.build().map_err(StoreError::from)?)
            }
            (AnyStore::Sqlite(store), None) => {
                AnyStore::Sqlite(SqliteStore::builder(store.path()).table(&table.name).open()?)
            }
            (AnyStore::Sqlite(_), Some(_)) => {
                return Err(Failure::new(
                    FAILED,
                    "--table: there are no schemas in SQLite, give the name alone",
                )
                .hint("a name that has a dot in it goes in double quotes: --table '\"my.table\"'"));
            }
            _ => return Err(Failure::new(FAILED, "--table: this store has no table")),
        })
    }
}

/// What no election can be called is said before anything is sent.
pub(crate) fn check_names<'a>(elections: impl IntoIterator<Item = &'a String>) -> Result<(), Failure> {
    elections.into_iter().try_for_each(|name| Ok(Config::builder(name).build().map(|_| ())?))
}

/// Elections by name, each with its lease, if it has one.
pub(crate) type Found = Vec<(String, Option<Lease>)>;

/// The elections that are meant.
#[derive(Debug, Args)]
pub(crate) struct Elections {
    /// Only these elections; otherwise the first 1,000 that there are.
    #[arg(long = "election", value_name = "NAME", num_args = 1..)]
    named: Vec<String>,
}

impl Elections {
    /// As [`check_names`].
    pub(crate) fn check(&self) -> Result<(), Failure> {
        check_names(&self.named)
    }

    /// Those that were named, as they are now; `None` where all are meant.
    pub(crate) fn named(&self, store: &AnyStore, timeout: Duration) -> Option<Result<Found, StoreError>> {
        let look = |name: &String| Ok((name.clone(), store.observe(name, timeout)?.into_lease()));
        (!self.named.is_empty()).then(|| self.named.iter().map(look).collect())
    }
}

/// A table, with its schema or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableName {
    schema: Option<String>,
    name: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.schema.iter() {
            write!(f, "\"{}\".", part.replace('"', "\"\""))?;
        }
        write!(f, "\"{}\"", self.name.replace('"', "\"\""))
    }
}

/// As in SQL: a dot between the two, and double quotes around whatever has a dot or a quote in it. Capitals are kept
/// all the same, as in the rest of the crate.
fn table_name(text: &str) -> Result<TableName, String> {
    let (mut parts, mut name) = (Vec::new(), String::new());
    let mut rest = text.chars().peekable();
    let mut quoted = false;
    while let Some(c) = rest.next() {
        match c {
            // Two of them in quotes stand for one.
            '"' if quoted && rest.next_if_eq(&'"').is_some() => name.push('"'),
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(std::mem::take(&mut name)),
            c => name.push(c),
        }
    }
    let schema = parts.pop();
    if quoted || !parts.is_empty() {
        return Err("is not NAME or SCHEMA.NAME".to_owned());
    }
    if name.is_empty() || schema.as_ref().is_some_and(String::is_empty) {
        return Err("is empty, or a part of it is".to_owned());
    }
    Ok(TableName { schema, name })
}

/// `3s`, `500ms`, `1m 30s`: as long as a [`Config`] would take it.
fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time < Config::MIN_DURATION || time > Config::MAX_LEASE_DURATION {
        return Err("is not between 1ms and 31days".to_owned());
    }
    Ok(time)
}

/// How long a look or a change may take.
#[derive(Clone, Debug, Args)]
pub(crate) struct Bound {
    /// The bound of one call to the database.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = time)]
    pub(crate) operation_timeout: Duration,
}

/// How often to look.
#[derive(Clone, Debug, Args)]
pub(crate) struct Pace {
    /// How often to look.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = time)]
    pub(crate) retry_period: Duration,
}

/// How an election is run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Timings")]
pub(crate) struct Timings {
    /// How long a lease is granted for: how long the others wait after a crash.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) lease_duration: Option<Duration>,
    /// How often a leader renews it.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) renew_interval: Option<Duration>,
    /// How often a candidate looks: the wait after a hand-over.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) retry_period: Option<Duration>,
    /// The bound of one call to the database.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) operation_timeout: Option<Duration>,
    /// How long before its lease a term ends.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) safety_margin: Option<Duration>,
}

impl Timings {
    /// The settings so far; what is not given keeps its default.
    pub(crate) fn config(&self, election: &str) -> ConfigBuilder {
        let builder = Config::builder(election);
        let set = [
            (
                self.lease_duration,
                ConfigBuilder::lease_duration as fn(ConfigBuilder, Duration) -> ConfigBuilder,
            ),
            (self.renew_interval, ConfigBuilder::renew_interval),
            (self.retry_period, ConfigBuilder::retry_period),
            (self.operation_timeout, ConfigBuilder::operation_timeout),
            (self.safety_margin, ConfigBuilder::safety_margin),
        ];
        let given = set.into_iter().filter_map(|(value, set)| Some((value?, set)));
        given.fold(builder, |builder, (value, set)| set(builder, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_as_in_sql() {
        let parsed = |text: &str| table_name(text).map(|table| (table.schema, table.name));
        let of = |schema: Option<&str>, name: &str| Ok((schema.map(str::to_owned), name.to_owned()));
        assert_eq!(parsed("leases"), of(None, "leases"));
        assert_eq!(parsed("ops.Leases"), of(Some("ops"), "Leases"));
        assert_eq!(parsed(r#""my.ops"."the ""table""""#), of(Some("my.ops"), r#"the "table""#));
        for named in ["leases", "ops.Leases", r#""my.ops"."the ""table""""#, r#""."."x""#] {
            let table = table_name(named).unwrap();
            assert_eq!(table_name(&table.to_string()), Ok(table), "{named}");
        }
        for wrong in ["", ".x", "x.", "a.b.c", "\"a", "\"\""] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_that_no_election_could_have_are_refused() {
        assert_eq!(time("1m 30s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "3", "0s", "1us", "32days", "soon"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_goes_to_the_store_that_has_one() {
        let open = |store: &str, table: &str| {
            let options = StoreOptions { store: store.into(), table: table_name(table).ok() };
            options.open().map(|store| format!("{store:?}")).map_err(|failure| format!("{failure:?}"))
        };
        assert!(open("postgres://u:S3cr3t@h/d", "ops.leases").unwrap().contains(r#"\"ops\".\"leases\""#));
        assert!(open("postgres:///d", "leases").is_err(), "what the store says of the rest");
        assert!(open("sqlite:/x", "\"a.b\"").unwrap().contains("a.b"));
        assert!(open("sqlite:/x", "ops.leases").unwrap_err().contains("no schemas"));
        assert!(open("memory:", "leases").unwrap_err().contains("no table"));
    }
}
