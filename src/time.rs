//! Local instants and where they come from. This is the only module that reads a clock.
//!
//! Instants are taken from a clock that goes on counting while the machine sleeps (rule 3): `CLOCK_BOOTTIME`
//! on Linux and Android. `std::time::Instant` is `CLOCK_MONOTONIC` there, which stops during suspend, so a
//! machine that slept for an hour would wake up believing that its lease is seconds old.

use std::fmt;
use std::time::Duration;

#[cfg(any(test, feature = "testing"))]
use std::sync::Arc;
#[cfg(any(test, feature = "testing"))]
use std::sync::atomic::{AtomicU64, Ordering};

/// A local instant in nanoseconds. Comparable only with instants of the same [`Clock`]; it never leaves the process.
///
/// All arithmetic saturates: no duration that a user can configure makes it panic or wrap.
///
/// ```
/// use std::time::Duration;
/// use tenure::Time;
///
/// let sent = Time::from_nanos(1_000);
/// assert_eq!(sent + Duration::from_nanos(500), Time::from_nanos(1_500));
/// assert_eq!(sent.saturating_since(Time::from_nanos(400)), Duration::from_nanos(600));
/// assert_eq!(sent + Duration::MAX, Time::MAX);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The earliest instant.
    pub const ZERO: Time = Time(0);
    /// The latest instant; about 584 years after [`Time::ZERO`].
    pub const MAX: Time = Time(u64::MAX);

    /// The instant so many nanoseconds after the clock's zero.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the clock's zero.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub fn saturating_since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The instant `duration` before this one, [`Time::ZERO`] at the earliest.
    #[must_use]
    pub fn saturating_before(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(duration)))
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(nanos(duration)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Where local instants come from.
///
/// An implementation must never go backwards, and must go on while the machine is suspended: a clock that
/// stops makes a leader believe in a lease that the database has long given to somebody else.
/// [`SystemClock`] is right for all programs; `ManualClock` (feature `testing`) is for tests.
///
/// ```
/// use tenure::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let sent = clock.now();
/// assert!(clock.now() >= sent);
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The current instant. Must not block and must not allocate; it is called by every
    /// [`LeaderGuard::check`](crate::LeaderGuard::check).
    fn now(&self) -> Time;
}

/// The machine's boot clock: monotonic, counts suspended time, untouched by steps of the wall clock.
///
/// `CLOCK_BOOTTIME` on Linux and Android. Elsewhere it is `CLOCK_MONOTONIC`, which on macOS counts suspended
/// time and on the BSDs may not: there a machine that slept may believe in a lease that is over.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SystemClock;

impl SystemClock {
    /// The system's clock.
    #[must_use]
    pub const fn new() -> SystemClock {
        SystemClock
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let id = rustix::time::ClockId::Monotonic;
        let t = rustix::time::clock_gettime(id);
        // Both fields of a boot clock are non-negative; 584 years fit.
        Time((t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64))
    }
}

/// A clock that stands still until it is told to move. Clones share one time.
///
/// ```
/// use std::time::Duration;
/// use tenure::{Clock, ManualClock, Time};
///
/// let clock = ManualClock::new(Time::from_nanos(5));
/// let same = clock.clone();
/// clock.advance(Duration::from_nanos(2));
/// assert_eq!(same.now(), Time::from_nanos(7));
/// ```
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

#[cfg(any(test, feature = "testing"))]
impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn new(start: Time) -> ManualClock {
        ManualClock(Arc::new(AtomicU64::new(start.0)))
    }

    /// Moves the clock forward, saturating at [`Time::MAX`].
    pub fn advance(&self, by: Duration) {
        // Relaxed is enough: the time itself is the only thing that is passed on.
        let _ =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |t| Some(t.saturating_add(nanos(by))));
    }
}

#[cfg(any(test, feature = "testing"))]
impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::MAX + Duration::MAX, Time::MAX);
        assert_eq!(Time::ZERO.saturating_before(Duration::MAX), Time::ZERO);
        assert_eq!(Time::ZERO.saturating_since(Time::MAX), Duration::ZERO);
    }

    #[test]
    fn rule_3_the_system_clock_is_the_boot_clock() {
        // Linux publishes the boot clock as the first field of /proc/uptime, in hundredths of a second.
        if let Ok(uptime) = std::fs::read_to_string("/proc/uptime") {
            let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
            let ours = SystemClock.now().as_nanos() as f64 / 1e9;
            assert!((ours - seconds).abs() < 5.0, "boot clock {ours}, uptime {seconds}");
        }
        let first = SystemClock.now();
        assert!(SystemClock.now() >= first);
    }

    #[test]
    fn debug_is_readable() {
        assert_eq!(format!("{:?}", Time::from_nanos(1_500_000_000)), "1.500000000s");
    }
}
