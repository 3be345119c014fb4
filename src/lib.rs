//! Leader election for blocking programs that share nothing but a database.

#![forbid(unsafe_code)]

mod config;
mod identity;
mod lease;
mod store;
mod time;

pub use config::{ClockTrust, Config, ConfigBuilder, ConfigError};
pub use identity::{Identity, IdentityError};
pub use lease::{Bid, Fence, InvalidFence, Lease, LeaseTimes, Observation, Renewal, Timestamp, Version};
pub use store::{MemoryStore, Store, StoreError};
#[cfg(any(test, feature = "testing"))]
pub use store::{RowHold, RowSnapshot, acceptance};
#[cfg(any(test, feature = "testing"))]
pub use time::ManualClock;
pub use time::{Clock, SystemClock, Time};
