//! What happened in one schedule or in many.

use std::fmt;
use std::time::Duration;

use super::options::Fault;

/// Sums over schedules.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Schedules that were run.
    pub schedules: u64,
    /// Terms that began.
    pub terms: u64,
    /// Terms that followed one of another participant.
    pub take_overs: u64,
    /// Checks by leaders' workers that succeeded.
    pub checks: u64,
    /// Looks of participants that only watch.
    pub looks_of_observers: u64,
    /// Terms of participants that leave a free lease to others for a while.
    pub terms_after_a_delay: u64,
    /// Times that nobody in a participant's process wanted to lead any more, won or given up.
    pub withdrawals: u64,
    /// Events of the simulation.
    pub events: u64,
    /// True time that passed.
    pub virtual_time: Duration,
    /// Faults by kind, in the order of [`Fault::ALL`].
    pub faults: [u64; Fault::ALL.len()],
}

impl Statistics {
    /// Adds another sum to this one.
    pub fn add(&mut self, other: &Statistics) {
        self.schedules += other.schedules;
        self.terms += other.terms;
        self.take_overs += other.take_overs;
        self.checks += other.checks;
        self.looks_of_observers += other.looks_of_observers;
        self.terms_after_a_delay += other.terms_after_a_delay;
        self.withdrawals += other.withdrawals;
        self.events += other.events;
        self.virtual_time += other.virtual_time;
        for (sum, count) in self.faults.iter_mut().zip(other.faults) {
            *sum += count;
        }
    }

    pub(super) fn count(&mut self, fault: Fault) {
        if let Some(index) = Fault::ALL.iter().position(|f| *f == fault) {
            self.faults[index] += 1;
        }
    }

    /// Whether so much happened that the absence of violations means something: terms, take-overs, those who
    /// only watch, delay or change their minds, and every kind of fault, in every thousand schedules.
    #[must_use]
    pub fn is_meaningful(&self) -> bool {
        let enough = |count: u64, per_thousand: u64| count * 1_000 >= self.schedules * per_thousand;
        self.schedules > 0
            && enough(self.terms, 5_000)
            && enough(self.take_overs, 2_000)
            && enough(self.looks_of_observers, 10_000)
            && enough(self.terms_after_a_delay, 100)
            && enough(self.withdrawals, 5_000)
            && self.faults.iter().all(|count| enough(*count, 300))
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let years = self.virtual_time.as_secs_f64() / (365.25 * 86_400.0);
        writeln!(f, "schedules: {}, virtual years: {years:.2}, events: {}", self.schedules, self.events)?;
        writeln!(f, "terms: {}, take-overs: {}, checks: {}", self.terms, self.take_overs, self.checks)?;
        writeln!(
            f,
            "looks of observers: {}, terms after a delay: {}, withdrawals: {}",
            self.looks_of_observers, self.terms_after_a_delay, self.withdrawals
        )?;
        let faults = Fault::ALL.iter().zip(self.faults);
        let faults: Vec<String> = faults.map(|(fault, count)| format!("{fault:?} {count}")).collect();
        write!(f, "faults: {}", faults.join(", "))
    }
}
