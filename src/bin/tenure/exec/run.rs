//! The run from the first option checked to the exit code.

use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use tenure::{AnyStore, Clock, Config, Elector, LeaderGuard, SystemClock, Time};

use super::lead::{self, Crew, End};
use super::signals::{Bell, Signals, is_farewell, wait_for};
use super::timing::Leads;
use super::wait::{self, Patience, Waited};
use super::{Exec, say, stage};
use crate::failure::{FAILED, Failure, LOST};

/// System waits stop while the machine is suspended.
const SLICE: Duration = Duration::from_millis(200);

impl Exec {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        // Nothing is connected to yet, and no file is opened.
        let store = self.store.open()?;
        let config = self.config(&store)?;
        let leads = Leads::of(&config, self.grace)?;
        self.check_times()?;
        if matches!(store, AnyStore::Memory(_)) {
            let hint = "use sqlite:/path/of/a/file on one host, postgres://.. on several";
            return Err(Failure::new(
                FAILED,
                "--store: memory is this process's own; nobody competes for it",
            )
            .hint(hint));
        }
        if let Some(command) = self.command.first() {
            stage::look_for(command)?;
        }
        lead::prepare()?;
        let failed = |error: std::io::Error| Failure::new(FAILED, format!("tenure cannot start: {error}"));
        let mut signals = Signals::take(&lead::PASSED_ON).map_err(failed)?;
        let bell = Bell::new().map_err(|error| failed(error.into()))?;
        let patience = self.patience(&config);
        let elector = Elector::start(store.clone(), config)
            .map_err(|error| Failure::new(FAILED, format!("tenure cannot start: {error}")))?;
        let crew = Crew { elector: &elector, store: &self.store, command: &self.command, leads, bell: &bell };
        loop {
            let guard = match wait::wait(&elector, &store, patience, &mut signals, &bell)? {
                Waited::Leads(guard) => guard,
                Waited::SomebodyElse => return Ok(ExitCode::SUCCESS),
                Waited::Signal(signal) => return Ok(code_of_signal(signal)),
            };
            let since = SystemClock::new().now();
            let mut farewells = Vec::new();
            let watch = ring_at_the_end(&guard, &bell)?;
            let end = lead::lead(&crew, &guard, &mut signals, &mut farewells);
            farewells.extend(signals.pending().into_iter().filter(|signal| is_farewell(*signal)));
            if let Some(signal) = farewells.iter().find(|signal| has_struck(&end, **signal)) {
                return Ok(code_of_signal(*signal));
            }
            let end = end?;
            if let (End::Itself(_), Some(at_least), true) = (&end, self.at_least, farewells.is_empty()) {
                wait_until(since + at_least, &mut signals, &bell, || guard.is_leader());
            }
            hand_over(guard);
            // It ends with the term, which has ended.
            let _ = watch.join();
            bell.hush();
            match end {
                End::Itself(code) => return Ok(ExitCode::from(code)),
                End::Lost(why) if self.restart && farewells.is_empty() => {
                    say(format_args!("{}; waiting to lead again", because(&elector, &why)));
                }
                End::Failed(why, _) if self.restart && farewells.is_empty() => {
                    say(format_args!("{}; waiting to lead again", because(&elector, &why)));
                    // What fails will perhaps fail again: not as fast as it can, and others may be quicker.
                    let until = SystemClock::new().now() + elector.config().retry_period();
                    if let Some(signal) = wait_until(until, &mut signals, &bell, || true) {
                        return Ok(code_of_signal(signal));
                    }
                }
                End::Lost(why) => return Err(Failure::new(LOST, because(&elector, &why))),
                End::Failed(why, _) => return Err(Failure::new(FAILED, because(&elector, &why))),
            }
        }
    }

    fn config(&self, store: &AnyStore) -> Result<Config, Failure> {
        let mut builder = self.timings.config(&self.election);
        if self.timings.retry_period.is_none() {
            builder = builder.retry_period(retry_period(store));
        }
        if let Some(label) = &self.label {
            builder = builder.label(label);
        }
        if let Some(payload) = &self.payload {
            builder = builder.payload(payload.as_bytes().to_vec());
        }
        Ok(builder.build()?)
    }

    fn check_times(&self) -> Result<(), Failure> {
        for (field, time) in [("--wait", self.wait), ("--at-least", self.at_least)] {
            let fits = |time: &Duration| (Config::MIN_DURATION..=Config::MAX_LEASE_DURATION).contains(time);
            if !time.as_ref().is_none_or(fits) {
                return Err(Failure::new(FAILED, format!("{field} must be from 1 ms to 31 days")));
            }
        }
        Ok(())
    }

    fn patience(&self, config: &Config) -> Patience {
        // Time for a look and an attempt.
        let limit = if self.once { Some(2 * config.operation_timeout()) } else { self.wait };
        Patience { limit, once: self.once }
    }
}

/// How often to look where nobody says so. A killed `tenure` has its lease given back at once, so that this is what the next
/// one takes to notice; a look at a file costs next to nothing, and one at a server little.
fn retry_period(store: &AnyStore) -> Duration {
    match store {
        AnyStore::Sqlite(_) => Duration::from_millis(100),
        _ => Duration::from_millis(500),
    }
}

/// Which election it was, and what the store's last failure was, if that is not over.
fn because(elector: &Elector, why: &str) -> String {
    let election = elector.config().name();
    match elector.status().last_error {
        Some(error) => format!("{election}: {why}; the last call failed: {error}"),
        None => format!("{election}: {why}"),
    }
}

/// Whether the failure is this signal's work: it was for the whole process group.
fn has_struck(end: &Result<End, Failure>, signal: i32) -> bool {
    match end {
        // It came while there was no guardian yet.
        Err(_) => true,
        // It has ended a guardian that was only just starting: one that stands guard has handlers.
        Ok(End::Failed(_, Some(code))) => i32::from(*code) == 128 + signal,
        Ok(_) => false,
    }
}

fn code_of_signal(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(FAILED))
}

/// Rings the bell when the term is over, on a thread that ends with it.
fn ring_at_the_end(guard: &LeaderGuard, bell: &Bell) -> Result<std::thread::JoinHandle<()>, Failure> {
    let (lost, bell) = (guard.lost().clone(), bell.clone());
    let thread = std::thread::Builder::new().name("tenure-lost".to_owned()).spawn(move || {
        let _ = lost.recv();
        bell.ring();
    });
    thread.map_err(|error| Failure::new(FAILED, format!("no thread to watch the term with: {error}")))
}

/// Waits until then, for as long as that goes on; the signal that asked for an earlier end.
fn wait_until(until: Time, signals: &mut Signals, bell: &Bell, goes_on: impl Fn() -> bool) -> Option<i32> {
    while goes_on() {
        let left = until.saturating_since(SystemClock::new().now());
        if left.is_zero() {
            return None;
        }
        if let Some(signal) = signals.pending().into_iter().find(|signal| is_farewell(*signal)) {
            return Some(signal);
        }
        let mut descriptors = [PollFd::new(&*signals, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
        wait_for(&mut descriptors, left.min(SLICE));
        bell.hush();
    }
    None
}

/// Releases the lease, if it is still ours. Nothing of the command is left.
fn hand_over(guard: LeaderGuard) {
    if guard.is_leader() {
        if let Err(error) = guard.resign() {
            log::warn!("the lease may not have been released; it expires by itself: {error}");
        }
    }
}
