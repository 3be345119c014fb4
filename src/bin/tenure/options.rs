//! Options that several commands share.

use std::time::Duration;

use clap::Args;
use tenure::{AnyStore, Config, ConfigBuilder};

use crate::failure::Failure;

/// Where the lease is.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreOptions {
    /// The store: postgres://user@host/database, or sqlite:/path/of/a/file.
    ///
    /// A password in it can be read by everybody who may list processes here; the environment is the place for it.
    #[arg(long, value_name = "URL", env = "TENURE_STORE", hide_env_values = true)]
    pub(crate) store: String,
}

impl StoreOptions {
    /// Connects to nothing and opens no file.
    pub(crate) fn open(&self) -> Result<AnyStore, Failure> {
        Ok(AnyStore::open(&self.store)?)
    }
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
    /// How often a candidate looks.
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
