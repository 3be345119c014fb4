//! What the machine is made with, what goes into it, and what comes out.

use std::time::Duration;

use crate::lease::{Fence, Lease, Observation, Version};
use crate::term::LossCause;
use crate::time::Time;

use super::clockwatch::ClockStep;
use super::holdoff::Disturbance;

/// What the machine needs of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) identity: String,
    pub(crate) lease_duration: Duration,
    pub(crate) renew_interval: Duration,
    pub(crate) retry_period: Duration,
    pub(crate) retry_delay: Duration,
    /// How long a lease that is free is left to others before this participant bids for it.
    pub(crate) takeover_delay: Duration,
    pub(crate) safety_margin: Duration,
    pub(crate) longest_lease: Duration,
    pub(crate) min_fence: i64,
    pub(crate) strict: bool,
    pub(crate) release_on_exit: bool,
    /// It looks and never bids.
    pub(crate) observer: bool,
}

/// Why a call to the store brought no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The outcome is unknown.
    Error,
    /// The store panicked: nothing that it does can be relied on for this term any more.
    Panic,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Input {
    /// Time passed, or somebody wants to be told when to wake up.
    Tick,
    /// Somebody wants to lead.
    Campaign,
    /// Nobody wants to lead any more. A term that is under way is not touched.
    Withdraw,
    /// Answers to the calls.
    Observed(Result<Observation, Trouble>),
    Acquired(Result<Option<Lease>, Trouble>),
    Renewed(Result<Option<Lease>, Trouble>),
    Released,
    /// The term with this fence was found over by somebody else (the watchdog, a check, an extension).
    Ended(Fence),
    /// Whoever held the term with this fence is done: give the lease up. `release`: it was not lost before.
    Resign {
        fence: Fence,
        release: bool,
    },
    /// Renew now, for a new payload.
    RenewNow,
    /// No campaign any more. A term that is under way is over, but its lease is kept until `Resign`.
    Stop,
    /// Stop renewing and do not release: the work did not end in time.
    Abandon,
}

/// A call to make now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Observe,
    Acquire { over: Option<Version>, timeline: Option<u32>, above: i64 },
    Renew { fence: Fence },
    Release { fence: Fence },
}

/// What becomes of the term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TermChange {
    Begin { fence: Fence, deadline: Time },
    Extend { fence: Fence, deadline: Time },
    End { fence: Fence, cause: LossCause },
}

/// Something worth reporting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Disturbance(Disturbance),
    ClockStep(ClockStep),
    /// The database granted less than this participant could use, or broke the store's contract.
    UselessGrant {
        fence: Fence,
    },
}

/// What follows from an input. The term change comes before everything else (rule 18).
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) term: Option<TermChange>,
    pub(crate) call: Option<Call>,
    /// Feed a [`Input::Tick`] at that time at the latest; `None`: nothing happens by itself.
    pub(crate) wake_at: Option<Time>,
    pub(crate) notes: Vec<Note>,
}
