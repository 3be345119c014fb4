//! The watchdog: sleeps to the deadline, ends the term, wakes whoever waits, reports (rule 6).
//!
//! It takes no lock and makes no call that anybody else could hold up: it reads its channel, the clock and the
//! term's atomic word, and writes to channels that have room.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::event::{Event, Reporter};
use crate::guard::{WAIT_SLICE, Watched};
use crate::term::LossCause;
use crate::time::Clock;

#[derive(Debug)]
pub(crate) enum Watch {
    /// A term to watch from now on.
    Term(Watched),
    /// A term was ended by somebody: look.
    Look,
    /// There will be no more terms.
    Quit,
}

#[derive(Debug)]
pub(crate) struct Watchdog {
    pub(crate) inbox: Receiver<Watch>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reporter: Arc<Reporter>,
}

impl Watchdog {
    pub(crate) fn run(self) {
        let mut watched: Vec<Watched> = Vec::new();
        loop {
            let wait = self.look(&mut watched);
            let news = match wait {
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wait) => self.inbox.recv_timeout(wait),
            };
            match news {
                Ok(Watch::Term(term)) => watched.push(term),
                Ok(Watch::Look) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Watch::Quit) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // A term that nobody watches must not go on.
        for term in watched {
            let _ = term.live.seal(|| self.clock.now(), LossCause::Failed);
            self.end_if_over(term);
        }
    }

    /// Ends what is over, and says for how long the rest may be left alone.
    fn look(&self, watched: &mut Vec<Watched>) -> Option<Duration> {
        let mut wait = None;
        for term in std::mem::take(watched) {
            if let Some((term, left)) = self.end_if_over(term) {
                watched.push(term);
                let left = left.min(WAIT_SLICE);
                wait = Some(wait.map_or(left, |w: Duration| w.min(left)));
            }
        }
        wait
    }

    fn end_if_over(&self, term: Watched) -> Option<(Watched, Duration)> {
        match term.live.check(|| self.clock.now()) {
            Ok(deadline) => Some((term, deadline.saturating_since(self.clock.now()))),
            Err(cause) => {
                let lost = term.wake(cause);
                self.reporter.report(Event::Lost { fence: lost.fence, cause });
                None
            }
        }
    }
}
