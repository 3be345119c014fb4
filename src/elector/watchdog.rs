//! The watchdog: sleeps to the deadline, ends the term, wakes whoever waits, reports (rule 6).
//!
//! It takes no lock and makes no call that anybody else could hold up: it reads its channel, the clock and the
//! term's atomic word, and writes to channels that have room.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::event::{Event, Reporter};
use crate::guard::{WAIT_SLICE, Watched};
use crate::lease::Fence;
use crate::store::StoreError;
use crate::term::LossCause;
use crate::time::Clock;

#[derive(Debug)]
pub(crate) enum Watch {
    /// A term to watch from now on.
    Term(Watched),
    /// A term was ended by somebody: look.
    Look,
    /// A renewal of this term failed; without the error's source, whose drop is foreign code.
    Failing(Fence, StoreError),
    /// A renewal of this term succeeded after that.
    Renewed(Fence),
    /// There will be no more terms.
    Quit,
}

#[derive(Debug)]
pub(crate) struct Watchdog {
    pub(crate) inbox: Receiver<Watch>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reporter: Arc<Reporter>,
}

/// A term, and why its renewals fail, if they do.
struct Watching {
    term: Watched,
    failing: Option<StoreError>,
}

impl Watchdog {
    pub(crate) fn run(self) {
        let mut watched: Vec<Watching> = Vec::new();
        let mut stalled = Duration::ZERO;
        loop {
            let wait = self.look(&mut watched, stalled);
            let planned = wait.map(|wait| self.clock.now() + wait);
            let news = match wait {
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wait) => self.inbox.recv_timeout(wait),
            };
            stalled = planned.map_or(Duration::ZERO, |planned| self.clock.now().saturating_since(planned));
            match news {
                Ok(Watch::Term(term)) => watched.push(Watching { term, failing: None }),
                Ok(Watch::Failing(fence, error)) => note_failing(&mut watched, fence, Some(error)),
                Ok(Watch::Renewed(fence)) => note_failing(&mut watched, fence, None),
                Ok(Watch::Look) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Watch::Quit) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // A term that nobody watches must not go on.
        for watching in watched {
            let _ = watching.term.live.seal(|| self.clock.now(), LossCause::Failed);
            self.end_if_over(watching, Duration::ZERO);
        }
    }

    /// Ends what is over, and says for how long the rest may be left alone. `stalled`: this look comes so much too
    /// late.
    fn look(&self, watched: &mut Vec<Watching>, stalled: Duration) -> Option<Duration> {
        let mut wait = None;
        for watching in std::mem::take(watched) {
            if let Some((watching, left)) = self.end_if_over(watching, stalled) {
                watched.push(watching);
                let left = left.min(WAIT_SLICE);
                wait = Some(wait.map_or(left, |w: Duration| w.min(left)));
            }
        }
        wait
    }

    fn end_if_over(&self, watching: Watching, stalled: Duration) -> Option<(Watching, Duration)> {
        match watching.term.live.check(|| self.clock.now()) {
            Ok(deadline) => Some((watching, deadline.saturating_since(self.clock.now()))),
            Err(cause) => {
                let Watching { term, failing } = watching;
                let lost = term.wake(cause);
                let error = failing.filter(|_| matches!(cause, LossCause::Expired | LossCause::Failed));
                self.reporter.report(Event::Lost { fence: lost.fence, cause, error, stalled });
                None
            }
        }
    }
}

fn note_failing(watched: &mut [Watching], fence: Fence, error: Option<StoreError>) {
    if let Some(watching) = watched.iter_mut().find(|watching| watching.term.live.fence() == fence) {
        watching.failing = error;
    }
}
