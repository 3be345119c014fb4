//! What a proxy can do to traffic.

use std::time::Duration;

/// What happens to everything that goes through a proxy, see [`Proxy::set`](super::Proxy::set).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Everything goes through at once. What was held back is delivered.
    Pass,
    /// Every byte arrives late, in both directions, by `by` and up to `jitter` more; the order is kept.
    Delay {
        /// The shortest time that a byte takes, one way.
        by: Duration,
        /// The most that is added to it, at random.
        jitter: Duration,
    },
    /// Nothing moves, not even the end of a connection. Sockets stay open; new connections are accepted and mute.
    /// With the next mode that lets bytes pass, what the kernel took in the meantime is delivered, late.
    BlackHole,
    /// Requests reach the server, replies are lost. A connection that lost something is reset as soon as replies
    /// may pass again: no network shows a gap in a stream.
    SwallowReplies,
    /// Requests are kept, and reach the server with the next mode that lets them pass, even if the client has gone
    /// by then. Replies pass.
    HoldRequests,
    /// Everything there is is reset (RST), and every new connection as soon as it is accepted.
    Reset,
    /// The listener is closed: connects are refused. Connections that exist go on.
    Refuse,
    /// So many bytes per second and connection, each way.
    Throttle(u64),
}

/// One way through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is no third way")]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Replies.
    ToClient,
}

/// What happens to traffic in one direction, see [`Proxy::set_flow`](super::Proxy::set_flow).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// At once.
    Pass,
    /// Late, by `by` and up to `jitter` more.
    Delay {
        /// The shortest delay.
        by: Duration,
        /// The most that is added to it, at random.
        jitter: Duration,
    },
    /// Not read: the sender's socket fills up in the end.
    Stall,
    /// Read and kept.
    Hold,
    /// Read and lost.
    Discard,
    /// So many bytes per second.
    Throttle(u64),
}

impl Flow {
    /// Whether bytes come out at the other end.
    pub(super) fn moves(self) -> bool {
        matches!(self, Flow::Pass | Flow::Delay { .. } | Flow::Throttle(_))
    }
}

/// What happens to new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Accept,
    Reset,
    Refuse,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) admission: Admission,
    pub(super) to_server: Flow,
    pub(super) to_client: Flow,
}

impl From<Mode> for Plan {
    fn from(mode: Mode) -> Plan {
        let both = |flow| Plan { admission: Admission::Accept, to_server: flow, to_client: flow };
        match mode {
            Mode::Pass => both(Flow::Pass),
            Mode::Delay { by, jitter } => both(Flow::Delay { by, jitter }),
            Mode::BlackHole => both(Flow::Stall),
            Mode::SwallowReplies => Plan { to_client: Flow::Discard, ..both(Flow::Pass) },
            Mode::HoldRequests => Plan { to_server: Flow::Hold, ..both(Flow::Pass) },
            Mode::Reset => Plan { admission: Admission::Reset, ..both(Flow::Pass) },
            Mode::Refuse => Plan { admission: Admission::Refuse, ..both(Flow::Pass) },
            Mode::Throttle(rate) => both(Flow::Throttle(rate)),
        }
    }
}
