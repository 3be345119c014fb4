//! The boot clock of a node whose machine sleeps when the test says so: it leaps, while what waits goes on waiting,
//! since waits are measured by the clock that stands still during suspend.

use std::path::Path;

use tenure::{Clock, SystemClock, Time};
use tenure_testground::BootOffset;

#[derive(Debug)]
pub(crate) struct LeapingClock(BootOffset);

impl LeapingClock {
    /// Leaps with the clock shim whose file this is.
    pub(crate) fn of(shim: &Path) -> LeapingClock {
        LeapingClock(BootOffset::open(shim))
    }
}

impl Clock for LeapingClock {
    fn now(&self) -> Time {
        SystemClock::new().now() + self.0.get()
    }
}
