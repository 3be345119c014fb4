//! Throw-away servers, a fault-injecting proxy and the small tools that Tenure's tests stand on.
//!
//! Everything here is for Linux, listens on loopback only, keeps its files in one temporary directory per test
//! process, and goes away with that process however it ends (see [`Postgres`] and the `scene` module). Where
//! something does not work, these functions panic with a sentence that says what: it is test code.
//!
//! | what | for |
//! | --- | --- |
//! | [`Postgres`] | a PostgreSQL server of one's own, or [`Postgres::shared`] with a [`Database`] per test |
//! | [`PgBouncer`] | a transaction pooler in front of it |
//! | [`Proxy`] | delay, black hole, lost replies, held requests, resets, refusals, throttling; counts round trips |
//! | [`MuteListener`], [`SynBlackHole`] | peers that accept and never answer, or never even accept |
//! | [`Authority`], [`Credentials`] | certificates for servers ([`PostgresBuilder::tls`]) and clients |
//! | [`ClockShim`] | stepping the clocks of a server or of a process while it runs |
//! | [`signal_storm`] | signals that interrupt whatever a process waits in |
//! | [`limit_descriptors`], [`limit_threads`] | a process that gets no more of them |
//! | [`Process`], [`await_until`], [`threads`], [`descriptors`], … | watching and tormenting processes |

#![forbid(unsafe_code)]

mod certificates;
mod clock_shim;
mod listeners;
mod pgbouncer;
mod port;
mod postgres_server;
mod preload;
mod process;
mod proxy;
mod scene;
mod signal_storm;

pub use certificates::{Authority, Credentials};
pub use clock_shim::{BootOffset, ClockShim};
pub use listeners::{MuteListener, SynBlackHole, mute_listener, syn_black_hole};
pub use pgbouncer::{AdminRow, PgBouncer, PgBouncerBuilder};
pub use port::free_port;
pub use postgres_server::{Database, Postgres, PostgresBuilder};
pub use process::{
    Process, await_until, cont_process, cpu_time, descriptors, is_running, kill_process, limit_descriptors,
    limit_threads, stop_process, threads, waits,
};
pub use proxy::{ConnectionId, Counters, Direction, Flow, Mode, Proxy};
pub use signal_storm::signal_storm;

/// The driver, for assertions in tests.
pub use postgres;
