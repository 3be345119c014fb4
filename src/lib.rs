//! Leader election for blocking programs that share nothing but a database.

#![forbid(unsafe_code)]

mod lease;
mod store;
mod time;

pub use lease::{Bid, Fence, InvalidFence, Lease, LeaseTimes, Observation, Renewal, Timestamp, Version};
#[cfg(feature = "postgres")]
pub use store::postgres::{PostgresBuilder, PostgresConfigError, PostgresStore};
pub use store::{Store, StoreError};
#[cfg(any(test, feature = "testing"))]
pub use time::ManualClock;
pub use time::{Clock, SystemClock, Time};
