//! The course of a soak: a burst of faults, everything lifted, a calm stretch; again and again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::sleep;
use std::time::Duration;

use tenure_testground::{ClockShim, Postgres};

use crate::arena::{Arena, SEATS};
use crate::fleet::LIMIT;
use crate::fleet::line::{Stamp, now};
use crate::fleet::profile::{P3, SLACK};
use crate::fleet::stillness::{self, BROKEN, promised};
use crate::judge::{Judge, tellers, terms};
use crate::plan::{Burst, Plan};
use crate::summary::{self, Figures, Lasting};

/// Between two looks at what the nodes say.
const LOOK: Duration = Duration::from_millis(10);
/// A broken promise is to be noticed while one can still see what led to it.
const JUDGE_EVERY: Duration = Duration::from_secs(5);
/// A burst that would be shorter is left out.
const SHORTEST: Duration = Duration::from_secs(5);
/// Before the first burst, and what a later calm takes at most as a rule.
const CALM: Duration = Duration::from_secs(8);
/// How often a calm is tried on a machine that stands still.
const TRIES: usize = 5;

pub(crate) struct Soak<'a> {
    pub(crate) arena: Arena<'a>,
    pub(crate) judge: Judge,
    pub(crate) figures: Figures,
    pub(crate) seed: u64,
    length: Duration,
    begun: Stamp,
    /// The last burst's beginning.
    burst: Stamp,
    /// How often the machine had stood still by then.
    stills: u64,
    told: u64,
    judged: Stamp,
}

pub(crate) fn run(seed: u64, length: Duration) {
    say(format_args!("soak: seed {seed}, {length:?}"));
    stillness::watch();
    let shim = ClockShim::new();
    // A server that stops waits for whoever is connected and says nothing.
    let server = Postgres::builder().envs(shim.env()).setting("authentication_timeout", "1").start();
    let begun = now();
    let mut soak = Soak {
        arena: Arena::new(&server, &shim),
        judge: Judge::default(),
        figures: Figures::default(),
        seed,
        length,
        begun,
        burst: begun,
        stills: 0,
        told: 0,
        judged: begun,
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| soak.go()));
    if let Err(panic) = outcome {
        soak.last_words();
        resume_unwind(panic);
    }
}

#[allow(clippy::print_stdout, reason = "what a test program is for")]
pub(crate) fn say(what: impl std::fmt::Display) {
    println!("{what}");
}

impl Soak<'_> {
    fn go(&mut self) {
        let mut plan = Plan::new(self.seed, SEATS);
        self.calm(P3.lease);
        self.figures.lasting = Lasting::of_veterans(&self.arena);
        loop {
            let left = (self.begun + self.length).saturating_sub(now());
            if left < SHORTEST + CALM {
                break;
            }
            let burst = plan.burst();
            self.burst(&burst, burst.length.min(left - CALM));
            self.calm(burst.calm);
        }
        self.end();
    }

    fn burst(&mut self, burst: &Burst, length: Duration) {
        self.burst = now();
        self.stills = stillness::stills();
        self.figures.bursts += 1;
        self.arena.log.clear();
        if let Some(how) = burst.tampering {
            self.arena.tamper(how);
        }
        let mut due = self.burst;
        for planned in &burst.faults {
            due += planned.after;
            if due > self.burst + length {
                break;
            }
            self.until(due);
            self.arena.strike(planned);
        }
        self.until(self.burst + length);
    }

    fn until(&mut self, due: Stamp) {
        while now() < due {
            self.look();
            self.arena.lift_due();
        }
    }

    fn look(&mut self) {
        sleep(LOOK);
        self.arena.fleet.read();
        if now() > self.judged + JUDGE_EVERY {
            self.judged = now();
            self.judge_now();
        }
        let minute = (now() - self.begun).as_secs() / 60;
        if minute > self.told {
            self.told = minute;
            say(format_args!("soak: minute {minute}: {}", self.figures.progress(&self.arena, &self.judge)));
        }
    }

    /// Lifts everything. Then somebody leads soon and goes on, and everybody sees it.
    fn calm(&mut self, watched: Duration) {
        let lifted = self.arena.lift_all();
        for _ in 0..TRIES {
            let stills = stillness::stills();
            match self.try_calm(watched) {
                Ok(end) => {
                    self.weigh(lifted, end);
                    return;
                }
                Err(what) => {
                    self.judge_now();
                    assert!(stillness::stills() > stills, "{what}, {:.1?} after the lifting", now() - lifted);
                    self.figures.excused += 1;
                }
            }
        }
        panic!("the machine stands still again and again");
    }

    /// The end of a stretch in which somebody has led without a break for the last part.
    fn try_calm(&mut self, watched: Duration) -> Result<Stamp, String> {
        let (begun, within) = (now(), within());
        let fence = loop {
            if let Some((fence, held)) = self.held() {
                if held.1 > held.0.max(begun) + P3.renew * 3 {
                    break fence;
                }
            }
            if now() > begun + within {
                return Err(format!("nobody leads steadily within {within:?}"));
            }
            self.look();
        };
        self.arena.await_seats();
        self.await_all("every node sees the term", |soak| {
            soak.arena.everybody_watches() || soak.arena.leader().map(|led| led.fence) != Some(fence)
        })?;
        let end = now() + watched;
        self.await_all("the term goes on", |soak| {
            soak.held().is_none_or(|(held, (_, to))| held != fence || to > end)
        })?;
        let goes_on = self.held().is_some_and(|(held, _)| held == fence);
        if goes_on { Ok(end) } else { Err(format!("the term with fence {fence} ended in a calm")) }
    }

    /// The present term, and from when to when it was certainly live.
    fn held(&self) -> Option<(i64, (Stamp, Stamp))> {
        let led = self.arena.leader()?;
        Some((led.fence, self.arena.fleet.certain(led.fence)?))
    }

    fn await_all(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        let begun = now();
        while !done(self) {
            if now() > begun + LIMIT {
                return Err(format!("not within {LIMIT:?}: {what}"));
            }
            self.look();
        }
        Ok(())
    }

    #[track_caller]
    fn judge_now(&self) {
        let faults = self.judge.faults(&tellers(&self.arena.fleet), &self.arena.cuts);
        promised!(faults.is_empty(), "{faults:#?}");
    }

    /// What the stretch from `lifted` to `end` was like.
    fn weigh(&mut self, lifted: Stamp, end: Stamp) {
        self.judge_now();
        self.figures.stretch(&terms(&tellers(&self.arena.fleet)), lifted, end);
        let step = self.judge.archive(&mut self.arena.fleet, &mut self.arena.cuts, self.burst);
        let excused = stillness::stills() > self.stills;
        assert!(step <= P3.step() || excused, "a leader stepped down {step:?} after it was cut off");
        self.figures.lasting.iter().for_each(|lasting| {
            self.arena.fleet.counts_come_back(lasting.node, lasting.counts);
        });
        self.arena.prune_history();
    }

    fn end(&mut self) {
        self.figures.lasting.iter_mut().for_each(|lasting| lasting.ends(&self.arena.fleet));
        let sessions = self.arena.sessions();
        self.arena.fleet.finish();
        self.judge_now();
        let terms = self.judge.terms(&self.arena.fleet).len();
        assert!(terms > self.figures.bursts, "only {terms} terms in {} bursts", self.figures.bursts);
        say(self.figures.summary(self, sessions, now() - self.begun));
        for lasting in &self.figures.lasting {
            lasting.check();
        }
    }

    /// What a failure leaves to be looked at.
    fn last_words(&self) {
        say(format_args!("soak: FAILED with seed {}; what was done since {:.3?}:", self.seed, self.burst));
        self.arena.log.iter().for_each(|(at, what)| say(format_args!("{at:.3?} {what}")));
        say(summary::count(&self.judge.terms(&self.arena.fleet)));
        for fault in self.judge.faults(&tellers(&self.arena.fleet), &self.arena.cuts) {
            say(format_args!("{BROKEN}: {fault}"));
        }
        say(format_args!("what the nodes said:\n{}", self.arena.fleet.told_since(self.burst)));
    }
}

/// From the lifting to the first steady leader: what a take-over may take after the last thing that landed, and the
/// time that it takes to be called steady.
pub(crate) fn within() -> Duration {
    P3.take() + SLACK + P3.renew * 3
}
