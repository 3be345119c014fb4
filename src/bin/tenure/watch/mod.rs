//! `tenure watch`: a line for each change.
//!
//! One thread looks and compares; the main one writes, and ends with the first signal, whatever the other waits for.

mod changes;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use serde_json::{Map, Value};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tenure::{AnyStore, Lease, Store, StoreError};

use crate::failure::{FAILED, Failure};
use crate::options::{Bound, Elections, Found, Pace, StoreOptions};
use crate::output::{is_unread, json_line, printable, say, short};
use crate::view;
use changes::{Change, Seen};

/// How soon after an expiry to look, so that it is reported when it happens.
const AFTER_EXPIRY: Duration = Duration::from_millis(20);
/// Lines that may wait to be written.
const LINES: usize = 64;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure watch --store postgres://app@db/app
  tenure watch --election invoice-reconciler --json >>/var/log/leaders.jsonl

It only reads. A change is seen at the next look, so of terms that are shorter
than --retry-period some are missed. Times are this host's, in UTC. It ends
with code 0 on SIGINT and SIGTERM, and when nobody reads its output any more.

With --json each line is an object with `at`, `change` (found, new_term,
released, expired, revived, payload, fence_regressed, gone) and the keys of
`tenure status --json`; or with `at`, `change` (failing, answering) and
`error`. What changes while the store is failing is told once it answers.")]
pub(crate) struct Watch {
    #[command(flatten)]
    store: StoreOptions,
    #[command(flatten)]
    elections: Elections,
    /// A line of JSON for each change.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    bound: Bound,
}

/// What the thread that looks has to say.
enum Report {
    Line(String),
    /// It has looked.
    Looked,
    /// The store can't be used at all.
    Failed(StoreError),
}

impl Watch {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        self.elections.check()?;
        let store = self.store.open()?;
        let signalled = signals()?;
        let (sender, reports) = bounded(LINES);
        let (_stop, stopped) = bounded(0);
        let spawned = thread::Builder::new().name("tenure-watch".into()).spawn(move || {
            let seen = BTreeMap::new();
            Watcher { watch: self, store, seen, looked: false, failing: None, expiry: None }
                .follow(&sender, &stopped);
        });
        spawned.map_err(|error| Failure::new(FAILED, format!("can't start a thread: {error}")))?;
        loop {
            crossbeam_channel::select! {
                recv(signalled) -> _ => return Ok(ExitCode::SUCCESS),
                recv(reports) -> report => match report {
                    Ok(Report::Line(line)) => say(&line)?,
                    Ok(Report::Looked) if is_unread() => return Ok(ExitCode::SUCCESS),
                    Ok(Report::Looked) => {}
                    Ok(Report::Failed(error)) => return Err(error.into()),
                    Err(_) => return Err(Failure::new(FAILED, "the thread that looks has ended")),
                }
            }
        }
    }
}

/// Gets a word with the first of the signals that end the command.
fn signals() -> Result<Receiver<()>, Failure> {
    let failed = |error: std::io::Error| Failure::new(FAILED, format!("can't listen for signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let (sender, receiver) = bounded(1);
    let listen = move || {
        for _ in signals.forever() {
            // Once is enough.
            sender.try_send(()).ok();
        }
    };
    thread::Builder::new().name("tenure-signals".into()).spawn(listen).map_err(failed)?;
    Ok(receiver)
}

struct Watcher {
    watch: Watch,
    store: AnyStore,
    seen: BTreeMap<String, Seen>,
    /// Whether there has been an answer.
    looked: bool,
    /// Since when, and with which words.
    failing: Option<(Instant, String)>,
    /// How long after the last answer the first of the leases in it runs out.
    expiry: Option<Duration>,
}

impl Watcher {
    /// Until nobody listens.
    fn follow(mut self, sender: &Sender<Report>, stopped: &Receiver<()>) {
        loop {
            let reports = match self.look() {
                Ok(leases) => self.answered(leases),
                Err(error) if !self.looked && error.is_fatal() => vec![Report::Failed(error)],
                Err(error) => self.failed(&error),
            };
            for report in reports.into_iter().chain([Report::Looked]) {
                if sender.send(report).is_err() {
                    return;
                }
            }
            if stopped.recv_timeout(self.pause()) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn look(&self) -> Result<Found, StoreError> {
        let timeout = self.watch.bound.operation_timeout;
        if let Some(named) = self.watch.elections.named(&self.store, timeout) {
            return named;
        }
        let listed = self.store.list(timeout)?;
        let known = self.seen.keys().filter(|name| is_covered(&listed, name));
        let mut leases: BTreeMap<_, _> = known.map(|name| (name.clone(), None)).collect();
        leases.extend(listed.into_iter().map(|lease| (lease.name().to_owned(), Some(lease))));
        Ok(leases.into_iter().collect())
    }

    fn answered(&mut self, leases: Found) -> Vec<Report> {
        let mut reports = Vec::new();
        if let Some((since, _)) = self.failing.take() {
            let silent = format!("the store answers again after {}", short(since.elapsed()));
            reports.push(self.line(None, "answering", &silent, Map::new()));
        }
        let live = leases.iter().filter_map(|(_, lease)| lease.as_ref()).filter(|lease| !lease.is_expired());
        self.expiry = live.map(|lease| lease.ttl() + AFTER_EXPIRY).min();
        for (name, lease) in leases {
            let new = if self.looked { Seen::appeared } else { Seen::default };
            let changes = self.seen.entry(name.clone()).or_insert_with(new).look(lease);
            reports.extend(changes.iter().map(|change| self.told(&name, change)));
        }
        self.looked = true;
        reports
    }

    fn told(&self, name: &str, change: &Change) -> Report {
        self.line(Some(name), change.word(), &change.sentence(), view::json(name, change.lease()))
    }

    /// Told when it begins, and when it fails for another reason.
    fn failed(&mut self, error: &StoreError) -> Vec<Report> {
        // Of before: a store that is failing is not asked more often for it.
        self.expiry = None;
        let said = error.to_string();
        if self.failing.as_ref().is_some_and(|(_, before)| *before == said) {
            return Vec::new();
        }
        let since = self.failing.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        self.failing = Some((since, said.clone()));
        let fields = [("error".to_owned(), Value::from(said.clone()))].into_iter().collect();
        vec![self.line(None, "failing", &format!("the store is failing: {}", printable(&said)), fields)]
    }

    fn line(
        &self,
        election: Option<&str>,
        word: &str,
        sentence: &str,
        mut fields: Map<String, Value>,
    ) -> Report {
        let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        Report::Line(if self.watch.json {
            fields.insert("at".into(), at.into());
            fields.insert("change".into(), word.into());
            json_line(&Value::Object(fields))
        } else {
            match election {
                Some(election) => format!("{at} {}: {sentence}", printable(election)),
                None => format!("{at} {sentence}"),
            }
        })
    }

    /// Until the next look is due, or a lease would have expired.
    fn pause(&self) -> Duration {
        let period = self.watch.pace.retry_period;
        self.expiry.map_or(period, |expiry| expiry.min(period))
    }
}

/// Whether an election that is not in this list is gone. Of a full list, what comes behind its last one may be there.
fn is_covered(listed: &[Lease], name: &str) -> bool {
    listed.len() < Lease::MAX_LISTED || listed.last().is_none_or(|last| name <= last.name())
}
