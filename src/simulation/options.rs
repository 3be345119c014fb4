//! What one schedule is made of. The seed draws everything, every probability included.

use std::time::Duration;

use fastrand::Rng;

use crate::config::Config;
use crate::election::Settings;

/// Which faults go together. Not all do: a participant that has only just started cannot know what a database
/// went through before its first look, so steps of the database's clock go with restarts only under
/// [`Strict`](crate::ClockTrust::Strict), and changes of the record only with participants that watch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// Participants crash and restart, and believe the database's clock at their first look. It may go back.
    Restarts,
    /// Participants crash and restart with `Strict`; the database's clock steps either way.
    Clocks,
    /// The record is deleted, rolled back, or lost in a fail-over, under participants that watch it; the
    /// database's clock steps either way.
    Records,
}

/// The make-up of one schedule; `Debug` shows all of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What everything else was drawn from.
    pub seed: u64,
    /// Which faults go together.
    pub family: Family,
    /// How many participants there are at a time.
    pub participants: usize,
    /// Whether the store has timelines.
    pub timelines: bool,
    /// Each participant's clock runs fast or slow by up to this many parts per million.
    pub drift_ppm: i64,
    /// How many milliseconds a request or a reply travels when all is well, at most.
    pub latency_ms: u64,
    /// Milliseconds from one fault to the next, on average.
    pub fault_every_ms: u64,
    /// How likely each kind of fault is, relative to the others; zero for those that are not drawn.
    pub weights: [(Fault, u32); Fault::ALL.len()],
    pub(crate) lease: Duration,
    pub(crate) renew: Duration,
    pub(crate) retry: Duration,
    pub(crate) timeout: Duration,
    pub(crate) margin: Duration,
    /// How long every second participant leaves a free lease to the others.
    pub(crate) takeover_delay: Duration,
    /// How many only watch, besides the participants.
    pub(crate) observers: usize,
    /// Participants ask for each term anew and give up now and then, as programs do that wait for leadership.
    pub(crate) asks_anew: bool,
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Fault {
    LinkCut,
    RepliesLost,
    SlowLink,
    LateEffects,
    Duplicates,
    HeldRequests,
    DatabaseDown,
    Heal,
    Freeze,
    Thaw,
    Crash,
    Resign,
    StopAndWindDown,
    ClockForward,
    ClockBack,
    RowDeleted,
    RowRestored,
    FailOver,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Fault; 18] = [
        Fault::LinkCut,
        Fault::RepliesLost,
        Fault::SlowLink,
        Fault::LateEffects,
        Fault::Duplicates,
        Fault::HeldRequests,
        Fault::DatabaseDown,
        Fault::Heal,
        Fault::Freeze,
        Fault::Thaw,
        Fault::Crash,
        Fault::Resign,
        Fault::StopAndWindDown,
        Fault::ClockForward,
        Fault::ClockBack,
        Fault::RowDeleted,
        Fault::RowRestored,
        Fault::FailOver,
    ];

    fn belongs_to(self, family: Family) -> bool {
        match self {
            Fault::Crash | Fault::StopAndWindDown => family != Family::Records,
            Fault::ClockForward => family != Family::Restarts,
            Fault::RowDeleted | Fault::RowRestored | Fault::FailOver => family == Family::Records,
            _ => true,
        }
    }
}

impl Options {
    /// Draws a schedule's make-up.
    #[must_use]
    pub fn draw(seed: u64) -> Options {
        let mut rng = Rng::with_seed(seed);
        let family = [Family::Restarts, Family::Clocks, Family::Records][rng.usize(0..3)];
        let weights = Fault::ALL.map(|fault| {
            // Some schedules do without some kinds altogether.
            let drawn = if rng.u8(0..4) == 0 { 0 } else { rng.u32(1..=10) };
            let cure = matches!(fault, Fault::Heal | Fault::Thaw);
            let weight = if cure { 6 + drawn } else { drawn };
            (fault, if fault.belongs_to(family) { weight } else { 0 })
        });
        let (lease, renew, retry, timeout, margin) = draw_timings(&mut rng);
        Options {
            seed,
            family,
            participants: rng.usize(2..=4),
            // Rule 15 needs them where records get lost.
            timelines: family == Family::Records || rng.bool(),
            drift_ppm: rng.i64(0..=12_000),
            latency_ms: rng.u64(1..=(timeout.as_millis() as u64 / 8).max(1)),
            fault_every_ms: rng.u64(500..=15_000),
            weights,
            lease,
            renew,
            retry,
            timeout,
            margin,
            // Drawn last, so that a seed draws what it drew before there were delays, and so on.
            takeover_delay: if rng.u8(0..4) > 0 { Duration::ZERO } else { lease.mul_f64(2.0 * rng.f64()) },
            observers: usize::from(rng.u8(0..4) == 0),
            asks_anew: rng.bool(),
        }
    }

    pub(crate) fn settings(&self, node: usize, observer: bool) -> Settings {
        Settings {
            identity: format!("n{node}"),
            lease_duration: self.lease,
            renew_interval: self.renew,
            retry_period: self.retry,
            retry_delay: (self.renew / 4).max(Config::MIN_RETRY_DELAY),
            takeover_delay: if node % 2 == 1 { self.takeover_delay } else { Duration::ZERO },
            safety_margin: self.margin,
            longest_lease: Config::MAX_LEASE_DURATION,
            min_fence: 0,
            strict: self.family == Family::Clocks,
            release_on_exit: true,
            observer,
        }
    }
}

/// Timings that the configuration would accept: the smallest margin for a third of them, and the invariant's sum
/// often used up to the last.
fn draw_timings(rng: &mut Rng) -> (Duration, Duration, Duration, Duration, Duration) {
    loop {
        let ms = Duration::from_millis;
        let lease = rng.u64(3_000..=30_000);
        let margin =
            if rng.u8(0..3) == 0 { lease.div_ceil(20) } else { rng.u64(lease.div_ceil(20)..=lease / 4) };
        let timeout = rng.u64(100..=lease / 4);
        let renew = rng.u64(100..=lease / 2);
        let retry = rng.u64(100..=lease / 2);
        if renew + 2 * timeout + (renew / 4).max(50) <= lease - margin {
            return (ms(lease), ms(renew), ms(retry), ms(timeout), ms(margin));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_what_a_configuration_accepts() {
        for seed in 0..500 {
            let o = Options::draw(seed);
            Config::builder("x")
                .lease_duration(o.lease)
                .renew_interval(o.renew)
                .retry_period(o.retry)
                .operation_timeout(o.timeout)
                .safety_margin(o.margin)
                .takeover_delay(o.takeover_delay)
                .build()
                .unwrap();
        }
    }
}
