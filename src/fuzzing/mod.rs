//! Doors for fuzzers, and for the tests that replay what the fuzzers found: each takes bytes, and panics if a
//! promise is broken. Not part of the interface.

mod bytes;
mod config;
#[cfg(feature = "postgres")]
mod dsn;
mod election;
mod schedule;
mod stores;
#[cfg(test)]
mod tests;

pub use config::config;
#[cfg(feature = "postgres")]
pub use dsn::{dsn, table};
pub use election::election;
pub use schedule::schedule;
pub use stores::stores;
