//! The world: true time, one store, and nodes whose clocks, links and processes misbehave on demand.
//!
//! The oracle looks at every instant at which a term begins or is extended: no other term may be live then by
//! its own node's clock, whether that node runs, is frozen or cut off; and fences never fall or repeat.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use crate::election::{Call, Election, Input, Settings, TermChange, Trouble};
use crate::lease::{Bid, Fence, Renewal};
use crate::store::{MemoryStore, Store};
use crate::term::{AtomicTerm, LossCause};
use crate::time::{ManualClock, Time};

pub(super) const NAME: &str = "election";
const MS: u64 = 1_000_000;

/// The timings that the scripts use: lease 15 s, renewals every 5 s.
pub(super) fn usual(identity: &str) -> Settings {
    Settings {
        identity: identity.to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_interval: Duration::from_secs(5),
        retry_period: Duration::from_secs(3),
        retry_delay: Duration::from_millis(1_250),
        safety_margin: Duration::from_millis(1_500),
        longest_lease: Duration::from_secs(31 * 24 * 3_600),
        min_fence: 0,
        strict: false,
        release_on_exit: true,
    }
}

/// What happens to a node's next requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Up,
    /// Nothing gets through.
    Cut,
    /// Requests arrive, replies are lost.
    RepliesLost,
    /// Requests arrive at once, their replies so many milliseconds later: in time, but barely.
    Slow(u64),
    /// Requests arrive so many milliseconds late; the caller has given up by then.
    Late(u64),
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) election: Election,
    pub(super) settings: Settings,
    pub(super) link: Link,
    pub(super) term: Option<Arc<AtomicTerm>>,
    /// Parts per million by which the node's clock runs fast.
    pub(super) drift_ppm: i64,
    pub(super) frozen: bool,
    wake_serial: u64,
    call_serial: u64,
    /// The call whose answer the node still waits for.
    waits_for: Option<u64>,
    /// What happened while it was frozen.
    backlog: Vec<Event>,
    pub(super) alive: bool,
}

#[derive(Clone, Debug)]
enum Event {
    Wake {
        node: usize,
        serial: u64,
    },
    /// `back`: how long the answer travels; `None` where it is lost.
    Arrive {
        node: usize,
        call: Call,
        serial: u64,
        settings: Settings,
        back: Option<u64>,
    },
    Answer {
        node: usize,
        serial: u64,
        answer: Answer,
    },
}

/// An answer on its way.
#[derive(Clone, Debug)]
enum Answer {
    Observed(crate::lease::Observation),
    Acquired(Option<crate::lease::Lease>),
    Renewed(Option<crate::lease::Lease>),
    Released,
    Failed(Call),
}

impl Answer {
    fn into_input(self) -> Input {
        match self {
            Answer::Observed(seen) => Input::Observed(Ok(seen)),
            Answer::Acquired(lease) => Input::Acquired(Ok(lease)),
            Answer::Renewed(lease) => Input::Renewed(Ok(lease)),
            Answer::Released => Input::Released,
            Answer::Failed(Call::Observe) => Input::Observed(Err(Trouble::Error)),
            Answer::Failed(Call::Acquire { .. }) => Input::Acquired(Err(Trouble::Error)),
            Answer::Failed(Call::Renew { .. }) => Input::Renewed(Err(Trouble::Error)),
            Answer::Failed(Call::Release { .. }) => Input::Released,
        }
    }
}

pub(super) struct World {
    pub(super) store: MemoryStore,
    pub(super) nodes: Vec<Node>,
    pub(super) violations: Vec<String>,
    /// Terms whose fence was not above all earlier ones.
    pub(super) fences_fell: u64,
    pub(super) transcript: Vec<String>,
    pub(super) terms: u64,
    clock: ManualClock,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    serial: u64,
    rng: fastrand::Rng,
    highest: i64,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let clock = ManualClock::new(Time::ZERO);
        World {
            store: MemoryStore::with_clock(clock.clone()),
            nodes: Vec::new(),
            violations: Vec::new(),
            fences_fell: 0,
            transcript: Vec::new(),
            terms: 0,
            clock,
            now: 0,
            queue: BinaryHeap::new(),
            events: std::collections::HashMap::new(),
            serial: 0,
            rng: fastrand::Rng::with_seed(seed),
            highest: 0,
        }
    }

    /// Milliseconds of true time.
    pub(super) fn now_ms(&self) -> u64 {
        self.now / MS
    }

    pub(super) fn add(&mut self, settings: Settings) -> usize {
        self.nodes.push(Node {
            election: Election::new(settings.clone()),
            settings,
            link: Link::Up,
            term: None,
            drift_ppm: 0,
            frozen: false,
            wake_serial: 0,
            call_serial: 0,
            waits_for: None,
            backlog: Vec::new(),
            alive: true,
        });
        self.nodes.len() - 1
    }

    /// A node's clock: every one has a zero of its own.
    fn local(&self, node: usize) -> Time {
        let drift = self.nodes[node].drift_ppm;
        let moved = i128::from(self.now) * i128::from(1_000_000 + drift) / 1_000_000;
        Time::from_nanos(u64::try_from(moved).unwrap_or(0) + 1_000_000_000 * (node as u64 + 1))
    }

    /// When a node's clock will show `at`.
    fn true_time(&self, node: usize, at: Time) -> u64 {
        let drift = self.nodes[node].drift_ppm;
        let local = i128::from(at.as_nanos()) - i128::from(1_000_000_000 * (node as u64 + 1));
        let moved = local * 1_000_000 / i128::from(1_000_000 + drift) + 1;
        u64::try_from(moved).unwrap_or(0).max(self.now)
    }

    pub(super) fn campaign(&mut self, node: usize) {
        self.input(node, Input::Campaign);
    }

    /// Whether the node's term is live by its own clock. Does not end it.
    pub(super) fn leads(&self, node: usize) -> bool {
        let now = self.local(node);
        // A copy is asked, so that looking does not change what is looked at.
        self.nodes[node].term.as_ref().is_some_and(|term| term.is_live_at(now))
    }

    pub(super) fn leader(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|n| self.leads(*n))
    }

    pub(super) fn freeze(&mut self, node: usize) {
        self.nodes[node].frozen = true;
        self.say(format!("freeze {node}"));
    }

    pub(super) fn thaw(&mut self, node: usize) {
        self.nodes[node].frozen = false;
        self.say(format!("thaw {node}"));
        for event in std::mem::take(&mut self.nodes[node].backlog) {
            self.at(self.now, event);
        }
        self.input(node, Input::Tick);
    }

    pub(super) fn link(&mut self, node: usize, link: Link) {
        self.say(format!("link {node} {link:?}"));
        self.nodes[node].link = link;
    }

    pub(super) fn step_clock(&mut self, ms: i64) {
        self.say(format!("the database's clock steps {ms} ms"));
        self.store.step_clock(ms * 1_000);
    }

    /// The process is gone: its term with it, its requests may still be under way.
    pub(super) fn crash(&mut self, node: usize) {
        self.say(format!("crash {node}"));
        self.nodes[node].alive = false;
        self.nodes[node].term = None;
        self.nodes[node].waits_for = None;
    }

    /// Gives the term up on purpose.
    pub(super) fn resign(&mut self, node: usize) {
        let n = &self.nodes[node];
        if let Some(term) = n.term.clone().filter(|_| n.alive && !n.frozen) {
            let now = self.local(node);
            let ended = term.seal(|| now, LossCause::Resigned);
            let release = !matches!(ended, Err(LossCause::Expired | LossCause::Superseded));
            self.input(node, Input::Resign { fence: term.fence(), release });
        }
    }

    pub(super) fn say(&mut self, text: String) {
        self.transcript.push(format!("{:>9.3} {text}", self.now as f64 / 1e9));
    }

    pub(super) fn run_for(&mut self, ms: u64) {
        self.run_until(self.now + ms * MS);
    }

    /// Runs until the node leads, for `ms` at most.
    pub(super) fn run_until_leads(&mut self, node: usize, ms: u64) -> bool {
        let until = self.now + ms * MS;
        while !self.leads(node) {
            match self.queue.peek() {
                Some(Reverse((at, _))) if *at <= until => self.next_event(),
                _ => {
                    self.advance(until);
                    return self.leads(node);
                }
            }
        }
        true
    }

    fn run_until(&mut self, until: u64) {
        while self.queue.peek().is_some_and(|Reverse((at, _))| *at <= until) {
            self.next_event();
        }
        self.advance(until);
    }

    fn advance(&mut self, to: u64) {
        self.clock.advance(Duration::from_nanos(to.saturating_sub(self.now)));
        self.now = self.now.max(to);
    }

    fn at(&mut self, when: u64, event: Event) {
        self.serial += 1;
        self.queue.push(Reverse((when.max(self.now), self.serial)));
        self.events.insert(self.serial, event);
    }

    fn next_event(&mut self) {
        let Some(Reverse((at, serial))) = self.queue.pop() else { return };
        self.advance(at);
        let Some(event) = self.events.remove(&serial) else { return };
        let (Event::Wake { node, .. } | Event::Arrive { node, .. } | Event::Answer { node, .. }) = &event;
        let node = *node;
        match event {
            // What is on its way does not care how its sender is.
            Event::Arrive { call, serial, settings, back, .. } => {
                self.arrive(node, call, serial, &settings, back);
            }
            _ if !self.nodes[node].alive => {}
            event if self.nodes[node].frozen => self.nodes[node].backlog.push(event),
            Event::Wake { serial, .. } => {
                if serial == self.nodes[node].wake_serial {
                    self.input(node, Input::Tick);
                }
            }
            Event::Answer { serial, answer, .. } => {
                if self.nodes[node].waits_for == Some(serial) {
                    self.nodes[node].waits_for = None;
                    self.input(node, answer.into_input());
                }
            }
        }
    }

    /// The store carries a request out, and answers if the answer gets through.
    fn arrive(&mut self, node: usize, call: Call, serial: u64, settings: &Settings, back: Option<u64>) {
        let timeout = Duration::from_secs(1);
        let holder = settings.identity.as_str();
        self.say(format!("store: {holder} {}", short(&call)));
        let answer = match &call {
            Call::Observe => self.store.observe(NAME, timeout).map(Answer::Observed),
            Call::Acquire { over, timeline, above } => {
                let bid = Bid::new(NAME, holder, settings.lease_duration)
                    .above(*above)
                    .over(over.clone())
                    .timeline(*timeline);
                self.store.acquire(&bid, timeout).map(Answer::Acquired)
            }
            Call::Renew { fence } => {
                let renewal = Renewal::new(NAME, holder, *fence, settings.lease_duration);
                self.store.renew(&renewal, timeout).map(Answer::Renewed)
            }
            Call::Release { fence } => {
                self.store.release(NAME, holder, *fence, timeout).map(|()| Answer::Released)
            }
        };
        if let (Some(back), Ok(answer)) = (back, answer) {
            self.at(self.now + back * MS, Event::Answer { node, serial, answer });
        }
    }

    /// Feeds a node and does what follows.
    pub(super) fn input(&mut self, node: usize, input: Input) {
        if !self.nodes[node].alive || self.nodes[node].frozen {
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
            for note in &step.notes {
                self.say(format!("node {node}: {note:?}"));
            }
            if let Some(call) = step.call {
                self.send(node, call);
            }
            self.nodes[node].wake_serial += 1;
            let serial = self.nodes[node].wake_serial;
            if let Some(at) = step.wake_at {
                let at = self.true_time(node, at);
                self.at(at, Event::Wake { node, serial });
            }
        }
    }

    fn send(&mut self, node: usize, call: Call) {
        let n = &mut self.nodes[node];
        n.call_serial += 1;
        let serial = n.call_serial;
        n.waits_for = Some(serial);
        let (link, settings) = (n.link, n.settings.clone());
        let out = self.rng.u64(1..=3) * MS;
        let back = self.rng.u64(1..=3);
        let arrive = |back| Event::Arrive { node, call: call.clone(), serial, settings, back };
        match link {
            Link::Up => self.at(self.now + out, arrive(Some(back))),
            Link::Slow(ms) => self.at(self.now + out, arrive(Some(ms))),
            Link::RepliesLost => self.at(self.now + out, arrive(None)),
            Link::Late(ms) => self.at(self.now + ms * MS, arrive(None)),
            Link::Cut => {}
        }
        // The caller gives up after its operation timeout.
        self.at(self.now + 3_000 * MS, Event::Answer { node, serial, answer: Answer::Failed(call) });
    }

    fn change_term(&mut self, node: usize, now: Time, change: TermChange) -> Option<Input> {
        match change {
            TermChange::Begin { fence, deadline } => {
                self.terms += 1;
                self.say(format!("node {node} leads, fence {fence}"));
                if fence.get() <= self.highest {
                    self.say(format!("VIOLATION: fence {fence} after {}", self.highest));
                    self.fences_fell += 1;
                }
                self.highest = self.highest.max(fence.get());
                self.nodes[node].term = Some(Arc::new(AtomicTerm::new(fence, deadline)));
                self.only(node, fence);
                None
            }
            TermChange::Extend { fence, deadline } => {
                let extended = self.nodes[node].term.as_ref().map(|t| t.extend(|| now, deadline));
                match extended {
                    Some(Ok(())) => self.only(node, fence),
                    Some(Err(LossCause::Expired | LossCause::Superseded)) => {
                        return Some(Input::Ended(fence));
                    }
                    _ => {}
                }
                None
            }
            TermChange::End { fence, cause } => {
                self.say(format!("node {node}: fence {fence} over, {cause}"));
                if let Some(term) = &self.nodes[node].term {
                    let _ = term.seal(|| now, cause);
                }
                None
            }
        }
    }

    /// The oracle: nobody else may be live now.
    fn only(&mut self, node: usize, fence: Fence) {
        let now = self.local(node);
        if !self.nodes[node].term.as_ref().is_some_and(|term| term.is_live_at(now)) {
            return;
        }
        let others: Vec<usize> = (0..self.nodes.len()).filter(|n| *n != node && self.leads(*n)).collect();
        for other in others {
            self.violation(format!("node {node} (fence {fence}) and node {other} lead"));
        }
    }

    fn violation(&mut self, what: String) {
        self.say(format!("VIOLATION: {what}"));
        self.violations.push(what);
    }

    pub(super) fn assert_safe(&self) {
        self.assert_one_leader();
        assert_eq!(self.fences_fell, 0, "{}", self.transcript.join("\n"));
    }

    pub(super) fn assert_one_leader(&self) {
        assert!(self.violations.is_empty(), "{:?}\n{}", self.violations, self.transcript.join("\n"));
    }
}

fn short(call: &Call) -> String {
    match call {
        Call::Observe => "observes".to_owned(),
        Call::Acquire { over, .. } => {
            format!("bids over {:?}", over.as_ref().map(|v| (v.holder().to_owned(), v.fence())))
        }
        Call::Renew { fence } => format!("renews {fence}"),
        Call::Release { fence } => format!("releases {fence}"),
    }
}
