//! When a candidate looks again: often enough for the promise of one retry period, close behind the leader's
//! renewals so that little of the hold-off is lost (rule 10), and spread so that a fleet does not move in step.

use std::time::Duration;

use crate::lease::{Fence, Lease, Timestamp};
use crate::time::Time;

/// Polls come up to this part of the lease's length after a renewal is due: what a credit gives back.
const MOMENT_DIVISOR: u32 = 40;

/// One look in so many is given a new place behind the renewal: whoever had to wait for the same thing (a server that
/// stood still) is answered at one moment, and would otherwise keep in step from then on.
const SAME_PLACES: u64 = 64;

/// The observed leader's rhythm of renewals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rhythm {
    last: Option<(Fence, Timestamp)>,
    /// The last two distances between renewals of this term that were seen. The shorter one counts: a longer one
    /// may have missed a renewal in between; but a single short one (a new payload) is soon forgotten.
    distances: [Option<Duration>; 2],
    /// Local time at which the next renewal is due, if the leader keeps its rhythm.
    due: Option<Time>,
    /// How long after a renewal the last look came.
    behind: Duration,
    length: Duration,
}

impl Rhythm {
    /// A row was observed; `received` is when the answer came.
    pub(crate) fn observed(&mut self, received: Time, lease: &Lease) {
        self.length = lease.length();
        let seen = (lease.fence(), lease.renewed_at());
        match self.last {
            Some((fence, renewed_at)) if fence == lease.fence() && renewed_at < lease.renewed_at() => {
                let distance = lease.renewed_at().saturating_since(renewed_at);
                self.distances = [self.distances[1], Some(distance)];
            }
            Some((fence, _)) if fence == lease.fence() => {}
            _ => self.distances = [None; 2],
        }
        self.last = Some(seen);
        let age = lease.now().saturating_since(lease.renewed_at());
        self.behind = age;
        let distance = self.distances.into_iter().flatten().min();
        self.due = distance.filter(|d| age < *d && !lease.is_released()).map(|d| received + (d - age));
    }

    /// The row is gone or is our own.
    pub(crate) fn forget(&mut self) {
        *self = Rhythm::default();
    }

    /// When to look again; `dice` is a random number.
    pub(crate) fn next_poll(&self, now: Time, retry_period: Duration, dice: u64) -> Time {
        let regular = now + jittered(retry_period, dice);
        let moment = self.length / MOMENT_DIVISOR;
        match self.due {
            Some(due) => {
                // Between a fifth and the whole of the moment: late enough for the renewal to have landed. Where the
                // last look came that close behind one, as a rule just as close again.
                let keeps = (moment / 5..=moment).contains(&self.behind) && dice % SAME_PLACES != 0;
                let random = moment / 5 + fraction(moment * 4 / 5, dice);
                let next = due + if keeps { self.behind } else { random };
                // A renewal that takes its time is no reason for a second look in one period: the place behind it moves
                // a little, and a look is never later than promised.
                let next = if keeps && next <= now + retry_period + moment {
                    next.min(now + retry_period)
                } else {
                    next
                };
                // One look for each renewal is enough where that is no later than promised.
                if next > now && next <= now + retry_period { next } else { regular }
            }
            None => regular,
        }
    }
}

/// Between three quarters and the whole of `period`: never later than promised, never in step.
pub(crate) fn jittered(period: Duration, dice: u64) -> Duration {
    period * 3 / 4 + fraction(period / 4, dice)
}

fn fraction(of: Duration, dice: u64) -> Duration {
    of.mul_f64((dice >> 11) as f64 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LeaseTimes;

    fn lease(renewed_ms: i64, now_ms: i64) -> Lease {
        term(1, renewed_ms, now_ms)
    }

    fn term(fence: i64, renewed_ms: i64, now_ms: i64) -> Lease {
        let at = |ms: i64| Timestamp::from_micros(1_000_000_000 + ms * 1_000);
        let times = LeaseTimes {
            acquired_at: at(0),
            renewed_at: at(renewed_ms),
            expires_at: at(renewed_ms + 15_000),
            now: at(now_ms),
        };
        Lease::new("n", "h", Fence::try_from(fence).unwrap(), times)
    }

    fn ms(t: u64) -> Time {
        Time::from_nanos(t * 1_000_000)
    }

    #[test]
    fn jitter_stays_within_the_period() {
        let period = Duration::from_secs(4);
        assert_eq!(jittered(period, 0), Duration::from_secs(3));
        assert!(jittered(period, u64::MAX) <= period);
        assert!(jittered(Duration::MAX / 4, u64::MAX) <= Duration::MAX / 4);
    }

    #[test]
    fn rule_10_polls_follow_the_renewals() {
        let mut rhythm = Rhythm::default();
        rhythm.observed(ms(1_000), &lease(0, 1_000));
        let retry = Duration::from_secs(3);
        assert_eq!(
            rhythm.next_poll(ms(1_000), retry, 0),
            ms(1_000 + 2_250),
            "nothing is known of the rhythm"
        );
        rhythm.observed(ms(6_000), &lease(5_000, 6_000));
        // The next renewal is due at 10 s: first an ordinary poll, then one just behind it.
        let poll = rhythm.next_poll(ms(6_000), retry, u64::MAX / 2);
        assert!(poll > ms(8_250) && poll <= ms(9_000), "{poll:?}");
        for dice in [0, u64::MAX / 2, u64::MAX] {
            let poll = rhythm.next_poll(ms(9_000), retry, dice);
            assert!(poll > ms(10_000) && poll <= ms(10_375), "{poll:?}");
        }
        // A renewal that did not come is not waited for in a tight loop.
        assert!(rhythm.next_poll(ms(10_400), retry, 0) >= ms(12_650));
    }

    #[test]
    fn one_poll_for_each_renewal_is_enough_where_they_are_close() {
        let mut rhythm = Rhythm::default();
        let retry = Duration::from_secs(5);
        rhythm.observed(ms(1_000), &lease(0, 1_000));
        rhythm.observed(ms(5_200), &lease(5_000, 5_200));
        // 200 ms behind this renewal, and behind the next one, whatever else the dice say.
        for dice in [1, u64::MAX] {
            assert_eq!(rhythm.next_poll(ms(5_200), retry, dice), ms(10_200));
        }
        // Now and then it moves, so that those who came to be in step part again.
        let most = u64::MAX - u64::MAX % SAME_PLACES;
        assert_eq!(rhythm.next_poll(ms(5_200), retry, 0), ms(10_075));
        assert!(rhythm.next_poll(ms(5_200), retry * 2, most) > ms(10_370));
        // Never later than a retry period from now, though.
        let less = |less: u64| rhythm.next_poll(ms(5_200), retry - Duration::from_millis(less), 1);
        assert_eq!(less(1), ms(10_199), "a little earlier, and not twice");
        assert_eq!(less(375), ms(9_825));
        assert!(less(376) < ms(9_000), "too far off: an ordinary look");
        // One that was too late, or too early to have seen the renewal, does not fix how far behind the next one is.
        rhythm.observed(ms(5_400), &lease(5_000, 5_400));
        assert_eq!(rhythm.next_poll(ms(5_400), retry, 0), ms(10_075));
        rhythm.observed(ms(5_001), &lease(5_000, 5_001));
        assert_eq!(rhythm.next_poll(ms(5_001), retry, 0), ms(5_001 + 3_750), "10 075 is too late");
    }

    #[test]
    fn one_renewal_out_of_turn_does_not_spoil_the_rhythm_for_long() {
        let mut rhythm = Rhythm::default();
        let retry = Duration::from_secs(5);
        for renewed in [0, 5_000, 5_300, 10_300] {
            rhythm.observed(ms(renewed + 100), &lease(renewed as i64, renewed as i64 + 100));
        }
        assert_eq!(rhythm.due, Some(ms(10_600)), "300 ms were seen, so it looks too early this once");
        rhythm.observed(ms(15_400), &lease(15_300, 15_400));
        assert_eq!(rhythm.due, Some(ms(20_300)));
        assert_eq!(rhythm.next_poll(ms(15_400), retry, 1), ms(20_400));
        // A renewal that was missed makes no rhythm.
        rhythm.observed(ms(25_400), &lease(25_300, 25_400));
        assert_eq!(rhythm.due, Some(ms(30_300)));
        // Another term has another one.
        rhythm.observed(ms(30_100), &term(2, 30_000, 30_100));
        assert!(rhythm.due.is_none());
    }

    #[test]
    fn a_look_is_never_for_now_and_never_for_a_renewal_that_is_overdue() {
        let retry = Duration::from_secs(5);
        let mut rhythm = Rhythm::default();
        for (renewed, now) in [(0, 200), (5_000, 5_200)] {
            rhythm.observed(ms(now), &lease(renewed as i64, now as i64));
        }
        // The next renewal is due at 10 s, and the look 200 ms behind it.
        assert_eq!(rhythm.next_poll(ms(10_199), retry, 1), ms(10_200));
        assert!(rhythm.next_poll(ms(10_200), retry, 1) > ms(13_900), "an ordinary look");
        // An answer that shows a renewal as old as the distance: the next one is late, and no rhythm.
        rhythm.observed(ms(10_000), &lease(5_000, 10_000));
        assert!(rhythm.due.is_none());
    }
}
