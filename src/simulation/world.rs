//! The world: true time, one store, and what is on its way between the store and the participants.
//!
//! True time is what the oracle goes by; each participant has a clock of its own, with its own zero and rate.
//! Nothing here is random: delays are drawn by whoever sets a link.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::election::{Call, Input, Settings};
use crate::lease::{Bid, Renewal};
use crate::store::MemoryStore;
use crate::time::{ManualClock, Time};

use super::node::{Answer, Link, Node};
use super::oracle::Oracle;

pub(crate) const NAME: &str = "election";
pub(crate) const MS: u64 = 1_000_000;

#[derive(Debug)]
pub(super) enum Event {
    /// A participant wanted to be woken.
    Wake { node: usize, serial: u64 },
    /// A request reaches the store. `back`: how many milliseconds its answer travels; `None`: it is lost.
    Arrive { node: usize, call: Call, serial: u64, settings: Arc<Settings>, back: Option<u64> },
    /// An answer, or the end of the caller's patience, reaches a participant.
    Answer { node: usize, serial: u64, answer: Answer },
    /// A leader's worker checks, and writes to what the leader protects.
    Work { node: usize },
    /// Somebody in a participant's process wants to lead, or nobody any more.
    Want { node: usize, wants: bool, serial: u64 },
}

struct Scheduled {
    at: u64,
    serial: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

pub(crate) struct World {
    pub(crate) store: MemoryStore,
    pub(crate) nodes: Vec<Node>,
    pub(crate) oracle: Oracle,
    /// Milliseconds that a request or a reply takes at most when all is well.
    pub(crate) latency_ms: u64,
    /// Participants ask for each term anew, and give up after so many milliseconds, more or less.
    pub(crate) patience_ms: Option<u64>,
    /// The database refuses connections.
    pub(crate) down: bool,
    pub(super) rng: Rng,
    clock: ManualClock,
    now: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    serial: u64,
    /// Requests that a pooler keeps while it is paused.
    held: Vec<Event>,
    /// Who was granted which fence.
    pub(super) granted: HashMap<i64, String>,
    transcript: Option<Vec<String>>,
    pub(crate) events: u64,
}

impl World {
    pub(crate) fn new(seed: u64, with_transcript: bool) -> World {
        let clock = ManualClock::new(Time::ZERO);
        World {
            store: MemoryStore::with_clock(clock.clone()),
            nodes: Vec::new(),
            oracle: Oracle::default(),
            latency_ms: 3,
            patience_ms: None,
            down: false,
            rng: Rng::with_seed(seed),
            clock,
            now: 0,
            queue: BinaryHeap::new(),
            serial: 0,
            held: Vec::new(),
            granted: HashMap::new(),
            transcript: with_transcript.then(Vec::new),
            events: 0,
        }
    }

    /// Milliseconds of true time since the beginning.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now / MS
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn transcript(self) -> Vec<String> {
        self.transcript.unwrap_or_default()
    }

    /// The transcript so far.
    #[cfg(test)]
    pub(crate) fn story(&self) -> String {
        self.transcript.as_ref().map_or_else(String::new, |lines| lines.join("\n"))
    }

    pub(crate) fn say(&mut self, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.transcript {
            lines.push(format!("{:>10.3} {}", self.now as f64 / 1e9, text()));
        }
    }

    /// A participant's clock: each has a zero and a rate of its own.
    pub(super) fn local(&self, node: usize) -> Time {
        let rate = i128::from(1_000_000 + self.nodes[node].drift_ppm);
        let moved = i128::from(self.now) * rate / 1_000_000;
        Time::from_nanos(u64::try_from(moved).unwrap_or(0) + zero_of(node))
    }

    /// When a participant's clock will show `at`.
    fn true_time(&self, node: usize, at: Time) -> u64 {
        let rate = i128::from(1_000_000 + self.nodes[node].drift_ppm);
        let moved = i128::from(at.as_nanos()) - i128::from(zero_of(node));
        u64::try_from(moved * 1_000_000 / rate + 1).unwrap_or(0).max(self.now)
    }

    pub(super) fn wake(&mut self, node: usize, at: Option<Time>) {
        self.nodes[node].wake_serial += 1;
        let serial = self.nodes[node].wake_serial;
        if let Some(at) = at {
            let at = self.true_time(node, at);
            self.at(at, Event::Wake { node, serial });
        }
    }

    pub(super) fn at(&mut self, when: u64, event: Event) {
        self.serial += 1;
        self.queue.push(Reverse(Scheduled { at: when.max(self.now), serial: self.serial, event }));
    }

    pub(super) fn hold(&mut self, event: Event) {
        self.held.push(event);
    }

    /// The pooler goes on: what it kept reaches the store now.
    pub(crate) fn resume(&mut self) {
        for event in std::mem::take(&mut self.held) {
            self.at(self.now, event);
        }
    }

    /// What has been on its way for too long never arrives.
    pub(crate) fn drop_late_requests(&mut self) {
        let soon = self.now + self.latency_ms * MS;
        self.queue.retain(|Reverse(s)| s.at <= soon || !matches!(s.event, Event::Arrive { .. }));
    }

    pub(crate) fn step_clock(&mut self, ms: i64) {
        self.say(|| format!("the database's clock steps by {ms} ms"));
        self.store.step_clock(ms * 1_000);
    }

    pub(crate) fn run_for(&mut self, ms: u64) {
        let until = self.now + ms * MS;
        while self.queue.peek().is_some_and(|Reverse(next)| next.at <= until) {
            self.next_event();
        }
        self.advance(until);
    }

    /// Runs until the participant leads, for `ms` at most.
    #[cfg(test)]
    pub(crate) fn run_until_leads(&mut self, node: usize, ms: u64) -> bool {
        self.run_until(ms, |world| world.leads(node))
    }

    /// Runs until something holds, for `ms` at most.
    pub(crate) fn run_until(&mut self, ms: u64, mut holds: impl FnMut(&World) -> bool) -> bool {
        let until = self.now + ms * MS;
        while !holds(self) {
            if self.queue.peek().is_none_or(|Reverse(next)| next.at > until) {
                self.advance(until);
                return holds(self);
            }
            self.next_event();
        }
        true
    }

    pub(super) fn advance(&mut self, to: u64) {
        self.clock.advance(Duration::from_nanos(to.saturating_sub(self.now)));
        self.now = self.now.max(to);
    }

    fn next_event(&mut self) {
        if let Some((at, event)) = self.take_next() {
            self.deliver(at, event);
        }
    }

    /// The event that is due next, and when.
    pub(super) fn take_next(&mut self) -> Option<(u64, Event)> {
        self.queue.pop().map(|Reverse(Scheduled { at, event, .. })| (at, event))
    }

    /// Whether an event still changes anything.
    #[cfg(test)]
    pub(super) fn matters(&self, event: &Event) -> bool {
        match event {
            Event::Wake { node, serial } => {
                let n = &self.nodes[*node];
                n.alive && !n.frozen && n.wake_serial == *serial
            }
            Event::Answer { node, serial, .. } => {
                let n = &self.nodes[*node];
                n.alive && !n.frozen && n.waits_for == Some(*serial)
            }
            Event::Arrive { .. } => true,
            Event::Work { .. } | Event::Want { .. } => false,
        }
    }

    pub(super) fn deliver(&mut self, at: u64, event: Event) {
        self.events += 1;
        self.advance(at);
        match event {
            // What is on its way does not care how its sender is.
            Event::Arrive { node, call, serial, settings, back } => {
                self.arrive(node, call, serial, &settings, back);
            }
            Event::Wake { node, .. }
            | Event::Answer { node, .. }
            | Event::Work { node }
            | Event::Want { node, .. } => {
                if !self.nodes[node].alive {
                } else if self.nodes[node].frozen {
                    self.nodes[node].backlog.push(event);
                } else {
                    self.happen(node, event);
                }
            }
        }
    }

    /// Something happens to a participant that runs.
    fn happen(&mut self, node: usize, event: Event) {
        match event {
            Event::Wake { serial, .. } if serial == self.nodes[node].wake_serial => {
                let n = &self.nodes[node];
                if n.parts.forgets && n.waits_for.is_none() && !self.leads(node) {
                    self.forget(node);
                } else {
                    self.input(node, Input::Tick);
                }
            }
            Event::Answer { serial, answer, .. } if self.nodes[node].waits_for == Some(serial) => {
                self.nodes[node].waits_for = None;
                self.input(node, answer.into_input());
            }
            Event::Work { .. } => self.work(node),
            Event::Want { wants, serial, .. } if serial == self.nodes[node].want_serial => {
                // Once patience has no end, everybody wants to lead.
                self.want(node, wants || self.patience_ms.is_none());
            }
            _ => {}
        }
    }

    pub(crate) fn freeze(&mut self, node: usize) {
        self.say(|| format!("freeze {node}"));
        self.nodes[node].frozen = true;
    }

    pub(crate) fn thaw(&mut self, node: usize) {
        if std::mem::take(&mut self.nodes[node].frozen) {
            self.say(|| format!("thaw {node}"));
            // In the order in which it happened; then time itself.
            for event in std::mem::take(&mut self.nodes[node].backlog) {
                self.at(self.now, event);
            }
            self.input(node, Input::Tick);
        }
    }

    /// The store carries a request out, and answers if the answer gets through.
    fn arrive(&mut self, node: usize, call: Call, serial: u64, settings: &Settings, back: Option<u64>) {
        let holder = settings.identity.as_str();
        let down = self.down;
        self.say(|| format!("store{}: {holder} {}", if down { " (down)" } else { "" }, call_text(&call)));
        let answer = if down { Answer::Failed(call) } else { self.carry_out(node, &call, settings) };
        if let Some(back) = back {
            self.at(self.now + back * MS, Event::Answer { node, serial, answer });
        }
    }

    fn carry_out(&mut self, node: usize, call: &Call, settings: &Settings) -> Answer {
        let timeout = Duration::from_secs(1);
        let store = self.nodes[node].parts.store.as_deref().unwrap_or(&self.store);
        let holder = settings.identity.as_str();
        let outcome = match call {
            Call::Observe => store.observe(NAME, timeout).map(Answer::Observed),
            Call::Acquire { over, timeline, above } => {
                let bid = Bid::new(NAME, holder, settings.lease_duration)
                    .above(*above)
                    .over(over.clone())
                    .timeline(*timeline);
                store.acquire(&bid, timeout).map(|lease| {
                    if let Some(lease) = &lease {
                        self.granted.insert(lease.fence().get(), holder.to_owned());
                    }
                    Answer::Acquired(lease)
                })
            }
            Call::Renew { fence } => {
                let renewal = Renewal::new(NAME, holder, *fence, settings.lease_duration);
                store.renew(&renewal, timeout).map(Answer::Renewed)
            }
            Call::Release { fence } => {
                store.release(NAME, holder, *fence, timeout).map(|()| Answer::Released)
            }
        };
        outcome.unwrap_or_else(|_| Answer::Failed(call.clone()))
    }

    /// A request leaves; what becomes of it is the link's to say.
    pub(super) fn send(&mut self, node: usize, call: Call) {
        self.calls(node, &call);
        let sent_at = self.local(node);
        let n = &mut self.nodes[node];
        n.sent_at = sent_at;
        n.call_serial += 1;
        let (serial, link, settings) = (n.call_serial, n.link, n.settings.clone());
        n.waits_for = Some(serial);
        let out = self.rng.u64(1..=self.latency_ms.max(1));
        let usual = self.rng.u64(1..=self.latency_ms.max(1));
        let patience = self.now + settings.operation_timeout().as_nanos() as u64;
        let request = |back| Event::Arrive {
            node,
            call: call.clone(),
            serial,
            settings: settings.settings.clone(),
            back,
        };
        match link {
            Link::Up => self.at(self.now + out * MS, request(Some(usual))),
            Link::RepliesLost => self.at(self.now + out * MS, request(None)),
            Link::Slow(ms) => self.at(self.now + out * MS, request(Some(ms))),
            Link::Late(ms) => self.at(self.now + ms * MS, request(None)),
            Link::Twice(ms) => {
                self.at(self.now + out * MS, request(Some(usual)));
                self.at(self.now + ms * MS, request(None));
            }
            Link::Held => self.hold(request(Some(usual))),
            Link::Cut => {}
        }
        self.at(patience, Event::Answer { node, serial, answer: Answer::Failed(call) });
    }
}

fn zero_of(node: usize) -> u64 {
    1_000_000_000 * (node as u64 + 1)
}

fn call_text(call: &Call) -> String {
    match call {
        Call::Observe => "observes".to_owned(),
        Call::Acquire { over: None, .. } => "bids for a row that is not there".to_owned(),
        Call::Acquire { over: Some(v), .. } => format!("bids over {} of {}", v.fence(), v.holder()),
        Call::Renew { fence } => format!("renews {fence}"),
        Call::Release { fence } => format!("releases {fence}"),
    }
}
