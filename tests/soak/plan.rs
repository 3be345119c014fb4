//! What is going to happen: drawn from the seed and from nothing else, so that the same seed plans the same again,
//! whatever comes of it.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use tenure_testground::Mode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Leader,
    /// The one whose turn it is, leader or not.
    One,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    // On the paths of nodes.
    BlackHole,
    SwallowReplies,
    HoldRequests,
    Reset,
    ResetOnce,
    Refuse,
    Delay,
    Throttle,
    // On nodes.
    FreezeShort,
    FreezeLong,
    Kill,
    Terminate,
    // On what all share.
    ServerPaused,
    ServerRestarted,
    ServerStoppedAtOnce,
    ServerCrashed,
    PoolerRestarted,
    PoolerCrashed,
    PoolerPaused,
    PoolerFrozen,
    RowLocked,
    TableLocked,
    BackendsTerminated,
    ReadOnly,
    ClockForward,
    ClockBack,
    ClockFarForward,
    ClockFarBack,
}

const ON_PATHS: [Kind; 8] = [
    Kind::BlackHole,
    Kind::SwallowReplies,
    Kind::HoldRequests,
    Kind::Reset,
    Kind::ResetOnce,
    Kind::Refuse,
    Kind::Delay,
    Kind::Throttle,
];
const ON_NODES: [Kind; 4] = [Kind::FreezeShort, Kind::FreezeLong, Kind::Kill, Kind::Terminate];
const SHARED: [Kind; 16] = [
    Kind::ServerPaused,
    Kind::ServerRestarted,
    Kind::ServerStoppedAtOnce,
    Kind::ServerCrashed,
    Kind::PoolerRestarted,
    Kind::PoolerCrashed,
    Kind::PoolerPaused,
    Kind::PoolerFrozen,
    Kind::RowLocked,
    Kind::TableLocked,
    Kind::BackendsTerminated,
    Kind::ReadOnly,
    Kind::ClockForward,
    Kind::ClockBack,
    Kind::ClockFarForward,
    Kind::ClockFarBack,
];

const CLOCK: [Kind; 4] = [Kind::ClockForward, Kind::ClockBack, Kind::ClockFarForward, Kind::ClockFarBack];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::BlackHole => "black hole",
            Kind::SwallowReplies => "replies lost",
            Kind::HoldRequests => "requests held",
            Kind::Reset => "connections reset and refused",
            Kind::ResetOnce => "connections reset once",
            Kind::Refuse => "new connections refused",
            Kind::Delay => "slow path",
            Kind::Throttle => "narrow path",
            Kind::FreezeShort => "frozen for less than a term",
            Kind::FreezeLong => "frozen for more than a lease",
            Kind::Kill => "killed",
            Kind::Terminate => "terminated",
            Kind::ServerPaused => "server stands still",
            Kind::ServerRestarted => "server restarted",
            Kind::ServerStoppedAtOnce => "server stopped at once",
            Kind::ServerCrashed => "server crashed",
            Kind::PoolerRestarted => "pooler restarted",
            Kind::PoolerCrashed => "pooler crashed",
            Kind::PoolerPaused => "pooler paused",
            Kind::PoolerFrozen => "pooler stands still",
            Kind::RowLocked => "row locked",
            Kind::TableLocked => "table locked",
            Kind::BackendsTerminated => "backends terminated",
            Kind::ReadOnly => "database read-only",
            Kind::ClockForward => "database clock ahead by seconds",
            Kind::ClockBack => "database clock back by seconds",
            Kind::ClockFarForward => "database clock far ahead",
            Kind::ClockFarBack => "database clock far back",
        }
    }

    pub(crate) fn on_paths(self) -> bool {
        ON_PATHS.contains(&self)
    }

    pub(crate) fn on_nodes(self) -> bool {
        ON_NODES.contains(&self)
    }

    /// While it lasts no call of the node can be answered that was sent after it began.
    pub(crate) fn cuts(self) -> bool {
        matches!(
            self,
            Kind::BlackHole
                | Kind::SwallowReplies
                | Kind::HoldRequests
                | Kind::Reset
                | Kind::FreezeShort
                | Kind::FreezeLong
                | Kind::ServerPaused
                | Kind::ServerRestarted
                | Kind::ServerStoppedAtOnce
                | Kind::ServerCrashed
        )
    }

    /// What a path is set to; `None` for what is no mode of a path.
    pub(crate) fn mode(self, dice: u64) -> Option<Mode> {
        Some(match self {
            Kind::BlackHole => Mode::BlackHole,
            Kind::SwallowReplies => Mode::SwallowReplies,
            Kind::HoldRequests => Mode::HoldRequests,
            Kind::Reset => Mode::Reset,
            Kind::Refuse => Mode::Refuse,
            Kind::Delay => {
                let by = Duration::from_millis(10 + dice % 250);
                Mode::Delay { by, jitter: by / 2 }
            }
            Kind::Throttle => Mode::Throttle(300 + dice % 5_000),
            _ => return None,
        })
    }

    /// By how many seconds the database's clock steps; 0 for what is no step.
    pub(crate) fn step(self, dice: u64) -> f64 {
        let seconds = 0.2 + (dice % 6_000) as f64 / 1_000.0;
        let far = 600.0 + (dice % 86_400) as f64;
        match self {
            Kind::ClockForward => seconds,
            Kind::ClockBack => -seconds,
            Kind::ClockFarForward => far,
            Kind::ClockFarBack => -far,
            _ => 0.0,
        }
    }
}

/// What is counted under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) who: Who,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.who {
            _ if !self.kind.on_paths() && !self.kind.on_nodes() => "",
            Who::Leader => ", the leader",
            Who::One => ", one node",
            Who::All => ", all nodes",
        };
        write!(f, "{}{who}", self.kind.name())
    }
}

/// What can be done to the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tampering {
    Deleted,
    Truncated,
    /// To what it was so many writes ago.
    SetBack(u64),
    /// To the last that was released of an earlier term.
    SetBackToReleased,
}

impl fmt::Display for Tampering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tampering::Deleted => "row deleted",
            Tampering::Truncated => "table truncated",
            Tampering::SetBack(_) => "row set back",
            Tampering::SetBackToReleased => "row set back to a released one",
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    /// After the one before.
    pub(crate) after: Duration,
    pub(crate) fault: Fault,
    pub(crate) seat: usize,
    pub(crate) lasts: Duration,
    pub(crate) dice: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Burst {
    /// What becomes of the row before anything else happens.
    pub(crate) tampering: Option<Tampering>,
    pub(crate) faults: Vec<Planned>,
    pub(crate) length: Duration,
    /// How long the term is watched that follows.
    pub(crate) calm: Duration,
}

/// Draws one burst after the other.
#[derive(Debug)]
pub(crate) struct Plan {
    rng: Rng,
    seats: usize,
    /// Every fault comes up before any comes up again.
    deck: Vec<Fault>,
}

fn ms(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

impl Plan {
    pub(crate) fn new(seed: u64, seats: usize) -> Plan {
        Plan { rng: Rng::with_seed(seed), seats, deck: Vec::new() }
    }

    pub(crate) fn burst(&mut self) -> Burst {
        // Mostly short ones, so that there are many.
        let part = self.rng.f64();
        let length = Duration::from_secs_f64(5.0 + 35.0 * part * part);
        // From one fault on another to one that everybody has got over before the next.
        let pace = self.rng.u64(150..2_500);
        let tampering = match self.rng.u8(..8) {
            0 => Some(Tampering::Deleted),
            1 => Some(Tampering::Truncated),
            2 => Some(Tampering::SetBack(self.rng.u64(1..150))),
            3 => Some(Tampering::SetBackToReleased),
            _ => None,
        };
        let (mut faults, mut at) = (Vec::new(), Duration::ZERO);
        loop {
            let planned = self.fault(pace);
            at += planned.after;
            if at > length {
                break;
            }
            faults.push(planned);
        }
        Burst { tampering, faults, length, calm: ms(&mut self.rng, 2_000..6_000) }
    }

    fn fault(&mut self, pace: u64) -> Planned {
        let fault = self.draw();
        let rng = &mut self.rng;
        let lasts = match fault.kind {
            Kind::FreezeShort => ms(rng, 100..1_500),
            Kind::FreezeLong => ms(rng, 3_100..7_000),
            _ => match rng.u8(..20) {
                0..=9 => ms(rng, 100..1_500),
                10..=15 => ms(rng, 1_500..3_500),
                _ => ms(rng, 3_500..7_000),
            },
        };
        let seat = rng.usize(..self.seats);
        Planned { after: ms(rng, 20..2 * pace), fault, seat, lasts, dice: rng.u64(..) }
    }

    fn draw(&mut self) -> Fault {
        if self.deck.is_empty() {
            for who in [Who::Leader, Who::One, Who::All] {
                self.deck.extend(ON_PATHS.iter().chain(&ON_NODES).map(|kind| Fault { kind: *kind, who }));
            }
            // Mostly whoever leads: there it hurts.
            self.deck.extend(ON_NODES.iter().map(|kind| Fault { kind: *kind, who: Who::Leader }));
            // They take no time, and are seen only by a look at the right moment.
            self.deck.extend(CLOCK.iter().map(|kind| Fault { kind: *kind, who: Who::All }));
            self.deck.extend(SHARED.iter().map(|kind| Fault { kind: *kind, who: Who::All }));
            self.rng.shuffle(&mut self.deck);
        }
        self.deck.pop().expect("just filled")
    }
}
