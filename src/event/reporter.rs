//! How reports reach their readers: where one lags far behind, further ones are counted as dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use log::{Level, STATIC_MAX_LEVEL};

use super::line::{self, Fields};
use super::log_thread::{LogLine, log_thread};
use super::{Event, Losses, Operation};
use crate::term::LossCause;

/// How many events a slow reader may lag behind before further ones are dropped for it.
const EVENTS: usize = 256;
/// Renewals leave the rest of that to what happens more rarely.
const RENEWALS: usize = 128;

/// Passes reports on, and counts what it is told. Never blocks, takes no lock, never calls foreign code.
#[derive(Debug)]
pub(crate) struct Reporter {
    election: Arc<str>,
    identity: Arc<str>,
    /// `None`: there will be no more reports.
    readers: ArcSwapOption<Vec<Arc<Reader>>>,
    log: Sender<LogLine>,
    dropped: AtomicU64,
    lines_dropped: AtomicU64,
    // Terms that have ended. They are counted here and not in the snapshot, since the watchdog takes no lock.
    expired: AtomicU64,
    superseded: AtomicU64,
    resigned: AtomicU64,
    stopped: AtomicU64,
    failed: AtomicU64,
}

/// A reader of the reports. Its channel has no bound of its own, since one that has takes all of its memory at once: of a
/// reader that was dropped nothing shows before the next report, and a participant may report nothing for days.
#[derive(Debug)]
struct Reader {
    sender: Sender<Event>,
    /// How many events it may lag behind. Two threads report, so that it may be one more.
    room: usize,
    /// Whether what it misses is counted.
    counts: bool,
    /// It was dropped.
    gone: AtomicBool,
}

impl Reporter {
    /// Starts the process's log thread if need be.
    pub(crate) fn new(election: &str, identity: &str) -> std::io::Result<Reporter> {
        Ok(Reporter {
            election: election.into(),
            identity: identity.into(),
            readers: ArcSwapOption::from_pointee(Vec::new()),
            log: log_thread()?,
            dropped: AtomicU64::new(0),
            lines_dropped: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            superseded: AtomicU64::new(0),
            resigned: AtomicU64::new(0),
            stopped: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// Every report from now on.
    pub(crate) fn subscribe(&self) -> Receiver<Event> {
        self.add(EVENTS, true)
    }

    /// For whoever only has to know that something was reported since it last looked.
    pub(crate) fn wake_ups(&self) -> Receiver<Event> {
        self.add(1, false)
    }

    fn add(&self, room: usize, counts: bool) -> Receiver<Event> {
        let (sender, receiver) = unbounded();
        let new = Arc::new(Reader { sender, room, counts, gone: AtomicBool::new(false) });
        self.change(|all| all.iter().chain([&new]).cloned().collect());
        receiver
    }

    fn change(&self, change: impl Fn(&[Arc<Reader>]) -> Vec<Arc<Reader>>) {
        self.readers.rcu(|all| all.as_ref().map(|all| Arc::new(change(all))));
    }

    /// The last report was made: readers get what is on its way to them, and then the end.
    pub(crate) fn close(&self) {
        self.readers.store(None);
    }

    pub(crate) fn report(&self, event: Event) {
        if let Event::Lost { cause, .. } = &event {
            // Counted before anybody hears of it. Release: whoever reads the count sees the term counted, too.
            self.ended(*cause).fetch_add(1, Ordering::Release);
        }
        self.log(event.level(), || (event.text(), event.fields()));
        let routine = matches!(event, Event::Renewed { .. });
        let mut gone = false;
        for reader in self.readers.load().iter().flat_map(|all| all.iter()) {
            let behind = reader.sender.len();
            if routine && behind >= RENEWALS {
                continue;
            }
            if behind >= reader.room {
                self.dropped.fetch_add(u64::from(reader.counts), Ordering::Relaxed);
            } else if reader.sender.send(event.clone()).is_err() {
                reader.gone.store(true, Ordering::Relaxed);
                gone = true;
            }
        }
        if gone {
            let is_there = |reader: &&Arc<Reader>| !reader.gone.load(Ordering::Relaxed);
            self.change(|all| all.iter().filter(is_there).cloned().collect());
        }
    }

    /// For the log alone: the store answered.
    pub(crate) fn answered(&self, operation: Operation, took: Duration) {
        self.log(Level::Trace, || line::answered(operation, took));
    }

    fn log(&self, level: Level, line: impl FnOnce() -> (String, Fields)) {
        // Only the static maximum is asked here: `enabled` is the sink's code and may block.
        if level <= STATIC_MAX_LEVEL && level <= log::max_level() {
            let (text, fields) = line();
            let (election, identity) = (self.election.clone(), self.identity.clone());
            if self.log.try_send(LogLine::Text { level, election, identity, text, fields }).is_err() {
                self.lines_dropped.fetch_add(1, Ordering::Relaxed);
            }
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

    /// Log lines of this participant that the sink was too slow for.
    pub(crate) fn lines_dropped(&self) -> u64 {
        self.lines_dropped.load(Ordering::Relaxed)
    }

    /// The ends of terms so far.
    pub(crate) fn losses(&self) -> Losses {
        let count = |cause| self.ended(cause).load(Ordering::Acquire);
        Losses {
            expired: count(LossCause::Expired),
            superseded: count(LossCause::Superseded),
            resigned: count(LossCause::Resigned),
            stopped: count(LossCause::Stopped),
            failed: count(LossCause::Failed),
        }
    }

    fn ended(&self, cause: LossCause) -> &AtomicU64 {
        match cause {
            LossCause::Expired => &self.expired,
            LossCause::Superseded => &self.superseded,
            LossCause::Resigned => &self.resigned,
            LossCause::Stopped => &self.stopped,
            LossCause::Failed => &self.failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Fence;
    use std::time::Instant;

    fn reporter() -> Reporter {
        Reporter::new("x", "me").unwrap()
    }

    fn renewed(fence: i64) -> Event {
        let (fence, none) = (Fence::try_from(fence).unwrap(), Duration::ZERO);
        Event::Renewed { fence, took: none, headroom: none, remaining: none }
    }

    #[test]
    fn a_flush_waits_for_the_lines_before_it_and_not_for_its_limit() {
        let reporter = reporter();
        reporter.log(Level::Error, || ("a line".to_owned(), Fields::new()));
        let begun = Instant::now();
        reporter.flush(Duration::from_secs(60));
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert!(reporter.log.is_empty());
    }

    #[test]
    fn renewals_that_nobody_reads_leave_room_for_news() {
        let reporter = reporter();
        let lazy = reporter.subscribe();
        for fence in 1..=1_000 {
            reporter.report(renewed(fence));
        }
        assert_eq!((lazy.len(), reporter.dropped()), (RENEWALS, 0), "and those are not counted");
        for _ in 0..EVENTS - RENEWALS {
            reporter.report(Event::RowGone {});
        }
        assert_eq!((lazy.len(), reporter.dropped()), (EVENTS, 0));
        reporter.report(Event::RowGone {});
        assert_eq!(reporter.dropped(), 1);
    }

    #[test]
    fn every_end_of_a_term_is_counted_by_its_cause() {
        let reporter = reporter();
        let causes = [LossCause::Expired, LossCause::Superseded, LossCause::Resigned, LossCause::Stopped];
        for (times, cause) in causes.into_iter().chain([LossCause::Failed]).enumerate() {
            for _ in 0..=times {
                let fence = Fence::try_from(1).unwrap();
                reporter.report(Event::Lost { fence, cause, error: None, stalled: Duration::ZERO });
            }
        }
        let losses = reporter.losses();
        let each = [losses.expired, losses.superseded, losses.resigned, losses.stopped, losses.failed];
        assert_eq!((each, losses.total()), ([1, 2, 3, 4, 5], 15));
    }
}
