//! What must never be seen. Asked at every instant at which a term begins, is extended, or is checked.

use crate::election::Call;
use crate::lease::Fence;

use super::world::{NAME, World};

/// What the oracle has seen.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// Broken promises.
    pub(crate) violations: Vec<String>,
    /// Terms whose fence was not above all earlier ones.
    pub(crate) fences_fell: u64,
    /// Rows were rolled back or deleted on one timeline; fences then rise only above what the new leader has seen.
    pub(crate) fences_may_fall: bool,
    pub(crate) terms: u64,
    /// Terms that followed one of another participant.
    pub(crate) take_overs: u64,
    pub(crate) checks: u64,
    pub(crate) looks_of_observers: u64,
    /// Terms of participants with a takeover delay.
    pub(crate) terms_after_a_delay: u64,
    pub(crate) withdrawals: u64,
    highest: i64,
    last_leader: Option<usize>,
}

impl Oracle {
    /// A worker was told that the term is live.
    pub(super) fn checked(&mut self, node: usize, fence: Fence, told_lost: bool) {
        self.checks += 1;
        if told_lost {
            self.violations
                .push(format!("{node} was told that fence {fence} is over, and then that it is live"));
        }
    }
}

impl World {
    pub(crate) fn violation(&mut self, what: String) {
        self.say(|| format!("VIOLATION: {what}"));
        self.oracle.violations.push(what);
    }

    /// A participant makes a call. Who only watches does nothing else (rule 14), whatever happens.
    pub(super) fn calls(&mut self, node: usize, call: &Call) {
        if !self.observes(node) {
        } else if *call == Call::Observe {
            self.oracle.looks_of_observers += 1;
        } else {
            self.violation(format!("{node} only watches, and makes a {call:?}"));
        }
    }

    /// A term has begun.
    pub(super) fn begun(&mut self, node: usize, fence: Fence) {
        let delays = !self.nodes[node].settings.settings.takeover_delay.is_zero();
        let oracle = &mut self.oracle;
        oracle.terms += 1;
        oracle.terms_after_a_delay += u64::from(delays);
        oracle.take_overs += u64::from(oracle.last_leader.is_some_and(|last| last != node));
        oracle.last_leader = Some(node);
        let before = oracle.highest;
        oracle.highest = before.max(fence.get());
        if fence.get() <= before {
            self.oracle.fences_fell += 1;
            self.say(|| format!("fence {fence} after {before}"));
            if !self.oracle.fences_may_fall {
                self.violation(format!("fence {fence} after {before}"));
            }
        }
        let identity = self.nodes[node].settings.settings.identity.clone();
        if self.granted.get(&fence.get()) != Some(&identity) {
            self.violation(format!("{identity} leads with fence {fence}, which {NAME} never granted it"));
        }
        self.alone(node);
    }

    /// Nobody else may be live now, by its own clock, whether it runs, is frozen or cut off.
    pub(super) fn alone(&mut self, node: usize) {
        if !self.leads(node) {
            return;
        }
        let others: Vec<usize> = (0..self.nodes.len()).filter(|n| *n != node && self.leads(*n)).collect();
        for other in others {
            self.violation(format!("{node} and {other} lead at the same instant"));
        }
    }
}
