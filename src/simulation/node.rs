//! A participant in the world: the real election machine and the real term, with a process around them that can
//! be frozen, crash, or lose its way to the store.

use std::sync::Arc;
use std::time::Duration;

use crate::election::{Call, Election, Input, Settings, TermChange, Trouble};
use crate::lease::{Lease, Observation};
use crate::store::Store;
use crate::term::LossCause;
use crate::time::Time;

use super::parts::{LiveTerm, Parts};
use super::world::{Event, MS, NAME, World};

/// What happens to a participant's next requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    /// Nothing gets through.
    Cut,
    /// Requests arrive, replies are lost.
    RepliesLost,
    /// Requests arrive at once, their replies so many milliseconds later.
    Slow(u64),
    /// Requests arrive so many milliseconds late, long after the caller has given up.
    Late(u64),
    /// Requests arrive twice, the second time so many milliseconds late.
    Twice(u64),
    /// Requests are kept until the pooler goes on.
    Held,
}

/// An answer on its way.
#[derive(Debug)]
pub(super) enum Answer {
    Observed(Observation),
    Acquired(Option<Lease>),
    Renewed(Option<Lease>),
    Released,
    Failed(Call),
}

impl Answer {
    pub(super) fn into_input(self) -> Input {
        match self {
            Answer::Observed(seen) => Input::Observed(Ok(seen)),
            Answer::Acquired(lease) => Input::Acquired(Ok(lease)),
            Answer::Renewed(lease) => Input::Renewed(Ok(lease)),
            Answer::Released | Answer::Failed(Call::Release { .. }) => Input::Released,
            Answer::Failed(Call::Observe) => Input::Observed(Err(Trouble::Error)),
            Answer::Failed(Call::Acquire { .. }) => Input::Acquired(Err(Trouble::Error)),
            Answer::Failed(Call::Renew { .. }) => Input::Renewed(Err(Trouble::Error)),
        }
    }
}

/// What a node was made with.
#[derive(Clone, Debug)]
pub(super) struct Make {
    pub(super) settings: Arc<Settings>,
    timeout: Duration,
}

impl Make {
    pub(super) fn operation_timeout(&self) -> Duration {
        self.timeout
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) election: Election,
    pub(super) settings: Make,
    pub(crate) link: Link,
    pub(crate) parts: Parts,
    pub(crate) term: Option<Arc<dyn LiveTerm>>,
    /// Its worker was told that this term is over.
    told_lost: bool,
    /// Parts per million by which its clock runs fast.
    pub(crate) drift_ppm: i64,
    pub(crate) frozen: bool,
    pub(crate) alive: bool,
    pub(super) wake_serial: u64,
    pub(super) call_serial: u64,
    pub(super) want_serial: u64,
    /// The call whose answer it still waits for.
    pub(super) waits_for: Option<u64>,
    /// When it made its last call, by its own clock.
    pub(super) sent_at: Time,
    /// What happened to it while it was frozen.
    pub(super) backlog: Vec<Event>,
}

impl World {
    pub(crate) fn add(&mut self, settings: Settings, timeout: Duration) -> usize {
        self.nodes.push(Node {
            election: Election::new(settings.clone()),
            settings: Make { settings: Arc::new(settings), timeout },
            link: Link::Up,
            parts: Parts::default(),
            term: None,
            told_lost: false,
            drift_ppm: 0,
            frozen: false,
            alive: true,
            wake_serial: 0,
            call_serial: 0,
            want_serial: 0,
            waits_for: None,
            sent_at: Time::ZERO,
            backlog: Vec::new(),
        });
        self.nodes.len() - 1
    }

    /// Somebody in the participant's process wants to lead from now on.
    pub(crate) fn campaign(&mut self, node: usize) {
        self.want(node, true);
    }

    /// Somebody wants to lead from now on, or nobody any more; for good, or until patience ends.
    pub(super) fn want(&mut self, node: usize, wants: bool) {
        let patience = self.patience_ms.filter(|_| !self.observes(node));
        if !wants {
            self.oracle.withdrawals += 1;
        }
        self.input(node, if wants { Input::Campaign } else { Input::Withdraw });
        if let Some(patience) = patience {
            let longest = if wants { 4 * patience } else { patience };
            let after = self.rng.u64(1..=longest);
            self.want_later(node, !wants, after);
        }
    }

    fn want_later(&mut self, node: usize, wants: bool, after_ms: u64) {
        self.nodes[node].want_serial += 1;
        let serial = self.nodes[node].want_serial;
        self.at(self.now() + after_ms * MS, Event::Want { node, wants, serial });
    }

    /// Somebody in each process wants to lead, as is so anyway where nobody ever gives up.
    pub(super) fn everybody_wants(&mut self) {
        if self.patience_ms.is_none() {
            return;
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].alive {
                self.nodes[node].want_serial += 1;
                self.want(node, true);
            }
        }
    }

    /// Whether the participant only watches.
    pub(super) fn observes(&self, node: usize) -> bool {
        self.nodes[node].settings.settings.observer
    }

    /// Whether the participant's term is live by its own clock. Looking does not end it.
    pub(crate) fn leads(&self, node: usize) -> bool {
        let now = self.local(node);
        self.nodes[node].term.as_ref().is_some_and(|term| term.is_live_at(now))
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|n| self.leads(*n))
    }

    pub(crate) fn link(&mut self, node: usize, link: Link) {
        self.say(|| format!("link of {node}: {link:?}"));
        self.nodes[node].link = link;
    }

    /// Whether everybody's last look, or own write, was at the row as it is now.
    pub(crate) fn everybody_has_seen_the_row(&self) -> bool {
        let Ok(now) = self.store.observe(NAME, Duration::from_secs(1)) else { return false };
        let now = now.lease().map(Lease::version);
        self.nodes.iter().filter(|n| n.alive).all(|n| n.election.premise() == now)
    }

    /// The process is gone, its term with it; its requests may still be on their way.
    pub(crate) fn crash(&mut self, node: usize) {
        self.say(|| format!("crash {node}"));
        let n = &mut self.nodes[node];
        n.alive = false;
        n.term = None;
        n.waits_for = None;
        n.backlog.clear();
    }

    fn runs(&self, node: usize) -> bool {
        self.nodes[node].alive && !self.nodes[node].frozen
    }

    /// Gives the term up on purpose, if there is one. Says whether there was.
    pub(crate) fn resign(&mut self, node: usize) -> bool {
        let Some(term) = self.nodes[node].term.clone().filter(|_| self.runs(node)) else { return false };
        let now = self.local(node);
        let ended = term.seal(now, LossCause::Resigned);
        let release = !matches!(ended, Err(LossCause::Expired | LossCause::Superseded));
        self.say(|| format!("{node} gives fence {} back, released: {release}", term.fence()));
        self.input(node, Input::Resign { fence: term.fence(), release });
        true
    }

    /// Ends the term, and keeps the lease until [`resign`](World::resign).
    pub(crate) fn stop(&mut self, node: usize) {
        self.say(|| format!("stop {node}"));
        self.input(node, Input::Stop);
    }

    /// A candidate begins anew, as one that believes the database's clock at its first look.
    pub(super) fn forget(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        n.election = Election::new(Settings { strict: false, ..(*n.settings.settings).clone() });
        self.input(node, Input::Campaign);
    }

    /// Feeds a participant that runs, and does what follows.
    pub(crate) fn input(&mut self, node: usize, input: Input) {
        if !self.runs(node) {
            return;
        }
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let now = self.local(node);
            let dice = self.rng.u64(..);
            let step = self.nodes[node].election.step(now, dice, input);
            if let Some(change) = step.term {
                inputs.extend(self.change_term(node, now, change));
            }
            for note in step.notes {
                self.say(|| format!("{node} notes {note:?}"));
            }
            if let Some(call) = step.call {
                self.send(node, call);
            }
            self.wake(node, step.wake_at);
        }
    }

    fn change_term(&mut self, node: usize, now: Time, change: TermChange) -> Option<Input> {
        let n = &self.nodes[node];
        match n.parts.understand(now, n.sent_at, change)? {
            TermChange::Begin { fence, deadline } => {
                self.say(|| format!("{node} leads, fence {fence}, until {deadline:?} by its clock"));
                self.nodes[node].term = Some((self.nodes[node].parts.term)(fence, deadline));
                self.nodes[node].told_lost = false;
                self.begun(node, fence);
                self.at(self.now() + MS, Event::Work { node });
                // Whoever asked has got what it asked for.
                self.patience_ms.map(|_| {
                    self.oracle.withdrawals += 1;
                    Input::Withdraw
                })
            }
            TermChange::Extend { fence, deadline } => {
                let extended = self.nodes[node].term.as_ref()?.extend(now, deadline);
                match extended {
                    Ok(()) => self.alone(node),
                    Err(LossCause::Expired | LossCause::Superseded) => return Some(Input::Ended(fence)),
                    Err(_) => {}
                }
                None
            }
            TermChange::End { fence, cause } => {
                self.say(|| format!("{node}: fence {fence} is over: {cause}"));
                let _ = self.nodes[node].term.as_ref()?.seal(now, cause);
                None
            }
        }
    }

    /// A leader's worker: checks, and hands its fence to what it writes to.
    pub(super) fn work(&mut self, node: usize) {
        let now = self.local(node);
        let Some(term) = self.nodes[node].term.clone() else { return };
        match term.check(now) {
            Ok(_) => {
                self.oracle.checked(node, term.fence(), self.nodes[node].told_lost);
                let next = self.now() + self.rng.u64(50..=2_000) * MS;
                self.at(next, Event::Work { node });
            }
            Err(_) => {
                self.nodes[node].told_lost = true;
                if self.patience_ms.is_some() {
                    let after = self.rng.u64(1..=2_000);
                    self.want_later(node, true, after);
                }
            }
        }
    }
}
