//! Notices when the database's clock steps. For the report only: no decision depends on it (rule 10).

use std::time::Duration;

use crate::lease::Timestamp;
use crate::time::Time;

/// Differences below this are not worth a report.
const TOLERANCE: Duration = Duration::from_millis(500);
/// Clocks may drift apart by this part of the time between two answers.
const DRIFT_DIVISOR: u32 = 40;

/// A step of the database's clock, as far as the answers' travel times can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) struct ClockStep {
    /// Whether the clock leapt ahead or went back.
    pub(crate) forward: bool,
    /// By at least how much.
    pub(crate) by: Duration,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ClockWatch {
    last: Option<Bounds>,
}

/// The database's clock less the local one, in microseconds, lies between these.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: i128,
    high: i128,
    at: Time,
}

impl ClockWatch {
    /// An answer to what was sent at `sent` came at `received` and said that the database's clock showed `now`.
    pub(crate) fn answered(&mut self, sent: Time, received: Time, now: Timestamp) -> Option<ClockStep> {
        let now_micros = i128::from(now.as_micros());
        let micros = |t: Time| i128::from(t.as_nanos() / 1_000);
        let bounds =
            Bounds { low: now_micros - micros(received), high: now_micros - micros(sent), at: received };
        let last = self.last.replace(bounds)?;
        let drift = received.saturating_since(last.at) / DRIFT_DIVISOR;
        let slack = i128::from(u64::try_from((TOLERANCE + drift).as_micros()).unwrap_or(u64::MAX));
        if bounds.low > last.high + slack {
            Some(ClockStep { forward: true, by: duration(bounds.low - last.high) })
        } else if bounds.high < last.low - slack {
            Some(ClockStep { forward: false, by: duration(last.low - bounds.high) })
        } else {
            None
        }
    }
}

fn duration(micros: i128) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(t: u64) -> Time {
        Time::from_nanos(t * 1_000_000)
    }

    fn db(t: i64) -> Timestamp {
        Timestamp::from_micros(t * 1_000)
    }

    #[test]
    fn steps_are_told_from_travel_time_and_drift() {
        let mut watch = ClockWatch::default();
        assert_eq!(watch.answered(ms(0), ms(10), db(100_005)), None);
        // Three seconds on the way explain three seconds.
        assert_eq!(watch.answered(ms(1_000), ms(4_000), db(104_000)), None);
        assert_eq!(watch.answered(ms(5_000), ms(5_010), db(105_005)), None);
        let step = watch.answered(ms(6_000), ms(6_010), db(116_005)).unwrap();
        assert!(step.forward && step.by.abs_diff(Duration::from_secs(10)) < Duration::from_millis(20));
        let step = watch.answered(ms(7_000), ms(7_010), db(57_005)).unwrap();
        assert!(!step.forward && step.by.abs_diff(Duration::from_secs(60)) < Duration::from_millis(20));
        // An hour of one per cent is drift.
        assert_eq!(watch.answered(ms(3_607_000), ms(3_607_010), db(57_005 + 3_636_000)), None);
    }

    #[test]
    fn half_a_second_and_the_drift_are_no_step() {
        // Four seconds may drift by a hundred milliseconds.
        let after = |micros: i64| {
            let mut watch = ClockWatch::default();
            watch.answered(ms(0), ms(0), db(10_000));
            watch.answered(ms(4_000), ms(4_000), Timestamp::from_micros(14_000_000 + micros))
        };
        assert_eq!((after(600_000), after(-600_000)), (None, None));
        let by = Duration::from_micros(600_001);
        assert_eq!(after(600_001), Some(ClockStep { forward: true, by }));
        assert_eq!(after(-600_001), Some(ClockStep { forward: false, by }));
    }

    #[test]
    fn infinities_do_not_overflow() {
        let mut watch = ClockWatch::default();
        watch.answered(Time::ZERO, Time::MAX, Timestamp::from_micros(i64::MIN));
        assert!(watch.answered(Time::MAX, Time::MAX, Timestamp::from_micros(i64::MAX)).is_some());
    }
}
