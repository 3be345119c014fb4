//! What an elector reports, and how a report reaches its readers without ever holding the elector up.
//!
//! The renewal thread and the watchdog only put reports into channels that have room, or count them as dropped.
//! Log lines are written by a thread of their own, one per process: a log sink that blocks or panics costs log
//! lines, never a term (rule 6).

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use log::Level;
use parking_lot::Mutex;

use crate::lease::{Fence, Lease};
use crate::store::StoreError;
use crate::term::LossCause;

/// How many events a slow reader may lag behind before further ones are dropped for it.
const EVENTS: usize = 256;
/// How many log lines may wait for the sink.
const LOG_LINES: usize = 1024;

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
}

/// Something that happened to a participant. Reports only: by the time one is read, things may have moved on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// This participant leads.
    Elected {
        /// The new term's fence.
        fence: Fence,
    },
    /// This participant's term is over.
    Lost {
        /// The fence of the term that ended.
        fence: Fence,
        /// Why it ended.
        cause: LossCause,
    },
    /// An observation showed another term than the one before it.
    Observed {
        /// Whose term it is.
        leader: Leader,
    },
    /// Calls to the store fail; reported once for a run of failures of one kind.
    Failed {
        /// The failure.
        error: StoreError,
    },
    /// A call succeeded after failures.
    Recovered {
        /// How many calls had failed in a row.
        failures: u64,
    },
    /// The database's clock stepped. Safe either way (rule 10); worth knowing.
    ClockStepped {
        /// Whether it leapt ahead or went back.
        forward: bool,
        /// By at least how much.
        by: Duration,
    },
    /// The row carries a lower fence than one seen before, or the same one in other hands: an older record was
    /// restored, or a fail-over lost writes. Candidates wait out whoever may lead.
    FenceRegressed {
        /// The highest fence seen before.
        seen: i64,
        /// The fence that the row carries now.
        found: i64,
    },
    /// The row is gone: deleted or truncated. Candidates wait out whoever may lead.
    RowGone,
    /// The server's timeline is another one: a fail-over, a restore or an upgrade. Candidates wait out whoever
    /// may lead.
    TimelineChanged {
        /// The timeline of the answer before.
        from: Option<u32>,
        /// The timeline now.
        to: Option<u32>,
    },
    /// The store granted a lease that could not be used: it came too late, or broke the store's contract.
    UselessGrant {
        /// The fence of the unused lease.
        fence: Fence,
    },
}

impl Event {
    fn log_level(&self) -> Level {
        match self {
            Event::Elected { .. } | Event::Observed { .. } | Event::Recovered { .. } => Level::Info,
            Event::Lost { cause: LossCause::Resigned | LossCause::Stopped, .. } => Level::Info,
            _ => Level::Warn,
        }
    }

    fn log_text(&self) -> String {
        match self {
            Event::Elected { fence } => format!("elected, fence {fence}"),
            Event::Lost { fence, cause } => format!("the term with fence {fence} is over: {cause}"),
            Event::Observed { leader } => format!("{} leads, fence {}", leader.holder, leader.fence),
            Event::Failed { error } => format!("the store failed: {error}"),
            Event::Recovered { failures } => format!("the store answers again after {failures} failures"),
            Event::ClockStepped { forward, by } => {
                let way = if *forward { "forward" } else { "back" };
                format!("the database's clock stepped {way} by {by:?} or more")
            }
            Event::FenceRegressed { seen, found } => {
                format!("the row went back from fence {seen} to {found}; waiting out whoever may lead")
            }
            Event::RowGone => "the row is gone; waiting out whoever may lead".to_owned(),
            Event::TimelineChanged { from, to } => {
                format!("the server's timeline changed from {from:?} to {to:?}; waiting out whoever may lead")
            }
            Event::UselessGrant { fence } => format!("the lease with fence {fence} came too late to be used"),
        }
    }
}

/// Passes reports on. Never blocks, never calls foreign code.
#[derive(Debug)]
pub(crate) struct Reporter {
    election: Arc<str>,
    subscribers: ArcSwap<Vec<Sender<Event>>>,
    log: Sender<LogLine>,
    dropped: AtomicU64,
}

impl Reporter {
    /// Starts the process's log thread if need be.
    pub(crate) fn new(election: &str) -> std::io::Result<Reporter> {
        Ok(Reporter {
            election: election.into(),
            subscribers: ArcSwap::default(),
            log: log_thread()?,
            dropped: AtomicU64::new(0),
        })
    }

    pub(crate) fn subscribe(&self) -> Receiver<Event> {
        let (sender, receiver) = bounded(EVENTS);
        self.subscribers.rcu(|all| {
            let mut all = Vec::clone(all);
            all.push(sender.clone());
            all
        });
        receiver
    }

    pub(crate) fn report(&self, event: Event) {
        self.log(event.log_level(), || event.log_text());
        let mut gone: Vec<Sender<Event>> = Vec::new();
        for subscriber in self.subscribers.load().iter() {
            match subscriber.try_send(event.clone()) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
                Err(TrySendError::Disconnected(_)) => gone.push(subscriber.clone()),
            }
        }
        if !gone.is_empty() {
            let kept = |s: &&Sender<Event>| !gone.iter().any(|g| g.same_channel(s));
            self.subscribers.rcu(|all| all.iter().filter(kept).cloned().collect::<Vec<_>>());
        }
    }

    pub(crate) fn log(&self, level: Level, text: impl FnOnce() -> String) {
        // Only the static maximum is asked here: `enabled` is the sink's code and may block.
        if level <= log::max_level() {
            let line = LogLine::Text { level, election: self.election.clone(), text: text() };
            let _ = self.log.try_send(line);
        }
    }

    /// Waits until the log lines so far have been written, for `limit` at most: a process that is about to end
    /// would take them with it.
    pub(crate) fn flush(&self, limit: Duration) {
        let (waiting, written) = bounded(0);
        if self.log.try_send(LogLine::Flush(waiting)).is_ok() {
            let _ = written.recv_timeout(limit);
        }
    }

    /// Events that some reader missed because it lagged behind.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
enum LogLine {
    Text {
        level: Level,
        election: Arc<str>,
        text: String,
    },
    /// Whoever sent it waits until it is dropped: everything before it has been written then.
    Flush(Sender<Infallible>),
}

/// The way to the process's log thread. It lives as long as the process: a sink may block it for ever.
fn log_thread() -> std::io::Result<Sender<LogLine>> {
    static LOG: Mutex<Option<Sender<LogLine>>> = Mutex::new(None);
    let mut log = LOG.lock();
    if let Some(sender) = &*log {
        return Ok(sender.clone());
    }
    let (sender, lines) = bounded::<LogLine>(LOG_LINES);
    std::thread::Builder::new().name("tenure-log".to_owned()).spawn(move || {
        for line in lines {
            match line {
                // A sink that panics loses its line and nothing else.
                LogLine::Text { level, election, text } => {
                    let _ = catch_unwind(AssertUnwindSafe(|| {
                        log::log!(target: "tenure", level, "{election}: {text}");
                    }));
                }
                LogLine::Flush(waiting) => drop(waiting),
            }
        }
    })?;
    *log = Some(sender.clone());
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_flush_waits_for_the_lines_before_it_and_not_for_its_limit() {
        let reporter = Reporter::new("x").unwrap();
        reporter.log(Level::Error, || "a line".to_owned());
        let begun = Instant::now();
        reporter.flush(Duration::from_secs(60));
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert!(reporter.log.is_empty());
    }
}
