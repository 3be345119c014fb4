//! The fleet, the paths of its nodes and the servers behind them.

use std::collections::BTreeMap;

use tenure_testground::{ClockShim, Postgres, Proxy};

use crate::aside::Asides;
use crate::faults::Active;
use crate::fleet::line::{Line, Stamp, now};
use crate::fleet::node::{Form, Options};
use crate::fleet::{Fleet, Ground, Led, Way};

/// Half of them go through the pooler.
pub(crate) const SEATS: usize = 6;
/// Whoever sits here is never killed: it is there from the beginning to the end. One of them is direct, one pooled.
pub(crate) const VETERANS: [usize; 2] = [0, 3];

/// A place in the fleet: its path stays, the node that lives there may be killed and another one started.
#[derive(Debug)]
pub(crate) struct Seat {
    way: Way,
    pub(crate) proxy: Proxy,
    pub(crate) node: usize,
}

impl Seat {
    pub(crate) fn is_pooled(&self) -> bool {
        self.way == Way::Pooled
    }
}

/// A time during which no call of a node could be answered that was sent after its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The number of the fault.
    pub(crate) by: usize,
    pub(crate) node: usize,
    /// The term that the node led with.
    pub(crate) fence: i64,
    pub(crate) from: Stamp,
    /// `None`: still so.
    pub(crate) to: Option<Stamp>,
    /// The node itself stood still.
    pub(crate) frozen: bool,
}

pub(crate) struct Arena<'a> {
    pub(crate) server: &'a Postgres,
    pub(crate) ground: Ground<'a>,
    pub(crate) shim: &'a ClockShim,
    pub(crate) fleet: Fleet,
    pub(crate) seats: Vec<Seat>,
    pub(crate) actives: Vec<Active>,
    /// How many faults have begun that last.
    pub(crate) struck: usize,
    pub(crate) asides: Asides,
    pub(crate) cuts: Vec<Cut>,
    /// The row was taken back or away, and had this fence: see `record`.
    pub(crate) awaited: Option<i64>,
    /// What was done since the burst began, and when.
    pub(crate) log: Vec<(Stamp, String)>,
    /// By name: how often it happened, and how often it was planned and could not happen just then.
    pub(crate) counts: BTreeMap<String, (u64, u64)>,
}

impl<'a> Arena<'a> {
    pub(crate) fn new(server: &'a Postgres, shim: &'a ClockShim) -> Arena<'a> {
        let ground = Ground::on(server, Way::Pooled);
        let seats = (0..SEATS).map(|n| {
            let way = if n < SEATS / 2 { Way::Direct } else { Way::Pooled };
            let proxy = Proxy::to(if way == Way::Direct { server.addr() } else { ground.addr() });
            Seat { way, proxy, node: usize::MAX }
        });
        let seats = seats.collect();
        let mut arena = Arena {
            server,
            ground,
            shim,
            fleet: Fleet::new(),
            seats,
            actives: Vec::new(),
            struck: 0,
            asides: Asides::default(),
            cuts: Vec::new(),
            awaited: None,
            log: Vec::new(),
            counts: BTreeMap::new(),
        };
        (0..SEATS).for_each(|seat| arena.settle(seat));
        arena
    }

    /// Starts a node.
    pub(crate) fn settle(&mut self, seat: usize) {
        let options = Options {
            dsn: self.ground.database.dsn_through(self.seats[seat].proxy.port()),
            form: if seat % 3 == 2 { Form::Run } else { Form::Guard },
            // Whoever starts may have its first look just after a step of the clock.
            strict: true,
            // Two of them share a label.
            ..self.ground.options(&format!("n{}", seat / 2))
        };
        self.seats[seat].node = self.fleet.start(&options);
        self.note(format!("{} starts", self.who(seat)));
    }

    pub(crate) fn note(&mut self, what: String) {
        self.log.push((now(), what));
    }

    pub(crate) fn count(&mut self, name: String, happened: bool) {
        let (done, not_done) = self.counts.entry(name).or_default();
        *(if happened { done } else { not_done }) += 1;
    }

    pub(crate) fn who(&self, seat: usize) -> String {
        let Seat { way, node, .. } = self.seats[seat];
        format!("{}#{node} ({}, seat {seat})", self.fleet.nodes[node].story.label, way.name())
    }

    /// The term that is live, as far as is known.
    pub(crate) fn leader(&self) -> Option<Led> {
        let led = self.fleet.latest()?;
        let lost = |line: &Line| matches!(line, Line::Lost { fence, .. } if *fence == led.fence);
        let runs = self.seats.iter().any(|seat| seat.node == led.node);
        (runs && !self.fleet.nodes[led.node].story.lines.iter().any(lost)).then_some(led)
    }

    pub(crate) fn leaders_seat(&self) -> Option<usize> {
        let leader = self.leader()?.node;
        self.seats.iter().position(|seat| seat.node == leader)
    }

    /// Whether the node that sits there knows of a term with this fence or a later one.
    pub(crate) fn has_seen(&self, seat: usize, fence: i64) -> bool {
        let story = &self.fleet.nodes[self.seats[seat].node].story;
        story.lines.iter().rev().any(|line| match line {
            Line::Lead { fence: seen, .. } | Line::Seen { fence: seen, .. } => *seen >= fence,
            _ => false,
        })
    }
}
