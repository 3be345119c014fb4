//! For what receives a leader's writes and is not a PostgreSQL: it remembers the highest fence and refuses lower ones.

use std::fmt;

use parking_lot::Mutex;

use crate::lease::Fence;

/// A fence below one that was admitted before: whoever sent it has been superseded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StaleFence {
    /// The one that was refused.
    pub fence: Fence,
    /// The highest one admitted so far.
    pub highest: Fence,
}

impl fmt::Display for StaleFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fence {} is stale: {} has been here", self.fence, self.highest)
    }
}

impl std::error::Error for StaleFence {}

/// Stands in front of one resource, in the process that owns it, and lets nothing pass that comes from a leader who has
/// been superseded. One for each resource and election.
///
/// ```
/// use tenure::{Fence, FenceGate};
///
/// let gate = FenceGate::new();
/// let (old, new) = (Fence::try_from(7)?, Fence::try_from(8)?);
/// gate.admit(old)?;
/// gate.admit(new)?;
/// assert_eq!(gate.admit(old).unwrap_err().highest, new);
///
/// // Nobody overtakes what is being written.
/// let mut file = Vec::new();
/// gate.run(new, || file.push("a line of the new leader"))?;
/// assert!(gate.run(old, || unreachable!()).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It forgets with its process. Where the resource outlives that, keep the fence with the resource, and begin with
/// [`starting_at`](FenceGate::starting_at).
#[derive(Debug, Default)]
pub struct FenceGate {
    highest: Mutex<Option<Fence>>,
}

impl FenceGate {
    /// Has seen nothing.
    #[must_use]
    pub const fn new() -> FenceGate {
        FenceGate { highest: Mutex::new(None) }
    }

    /// Has seen `highest`.
    #[must_use]
    pub const fn starting_at(highest: Fence) -> FenceGate {
        FenceGate { highest: Mutex::new(Some(highest)) }
    }

    /// Admits the fence if no higher one was admitted before. Of many callers at once, each is judged after those
    /// before it.
    ///
    /// What the caller does next can be overtaken by a newer leader's work; where that matters, use
    /// [`run`](FenceGate::run).
    ///
    /// # Errors
    /// A higher one was.
    pub fn admit(&self, fence: Fence) -> Result<(), StaleFence> {
        self.run(fence, || ())
    }

    /// Does the work if the fence is admitted, and admits nobody else before it is done: others wait, so the work must
    /// not ask this gate for anything.
    ///
    /// # Errors
    /// A higher fence was admitted before, and the work was not done.
    pub fn run<R>(&self, fence: Fence, work: impl FnOnce() -> R) -> Result<R, StaleFence> {
        let mut highest = self.highest.lock();
        match *highest {
            Some(highest) if fence < highest => Err(StaleFence { fence, highest }),
            _ => {
                *highest = Some(fence);
                Ok(work())
            }
        }
    }

    /// The highest fence admitted so far.
    #[must_use]
    pub fn highest(&self) -> Option<Fence> {
        *self.highest.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(n: i64) -> Fence {
        Fence::try_from(n).unwrap()
    }

    #[test]
    fn rule_12_a_gate_refuses_what_is_below_the_highest() {
        let gate = FenceGate::new();
        assert_eq!(gate.highest(), None);
        for n in [3, 3, 5] {
            gate.admit(fence(n)).unwrap();
        }
        let refused = gate.admit(fence(4)).unwrap_err();
        assert_eq!(refused, StaleFence { fence: fence(4), highest: fence(5) });
        assert_eq!(refused.to_string(), "fence 4 is stale: 5 has been here");
        assert_eq!(gate.highest(), Some(fence(5)), "a refused one is not remembered");
        assert!(FenceGate::starting_at(fence(9)).admit(fence(8)).is_err());
        assert!(FenceGate::starting_at(fence(9)).admit(fence(9)).is_ok());
    }

    #[test]
    fn rule_12_work_in_the_gate_is_not_overtaken() {
        let gate = FenceGate::new();
        let written = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (gate, written) = (&gate, &written);
                scope.spawn(move || {
                    for round in 0..500 {
                        let fence = fence(1 + round * 8 + thread);
                        // The lock of the list is taken after that of the gate: alone it would keep no order.
                        let _ = gate.run(fence, || {
                            std::thread::yield_now();
                            written.lock().push(fence);
                        });
                    }
                });
            }
        });
        let written = written.into_inner();
        assert!(written.len() >= 500, "each thread's last ones would be refused: {}", written.len());
        assert!(written.is_sorted(), "a lower fence wrote after a higher one");
        assert_eq!(written.last().copied(), gate.highest());
    }

    #[test]
    fn a_panic_in_the_gate_leaves_it_usable_and_its_fence_seen() {
        let gate = FenceGate::new();
        let work = || gate.run(fence(2), || panic!("on purpose"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
        assert!(gate.admit(fence(1)).is_err());
        gate.admit(fence(2)).unwrap();
    }
}
