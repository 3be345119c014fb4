//! Schedules as bytes.

use crate::simulation;

/// Runs the schedule whose make-up the first two bytes draw, and whose faults the others pick.
///
/// # Panics
/// If the promise is broken.
pub fn schedule(bytes: &[u8]) {
    let (seed, faults) = bytes.split_at(bytes.len().min(2));
    let seed = seed.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    if !simulation::run_bytes(seed, faults).violations.is_empty() {
        let outcome = simulation::replay_bytes(seed, faults);
        panic!("{:?}\n{:#?}\n{}", outcome.violations, outcome.options, outcome.transcript.join("\n"));
    }
}
