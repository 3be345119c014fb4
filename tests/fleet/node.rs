//! The node: a small program that leads whenever it can and says so. This very binary, started again with
//! [`Options`] in its environment.

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use tenure::{AnyStore, Callbacks, CampaignError, ClockTrust, Elector, Event, LeaderGuard, Lost, Term};
use tenure_testground::ClockShim;

use super::clock::LeapingClock;
use super::line::{Line, Stamp, now, say};
use super::profile::{P3, Profile};

const DSN: &str = "TENURE_NODE_DSN";
const ELECTION: &str = "TENURE_NODE_ELECTION";
const LABEL: &str = "TENURE_NODE_LABEL";
const PROFILE: &str = "TENURE_NODE_PROFILE";
const FORM: &str = "TENURE_NODE_FORM";
const END: &str = "TENURE_NODE_END";
const SCHEMA: &str = "TENURE_NODE_SCHEMA";
const CLOCK: &str = "TENURE_NODE_CLOCK";
const STRICT: &str = "TENURE_NODE_STRICT";

/// Between two checks of a leader.
const CHECK_EVERY: Duration = Duration::from_millis(3);
/// A leader says at least so often how long it has led.
const REPORT_EVERY: Duration = Duration::from_millis(40);
/// A node that did not check for so long has stood still.
const GAP: Duration = Duration::from_millis(700);

/// How a node leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// With a guard.
    Guard,
    /// With callbacks: it rides out also what a person must mend.
    Run,
}

/// What SIGTERM makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A clean end: stop, shutdown.
    Shutdown,
    /// `std::process::exit` with the guard in some variable.
    Exit,
    /// `main` returns with the guard in a static.
    Return,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) dsn: String,
    pub(crate) election: String,
    pub(crate) label: String,
    pub(crate) profile: Profile,
    pub(crate) form: Form,
    pub(crate) end: End,
    /// Whether it calls `ensure_schema` first.
    pub(crate) schema: bool,
    /// Whether it distrusts the database's clock also at its very first look.
    pub(crate) strict: bool,
    /// Whatever else is to be in its environment.
    pub(crate) env: Vec<(String, String)>,
    /// Who it runs as, if not as whoever runs this; only root may choose.
    pub(crate) user: Option<u32>,
}

impl Options {
    /// What a node is started with, unless a test wants something else.
    pub(crate) fn new(dsn: String, label: &str) -> Options {
        Options {
            dsn,
            election: "e".to_owned(),
            label: label.to_owned(),
            profile: P3,
            form: Form::Guard,
            end: End::Shutdown,
            schema: false,
            strict: false,
            env: Vec::new(),
            user: None,
        }
    }

    pub(crate) fn put(&self, command: &mut Command) {
        command
            .env(DSN, &self.dsn)
            .env(ELECTION, &self.election)
            .env(LABEL, &self.label)
            .env(PROFILE, self.profile.name())
            .env(FORM, format!("{:?}", self.form))
            .env(END, format!("{:?}", self.end))
            .env(SCHEMA, self.schema.to_string())
            .env(STRICT, self.strict.to_string())
            .envs(self.env.iter().cloned());
    }

    /// Its boot clock leaps with this shim's; what it says is stamped with the true one.
    pub(crate) fn leap_with(&mut self, shim: &ClockShim) {
        self.env.push((CLOCK.to_owned(), shim.path().display().to_string()));
    }

    /// `None`: this process is not a node.
    pub(crate) fn from_env() -> Option<Options> {
        let var = |name| std::env::var(name).ok();
        let dsn = var(DSN)?;
        Some(Options {
            dsn,
            election: var(ELECTION)?,
            label: var(LABEL)?,
            profile: Profile::named(&var(PROFILE)?)?,
            form: if var(FORM)? == "Run" { Form::Run } else { Form::Guard },
            end: match var(END)?.as_str() {
                "Exit" => End::Exit,
                "Return" => End::Return,
                _ => End::Shutdown,
            },
            schema: var(SCHEMA)? == "true",
            strict: var(STRICT)? == "true",
            env: Vec::new(),
            user: None,
        })
    }
}

pub(crate) fn main(options: &Options) -> ExitCode {
    // From the very beginning: a signal that comes early is not to kill it.
    let mut signals = Signals::new([SIGTERM]).expect("a signal handler");
    let store = AnyStore::open(&options.dsn).expect("a usable URL");
    if options.schema {
        if let Err(error) = store.ensure_schema() {
            failed(error.sqlstate(), error.is_fatal(), &error.to_string());
            return ExitCode::from(3);
        }
    }
    let elector = start(store, options);
    say(&Line::Started { at: now(), identity: elector.identity().to_string() });
    report_events(&elector);
    let returning = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let (elector, end, returning) = (elector.clone(), options.end, returning.clone());
        move || {
            if signals.forever().next().is_some() {
                match end {
                    End::Shutdown => elector.stop(),
                    End::Exit => std::process::exit(0),
                    End::Return => returning.store(true, Ordering::SeqCst),
                }
            }
        }
    });
    match options.form {
        Form::Guard => {
            if lead(&elector, &returning) {
                drop(elector);
                say(&Line::Exit { at: now() });
                return ExitCode::SUCCESS;
            }
        }
        Form::Run => {
            elector.run(Reporting { returning, longest: options.profile.term() }).expect("no callback panics")
        }
    }
    let how = match elector.shutdown(Duration::from_secs(10)) {
        Ok(()) => "clean".to_owned(),
        Err(error) => error.to_string(),
    };
    say(&Line::Ended { at: now(), how });
    say(&Line::Exit { at: now() });
    ExitCode::SUCCESS
}

fn start(store: AnyStore, options: &Options) -> Elector {
    let trust = if options.strict { ClockTrust::Strict } else { ClockTrust::Database };
    let config = options.profile.config(&options.election).label(&options.label).clock_trust(trust).build();
    let config = config.expect("a usable profile");
    let elector = match std::env::var_os(CLOCK) {
        Some(shim) => Elector::start_with_clock(store, config, LeapingClock::of(shim.as_ref())),
        None => Elector::start(store, config),
    };
    elector.expect("two threads")
}

fn report_events(elector: &Elector) {
    let events = elector.events();
    thread::spawn(move || {
        for event in events {
            match event {
                Event::Failed { error, .. } => failed(error.sqlstate(), error.is_fatal(), &error.to_string()),
                Event::Observed { leader, .. } => say(&Line::Seen { at: now(), fence: leader.fence.get() }),
                _ => {}
            }
        }
    });
}

fn failed(sqlstate: Option<&str>, fatal: bool, text: &str) {
    let sqlstate = sqlstate.unwrap_or("-").to_owned();
    say(&Line::Err { at: now(), sqlstate, fatal, text: text.to_owned() });
}

/// Leads again and again. True: this program returns with its guard in a static.
fn lead(elector: &Elector, returning: &AtomicBool) -> bool {
    static KEPT: Mutex<Option<LeaderGuard>> = Mutex::new(None);
    loop {
        match elector.wait_for_leadership() {
            Ok(guard) => {
                let fence = guard.fence().get();
                let longest = elector.config().lease_duration() - elector.config().safety_margin();
                watch(&guard.term(), longest, returning);
                if returning.load(Ordering::SeqCst) {
                    *KEPT.lock() = Some(guard);
                    return true;
                }
                drop(guard);
                say(&Line::Stopped { at: now(), fence });
            }
            Err(CampaignError::Stopped) => return false,
            Err(CampaignError::Store(error)) => {
                failed(error.sqlstate(), error.is_fatal(), &error.to_string());
                thread::sleep(elector.config().retry_period());
            }
            Err(error) => panic!("waiting for leadership: {error}"),
        }
    }
}

struct Reporting {
    returning: Arc<AtomicBool>,
    longest: Duration,
}

impl Callbacks for Reporting {
    fn started_leading(&self, term: Term) {
        watch(&term, self.longest, &self.returning);
    }

    fn stopped_leading(&self, lost: Lost) {
        say(&Line::Stopped { at: now(), fence: lost.fence.get() });
    }
}

/// The certain part of a term so far.
#[derive(Clone, Copy)]
struct Certain {
    from: Stamp,
    to: Stamp,
}

/// Checks the term until it is lost, and says how long it was live. `longest`: what no answer may give it.
fn watch(term: &Term, longest: Duration, returning: &AtomicBool) {
    let fence = term.fence().get();
    say(&Line::Lead { at: now(), fence });
    let mut certain: Option<Certain> = None;
    let (mut last, mut reported) = (now(), now());
    while !returning.load(Ordering::SeqCst) {
        let from = now();
        let result = term.check();
        let to = now();
        let remaining = term.remaining();
        assert!(remaining <= longest, "fence {fence} has {remaining:?} left of {longest:?}");
        if from.saturating_sub(last) > GAP {
            say(&Line::Check { ok: result.is_ok(), from, to });
        }
        last = to;
        match result {
            Ok(_) => {
                let certain = certain.get_or_insert(Certain { from: to, to: from });
                certain.to = from;
                if to.saturating_sub(reported) > REPORT_EVERY {
                    reported = to;
                    say(&held(fence, *certain));
                }
            }
            Err(lost) => {
                if let Some(certain) = certain {
                    say(&held(fence, certain));
                }
                say(&Line::Lost { at: to, fence, cause: lost.cause.to_string() });
                return;
            }
        }
        thread::sleep(CHECK_EVERY);
    }
}

fn held(fence: i64, certain: Certain) -> Line {
    Line::Held { fence, from: certain.from, to: certain.to.max(certain.from) }
}
