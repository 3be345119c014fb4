//! Leader election for blocking programs that share nothing but a database.

#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod callbacks;
mod config;
mod election;
mod elector;
mod event;
mod guard;
mod identity;
mod lease;
#[cfg(test)]
mod simulation;
mod status;
mod store;
mod term;
mod time;

pub use callbacks::{Callbacks, RunError};
pub use config::{ClockTrust, Config, ConfigBuilder, ConfigError};
pub use elector::{CampaignError, Elector, ShutdownError, StartError};
pub use event::{Event, Leader};
pub use guard::{LeaderGuard, Lost, PublishError, Term};
pub use identity::{Identity, IdentityError};
pub use lease::{Bid, Fence, InvalidFence, Lease, LeaseTimes, Observation, Renewal, Timestamp, Version};
pub use status::{Role, Status};
#[cfg(feature = "postgres")]
pub use store::postgres::{PostgresBuilder, PostgresConfigError, PostgresStore};
pub use store::{MemoryStore, Store, StoreError};
#[cfg(any(test, feature = "testing"))]
pub use store::{RowHold, RowSnapshot, acceptance};
pub use term::LossCause;
#[cfg(any(test, feature = "testing"))]
pub use time::ManualClock;
pub use time::{Clock, SystemClock, Time};
