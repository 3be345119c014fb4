//! What the callback form calls.

use std::any::Any;
use std::fmt;

use crate::event::Leader;
use crate::guard::{Lost, Term};

/// What [`Elector::run`](crate::Elector::run) calls. Any of them may call the elector, [`Elector::stop`](crate::Elector::stop) included.
///
/// A closure `Fn(Term)` is the short form with only `started_leading`.
///
/// ```
/// use tenure::{Callbacks, Config, Elector, Leader, Lost, MemoryStore, Term};
///
/// struct Report(Elector);
///
/// impl Callbacks for Report {
///     fn started_leading(&self, term: Term) {
///         println!("leading with fence {}", term.fence());
///         self.0.stop(); // enough for an example
///     }
///     fn stopped_leading(&self, lost: Lost) {
///         println!("{lost}");
///     }
///     fn new_leader(&self, leader: &Leader) {
///         println!("{} leads", leader.holder);
///     }
/// }
///
/// let elector = Elector::start(MemoryStore::new(), Config::builder("report").build()?)?;
/// elector.run(Report(elector.clone()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Callbacks: Send + Sync {
    /// This participant leads. Runs in a thread of its own, one term at a time. Do the work here, as long as
    /// [`Term::check`] succeeds; when this returns, the term ends and the lease is released.
    ///
    /// Once the term is over, return soon: somebody else may lead. Nothing is campaigned for until then.
    fn started_leading(&self, term: Term);

    /// The term is over and `started_leading` has returned. Called exactly once for each of its calls.
    fn stopped_leading(&self, lost: Lost) {
        let _ = lost;
    }

    /// An observation showed another term than before, this participant's own included. Runs in a thread of its
    /// own; while it blocks, changes are not lost but summed up: it is called again with the latest.
    fn new_leader(&self, leader: &Leader) {
        let _ = leader;
    }
}

impl<F: Fn(Term) + Send + Sync> Callbacks for F {
    fn started_leading(&self, term: Term) {
        self(term);
    }
}

/// Why [`Elector::run`](crate::Elector::run) ended before it was stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// A callback panicked. Its term is over and the lease was released.
    Panicked {
        /// Which one.
        callback: &'static str,
        /// What it said.
        message: String,
    },
    /// A thread for a callback could not be spawned. No term is left behind.
    Thread(std::io::Error),
    /// This participant only watches, so it would never call `started_leading`; see
    /// [`ConfigBuilder::observer`](crate::ConfigBuilder::observer). Nothing was called.
    Observer,
    /// The elector's own thread broke. That is a bug in this crate; please report it.
    Failed,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Panicked { callback, message } => write!(f, "{callback} panicked: {message}"),
            RunError::Thread(_) => f.write_str("a thread for a callback could not be spawned"),
            RunError::Observer => {
                f.write_str("an observer never campaigns; see Elector::events and Elector::status")
            }
            RunError::Failed => f.write_str("the elector's renewal thread broke; start another elector"),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Thread(error) => Some(error),
            _ => None,
        }
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no message".to_owned(),
    }
}
