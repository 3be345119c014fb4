//! When the command is asked to end and when it is killed: arithmetic that knows no clock, no process and no socket.

use std::time::Duration;

use tenure::{Config, Time};

use crate::failure::{FAILED, Failure};

/// Killing takes a moment, and on a busy machine whoever is to do it may be kept waiting: by 144 ms at most in 100
/// runs on two processors with eight busy loops.
const LEAST_LEAD: Duration = Duration::from_millis(300);

/// How long the guardian may hear of a renewal after it was answered: nothing tells `tenure`, which looks this often.
pub(super) const NEWS: Duration = Duration::from_millis(200);

/// How long before a term's deadline things happen to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leads {
    /// From SIGTERM to SIGKILL.
    pub(super) grace: Duration,
    /// From SIGKILL to the deadline: what is left for the kernel to end every process in.
    pub(super) kill: Duration,
}

impl Leads {
    /// The grace given, or a fifth of the term, or what the other settings leave of it.
    ///
    /// # Errors
    /// A leader whose renewals come through in time would have its command ended all the same.
    pub(super) fn of(config: &Config, grace: Option<Duration>) -> Result<Leads, Failure> {
        let kill = (config.term_duration() / 20).max(LEAST_LEAD);
        let (renew, operation) = (config.renew_interval(), config.operation_timeout());
        let left = config.term_duration().saturating_sub(renew + operation + NEWS);
        let wanted = grace.unwrap_or_else(|| (config.term_duration() / 5).min(left.saturating_sub(kill)));
        if wanted.saturating_add(kill) <= left {
            return Ok(Leads { grace: wanted, kill });
        }
        let shown = |duration| humantime::format_duration(duration);
        let sentence = format!(
            "--grace: grace + kill lead = {} + {} must not be more than lease_duration - safety_margin - renew_interval \
             - operation_timeout - {} for the news of it = {} - {} - {} - {} - {} = {}",
            shown(wanted),
            shown(kill),
            shown(NEWS),
            shown(config.lease_duration()),
            shown(config.safety_margin()),
            shown(renew),
            shown(operation),
            shown(NEWS),
            shown(left),
        );
        let hint = "shorten --grace, --renew-interval or --operation-timeout, or lengthen --lease-duration";
        Err(Failure::new(FAILED, sentence).hint(hint))
    }

    /// How long to look at once for whom to kill.
    pub(super) fn look(&self) -> Duration {
        self.kill / 10
    }

    /// How long after the guardian should have killed the command it is taken for dead or frozen.
    pub(super) fn patience(&self) -> Duration {
        self.kill / 2
    }
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Nothing before that instant, unless something happens.
    Wait(Time),
    /// Ask the command to end: said once, and only while there is time for it.
    Terminate,
    /// Kill everything.
    Kill,
}

/// The time that a command has left.
///
/// It can be ended earlier for other reasons than its deadline. Once it is being ended no later deadline saves it: it
/// has been asked to end, and does.
#[derive(Clone, Debug)]
pub(super) struct Countdown {
    leads: Leads,
    deadline: Time,
    ending: Option<Time>,
    told: bool,
}

impl Countdown {
    pub(super) fn new(leads: Leads, deadline: Time) -> Countdown {
        Countdown { leads, deadline, ending: None, told: false }
    }

    /// The term was renewed. An earlier deadline than the known one changes nothing: both were promised.
    pub(super) fn extend(&mut self, deadline: Time) {
        self.deadline = self.deadline.max(deadline);
    }

    /// The latest deadline that is known.
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// From now on the command is ended.
    pub(super) fn end(&mut self, now: Time) {
        self.ending.get_or_insert(now);
    }

    /// Whether the command is being ended, for whatever reason.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// When everything is killed, as far as is known by now.
    pub(super) fn kill_at(&self) -> Time {
        let latest = self.deadline.saturating_before(self.leads.kill);
        self.ending.map_or(latest, |since| latest.min(since + self.leads.grace))
    }

    /// What is due at `now`. Calls that come late or twice do no harm.
    pub(super) fn act(&mut self, now: Time) -> Act {
        let term_at = self.kill_at().saturating_before(self.leads.grace);
        if self.ending.is_none() {
            if now < term_at {
                return Act::Wait(term_at);
            }
            self.ending = Some(now);
        }
        let kill_at = self.kill_at();
        if now >= kill_at {
            return Act::Kill;
        }
        if !self.told {
            self.told = true;
            return Act::Terminate;
        }
        Act::Wait(kill_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADS: Leads = Leads { grace: Duration::from_secs(2), kill: Duration::from_secs(1) };

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_defaults_leave_a_healthy_renewal_alone() {
        let leads = Leads::of(&Config::builder("e").build().unwrap(), None).unwrap();
        assert_eq!(leads, Leads { grace: Duration::from_millis(2_700), kill: Duration::from_millis(675) });
        let seconds = Duration::from_secs_f64;
        let tight = Config::builder("e")
            .lease_duration(seconds(11.0))
            .safety_margin(seconds(1.0))
            .renew_interval(seconds(7.0))
            .operation_timeout(seconds(0.6))
            .build()
            .unwrap();
        let leads = Leads::of(&tight, None).unwrap();
        assert_eq!(leads.grace + leads.kill, seconds(2.2), "cut to what there is");
        let quick = Config::builder("e")
            .lease_duration(seconds(1.0))
            .safety_margin(seconds(0.1))
            .renew_interval(seconds(0.2))
            .operation_timeout(seconds(0.2))
            .build()
            .unwrap();
        assert_eq!(Leads::of(&quick, None).unwrap().kill, LEAST_LEAD);
    }

    #[test]
    fn a_grace_that_a_healthy_renewal_would_run_into_is_refused_with_the_sums() {
        let config = Config::builder("e").build().unwrap();
        let limit = Duration::from_millis(5_300 - 675);
        assert_eq!(Leads::of(&config, Some(limit)).unwrap().grace, limit);
        let refused =
            format!("{:?}", Leads::of(&config, Some(limit + Duration::from_millis(1))).unwrap_err());
        for part in ["--grace", "4s 626ms + 675ms", "15s - 1s 500ms - 5s - 3s - 200ms = 5s 300ms"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert!(Leads::of(&config, Some(Duration::MAX)).is_err());
        let hasty = Config::builder("e")
            .lease_duration(Duration::from_millis(250))
            .safety_margin(Duration::from_millis(20))
            .renew_interval(Duration::from_millis(50))
            .operation_timeout(Duration::from_millis(20))
            .build()
            .unwrap();
        assert!(Leads::of(&hasty, None).is_err(), "no time for killing");
    }

    #[test]
    fn the_deadline_asks_first_and_then_kills() {
        let mut countdown = Countdown::new(LEADS, at(10));
        assert_eq!(countdown.act(at(0)), Act::Wait(at(7)));
        assert!(!countdown.is_ending());
        assert_eq!(countdown.act(at(7)), Act::Terminate);
        assert_eq!(countdown.act(at(7)), Act::Wait(at(9)));
        assert_eq!(countdown.act(at(8)), Act::Wait(at(9)));
        assert_eq!(countdown.act(at(9)), Act::Kill);
        assert_eq!(countdown.act(at(9)), Act::Kill, "again and again");
    }

    #[test]
    fn a_renewal_in_time_moves_everything_and_an_older_one_nothing() {
        let mut countdown = Countdown::new(LEADS, at(10));
        countdown.extend(at(20));
        countdown.extend(at(15));
        assert_eq!(countdown.act(at(16)), Act::Wait(at(17)));
        assert_eq!(countdown.act(at(17)), Act::Terminate);
    }

    #[test]
    fn who_was_asked_to_end_ends_whatever_is_renewed() {
        let mut countdown = Countdown::new(LEADS, at(10));
        assert_eq!(countdown.act(at(7)), Act::Terminate);
        countdown.extend(at(100));
        assert_eq!(countdown.act(at(8)), Act::Wait(at(9)));
        assert_eq!(countdown.act(at(9)), Act::Kill);
    }

    #[test]
    fn an_earlier_end_has_its_grace_but_never_past_the_deadline() {
        let mut countdown = Countdown::new(LEADS, at(10));
        countdown.end(at(3));
        countdown.end(at(4));
        assert_eq!(countdown.act(at(3)), Act::Terminate);
        assert_eq!(countdown.act(at(4)), Act::Wait(at(5)), "counted from the first");
        assert_eq!(countdown.act(at(5)), Act::Kill);
        let mut late = Countdown::new(LEADS, at(10));
        late.end(at(8));
        assert_eq!(late.act(at(8)), Act::Terminate);
        assert_eq!(late.act(at(8)), Act::Wait(at(9)));
        assert_eq!(late.kill_at(), at(9));
    }

    #[test]
    fn whoever_wakes_up_too_late_kills_at_once() {
        for late in [9, 10, 1_000] {
            let mut countdown = Countdown::new(LEADS, at(10));
            assert_eq!(countdown.act(at(late)), Act::Kill, "{late}");
        }
        let mut ended = Countdown::new(LEADS, at(10));
        ended.end(at(3));
        assert_eq!(ended.act(at(6)), Act::Kill);
    }

    #[test]
    fn nothing_lives_at_the_deadline_whatever_happens_before_it() {
        // Every order of a renewal, an end and looks at the clock, each at any second.
        for renewed in 0..12 {
            for ended in 0..12 {
                for look in 1..5 {
                    let mut countdown = Countdown::new(LEADS, at(10));
                    let mut deadline = at(10);
                    let mut killed = None;
                    for second in (0..30).step_by(look) {
                        // A term whose deadline has passed is never renewed.
                        if second >= renewed && at(second) < deadline && deadline == at(10) {
                            deadline = at(second + 10);
                            countdown.extend(deadline);
                        }
                        if second >= ended && ended > 0 {
                            countdown.end(at(second));
                        }
                        if countdown.act(at(second)) == Act::Kill {
                            killed.get_or_insert(at(second));
                        }
                    }
                    // It looks every `look` seconds here; the real one sleeps until the instant itself.
                    let latest = deadline.saturating_before(LEADS.kill) + Duration::from_secs(look as u64);
                    assert!(killed.is_some_and(|at| at < latest), "{renewed} {ended} {look}: {killed:?}");
                }
            }
        }
    }
}
