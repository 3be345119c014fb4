//! The election machine under arbitrary inputs, in whatever state earlier ones have brought it.

use std::time::Duration;

use super::bytes::Bytes;
use super::config;
use crate::config::{ClockTrust, Config};
use crate::election::{Call, Election, Input, Settings, Step, TermChange, Trouble};
use crate::lease::{Fence, Lease, LeaseTimes, Observation, Timestamp};
use crate::time::Time;

const OWN: &str = "own";
const NAMES: [&str; 3] = [OWN, "other", "third"];

/// Feeds an election with what the bytes say.
///
/// # Panics
/// If it promises more than a reply can give, revives a term, makes two calls at a time, takes notice of answers
/// to what it did not ask, bids before its hold-off is over, holds off for ever, wants to be woken in the past, or is an observer and writes.
pub fn election(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let settings = settings(&mut bytes);
    let mut run = Run {
        election: Election::new(settings.clone()),
        settings,
        now: Time::from_nanos(bytes.u64() >> 1),
        sent: None,
        live: None,
        wake_at: None,
        last: None,
    };
    for _ in 0..400 {
        if bytes.is_empty() {
            break;
        }
        run.turn(&mut bytes);
    }
}

/// Durations that a configuration accepts one by one; half of the time it accepts them together too.
fn settings(bytes: &mut Bytes<'_>) -> Settings {
    let valid = bytes.flag().then(|| config::builder(bytes).build().ok()).flatten();
    let mut duration = |usual: Duration| match bytes.choose(3) {
        0 => usual,
        1 => Duration::from_millis(bytes.millis()).max(Config::MIN_DURATION),
        _ => bytes.duration().clamp(Config::MIN_DURATION, Config::MAX_LEASE_DURATION),
    };
    let second = Duration::from_secs(1);
    let (lease, renew, retry, delay, margin) = match &valid {
        Some(c) => {
            (c.lease_duration(), c.renew_interval(), c.retry_period(), c.retry_delay(), c.safety_margin())
        }
        None => (
            duration(15 * second),
            duration(5 * second),
            duration(3 * second),
            duration(second),
            duration(second),
        ),
    };
    // One byte, since inputs that were kept have one here.
    let flags = bytes.byte();
    let (release, observes, delays) = (flags & 1 != 0, flags & 0xf0 == 0xf0, flags & 0x06 == 0x06);
    let takeover = if delays { lease.saturating_mul(u32::from(flags >> 3)) / 8 } else { Duration::ZERO };
    Settings {
        identity: OWN.to_owned(),
        lease_duration: lease,
        renew_interval: renew,
        retry_period: retry,
        retry_delay: delay,
        takeover_delay: valid.as_ref().map_or(Duration::ZERO, Config::takeover_delay).max(takeover),
        safety_margin: margin,
        longest_lease: Config::MAX_LEASE_DURATION,
        min_fence: valid.as_ref().map_or(0, Config::min_fence),
        strict: valid.as_ref().is_some_and(|config| config.clock_trust() == ClockTrust::Strict),
        release_on_exit: release,
        observer: observes || valid.is_some_and(|config| config.observer()),
    }
}

struct Run {
    election: Election,
    settings: Settings,
    now: Time,
    /// The call that is under way.
    sent: Option<(Time, Call)>,
    /// The term, as callers see it.
    live: Option<(Fence, Time)>,
    wake_at: Option<Time>,
    /// The last row that was shown, for answers that follow from each other.
    last: Option<Lease>,
}

impl Run {
    fn turn(&mut self, bytes: &mut Bytes<'_>) {
        self.now = match bytes.choose(8) {
            0 | 1 => self.now,
            2 | 3 => self.now + Duration::from_millis(bytes.millis()),
            4 => self.now + bytes.duration(),
            _ => self.wake_at.map_or(self.now, |at| at.max(self.now)),
        };
        let dice = u64::from_be_bytes([bytes.byte(); 8]);
        match bytes.choose(32) {
            0..=2 => self.step(dice, Input::Campaign),
            3 => self.step(dice, Input::Withdraw),
            4 | 5 => self.stray_answer(bytes, dice),
            6 => {
                let fence = self.some_fence(bytes);
                self.step(dice, Input::Ended(fence));
                self.end_if(fence);
            }
            7 | 8 => {
                let (fence, release) = (self.some_fence(bytes), bytes.flag());
                self.step(dice, Input::Resign { fence, release });
                self.end_if(fence);
            }
            9 => self.step(dice, Input::RenewNow),
            10 => self.step(dice, Input::Stop),
            11 => self.step(dice, Input::Abandon),
            12..=15 => self.step(dice, Input::Tick),
            _ => match self.sent.clone() {
                Some((at, call)) => self.answer(bytes, dice, at, &call),
                None => self.step(dice, Input::Tick),
            },
        }
    }

    /// Somebody else found that the term is over, or ended it.
    fn end_if(&mut self, fence: Fence) {
        self.live = self.live.filter(|(live, _)| *live != fence);
    }

    fn answer(&mut self, bytes: &mut Bytes<'_>, dice: u64, at: Time, call: &Call) {
        self.sent = None;
        let input = self.input(bytes, call);
        let (acquired, above) = match (call, &input) {
            (Call::Acquire { above, .. }, Input::Acquired(Ok(Some(lease)))) => (Some(lease.fence()), *above),
            _ => (None, 0),
        };
        let granted = self.settings.lease_duration.saturating_sub(self.settings.safety_margin);
        let live = self.live;
        let step = self.take(dice, input);
        match step.term {
            Some(TermChange::Begin { fence, deadline }) => {
                assert!(acquired == Some(fence) && fence.get() > above && live.is_none(), "{step:?}");
                assert!(deadline <= at + granted && deadline > self.now, "{step:?} sent at {at:?}");
                self.live = Some((fence, deadline));
            }
            Some(TermChange::Extend { fence, deadline }) => {
                assert!(
                    matches!(call, Call::Renew { fence: sent } if *sent == fence),
                    "{step:?} for {call:?}"
                );
                assert!(live.is_some_and(|(live, until)| live == fence && self.now < until), "{step:?}");
                assert!(deadline <= at + granted, "{step:?} sent at {at:?}");
                self.live = Some((fence, deadline));
            }
            Some(TermChange::End { .. }) | None => {}
        }
    }

    /// An input that answers nothing: no term begins or grows by it.
    fn step(&mut self, dice: u64, input: Input) {
        let step = self.take(dice, input);
        assert!(!matches!(step.term, Some(TermChange::Begin { .. } | TermChange::Extend { .. })), "{step:?}");
    }

    /// An answer to something that was not asked does what the passing of time does.
    fn stray_answer(&mut self, bytes: &mut Bytes<'_>, dice: u64) {
        let fence = self.some_fence(bytes);
        let call = match bytes.choose(4) {
            0 => Call::Observe,
            1 => Call::Acquire { over: None, timeline: None, above: 0 },
            2 => Call::Renew { fence },
            _ => Call::Release { fence },
        };
        if self.sent.as_ref().is_some_and(|(_, sent)| same_kind(sent, &call)) {
            return;
        }
        let input = self.input(bytes, &call);
        let mut untouched = self.election.clone();
        untouched.step(self.now, dice, Input::Tick);
        self.step(dice, input);
        self.step(dice, Input::Tick); // After some inputs the machine waits for that before it makes a call.
        assert_eq!(format!("{:?}", self.election), format!("{untouched:?}"), "a stray answer to {call:?}");
    }

    /// Takes the step, and checks what holds after every step.
    fn take(&mut self, dice: u64, input: Input) -> Step {
        let resigns = matches!(input, Input::Resign { .. });
        let pauses = resigns || matches!(input, Input::Renewed(_) | Input::Released);
        let step = self.election.step(self.now, dice, input);
        if let Some(TermChange::End { fence, .. }) = step.term {
            assert!(self.live.is_some_and(|(live, _)| live == fence), "{step:?} of {:?}", self.live);
            self.live = None;
        }
        let grew = matches!(step.term, Some(TermChange::Begin { .. } | TermChange::Extend { .. }));
        if let (Some((fence, deadline)), false, false) = (self.live, resigns, grew) {
            assert!(self.now < deadline, "{fence} goes on after {deadline:?}");
        }
        if let Some(call) = &step.call {
            if matches!(call, Call::Acquire { .. }) {
                // Rule 10: not before the hold-off is over, whatever else there is to wait for.
                let free_at = self.election.free_at();
                assert!(free_at.is_some_and(|at| at <= self.now), "{call:?} at {:?}, {free_at:?}", self.now);
            }
            assert!(self.sent.is_none(), "{call:?} beside {:?}", self.sent);
            assert!(!self.settings.observer || *call == Call::Observe, "an observer's {call:?}");
            self.sent = Some((self.now, call.clone()));
        }
        let longest = self.settings.longest_lease.max(self.settings.lease_duration);
        let free_at = self.election.free_at();
        assert!(free_at.is_none_or(|at| at <= self.now + longest), "held off until {free_at:?}");
        if self.sent.is_none() && !pauses && self.now < Time::MAX {
            assert!(
                step.wake_at.is_none_or(|at| at > self.now),
                "woken at once, at {:?}, for nothing: {step:?}, {:?}",
                self.now,
                self.election
            );
        }
        self.wake_at = step.wake_at;
        step
    }

    fn input(&mut self, bytes: &mut Bytes<'_>, call: &Call) -> Input {
        let trouble = match bytes.choose(8) {
            0 => Some(Trouble::Error),
            1 if bytes.flag() => Some(Trouble::Panic),
            _ => None,
        };
        let timeline = [None, Some(1), Some(1), Some(2), Some(u32::MAX)][usize::from(bytes.choose(5))];
        let lease = (bytes.choose(4) != 0).then(|| self.lease(bytes, call, timeline));
        self.last.clone_from(&lease);
        match (call, trouble) {
            (Call::Observe, Some(trouble)) => Input::Observed(Err(trouble)),
            (Call::Acquire { .. }, Some(trouble)) => Input::Acquired(Err(trouble)),
            (Call::Renew { .. }, Some(trouble)) => Input::Renewed(Err(trouble)),
            (Call::Observe, None) => {
                Input::Observed(Ok(lease.map_or(Observation::vacant(timeline), Observation::of)))
            }
            (Call::Acquire { .. }, None) => Input::Acquired(Ok(lease)),
            (Call::Renew { .. }, None) => Input::Renewed(Ok(lease)),
            (Call::Release { .. }, _) => Input::Released,
        }
    }

    fn lease(&self, bytes: &mut Bytes<'_>, call: &Call, timeline: Option<u32>) -> Lease {
        let holder = match call {
            Call::Observe => NAMES[usize::from(bytes.choose(3))],
            _ if bytes.choose(16) == 0 => NAMES[1],
            _ => OWN,
        };
        let seen = self.last.as_ref().map_or(0, |lease| lease.fence().get());
        let fence = match (bytes.choose(8), call) {
            (0, _) => Fence::try_from(bytes.i64()).ok(),
            (_, Call::Renew { fence }) => Some(*fence),
            (_, Call::Acquire { above, .. }) => Fence::after(*above, timeline),
            (1 | 2, _) => Fence::after(seen, timeline),
            _ => Fence::try_from(seen).ok(),
        };
        let fence =
            fence.or_else(|| Fence::after(0, timeline)).unwrap_or_else(|| unreachable!("1 is a fence"));
        let at = |bytes: &mut Bytes<'_>, from: Timestamp| match bytes.choose(6) {
            0 => Timestamp::from_micros(bytes.i64()),
            1 => from,
            2 => Timestamp::EPOCH,
            3 => from + self.settings.lease_duration,
            _ => from + Duration::from_millis(bytes.millis()),
        };
        let start = Timestamp::from_micros(1_700_000_000_000_000);
        let renewed_at = self.last.as_ref().map_or(start, Lease::renewed_at);
        let renewed_at = if bytes.flag() { at(bytes, renewed_at) } else { renewed_at };
        let now = at(bytes, renewed_at);
        let expires_at = at(bytes, renewed_at);
        let times = LeaseTimes { acquired_at: start, renewed_at, expires_at, now };
        let mark = u64::from(bytes.choose(3));
        Lease::new("election", holder, fence, times).with_mark(mark).with_timeline(timeline)
    }

    fn some_fence(&self, bytes: &mut Bytes<'_>) -> Fence {
        let fence = match self.live {
            Some((fence, _)) if bytes.flag() => Some(fence),
            _ => Fence::after(i64::from(bytes.byte()), None),
        };
        fence.or_else(|| Fence::after(0, None)).unwrap_or_else(|| unreachable!("1 is a fence"))
    }
}

fn same_kind(one: &Call, other: &Call) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}
