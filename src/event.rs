//! What an elector reports.
//!
//! How a report reaches its readers without ever holding the elector up is in `reporter`, how it becomes a log line
//! in `line` and who writes that in `log_thread`.

use std::fmt;
use std::time::Duration;

use crate::lease::{Fence, Lease};
use crate::store::StoreError;
use crate::term::LossCause;

mod line;
mod log_thread;
mod reporter;

pub(crate) use reporter::Reporter;

/// The leader as an observation showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The identity of the participant that holds the lease.
    pub holder: String,
    /// The fence of its term.
    pub fence: Fence,
    /// What it published.
    pub payload: Option<Vec<u8>>,
}

impl Leader {
    pub(crate) fn of(lease: &Lease) -> Leader {
        Leader {
            holder: lease.holder().to_owned(),
            fence: lease.fence(),
            payload: lease.payload().map(<[u8]>::to_vec),
        }
    }

    /// Whether it is the same term, whatever is published with it.
    pub(crate) fn same_term(&self, other: &Leader) -> bool {
        self.fence == other.fence && self.holder == other.holder
    }
}

/// How many terms ended by which cause; see [`LossCause`](crate::LossCause).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// The deadline passed.
    pub expired: u64,
    /// The database refused the renewal.
    pub superseded: u64,
    /// Given up on purpose.
    pub resigned: u64,
    /// The elector was stopped.
    pub stopped: u64,
    /// Something panicked.
    pub failed: u64,
}

impl Losses {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.expired + self.superseded + self.resigned + self.stopped + self.failed
    }
}

/// What an elector asks of its store. Displays as `observe`, `acquire`, `renew` and `release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// A look, which writes nothing.
    Observe,
    /// A bid for the lease.
    Acquire,
    /// A renewal of the own lease.
    Renew,
    /// The own lease is given back.
    Release,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Observe => "observe",
            Operation::Acquire => "acquire",
            Operation::Renew => "renew",
            Operation::Release => "release",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that happened to a participant. Reports only: by the time one is read, things may have moved on, so
/// nothing may be decided by it; [`Term::check`](crate::Term::check) decides.
///
/// Fields may be added to any of them: match with `..`.
///
/// ```
/// use tenure::{Config, Elector, Event, LossCause, MemoryStore};
///
/// let elector = Elector::start(MemoryStore::new(), Config::builder("billing").build()?)?;
/// let events = elector.events();
/// elector.wait_for_leadership()?.resign()?;
/// for event in events.try_iter() {
///     match event {
///         Event::Elected { fence, .. } => println!("leads with fence {fence}"),
///         Event::Lost { cause: LossCause::Expired, error: Some(error), .. } => println!("lost: {error}"),
///         Event::Lost { cause, .. } => println!("lost: {cause}"),
///         _ => {}
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Somebody in this process wants to lead, where nobody did before.
    #[non_exhaustive]
    CampaignStarted {},
    /// Nobody in this process waits for leadership any more: elected, stopped, timed out, or refused by an error.
    #[non_exhaustive]
    CampaignEnded {},
    /// This participant leads.
    #[non_exhaustive]
    Elected {
        /// The new term's fence.
        fence: Fence,
    },
    /// A renewal succeeded, and the term goes on. (What keeps the lease of a term that is over, while its work winds
    /// down, is only counted.) The one event of a day on which nothing happens, so a reader who lags behind by 128
    /// events or more misses renewals, uncounted, before it misses anything else.
    #[non_exhaustive]
    Renewed {
        /// The term's fence.
        fence: Fence,
        /// From the request to its answer.
        took: Duration,
        /// What was left of the term when the answer came: how close it was.
        headroom: Duration,
        /// What was left of the term right after it was extended.
        remaining: Duration,
    },
    /// This participant's term is over. Reported by the watchdog, which waits for nothing.
    ///
    /// Who has taken a [`Superseded`](LossCause::Superseded) lease is not known yet: that takes a look, which follows
    /// at once and is reported as [`Observed`](Event::Observed), [`RowGone`](Event::RowGone), or
    /// [`ClockStepped`](Event::ClockStepped) where the database's clock leapt past the lease.
    #[non_exhaustive]
    Lost {
        /// The fence of the term that ended.
        fence: Fence,
        /// Why it ended.
        cause: LossCause,
        /// Why the last renewal failed, where the cause is [`Expired`](LossCause::Expired) or
        /// [`Failed`](LossCause::Failed) and renewals had been failing. Without its source, which is in
        /// [`Failed`](Event::Failed).
        error: Option<StoreError>,
        /// How much later than it wanted to the watchdog woke up and found that the term was over. A few
        /// milliseconds where all is well; seconds where this process was frozen, suspended or starved.
        stalled: Duration,
    },
    /// The lease was given back; another participant may take it at once.
    #[non_exhaustive]
    Released {
        /// The fence of the term whose lease it was.
        fence: Fence,
        /// From the request to its answer.
        took: Duration,
    },
    /// Whether the lease was given back is unknown; it expires by itself. Not reported as
    /// [`Failed`](Event::Failed) too.
    #[non_exhaustive]
    ReleaseFailed {
        /// The fence of the term whose lease it was.
        fence: Fence,
        /// Why.
        error: StoreError,
    },
    /// An observation showed another participant's term than the one before it.
    #[non_exhaustive]
    Observed {
        /// Whose term it is.
        leader: Leader,
    },
    /// An observation showed the same term of another participant with another payload.
    #[non_exhaustive]
    Published {
        /// The leader, with the new payload.
        leader: Leader,
    },
    /// An observation showed that nobody leads, after one that showed another participant: its lease was released,
    /// or has run out, or is gone.
    #[non_exhaustive]
    Vacant {
        /// Who led before.
        last: Leader,
    },
    /// Calls to the store fail; reported once for a run of failures of one kind.
    #[non_exhaustive]
    Failed {
        /// What was asked of the store.
        operation: Operation,
        /// The failure.
        error: StoreError,
        /// From the request to the failure.
        took: Duration,
    },
    /// A call succeeded after failures.
    #[non_exhaustive]
    Recovered {
        /// How many calls had failed in a row.
        failures: u64,
        /// For how long: from the first of the failures.
        after: Duration,
    },
    /// The database's clock stepped. Safe either way (rule 10); worth knowing.
    #[non_exhaustive]
    ClockStepped {
        /// Whether it leapt ahead or went back.
        forward: bool,
        /// By at least how much.
        by: Duration,
    },
    /// The row carries a lower fence than one seen before, or the same one in other hands: an older record was
    /// restored, or a fail-over lost writes. Candidates wait out whoever may lead.
    #[non_exhaustive]
    FenceRegressed {
        /// The highest fence seen before.
        seen: i64,
        /// The fence that the row carries now.
        found: i64,
    },
    /// The row is gone: deleted or truncated. Candidates wait out whoever may lead.
    #[non_exhaustive]
    RowGone {},
    /// The server's timeline is another one: a fail-over, a restore or an upgrade. Candidates wait out whoever
    /// may lead.
    #[non_exhaustive]
    TimelineChanged {
        /// The timeline of the answer before.
        from: Option<u32>,
        /// The timeline now.
        to: Option<u32>,
    },
    /// The store granted a lease that could not be used: it came too late, or broke the store's contract.
    #[non_exhaustive]
    UselessGrant {
        /// The fence of the unused lease.
        fence: Fence,
    },
}
