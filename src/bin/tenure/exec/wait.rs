//! Waiting for leadership: signals, a time limit, and a line that says what is waited for.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use rustix::event::{PollFd, PollFlags};
use tenure::{AnyStore, CampaignError, Elector, LeaderGuard, Status, Store, StoreError};

use super::signals::{Bell, Signals, is_farewell, wait_for};
use super::{reap, say};
use crate::failure::{FAILED, Failure, NOT_IN_TIME, is_missing};
use crate::voice;

/// How often the line is written anew, and looked whether somebody else leads.
const LOOK: Duration = Duration::from_millis(100);
/// For the line to be gone before the command writes; a terminal that stands still holds nobody up for longer.
const MOMENT: Duration = Duration::from_millis(100);

/// How long to wait, and for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The longest wait.
    pub(super) limit: Option<Duration>,
    /// Not at all where somebody else leads.
    pub(super) once: bool,
}

/// What has come of it.
#[derive(Debug)]
pub(super) enum Waited {
    Leads(LeaderGuard),
    /// Somebody else leads, and there was to be no waiting.
    SomebodyElse,
    /// This signal asked for the end.
    Signal(i32),
}

/// Campaigns until this participant leads, or must not wait longer.
///
/// # Errors
/// The time is over, or the store refuses.
pub(super) fn wait(
    elector: &Elector,
    store: &AnyStore,
    patience: Patience,
    signals: &mut Signals,
    bell: &Bell,
) -> Result<Waited, Failure> {
    let mut line = Line::new(elector.config().name());
    if !line.on_terminal {
        log::info!("{}: waiting to lead, as {}", elector.config().name(), elector.identity());
    }
    let until = patience.limit.map(|limit| Instant::now() + limit);
    let answer = campaign(elector, store, until, bell)?;
    loop {
        let mut descriptors = [PollFd::new(&*signals, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
        wait_for(&mut descriptors, LOOK);
        bell.hush();
        if let Some(signal) = signals.pending().into_iter().find(|signal| is_farewell(*signal)) {
            line.clear();
            drop(give_up(elector, &answer));
            return Ok(Waited::Signal(signal));
        }
        if let Ok(answer) = answer.try_recv() {
            line.clear();
            return answer.map(Waited::Leads).map_err(|error| why_not(error, elector, patience));
        }
        // The campaign knows it as well, but not while it creates the table.
        if until.is_some_and(|until| Instant::now() > until + LOOK) {
            line.clear();
            let why = match give_up(elector, &answer) {
                Some(Err(error @ CampaignError::Store(_))) => error,
                _ => CampaignError::TimedOut,
            };
            return Err(why_not(why, elector, patience));
        }
        reap::reap_others(None);
        let status = elector.status();
        if patience.once && status.leader.as_deref().is_some_and(|leader| leader != status.identity.as_str())
        {
            line.clear();
            drop(give_up(elector, &answer));
            return Ok(Waited::SomebodyElse);
        }
        line.show(&status);
        if !patience.once {
            line.tell(&status);
        }
    }
}

type Answer = Result<LeaderGuard, CampaignError>;

/// Campaigns on a thread of its own, which rings the bell when it has an answer.
fn campaign(
    elector: &Elector,
    store: &AnyStore,
    until: Option<Instant>,
    bell: &Bell,
) -> Result<Receiver<Answer>, Failure> {
    let (sender, answer) = bounded(1);
    let (elector, store, bell) = (elector.clone(), store.clone(), bell.clone());
    let left = move || until.map(|until| until.saturating_duration_since(Instant::now()));
    let body = move || {
        let config = elector.config();
        let time = || left().unwrap_or(Duration::MAX).min(config.operation_timeout());
        let answer = loop {
            let prepared = create_what_is_missing(&store, config.name(), time());
            let created = matches!(prepared, Ok(true));
            if let Some(error) = prepared.err().filter(|error| !error.is_retryable()) {
                break Err(CampaignError::Store(error));
            }
            let answer = match left() {
                None => elector.wait_for_leadership(),
                Some(left) => elector.wait_for_leadership_timeout(left),
            };
            match &answer {
                // The store could not be looked at before, or the table has gone since.
                Err(CampaignError::Store(error)) if is_missing(error) && !created => {
                    std::thread::sleep(config.retry_period().min(time()));
                }
                _ => break answer,
            }
        };
        let _ = sender.send(answer);
        bell.ring();
    };
    let thread = std::thread::Builder::new().name("tenure-campaign".to_owned()).spawn(body);
    thread.map_err(|error| Failure::new(FAILED, format!("no thread to campaign on: {error}")))?;
    Ok(answer)
}

/// Where the store cannot be used as it is, the table may just be missing. It is not looked for otherwise: a role that
/// may not look into the catalog can campaign all the same. What may pass by itself is left to the campaign. Whether
/// it was created.
fn create_what_is_missing(store: &AnyStore, election: &str, time: Duration) -> Result<bool, StoreError> {
    match store.observe(election, time) {
        Err(error) if error.is_fatal() => store.ensure_schema().map(|()| true),
        _ => Ok(false),
    }
}

/// Stops campaigning. A term that was won at the same moment is given back, once what this returns is dropped.
fn give_up(elector: &Elector, answer: &Receiver<Answer>) -> Option<Answer> {
    elector.stop();
    answer.recv_timeout(elector.config().operation_timeout()).ok()
}

fn why_not(error: CampaignError, elector: &Elector, patience: Patience) -> Failure {
    let name = elector.config().name();
    match error {
        CampaignError::Store(error) => error.into(),
        CampaignError::TimedOut => {
            let unanswered = elector.status().last_error;
            let stood_in_the_way = |error: StoreError| format!(": {error}");
            let why = unanswered.map_or_else(String::new, stood_in_the_way);
            match patience.once {
                true => Failure::new(FAILED, format!("{name}: it was not found out in time who leads{why}")),
                false => Failure::new(NOT_IN_TIME, format!("{name}: not elected within --wait{why}")),
            }
        }
        error => Failure::new(FAILED, format!("{name}: {error}")),
    }
}

/// The line on a terminal that says what is waited for, written over itself. Nothing elsewhere.
struct Line<'a> {
    election: &'a str,
    on_terminal: bool,
    shown: String,
    failing: bool,
}

impl Line<'_> {
    fn new(election: &str) -> Line<'_> {
        Line { election, on_terminal: std::io::stderr().is_terminal(), shown: String::new(), failing: false }
    }

    fn show(&mut self, status: &Status) {
        // On a terminal that stands still it would be old by the time it is shown.
        if !self.on_terminal || !voice::is_heard() {
            return;
        }
        let leader = status.leader.as_deref().zip(status.leader_fence.map(|fence| fence.get()));
        let error = status.last_error.as_ref().map(ToString::to_string);
        let text = text(self.election, leader, status.observed_age, error.as_deref());
        let size = rustix::termios::tcgetwinsize(std::io::stderr());
        // Some terminals do not know their own.
        let width = size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 1);
        let line = fitted(&text, width.unwrap_or(80) - 1);
        if line != self.shown {
            voice::say(format!("\r{line}\x1b[K"));
            self.shown = line;
        }
    }

    /// Where there is no terminal: a store that fails, and that it does so no longer. Each is said once, for the log of a
    /// service that waits for ever.
    fn tell(&mut self, status: &Status) {
        if self.on_terminal || self.failing == status.last_error.is_some() {
            return;
        }
        self.failing = !self.failing;
        let election = self.election;
        match &status.last_error {
            Some(error) => say(format_args!("{election}: waiting to lead, and the store fails: {error}")),
            None => say(format_args!("{election}: waiting to lead; the store answers again")),
        }
    }

    fn clear(&mut self) {
        if !std::mem::take(&mut self.shown).is_empty() {
            voice::say("\r\x1b[K");
            voice::finish(MOMENT);
        }
    }
}

fn text(election: &str, leader: Option<(&str, i64)>, age: Option<Duration>, error: Option<&str>) -> String {
    let mut text = format!("tenure: waiting to lead {election}");
    let _ = match (leader, age) {
        (Some((leader, fence)), Some(age)) => {
            write!(text, "; {} leads, fence {fence}, seen {:.1} s ago", short(leader), age.as_secs_f64())
        }
        (None, Some(_)) => write!(text, "; nobody leads yet"),
        (_, None) => write!(text, "; no answer yet"),
    };
    if let Some(error) = error {
        let _ = write!(text, "; {error}");
    }
    text
}

/// An identity without most of its random part, which would take half of the line.
fn short(holder: &str) -> String {
    match holder.rsplit_once('-') {
        Some((label, random)) if random.len() > 8 && random.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            format!("{label}-{}…", &random[..4])
        }
        _ => holder.to_owned(),
    }
}

/// On one line of so many columns; what a name or a server's message could do to a terminal is taken out.
fn fitted(text: &str, width: usize) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_who_leads_and_what_fails() {
        let second = Some(Duration::from_millis(1_250));
        assert_eq!(text("e", None, None, None), "tenure: waiting to lead e; no answer yet");
        assert_eq!(text("e", None, second, None), "tenure: waiting to lead e; nobody leads yet");
        assert_eq!(
            text("e", Some(("web-1-5f0c8e7a6b5c4d3e2f1a0b9c8d7e6f5a", 7)), second, Some("refused")),
            "tenure: waiting to lead e; web-1-5f0c… leads, fence 7, seen 1.2 s ago; refused"
        );
    }

    #[test]
    fn the_line_keeps_to_the_terminal() {
        assert_eq!(fitted("a\nb\x1b[2Jc", 80), "a b [2Jc");
        assert_eq!(fitted("äöü", 2), "äö");
        assert_eq!(fitted("", 2), "");
    }
}
