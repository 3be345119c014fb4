//! One path through the model, step by step.

use crate::Ticks;
use crate::model::{Action, Bounds, Model, World};
use crate::rules::Rules;

/// A world that a test drives. Every step has to be possible; two leaders at any instant are remembered.
#[derive(Debug)]
pub struct Script {
    model: Model,
    world: World,
    now: Ticks,
    twice: bool,
}

impl Script {
    /// A new world.
    pub fn new(rules: Rules, bounds: Bounds) -> Script {
        let model = Model { rules, bounds };
        let world = model.world();
        Script { model, world, now: 0, twice: false }
    }

    /// Something happens.
    ///
    /// # Panics
    /// If it is not possible.
    #[track_caller]
    pub fn happen(&mut self, action: Action) {
        assert!(self.model.enabled(&self.world, action), "{action:?} is not possible in {:#?}", self.world);
        self.model.happen(&mut self.world, action);
        self.now += Ticks::from(matches!(action, Action::Tick | Action::TickSlow(_) | Action::TickFast(_)));
        self.twice |= self.world.leaders() > 1;
    }

    /// Time passes until then.
    #[track_caller]
    pub fn until(&mut self, then: Ticks) {
        while self.now < then {
            self.happen(Action::Tick);
        }
    }

    /// Looks and gets the answer.
    #[track_caller]
    pub fn look(&mut self, who: usize) {
        self.happen(Action::Look(who));
        if !self.model.bounds.instant_reads {
            self.happen(Action::Answer(who));
        }
    }

    /// Bids, if the rules allow it now, and gets the answer. Whether the participant leads.
    #[track_caller]
    pub fn bid(&mut self, who: usize) -> bool {
        if self.model.enabled(&self.world, Action::Bid(who)) {
            for action in [Action::Bid(who), Action::Arrive(who), Action::Answer(who)] {
                self.happen(action);
            }
        }
        self.world.leads(who)
    }

    /// Looks and bids until the participant leads, once a tick, `ticks` at most.
    #[track_caller]
    pub fn campaign(&mut self, who: usize, ticks: Ticks) -> bool {
        for _ in 0..ticks {
            self.look(who);
            if self.bid(who) {
                return true;
            }
            self.happen(Action::Tick);
        }
        false
    }

    /// Renews and gets the answer.
    #[track_caller]
    pub fn renew(&mut self, who: usize) {
        for action in [Action::Renew(who), Action::Arrive(who), Action::Answer(who)] {
            self.happen(action);
        }
    }

    /// Whether the participant considers itself leader.
    pub fn leads(&self, who: usize) -> bool {
        self.world.leads(who)
    }

    /// Whether two led at one instant, so far.
    pub fn two_led(&self) -> bool {
        self.twice
    }
}
