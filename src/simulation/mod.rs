//! A fleet on virtual time: the real election machine and the real term, over a store that does what databases
//! do, with the faults that break elections.
//!
//! A seed draws everything, so every schedule can be replayed. First comes a phase with faults, in which the
//! promise must hold at every instant; then the faults end and somebody must lead within a bound.
//!
//! ```
//! use tenure::simulation;
//!
//! let outcome = simulation::run(7);
//! assert!(outcome.violations.is_empty(), "{outcome:#?}");
//! assert!(outcome.statistics.terms > 0);
//! ```

#[cfg(test)]
mod choices;
#[cfg(test)]
mod controls;
mod dice;
#[cfg(test)]
mod exhaustive;
mod faults;
mod node;
mod options;
mod oracle;
mod parts;
#[cfg(test)]
mod schedules;
mod statistics;
#[cfg(test)]
mod tests;
mod world;

pub use options::{Family, Fault, Options};
pub use statistics::Statistics;

/// How a schedule ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// What it was made of.
    pub options: Options,
    /// Broken promises; empty where all is well.
    pub violations: Vec<String>,
    /// What happened.
    pub statistics: Statistics,
    /// What happened when, for people; empty unless asked for.
    pub transcript: Vec<String>,
}

/// Runs the schedule of a seed: ten virtual minutes of faults, and the recovery from them.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    faults::run(Options::draw(seed), false, &|_, _| {})
}

/// As [`run`], with a transcript.
#[must_use]
pub fn replay(seed: u64) -> Outcome {
    faults::run(Options::draw(seed), true, &|_, _| {})
}

/// The make-up that the seed draws, with faults that the bytes pick, for a fuzzer. With a transcript.
#[doc(hidden)]
#[must_use]
pub fn replay_bytes(seed: u64, bytes: &[u8]) -> Outcome {
    faults::run_bytes(Options::draw(seed), bytes, true)
}

/// As [`replay_bytes`], without the transcript.
#[doc(hidden)]
#[must_use]
pub fn run_bytes(seed: u64, bytes: &[u8]) -> Outcome {
    faults::run_bytes(Options::draw(seed), bytes, false)
}
