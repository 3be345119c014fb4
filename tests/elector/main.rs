//! The elector through its public interface, over a store in memory that breaks on demand.
//!
//! Each test's name says which rule of the design, or which report from the field, it guards.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "seeds, and why a test was skipped")]

mod callbacks;
mod faulty;
mod handover;
mod observer;
mod outage;
mod preference;
mod races;
mod reports;
mod resources;
mod rides;
mod running;
mod stopping;
mod stress;
mod terms;
mod util;
mod waiting;
