//! Draws faults until ten virtual minutes are over, ends them, and sees that somebody leads again.

use crate::store::RowSnapshot;

use super::Outcome;
use super::dice::Dice;
use super::node::Link;
use super::options::{Fault, Options};
use super::statistics::Statistics;
use super::world::{NAME, World};

const FAULTY_MS: u64 = 600_000;
/// A schedule that takes more events than this goes round in circles.
const EVENT_LIMIT: u64 = 2_000_000;

/// Makes something of a participant that has just joined.
pub(super) type Prepare<'a> = &'a dyn Fn(&mut World, usize);

struct Schedule<'a> {
    prepare: Prepare<'a>,
    options: Options,
    world: World,
    rng: Dice,
    statistics: Statistics,
    timeline: u32,
    /// The row as a backup or a lagging standby has it.
    old: RowSnapshot,
    /// Participants that were stopped and whose work ends at that time.
    winding_down: Vec<(usize, u64)>,
    weight: u32,
}

pub(super) fn run(options: Options, with_transcript: bool, prepare: Prepare<'_>) -> Outcome {
    let mut schedule = Schedule::new(options, with_transcript, prepare);
    schedule.watch_first();
    schedule.with_faults();
    schedule.recover();
    schedule.end()
}

/// As [`run`], but the bytes pick the faults, and they end with the bytes.
pub(super) fn run_bytes(options: Options, bytes: &[u8], with_transcript: bool) -> Outcome {
    let mut schedule = Schedule::new(options, with_transcript, &|_, _| {});
    schedule.watch_first();
    schedule.rng = Dice::given(bytes);
    schedule.with_faults();
    schedule.recover();
    schedule.end()
}

impl Schedule<'_> {
    fn new(options: Options, with_transcript: bool, prepare: Prepare<'_>) -> Schedule<'_> {
        let mut world = World::new(options.seed, with_transcript);
        world.latency_ms = options.latency_ms;
        world.store.set_timeline(options.timelines.then_some(1));
        let mut schedule = Schedule {
            prepare,
            rng: Dice::seeded(options.seed.rotate_left(32) ^ 0x7e4e),
            statistics: Statistics { schedules: 1, ..Statistics::default() },
            timeline: 1,
            old: world.store.snapshot(NAME),
            winding_down: Vec::new(),
            weight: options.weights.iter().map(|(_, weight)| weight).sum::<u32>().max(1),
            options,
            world,
        };
        schedule.world.patience_ms =
            schedule.options.asks_anew.then_some(schedule.options.lease.as_millis() as u64);
        for _ in 0..schedule.options.participants {
            schedule.join(false);
        }
        for _ in 0..schedule.options.observers {
            schedule.join(true);
        }
        schedule
    }

    fn join(&mut self, observer: bool) {
        let settings = self.options.settings(self.world.nodes.len(), observer);
        let node = self.world.add(settings, self.options.timeout);
        self.world.nodes[node].drift_ppm = self.rng.i64(-self.options.drift_ppm..=self.options.drift_ppm);
        (self.prepare)(&mut self.world, node);
        self.world.campaign(node);
    }

    /// Records may only be tampered with once everybody watches them.
    fn watch_first(&mut self) {
        self.world.run_for(2 * self.options.lease.as_millis() as u64);
        self.old = self.world.store.snapshot(NAME);
    }

    fn with_faults(&mut self) {
        let goes_on = |schedule: &Schedule<'_>| {
            schedule.world.now_ms() < FAULTY_MS
                && schedule.world.events < EVENT_LIMIT
                && !schedule.rng.is_used_up()
        };
        while goes_on(self) {
            self.world.run_for(self.rng.u64(1..=2 * self.options.fault_every_ms));
            self.end_of_work();
            let mut dice = self.rng.u32(0..self.weight);
            let drawn = self.options.weights.iter().find(|(_, weight)| {
                let hit = dice < *weight;
                dice = dice.saturating_sub(*weight);
                hit
            });
            if let Some((fault, _)) = drawn.copied() {
                if self.happen(fault) {
                    self.statistics.count(fault);
                }
            }
        }
    }

    /// Says whether the fault could happen.
    fn happen(&mut self, fault: Fault) -> bool {
        let lease_ms = self.options.lease.as_millis() as u64;
        let timeout_ms = self.options.timeout.as_millis() as u64;
        let alive: Vec<usize> = (0..self.world.nodes.len()).filter(|n| self.world.nodes[*n].alive).collect();
        let node = alive[self.rng.usize(0..alive.len())];
        let link = match fault {
            Fault::LinkCut => Link::Cut,
            Fault::RepliesLost => Link::RepliesLost,
            Fault::SlowLink => Link::Slow(self.rng.u64(1..=timeout_ms.max(2) - 1)),
            Fault::LateEffects => Link::Late(self.rng.u64(timeout_ms..=timeout_ms + 2 * lease_ms)),
            Fault::Duplicates => Link::Twice(self.rng.u64(1..=2 * lease_ms)),
            Fault::HeldRequests => Link::Held,
            _ => return self.happen_to_process_or_database(fault, node),
        };
        self.world.link(node, link);
        true
    }

    fn happen_to_process_or_database(&mut self, fault: Fault, node: usize) -> bool {
        match fault {
            Fault::DatabaseDown => self.world.down = true,
            Fault::Heal => self.heal(),
            Fault::Freeze => self.world.freeze(node),
            Fault::Thaw => self.thaw(),
            Fault::Crash => {
                self.world.crash(node);
                self.winding_down.retain(|(n, _)| *n != node);
                self.join(self.world.observes(node));
            }
            Fault::Resign => return self.world.resign(node),
            Fault::StopAndWindDown => {
                if self.winding_down.iter().any(|(n, _)| *n == node) {
                    return false;
                }
                let lease_ms = self.options.lease.as_millis() as u64;
                self.world.stop(node);
                self.winding_down.push((node, self.world.now_ms() + self.rng.u64(0..=2 * lease_ms)));
            }
            Fault::ClockForward => self.step(1),
            Fault::ClockBack => self.step(-1),
            _ => return self.happen_to_record(fault),
        }
        true
    }

    fn step(&mut self, sign: i64) {
        let lease_ms = self.options.lease.as_millis() as i64;
        let range = if self.rng.u8(0..4) == 0 { 86_400_000 } else { 2 * lease_ms };
        let by = sign * self.rng.i64(1..=range);
        self.world.step_clock(by);
    }

    fn happen_to_record(&mut self, fault: Fault) -> bool {
        if self.rng.bool() {
            self.old = self.world.store.snapshot(NAME);
        }
        match fault {
            Fault::FailOver if self.options.timelines => {
                self.timeline += 1;
                let timeline = self.timeline;
                self.world.say(|| format!("fail-over to timeline {timeline}, losing writes"));
                self.world.store.promote(timeline, std::slice::from_ref(&self.old));
            }
            Fault::RowDeleted | Fault::RowRestored => {
                // Who has not seen the row cannot know what is missing; that is outside of what can be promised.
                if !self.everybody_watches() {
                    return false;
                }
                self.world.oracle.fences_may_fall = true;
                if fault == Fault::RowDeleted {
                    self.world.say(|| "the row is deleted".to_owned());
                    return self.world.store.delete(NAME);
                }
                self.world.say(|| "an older row is restored".to_owned());
                self.world.store.restore(&self.old);
            }
            _ => return false,
        }
        true
    }

    /// Whether everybody runs, reaches the store, and has looked at the row as it is now; waits a little for it.
    fn everybody_watches(&mut self) -> bool {
        self.heal();
        self.thaw();
        self.world.everybody_wants();
        let bound = (self.options.retry + 2 * self.options.timeout).as_millis() as u64;
        self.world.run_until(bound, World::everybody_has_seen_the_row)
    }

    fn heal(&mut self) {
        self.world.down = false;
        self.world.resume();
        for node in 0..self.world.nodes.len() {
            if self.world.nodes[node].alive && self.world.nodes[node].link != Link::Up {
                self.world.link(node, Link::Up);
            }
        }
    }

    fn thaw(&mut self) {
        for node in 0..self.world.nodes.len() {
            self.world.thaw(node);
        }
    }

    /// Stopped participants whose work is done give their lease back and are followed by fresh ones.
    fn end_of_work(&mut self) {
        let now = self.world.now_ms();
        let (done, going_on) = self.winding_down.drain(..).partition(|(_, until)| *until <= now);
        self.winding_down = going_on;
        let done: Vec<(usize, u64)> = done;
        for (node, _) in done {
            if self.world.nodes[node].alive && self.world.nodes[node].frozen {
                self.winding_down.push((node, now));
                continue;
            }
            self.world.resign(node);
            self.join(self.world.observes(node));
        }
    }

    fn recover(&mut self) {
        self.heal();
        self.thaw();
        self.world.drop_late_requests();
        self.world.everybody_wants();
        self.world.patience_ms = None;
        let lease_ms = self.options.lease.as_millis() as u64;
        for (_, until) in &mut self.winding_down {
            *until = 0;
        }
        self.end_of_work();
        // One lease for whoever may have led, one for a fresh participant's own, and the polls between. Perhaps
        // only those are left who wait for longer.
        let polls = 4 * (self.options.retry + self.options.timeout);
        let bound = 2 * lease_ms + (polls + self.options.takeover_delay).as_millis() as u64;
        if !self.world.run_until(bound, |world| world.leader().is_some()) {
            self.world.violation(format!("nobody leads {bound} ms after the last fault"));
        }
        if self.world.events >= EVENT_LIMIT {
            self.world.violation("the participants never rest".to_owned());
        }
    }

    fn end(self) -> Outcome {
        let Schedule { options, world, mut statistics, .. } = self;
        statistics.terms = world.oracle.terms;
        statistics.take_overs = world.oracle.take_overs;
        statistics.checks = world.oracle.checks;
        statistics.looks_of_observers = world.oracle.looks_of_observers;
        statistics.terms_after_a_delay = world.oracle.terms_after_a_delay;
        statistics.withdrawals = world.oracle.withdrawals;
        statistics.events = world.events;
        statistics.virtual_time = std::time::Duration::from_millis(world.now_ms());
        let violations = world.oracle.violations.clone();
        Outcome { options, violations, statistics, transcript: world.transcript() }
    }
}
