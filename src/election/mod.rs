//! The election as a pure state machine: no thread, no clock, no socket, no random source.
//!
//! [`Election::step`] takes the local time, a random number and one input, and says what follows: at most one
//! call to the store, when to wake up, what becomes of the term. Whoever drives it makes the call at once and
//! feeds the answer back. The `now` of the step that asked for a call is the call's send anchor (rule 2):
//! whatever the driver does in between only makes a deadline earlier.
//!
//! Other inputs than answers are safe to deliver late, twice or out of place: what does not fit the phase changes
//! nothing. An answer belongs to the call that is under way. The driver never delivers one of an earlier call: it
//! would be anchored at the later send.

#[cfg(any(test, feature = "testing"))]
use crate::lease::Version;
use crate::lease::{Fence, Lease, Observation};
use crate::term::LossCause;
use crate::time::Time;

mod clockwatch;
mod holdoff;
mod interface;
mod rhythm;
#[cfg(test)]
mod tests;

use clockwatch::ClockWatch;
pub(crate) use holdoff::Disturbance;
use holdoff::{HoldOff, HoldOffSettings};
pub(crate) use interface::{Call, Input, Note, Settings, Step, TermChange, Trouble};
use rhythm::{Rhythm, jittered};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Neither wants nor holds the lease.
    Idle,
    /// Wants to lead; looks again at `poll_at`.
    Candidate { poll_at: Time },
    /// Holds the lease.
    Holding(Holding),
    /// Is about to give the lease up, or waits for the answer.
    Releasing { fence: Fence },
    /// A bid's outcome is unknown and nobody wants the lease any more: look, and release what it left.
    Tidying,
    /// The lease was taken away and nobody wants it back: look once at who has it, for the report.
    Looking,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Holding {
    fence: Fence,
    deadline: Time,
    renew_at: Time,
    /// The term is over (stopped), but the work may go on: the lease is kept for it.
    winding_down: bool,
}

/// One participant's part in one election.
#[derive(Clone, Debug)]
pub(crate) struct Election {
    settings: Settings,
    hold_off: HoldOff,
    rhythm: Rhythm,
    clock_watch: ClockWatch,
    phase: Phase,
    wanted: bool,
    stopped: bool,
    /// The call that is under way and its send anchor.
    sent: Option<(Time, Sent)>,
    /// A bid was sent whose outcome is not known yet.
    bid_open: bool,
    /// No bid before that: others go first after a resignation, and nobody hurries after a failure.
    no_bid_before: Time,
    /// Bids lost in a row.
    lost_bids: u32,
    /// The term that ended at its deadline. Its resignation may still be on the way.
    expired: Option<Fence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Observe,
    Acquire { above: i64 },
    Renew,
    Release,
}

impl Election {
    pub(crate) fn new(settings: Settings) -> Election {
        let hold_off = HoldOff::new(HoldOffSettings {
            identity: settings.identity.clone(),
            lease_duration: settings.lease_duration,
            safety_margin: settings.safety_margin,
            longest_lease: settings.longest_lease,
            strict: settings.strict,
        });
        Election {
            settings,
            hold_off,
            rhythm: Rhythm::default(),
            clock_watch: ClockWatch::default(),
            phase: Phase::Idle,
            wanted: false,
            stopped: false,
            sent: None,
            bid_open: false,
            no_bid_before: Time::ZERO,
            lost_bids: 0,
            expired: None,
        }
    }

    /// Whether there is nothing left to do: nothing wanted, held or under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && self.sent.is_none()
    }

    /// The state of the row as this participant knows it.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn premise(&self) -> Option<Version> {
        self.hold_off.over()
    }

    /// When a bid may be made, as far as the hold-off is concerned.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn free_at(&self) -> Option<Time> {
        self.hold_off.free_at()
    }

    /// Takes one input at local time `now`; `dice` is a random number for jitter.
    pub(crate) fn step(&mut self, now: Time, dice: u64, input: Input) -> Step {
        let mut step = Step::default();
        // A resignation knows whether its term was live when it came; anything else finds the deadline first.
        if !self.resigns(&input) {
            self.expire(now, &mut step);
        }
        // After a renewal or a release the driver gets to answer whoever asked for it, and to look at what else is
        // asked, before it makes the next call: a store may be so slow that a renewal is due already.
        let pauses = matches!(input, Input::Renewed(_) | Input::Released);
        self.take(now, dice, input, &mut step);
        if self.sent.is_none() && !pauses {
            step.call = self.next_call(now);
        }
        step.wake_at = self.wake_at(now);
        step
    }

    /// Whether the input gives up the term that is under way.
    fn resigns(&self, input: &Input) -> bool {
        matches!((&self.phase, input), (Phase::Holding(h), Input::Resign { fence, .. }) if h.fence == *fence)
    }

    /// The deadline passed: whatever the input is, the term is over (rule 4).
    fn expire(&mut self, now: Time, step: &mut Step) {
        if let Phase::Holding(h) = &self.phase {
            if now >= h.deadline {
                if !h.winding_down {
                    step.term = Some(TermChange::End { fence: h.fence, cause: LossCause::Expired });
                }
                self.expired = Some(h.fence);
                self.leave(now);
            }
        }
    }

    fn take(&mut self, now: Time, dice: u64, input: Input, step: &mut Step) {
        match input {
            Input::Tick => {}
            Input::Campaign => self.campaign(now),
            Input::Withdraw => self.withdraw(),
            Input::Observed(answer) => self.observed(now, dice, answer, step),
            Input::Acquired(answer) => self.acquired(now, dice, answer, step),
            Input::Renewed(answer) => self.renewed(now, answer, step),
            Input::Released if matches!(self.sent, Some((_, Sent::Release))) => {
                self.sent = None;
                if matches!(self.phase, Phase::Releasing { .. }) {
                    self.leave(now);
                }
            }
            Input::Released => {}
            Input::Ended(fence) => {
                if matches!(&self.phase, Phase::Holding(h) if h.fence == fence && !h.winding_down) {
                    self.leave(now);
                }
            }
            Input::Resign { fence, release } => self.resign(now, fence, release),
            Input::RenewNow => {
                if let Phase::Holding(h) = &mut self.phase {
                    h.renew_at = now;
                }
            }
            Input::Stop => self.stop(step),
            Input::Abandon => self.abandon(step),
        }
    }

    fn campaign(&mut self, now: Time) {
        if self.stopped {
            return;
        }
        self.wanted = true;
        if matches!(self.phase, Phase::Idle | Phase::Tidying | Phase::Looking) {
            self.phase = Phase::Candidate { poll_at: now };
        }
    }

    fn withdraw(&mut self) {
        self.wanted = false;
        if matches!(self.phase, Phase::Candidate { .. }) {
            self.phase = if self.bid_open { Phase::Tidying } else { Phase::Idle };
        }
    }

    /// No lease any more: on to the next campaign, if somebody wants it.
    fn leave(&mut self, now: Time) {
        self.phase = if self.wanted { Phase::Candidate { poll_at: now } } else { Phase::Idle };
    }

    fn observed(&mut self, now: Time, dice: u64, answer: Result<Observation, Trouble>, step: &mut Step) {
        let Some((sent_at, Sent::Observe)) = self.sent else { return };
        self.sent = None;
        let Ok(seen) = answer else {
            match &self.phase {
                Phase::Candidate { .. } => self.pause(now, dice),
                Phase::Tidying | Phase::Looking => self.phase = Phase::Idle,
                _ => {}
            }
            return;
        };
        if let Some(lease) = seen.lease() {
            let step_seen = self.clock_watch.answered(sent_at, now, lease.now());
            step.notes.extend(step_seen.map(Note::ClockStep));
        }
        step.notes.extend(self.hold_off.observed(now, &seen).into_iter().map(Note::Disturbance));
        match seen.lease() {
            Some(lease) if !lease.held_by(&self.settings.identity) => self.rhythm.observed(now, lease),
            _ => self.rhythm.forget(),
        }
        if self.hold_off.free_at().is_some_and(|at| at > now) {
            self.lost_bids = 0; // Whatever race there was is over.
        }
        match &mut self.phase {
            Phase::Candidate { poll_at } => {
                *poll_at = self.rhythm.next_poll(now, self.settings.retry_period, dice);
            }
            Phase::Tidying => self.tidy(&seen),
            Phase::Looking => self.phase = Phase::Idle,
            _ => {}
        }
    }

    /// Releases what an unanswered bid left behind, if it did.
    fn tidy(&mut self, seen: &Observation) {
        self.bid_open = false;
        self.phase = match seen.lease() {
            Some(l) if l.held_by(&self.settings.identity) && !l.is_released() && !l.is_expired() => {
                Phase::Releasing { fence: l.fence() }
            }
            _ => Phase::Idle,
        };
    }

    fn acquired(&mut self, now: Time, dice: u64, answer: Result<Option<Lease>, Trouble>, step: &mut Step) {
        let Some((sent_at, Sent::Acquire { above })) = self.sent else { return };
        self.sent = None;
        match answer {
            Ok(Some(lease)) => {
                self.bid_open = false;
                self.lost_bids = 0;
                self.won(now, sent_at, above, &lease, step);
            }
            Ok(None) => {
                self.bid_open = false;
                self.lost_bids = self.lost_bids.saturating_add(1);
                match &mut self.phase {
                    // Losing once is a race: look at once. Losing again and again is not.
                    Phase::Candidate { poll_at } if self.lost_bids == 1 => *poll_at = now,
                    _ => self.pause(now, dice),
                }
            }
            Err(_) => self.pause(now, dice),
        }
        if self.phase == Phase::Tidying && !self.bid_open {
            self.phase = Phase::Idle;
        }
    }

    /// Neither looks nor bids for about a retry period.
    fn pause(&mut self, now: Time, dice: u64) {
        let until = now + jittered(self.settings.retry_period, dice);
        self.no_bid_before = self.no_bid_before.max(until);
        if let Phase::Candidate { poll_at } = &mut self.phase {
            *poll_at = until;
        }
    }

    fn won(&mut self, now: Time, sent_at: Time, above: i64, lease: &Lease, step: &mut Step) {
        let found = self.hold_off.wrote(now, lease);
        step.notes.extend(found.into_iter().map(Note::Disturbance));
        step.notes.extend(self.clock_watch.answered(sent_at, now, lease.now()).map(Note::ClockStep));
        self.rhythm.forget();
        let deadline = self.deadline(sent_at, lease);
        // A store that breaks its contract is not led with: the fence must be new and the lease ours.
        let sound = lease.fence().get() > above && lease.held_by(&self.settings.identity);
        if !matches!(self.phase, Phase::Candidate { .. }) {
            // Nobody waits for it any more; it must not stand in others' way.
            self.phase = Phase::Releasing { fence: lease.fence() };
        } else if sound && deadline > now {
            let fence = lease.fence();
            step.term = Some(TermChange::Begin { fence, deadline });
            let renew_at = sent_at + self.settings.renew_interval;
            self.phase = Phase::Holding(Holding { fence, deadline, renew_at, winding_down: false });
        } else {
            step.notes.push(Note::UselessGrant { fence: lease.fence() });
            self.phase = Phase::Candidate { poll_at: now + self.settings.retry_delay };
            self.no_bid_before = now + self.settings.retry_delay;
        }
    }

    /// Rule 2. The lease counts from before the request, and never for longer than was asked.
    fn deadline(&self, sent_at: Time, lease: &Lease) -> Time {
        let granted = lease.ttl().min(self.settings.lease_duration);
        sent_at + granted.saturating_sub(self.settings.safety_margin)
    }

    fn renewed(&mut self, now: Time, answer: Result<Option<Lease>, Trouble>, step: &mut Step) {
        let Some((sent_at, Sent::Renew)) = self.sent else { return };
        self.sent = None;
        if let Ok(Some(lease)) = &answer {
            step.notes.extend(self.hold_off.wrote(now, lease).into_iter().map(Note::Disturbance));
            step.notes.extend(self.clock_watch.answered(sent_at, now, lease.now()).map(Note::ClockStep));
        }
        let Phase::Holding(holding) = &self.phase else { return };
        let mut holding = holding.clone();
        if let Some(cause) = self.ended_by(holding.fence, answer.as_ref().map(Option::as_ref)) {
            return self.lose(now, &holding, cause, step);
        }
        match answer {
            Ok(Some(lease)) => {
                holding.deadline = self.deadline(sent_at, &lease);
                holding.renew_at = sent_at + self.settings.renew_interval;
                if !holding.winding_down {
                    let (fence, deadline) = (holding.fence, holding.deadline);
                    step.term = Some(TermChange::Extend { fence, deadline });
                }
                self.phase = Phase::Holding(holding);
            }
            _ => {
                holding.renew_at = now + self.settings.retry_delay;
                self.phase = Phase::Holding(holding);
            }
        }
    }

    /// Why a term is over by an answer to its renewal, if it is. Whoever has the answer may ask before it is fed, to
    /// end the term before anything else is done about it (rule 18).
    pub(crate) fn ended_by(
        &self,
        term: Fence,
        answer: Result<Option<&Lease>, &Trouble>,
    ) -> Option<LossCause> {
        match answer {
            Ok(Some(lease)) if lease.fence() == term && lease.held_by(&self.settings.identity) => None,
            Ok(_) => Some(LossCause::Superseded),
            Err(Trouble::Panic) => Some(LossCause::Failed),
            Err(Trouble::Error) => None,
        }
    }

    fn lose(&mut self, now: Time, holding: &Holding, cause: LossCause, step: &mut Step) {
        if !holding.winding_down {
            step.term = Some(TermChange::End { fence: holding.fence, cause });
        }
        self.leave(now);
        if cause == LossCause::Superseded && self.phase == Phase::Idle && !self.stopped {
            self.phase = Phase::Looking;
        }
    }

    fn resign(&mut self, now: Time, fence: Fence, release: bool) {
        // Where the resignation waited for the store until the deadline had passed, a renewal may have landed
        // meanwhile: without a release nobody would lead for the rest of that lease.
        let late = self.expired.take_if(|expired| *expired == fence).is_some()
            && release
            && matches!(self.phase, Phase::Idle | Phase::Looking | Phase::Candidate { .. });
        if !late && !matches!(&self.phase, Phase::Holding(h) if h.fence == fence) {
            return;
        }
        // Others poll once in a retry period; whoever resigned does not snatch the lease back before them.
        self.no_bid_before = now + self.settings.retry_period * 5 / 4;
        if self.settings.release_on_exit && release {
            self.phase = Phase::Releasing { fence };
        } else {
            self.leave(now);
        }
    }

    fn stop(&mut self, step: &mut Step) {
        self.stopped = true;
        if let Phase::Holding(holding) = &mut self.phase {
            if !holding.winding_down {
                holding.winding_down = true;
                let fence = holding.fence;
                step.term = Some(TermChange::End { fence, cause: LossCause::Stopped });
            }
            self.wanted = false;
        } else if self.phase == Phase::Looking {
            self.phase = Phase::Idle;
        } else {
            self.withdraw();
        }
    }

    fn abandon(&mut self, step: &mut Step) {
        self.stop(step);
        self.expired = None;
        if matches!(self.phase, Phase::Holding(_)) {
            self.phase = Phase::Idle;
        }
    }

    /// The call that is due, if any.
    fn next_call(&mut self, now: Time) -> Option<Call> {
        let call = match &self.phase {
            Phase::Idle => return None,
            Phase::Tidying | Phase::Looking => Call::Observe,
            Phase::Releasing { fence } => Call::Release { fence: *fence },
            Phase::Holding(h) if now >= h.renew_at => Call::Renew { fence: h.fence },
            Phase::Holding(_) => return None,
            Phase::Candidate { poll_at } => match self.bid_at(now) {
                // The poll comes first where both are due: it may show that somebody is alive.
                Some(at) if now >= at && now < *poll_at => self.bid(),
                _ if now >= *poll_at => Call::Observe,
                _ => return None,
            },
        };
        self.sent = Some((now, self.sending(now, &call)));
        Some(call)
    }

    /// When a bid may be made, as far as that is known at `now`. A takeover delay comes after the hold-off, never
    /// in its place (rule 10).
    fn bid_at(&self, now: Time) -> Option<Time> {
        if self.settings.observer {
            return None;
        }
        let free_at = self.hold_off.free_at()?;
        let at = free_at.max(self.no_bid_before);
        // For what this participant has written itself the others wait in any case. To leave it to them would only
        // leave the election without a leader.
        let ours_until = self.hold_off.ours_until();
        if at.max(now) < ours_until {
            return Some(at);
        }
        Some(at.max(free_at.max(ours_until) + self.settings.takeover_delay))
    }

    fn bid(&self) -> Call {
        Call::Acquire {
            over: self.hold_off.over(),
            timeline: self.hold_off.timeline(),
            above: self.hold_off.highest().max(self.settings.min_fence),
        }
    }

    fn sending(&mut self, now: Time, call: &Call) -> Sent {
        match call {
            Call::Observe => Sent::Observe,
            Call::Acquire { above, .. } => {
                self.bid_open = true;
                self.hold_off.bid_sent(now, *above);
                Sent::Acquire { above: *above }
            }
            Call::Renew { .. } => {
                self.hold_off.renewal_sent(now);
                Sent::Renew
            }
            Call::Release { .. } => Sent::Release,
        }
    }

    fn wake_at(&self, now: Time) -> Option<Time> {
        let at = match &self.phase {
            Phase::Holding(h) if self.sent.is_some() => h.deadline,
            _ if self.sent.is_some() => return None,
            Phase::Idle => return None,
            Phase::Holding(h) => h.deadline.min(h.renew_at),
            Phase::Candidate { poll_at } => self.bid_at(now).map_or(*poll_at, |at| at.min(*poll_at)),
            Phase::Releasing { .. } | Phase::Tidying | Phase::Looking => now,
        };
        Some(at)
    }
}
