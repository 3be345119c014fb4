//! Small worlds, all of them: two or three participants, a few events, and at each of these events everything that
//! can go wrong there.
//!
//! Nothing is random. A world asks a [`Choices`] at each point what happens next, and is run again from the
//! beginning until every combination of answers has been given. Two kinds of questions are asked:
//!
//! - *Which event comes first* of those that are due within a short window: every order of requests, answers and
//!   wake-ups that are under way at the same time.
//! - *What goes wrong at this event*: nothing, or one of a menu. A fault is offered where it first makes a
//!   difference: a frozen participant at its next event, a step of the database's clock at the next request that
//!   reaches it. So every moment for it is covered by finitely many points.
//!
//! Each world is bounded by the number of points at which questions are asked and by the number of faults in it.
//! After the last point everything heals, the world goes on until whoever led before must have ended, and somebody
//! must lead. `TENURE_FAULTS=3` tries one fault more than the ordinary run: a million worlds, in a minute with
//! `--release`.

#![allow(clippy::print_stdout, reason = "how much was tried is a part of the result")]

use std::time::Duration;

use crate::config::Config;
use crate::election::Settings;
use crate::store::RowSnapshot;

use super::choices::Choices;
use super::faults::Prepare;
use super::node::Link;
use super::world::{Event, MS, NAME, World};

const LEASE_MS: u64 = 3_000;
const TIMEOUT_MS: u64 = 500;
const RETRY_MS: u64 = 800;
/// No world leads to more points than it has events; this stops one that goes round in circles.
const EVENT_LIMIT: u64 = 5_000;

/// What can go wrong at an event; times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// At a request: it has its effect, but the answer is lost, late, or the request comes again later.
    ReplyLost,
    ReplySlow(u64),
    Late(u64),
    Twice(u64),
    /// At a request: the database's clock steps before it, a fail-over loses the last write, the row is
    /// deleted, the row goes back by one write.
    Step(i64),
    FailOver,
    Delete,
    Restore,
    /// At a wake-up or an answer: the process stands still for so long, is gone, is gone and followed by a fresh one,
    /// is cut off for so long, resigns.
    Freeze(u64),
    Crash,
    Restart,
    Cut(u64),
    Resign,
}

impl Fault {
    fn fits(self, event: &Event, world: &World) -> bool {
        let at_request = matches!(event, Event::Arrive { back: Some(_), .. });
        match self {
            Fault::ReplyLost
            | Fault::ReplySlow(_)
            | Fault::Late(_)
            | Fault::Twice(_)
            | Fault::Step(_)
            | Fault::FailOver => at_request,
            // Who has not seen the row cannot know what is missing.
            Fault::Delete | Fault::Restore => at_request && world.everybody_has_seen_the_row(),
            Fault::Freeze(_) => matches!(event, Event::Wake { .. } | Event::Answer { .. }),
            Fault::Crash | Fault::Restart | Fault::Cut(_) => matches!(event, Event::Wake { .. }),
            Fault::Resign => {
                matches!(event, Event::Wake { node, .. } | Event::Answer { node, .. } if world.leads(*node))
            }
        }
    }
}

/// A family of worlds.
pub(super) struct Small {
    pub(super) name: &'static str,
    pub(super) participants: usize,
    /// How many events are points at which something is chosen.
    pub(super) points: usize,
    pub(super) faults: usize,
    /// Events due within so many milliseconds come in every order.
    pub(super) window_ms: u64,
    pub(super) strict: bool,
    pub(super) margin_ms: u64,
    /// How long everybody but the first leaves a free lease to others.
    pub(super) delay_ms: u64,
    /// So long everything goes well before the first point.
    pub(super) begin_ms: u64,
    pub(super) menu: &'static [Fault],
}

pub(super) const LONG: u64 = LEASE_MS + 300;

impl Small {
    /// Everybody starts at the same time, on an empty table.
    pub(super) const START: Small = Small {
        name: "two start at once",
        participants: 2,
        points: 14,
        faults: 2,
        window_ms: 3,
        strict: true,
        margin_ms: LEASE_MS / 20,
        delay_ms: 0,
        begin_ms: 0,
        menu: &[Fault::ReplyLost, Fault::Late(LONG), Fault::Step(4_000), Fault::Freeze(LONG), Fault::Crash],
    };
    const START_OF_THREE: Small =
        Small { name: "three start at once", participants: 3, points: 13, faults: 1, ..Small::START };
    /// A leader and a candidate that watches it.
    pub(super) const WATCHED: Small = Small {
        name: "a leader, watched",
        participants: 2,
        points: 40,
        faults: 2,
        window_ms: 0,
        strict: false,
        margin_ms: LEASE_MS / 20,
        delay_ms: 0,
        begin_ms: 1_500,
        menu: &[
            Fault::ReplyLost,
            Fault::ReplySlow(TIMEOUT_MS - 10),
            Fault::Late(TIMEOUT_MS + 10),
            Fault::Twice(LONG),
            Fault::Step(4_000),
            Fault::Step(-4_000),
            Fault::Freeze(LONG),
            Fault::Cut(LONG),
            Fault::Resign,
        ],
    };
    /// A leader, and a candidate that lets it go first: the menu of the watched one.
    const PREFERRED: Small =
        Small { name: "a preferred leader", points: 26, delay_ms: 700, ..Small::WATCHED };
    /// Three, and the record itself is not safe.
    pub(super) const RECORD: Small = Small {
        name: "three, and the record is lost",
        participants: 3,
        points: 60,
        faults: 2,
        menu: &[
            Fault::FailOver,
            Fault::Delete,
            Fault::Restore,
            Fault::Freeze(LONG),
            Fault::Cut(LONG),
            Fault::ReplyLost,
        ],
        ..Small::WATCHED
    };

    /// Processes that come and go, and a clock that steps: under `Strict`.
    const RESTARTS: Small = Small {
        name: "restarts",
        participants: 2,
        points: 30,
        strict: true,
        menu: &[
            Fault::Restart,
            Fault::ReplyLost,
            Fault::Late(LONG),
            Fault::Step(4_000),
            Fault::Step(-4_000),
            Fault::Freeze(LONG),
            Fault::Cut(LONG),
        ],
        ..Small::WATCHED
    };

    fn settings(&self, node: usize) -> Settings {
        Settings {
            identity: format!("n{node}"),
            lease_duration: Duration::from_millis(LEASE_MS),
            renew_interval: Duration::from_millis(1_000),
            retry_period: Duration::from_millis(RETRY_MS),
            retry_delay: Duration::from_millis(250),
            takeover_delay: Duration::from_millis(if node == 0 { 0 } else { self.delay_ms }),
            safety_margin: Duration::from_millis(self.margin_ms),
            longest_lease: Config::MAX_LEASE_DURATION,
            min_fence: 0,
            strict: self.strict,
            release_on_exit: true,
            observer: false,
        }
    }
}

/// One world on its way.
struct Run<'a> {
    small: &'a Small,
    prepare: Prepare<'a>,
    world: World,
    faults_left: usize,
    timeline: u32,
    /// The row before the last write.
    older: RowSnapshot,
    newest: RowSnapshot,
    /// What heals by itself, and when: a frozen participant, or one that is cut off.
    healing: Vec<(u64, usize)>,
}

impl Run<'_> {
    fn new<'a>(small: &'a Small, prepare: Prepare<'a>, with_transcript: bool) -> Run<'a> {
        let world = World::new(1, with_transcript);
        let row = world.store.snapshot(NAME);
        let mut run = Run {
            small,
            prepare,
            world,
            faults_left: small.faults,
            timeline: 1,
            older: row.clone(),
            newest: row,
            healing: Vec::new(),
        };
        run.world.latency_ms = 1;
        run.world.store.set_timeline(Some(1));
        for _ in 0..small.participants {
            run.join();
        }
        run.world.run_for(small.begin_ms);
        run.newest = run.world.store.snapshot(NAME);
        run.older = run.newest.clone();
        run
    }

    fn join(&mut self) {
        let settings = self.small.settings(self.world.nodes.len());
        let node = self.world.add(settings, Duration::from_millis(TIMEOUT_MS));
        // The first is slow and believes in its term for longer; the others are fast and wait less.
        self.world.nodes[node].drift_ppm = if node == 0 { -11_000 } else { 11_000 };
        (self.prepare)(&mut self.world, node);
        self.world.campaign(node);
    }

    fn run(mut self, choices: &mut Choices) -> World {
        let mut points = 0;
        while points < self.small.points && self.world.events < EVENT_LIMIT {
            let Some((at, event)) = self.choose_event(choices) else { break };
            self.heal_until(at);
            if self.world.matters(&event) {
                points += 1;
                self.at_point(choices, at, event);
            } else {
                self.world.deliver(at, event);
            }
            let row = self.world.store.snapshot(NAME);
            if row != self.newest {
                self.older = std::mem::replace(&mut self.newest, row);
            }
        }
        self.recover();
        self.world
    }

    /// The next event, or one that is due so soon after it that it may as well come first.
    fn choose_event(&mut self, choices: &mut Choices) -> Option<(u64, Event)> {
        let first = self.world.take_next()?;
        if self.small.window_ms == 0 || !self.world.matters(&first.1) {
            return Some(first);
        }
        let until = first.0 + self.small.window_ms * MS;
        let mut due = vec![first];
        while let Some((at, event)) = self.world.take_next() {
            if at > until {
                self.world.at(at, event);
                break;
            }
            if self.world.matters(&event) {
                due.push((at, event));
            } else {
                self.world.at(at, event);
                break;
            }
        }
        let chosen = due.remove(if due.len() > 1 { choices.choose(due.len()) } else { 0 });
        for (at, event) in due {
            self.world.at(at, event);
        }
        Some(chosen)
    }

    fn at_point(&mut self, choices: &mut Choices, at: u64, event: Event) {
        let menu: Vec<Fault> = match self.faults_left {
            0 => Vec::new(),
            _ => self.small.menu.iter().copied().filter(|f| f.fits(&event, &self.world)).collect(),
        };
        match choices.choose(menu.len() + 1) {
            0 => self.world.deliver(at, event),
            chosen => {
                self.faults_left -= 1;
                self.world.advance(at);
                self.world.say(|| format!("{:?} at {event:?}", menu[chosen - 1]));
                self.go_wrong(menu[chosen - 1], at, event);
            }
        }
    }

    fn go_wrong(&mut self, fault: Fault, at: u64, mut event: Event) {
        let now = self.world.now();
        match (fault, &mut event) {
            (Fault::ReplyLost, Event::Arrive { back, .. }) => *back = None,
            (Fault::ReplySlow(ms), Event::Arrive { back, .. }) => *back = Some(ms),
            (Fault::Late(ms), Event::Arrive { back, .. }) => {
                *back = None;
                return self.world.at(now + ms * MS, event);
            }
            (Fault::Twice(ms), Event::Arrive { node, call, serial, settings, .. }) => {
                let again = Event::Arrive {
                    node: *node,
                    call: call.clone(),
                    serial: *serial,
                    settings: settings.clone(),
                    back: None,
                };
                self.world.at(now + ms * MS, again);
            }
            (Fault::Step(ms), _) => self.world.step_clock(ms),
            (Fault::FailOver, _) => {
                self.timeline += 1;
                self.world.store.promote(self.timeline, std::slice::from_ref(&self.older));
            }
            (Fault::Restore, _) => {
                self.world.oracle.fences_may_fall = true;
                self.world.store.restore(&self.older);
            }
            (Fault::Delete, _) => {
                self.world.oracle.fences_may_fall = true;
                self.world.store.delete(NAME);
            }
            (_, Event::Wake { node, .. } | Event::Answer { node, .. }) => {
                let node = *node;
                self.go_wrong_with(fault, node);
            }
            _ => {}
        }
        self.world.deliver(at, event);
    }

    fn go_wrong_with(&mut self, fault: Fault, node: usize) {
        let now = self.world.now();
        match fault {
            Fault::Freeze(ms) => {
                self.world.freeze(node);
                self.healing.push((now + ms * MS, node));
            }
            Fault::Cut(ms) => {
                self.world.link(node, Link::Cut);
                self.healing.push((now + ms * MS, node));
            }
            Fault::Crash => self.world.crash(node),
            Fault::Restart => {
                self.world.crash(node);
                self.join();
            }
            Fault::Resign => drop(self.world.resign(node)),
            _ => {}
        }
    }

    fn heal_until(&mut self, at: u64) {
        while let Some(index) = self.healing.iter().position(|(when, _)| *when <= at) {
            let (when, node) = self.healing.remove(index);
            self.world.advance(when);
            self.world.link(node, Link::Up);
            self.world.thaw(node);
        }
    }

    /// Everything heals in its time; then somebody must lead.
    fn recover(&mut self) {
        let lease_later = self.world.now_ms() + LEASE_MS;
        while let Some(when) = self.healing.iter().map(|(when, _)| *when).min() {
            self.world.run_for((when / MS + 1).saturating_sub(self.world.now_ms()));
            self.heal_until(when);
        }
        self.world.run_for(lease_later.saturating_sub(self.world.now_ms()));
        let bound = 2 * LEASE_MS + 4 * (RETRY_MS + TIMEOUT_MS) + self.small.delay_ms;
        let alive = self.world.nodes.iter().any(|n| n.alive);
        if alive && !self.world.run_until(bound, |world| world.leader().is_some()) {
            self.world.violation(format!("nobody leads {bound} ms after the last fault"));
        }
    }
}

/// What all worlds of a family came to.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) worlds: u64,
    pub(super) terms: u64,
    pub(super) take_overs: u64,
    pub(super) broken: Option<Broken>,
}

/// The first world that broke the promise.
#[derive(Debug)]
pub(super) struct Broken {
    /// How many were run up to it.
    pub(super) number: u64,
    pub(super) violations: Vec<String>,
    pub(super) choices: Choices,
}

/// Runs all worlds of a family, or up to the first that breaks the promise.
pub(super) fn explore(small: &Small, prepare: Prepare<'_>) -> Sum {
    let (mut choices, mut sum) = (Choices::default(), Sum::default());
    loop {
        let world = Run::new(small, prepare, false).run(&mut choices);
        sum.worlds += 1;
        sum.terms += world.oracle.terms;
        sum.take_overs += world.oracle.take_overs;
        if !world.oracle.violations.is_empty() {
            let violations = world.oracle.violations.clone();
            sum.broken = Some(Broken { number: sum.worlds, violations, choices });
            return sum;
        }
        if !choices.next() {
            return sum;
        }
    }
}

/// The transcript of one world.
fn story(small: &Small, prepare: Prepare<'_>, mut choices: Choices) -> String {
    choices.again();
    Run::new(small, prepare, true).run(&mut choices).story()
}

fn all_must_be_safe(small: Small, at_least: u64) {
    let more = std::env::var("TENURE_FAULTS").ok().and_then(|value| value.parse().ok());
    let small = Small { faults: more.unwrap_or(small.faults).max(small.faults), ..small };
    let begun = std::time::Instant::now();
    let sum = explore(&small, &|_, _| {});
    let Sum { worlds, terms, take_overs, broken } = sum;
    if let Some(Broken { number, violations, choices }) = broken {
        panic!("{}: world {number}: {violations:?}\n{}", small.name, story(&small, &|_, _| {}, choices));
    }
    println!(
        "{}: {worlds} worlds of up to {} faults at {} points, {terms} terms, {take_overs} take-overs, {:.1?}",
        small.name,
        small.faults,
        small.points,
        begun.elapsed()
    );
    assert!(worlds >= at_least, "only {worlds} worlds: the family has shrunk");
    assert!(terms * 10 >= worlds * 9, "too few terms: {terms}");
    assert!(take_overs * 10 >= worlds || small.begin_ms == 0, "too few take-overs: {take_overs}");
}

#[test]
fn every_start_of_two() {
    all_must_be_safe(Small::START, 10_000);
}

#[test]
fn every_order_of_three_that_start() {
    all_must_be_safe(Small::START_OF_THREE, 8_000);
}

#[test]
fn everything_that_can_happen_to_a_watched_leader() {
    all_must_be_safe(Small::WATCHED, 8_000);
}

#[test]
fn everything_that_can_happen_to_a_preferred_leader() {
    all_must_be_safe(Small::PREFERRED, 2_000);
}

#[test]
fn everything_that_can_happen_around_restarts() {
    all_must_be_safe(Small::RESTARTS, 3_000);
}

#[test]
fn everything_that_can_happen_to_the_record() {
    all_must_be_safe(Small::RECORD, 6_000);
}
