//! Leader election for blocking programs that share nothing but a database.
//!
//! **At most one participant of an election considers itself leader at any instant**: through partitions,
//! database outages and restarts, pooler restarts, lost replies, processes killed, frozen or suspended, clocks of
//! participants that disagree, and database clocks that step in either direction. Every term has a [`Fence`], a
//! number that strictly increases over the whole life of the election. Uncertainty always resolves to *not
//! leader*: if the database is down, nobody leads.
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Config, Elector, MemoryStore};
//!
//! let store = MemoryStore::new(); // in production: PostgresStore::connect("postgres://app@db/app")?
//! let elector = Elector::start(store, Config::builder("invoice-reconciler").build()?)?;
//! let guard = elector.wait_for_leadership()?;
//! # let mut batches = 0;
//! while let Ok(fence) = guard.check() {
//!     // one batch of work, written with the fence
//! #   batches += 1;
//! #   if batches == 2 { break }
//!     guard.sleep(Duration::from_millis(10)).ok(); // wakes early, with Err(Lost), when the term ends
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Words
//!
//! An *election* is a name, and one row in a table. A *participant* is one [`Elector`] in it, with an
//! [`Identity`] of its own; a *candidate* is one that wants to lead, the *leader* the one whose term is live now by
//! its own clock; an *observer* only watches. The *lease* is the row. A *term* is one unbroken leadership, identified
//! by its *fence*; once it has ended it never lives again. The *deadline* is the local instant at which it ends unless
//! it is renewed, always earlier than the lease's expiry.
//!
//! # Why it holds
//!
//! A leader's deadline counts from *before* the request that won or renewed the lease was sent, on a clock that
//! goes on while the machine sleeps, and it is compared with the clock on every [`check`](LeaderGuard::check). A
//! take-over is a compare-and-swap on the exact state of the row that the candidate observed, and a candidate
//! waits, on its own clock, for as long as the holder of that state may have been promised. So neither side relies
//! on the other's clock, nor on the database's, and no statement that lands late can do harm. The rules are in
//! [`docs::rules`].
//!
//! No lease can call back a write that is already on its way: for that there is the fence. See [`docs::fencing`]. The
//! argument in full is in [`docs::design`], what it leaves out in [`docs::limits`].
//!
//! # The manual
//!
//! [`docs::guide`] leads from nothing to a service in production, [`docs::operating`] is for those who run it, and
//! [`docs`] lists all pages.
//!
//! # Features
//!
//! `postgres` (default): the store in a PostgreSQL table, `PostgresStore`. `tls`: encrypted connections to it, with rustls.
//! `sqlite`: the store in a file, `SqliteStore`, for the processes of one host. `cli`: the command `tenure`. `testing`:
//! the acceptance suite for authors of stores, the simulation, and a clock set by hand.

#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod callbacks;
#[cfg(feature = "postgres")]
mod commit;
mod config;
pub mod docs;
mod election;
mod elector;
mod event;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod guard;
mod identity;
mod lease;
#[cfg(any(test, feature = "testing"))]
pub mod simulation;
mod status;
mod store;
mod term;
mod time;

pub use callbacks::{Callbacks, RunError};
#[cfg(feature = "postgres")]
pub use commit::CommitError;
pub use config::{ClockTrust, Config, ConfigBuilder, ConfigError};
pub use elector::{CampaignError, Elector, ShutdownError, StartError};
pub use event::{Event, Leader, Losses, Operation};
pub use gate::{FenceGate, StaleFence};
pub use guard::{LeaderGuard, Lost, PublishError, Term};
pub use identity::{Identity, IdentityError};
pub use lease::{Bid, Fence, InvalidFence, Lease, LeaseTimes, Observation, Renewal, Timestamp, Version};
pub use status::{FailuresByKind, FailuresByOperation, Role, Status};
#[cfg(feature = "postgres")]
pub use store::postgres::{
    PostgresBuilder, PostgresConfigError, PostgresExamination, PostgresStore, PostgresTable,
};
#[cfg(feature = "sqlite")]
pub use store::sqlite::{SqliteBuilder, SqliteExamination, SqliteStore};
pub use store::{AnyStore, MemoryStore, Store, StoreError};
#[cfg(any(test, feature = "testing"))]
pub use store::{RowHold, RowSnapshot, acceptance};
pub use term::LossCause;
#[cfg(any(test, feature = "testing"))]
pub use time::ManualClock;
pub use time::{Clock, SystemClock, Time};

/// The README's Rust is compiled with the documentation tests.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../README.md")]
struct Readme;
