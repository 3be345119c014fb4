//! The world, what can happen in it, and what must never be seen.

use stateright::Property;

use crate::Ticks;
use crate::database::{Database, Statement};
use crate::memory::{Premise, Views};
use crate::participant::{Call, Participant};
use crate::rules::Rules;

/// How much can happen in one model. Everything within is explored.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// 2 or 3.
    pub participants: u8,
    /// Everybody's lease duration.
    pub lease: Ticks,
    /// After so many terms nobody bids any more. Time itself has no end.
    pub terms: u8,
    /// Reads are answered in the same step.
    pub instant_reads: bool,
    /// How many statements may land after their sender gave up.
    pub late: u8,
    /// How many terms may be given up on purpose.
    pub resigns: u8,
    /// How many ticks a participant's clock may gain or lose, all together.
    pub drift: u8,
    /// Each of these steps of the database's clock may happen, `step_count` in all.
    pub steps: &'static [Ticks],
    /// How many steps of the database's clock there may be.
    pub step_count: u8,
    /// How often the row may be deleted or restored on one timeline.
    pub rollbacks: u8,
    /// Only while everybody has seen the row as it is now, and not just some row.
    pub rollbacks_watched: bool,
    /// The server may be promoted to these timelines, one after the other, losing what the standby lacks.
    pub timelines: &'static [u8],
    /// How many participants may be replaced by fresh ones.
    pub restarts: u8,
}

impl Bounds {
    /// Two participants, no faults but lost messages and freezes.
    pub const CALM: Bounds = Bounds {
        participants: 2,
        lease: 3,
        terms: 3,
        instant_reads: true,
        late: 0,
        resigns: 0,
        drift: 0,
        steps: &[],
        step_count: 0,
        rollbacks: 0,
        rollbacks_watched: false,
        timelines: &[],
        restarts: 0,
    };
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) db: Database,
    pub(crate) participants: Vec<Participant>,
    /// The identity of the first leader; 0 before.
    pub(crate) first_leader: u8,
    pub(crate) revived: bool,
    pub(crate) left: Left,
}

/// What may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    late: u8,
    resigns: u8,
    drift: u8,
    steps: u8,
    rollbacks: u8,
    promotions: u8,
    restarts: u8,
    keeps: u8,
}

/// What can happen next. The number is the participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names and the module say it")]
pub enum Action {
    Tick,
    /// Time passes, except on this participant's clock.
    TickSlow(usize),
    /// Time passes, on this participant's clock twice.
    TickFast(usize),
    Look(usize),
    Bid(usize),
    Renew(usize),
    Resign(usize),
    Arrive(usize),
    Answer(usize),
    /// The request is lost, or its answer.
    Lose(usize),
    /// The sender gives up, and the request may land at any time.
    GiveUp(usize),
    ArriveLate(usize),
    StepClock(Ticks),
    Keep,
    Delete,
    Restore,
    FailOver,
    Restart(usize),
}

/// Rules within bounds.
#[derive(Clone, Debug)]
pub struct Model {
    /// The rules.
    pub rules: Rules,
    /// The bounds.
    pub bounds: Bounds,
}

impl World {
    pub(crate) fn leads(&self, who: usize) -> bool {
        self.participants[who].term.is_some()
    }

    /// Marks are only compared for equality, so what they are called makes no state another one.
    fn renumber(&mut self) {
        let World { db, participants, .. } = self;
        let mut marks: Vec<&mut u8> =
            db.marks().chain(participants.iter_mut().flat_map(Participant::marks)).collect();
        marks.sort();
        let (mut last, mut number) = (0, 0);
        for mark in marks {
            if *mark != last {
                (last, number) = (*mark, number + 1);
            }
            *mark = number;
        }
    }

    /// How many participants consider themselves leader.
    pub fn leaders(&self) -> usize {
        (0..self.participants.len()).filter(|who| self.leads(*who)).count()
    }

    /// Whether somebody leads who wasn't the first.
    pub fn taken_over(&self) -> bool {
        let others = |who: &usize| self.participants[*who].identity != self.first_leader;
        (0..self.participants.len()).any(|who| others(&who) && self.leads(who))
    }
}

impl Model {
    pub(crate) fn world(&self) -> World {
        let Bounds { participants, late, resigns, drift, step_count, rollbacks, restarts, .. } = self.bounds;
        let identity = |who| if self.rules.unique_identities { who + 1 } else { 1 };
        let promotions = self.bounds.timelines.len() as u8;
        World {
            db: Database::default(),
            participants: (0..participants).map(|who| Participant::new(identity(who))).collect(),
            first_leader: 0,
            revived: false,
            left: Left {
                late,
                resigns,
                drift,
                steps: step_count,
                rollbacks,
                promotions,
                restarts,
                keeps: u8::from(rollbacks + promotions > 0),
            },
        }
    }

    fn views(&self, identity: u8) -> Views<'_> {
        Views { rules: &self.rules, identity, lease: self.bounds.lease }
    }

    /// What can happen to time and the database.
    fn database_actions(&self, world: &World, actions: &mut Vec<Action>) {
        let left = &world.left;
        actions.push(Action::Tick);
        if left.drift > 0 {
            for who in 0..world.participants.len() {
                actions.extend([Action::TickSlow(who), Action::TickFast(who)]);
            }
        }
        if left.steps > 0 {
            actions.extend(self.bounds.steps.iter().map(|by| Action::StepClock(*by)));
        }
        if left.keeps > 0 && world.db.row.is_some() {
            actions.push(Action::Keep);
        }
        // Whoever has never seen a row can't know that one is missing; that is outside of what can be promised.
        let current = |p: &Participant| world.db.row.is_some_and(|row| p.memory.premise == Premise::Row(row));
        let watched = world
            .participants
            .iter()
            .all(|p| p.memory.row_seen && (!self.bounds.rollbacks_watched || current(p)));
        if left.rollbacks > 0 && watched && world.db.row.is_some() {
            actions.push(Action::Delete);
            if world.db.kept.0.is_some() {
                actions.push(Action::Restore);
            }
        }
        let nobody_new = world.participants.iter().all(|p| p.memory.timeline.is_some());
        if left.promotions > 0 && (nobody_new || world.db.kept.0.is_some()) {
            actions.push(Action::FailOver);
        }
    }

    fn participant_actions(&self, world: &World, who: usize, actions: &mut Vec<Action>) {
        let p = &world.participants[who];
        let left = &world.left;
        match p.call {
            None if p.term.is_some() => {
                if !p.wrote {
                    actions.push(Action::Renew(who));
                }
            }
            None => {
                actions.push(Action::Look(who));
                if !p.wrote && world.db.grants < self.bounds.terms && p.memory.may_bid() {
                    actions.push(Action::Bid(who));
                }
            }
            Some(Call::Sent { .. }) => {
                actions.extend([Action::Arrive(who), Action::Lose(who)]);
                if left.late > 0 && p.late.is_none() {
                    actions.push(Action::GiveUp(who));
                }
            }
            Some(_) => actions.extend([Action::Answer(who), Action::Lose(who)]),
        }
        if p.late.is_some() {
            actions.push(Action::ArriveLate(who));
        }
        if left.resigns > 0 && p.term.is_some() && p.call.is_none() && p.late.is_none() {
            actions.push(Action::Resign(who));
        }
        if left.restarts > 0 && p.memory.timeline.is_some() {
            actions.push(Action::Restart(who));
        }
    }

    /// Whether the action is possible.
    pub(crate) fn enabled(&self, world: &World, action: Action) -> bool {
        let mut actions = Vec::new();
        stateright::Model::actions(self, world, &mut actions);
        actions.contains(&action)
    }

    pub(crate) fn happen(&self, world: &mut World, action: Action) {
        match action {
            Action::Tick => self.tick(world, None),
            Action::TickSlow(who) => self.tick(world, Some((who, -1))),
            Action::TickFast(who) => self.tick(world, Some((who, 1))),
            Action::StepClock(by) => {
                world.left.steps -= 1;
                self.pass(world, by, |_| 0);
            }
            Action::Keep => {
                world.left.keeps -= 1;
                world.db.keep();
            }
            Action::Delete | Action::Restore => {
                world.left.rollbacks -= 1;
                if action == Action::Delete { world.db.delete() } else { world.db.restore() }
            }
            Action::FailOver => {
                let next = self.bounds.timelines.len() - usize::from(world.left.promotions);
                world.left.promotions -= 1;
                world.db.fail_over(self.bounds.timelines[next]);
            }
            Action::Arrive(who) | Action::ArriveLate(who) => self.arrive(world, who, action),
            Action::Restart(who) => {
                world.left.restarts -= 1;
                let fresh = if self.rules.unique_identities {
                    self.bounds.participants + self.bounds.restarts - world.left.restarts
                } else {
                    world.participants[who].identity
                };
                // What it sent may still be on its way, from a sender of another name; that is left out.
                world.participants[who] = Participant::new(fresh);
            }
            _ => self.act(world, action),
        }
    }

    fn tick(&self, world: &mut World, drift: Option<(usize, Ticks)>) {
        world.left.drift -= u8::from(drift.is_some());
        self.pass(world, 1, |who| 1 + drift.filter(|(drifts, _)| *drifts == who).map_or(0, |(_, by)| by));
        for p in &mut world.participants {
            p.wrote = false;
        }
    }

    /// Time passes: so much on the database's clock, and so much on each participant's.
    fn pass(&self, world: &mut World, database: Ticks, own: impl Fn(usize) -> Ticks) {
        let step = self.bounds.steps.iter().map(|step| step.abs()).max().unwrap_or(0);
        let oldest = -(self.bounds.lease + step);
        world.db.shift(database, oldest);
        for (who, p) in world.participants.iter_mut().enumerate() {
            p.shift(own(who), database, oldest);
        }
    }

    fn arrive(&self, world: &mut World, who: usize, action: Action) {
        let lease = self.bounds.lease;
        let p = &mut world.participants[who];
        if action == Action::Arrive(who) {
            if let Some(Call::Sent { what, at }) = p.call {
                let wrote = world.db.carry_out(&self.rules, lease, p.identity, what);
                p.call = Some(Call::Answered { what, at, wrote, timeline: world.db.timeline });
            }
        } else if let Some(what) = p.late.take() {
            world.db.carry_out(&self.rules, lease, p.identity, what);
        }
    }

    /// What participants do.
    fn act(&self, world: &mut World, action: Action) {
        let (Action::Look(who)
        | Action::Bid(who)
        | Action::Renew(who)
        | Action::Resign(who)
        | Action::Answer(who)
        | Action::Lose(who)
        | Action::GiveUp(who)) = action
        else {
            return;
        };
        let p = &mut world.participants[who];
        let views = self.views(p.identity);
        p.wrote |= matches!(action, Action::Bid(_) | Action::Renew(_));
        match action {
            Action::Look(_) => {
                p.call = Some(Call::Looked(world.db.observe()));
                if self.bounds.instant_reads {
                    p.answer(views);
                }
            }
            Action::Bid(_) => {
                let over = if let Premise::Row(row) = p.memory.premise { Some(row) } else { None };
                let timeline = p.memory.timeline.unwrap_or(0);
                let what = Statement::Acquire { over, timeline, above: p.memory.highest };
                p.memory.bid_sent(views);
                p.call = Some(Call::Sent { what, at: 0 });
            }
            Action::Renew(_) => {
                let Some(term) = p.term else { return };
                p.memory.renewal_sent(views);
                p.call = Some(Call::Sent { what: Statement::Renew { fence: term.fence }, at: 0 });
            }
            Action::Resign(_) => {
                world.left.resigns -= 1;
                p.late = p.term.map(|term| Statement::Release { fence: term.fence });
                p.term = None;
            }
            Action::GiveUp(_) => {
                world.left.late -= 1;
                if let Some(Call::Sent { what, .. }) = p.call.take() {
                    p.late = Some(what);
                }
            }
            Action::Lose(_) => p.call = None,
            _ => {
                world.revived |= p.answer(views);
                if world.first_leader == 0 && p.term.is_some() {
                    world.first_leader = p.identity;
                }
            }
        }
        world.participants[who].memory.settle();
    }
}

impl stateright::Model for Model {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.world()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        self.database_actions(world, actions);
        for who in 0..world.participants.len() {
            self.participant_actions(world, who, actions);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.happen(&mut next, action);
        next.renumber();
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Model>> {
        vec![
            Property::always("at most one leader", |_, world: &World| world.leaders() <= 1),
            Property::always("fences rise", |_, world: &World| !world.db.fence_fell),
            Property::always("lost is final", |_, world: &World| !world.revived),
            Property::sometimes("somebody leads", |_, world: &World| world.leaders() > 0),
            Property::sometimes("somebody takes over", |_, world: &World| world.taken_over()),
        ]
    }
}
