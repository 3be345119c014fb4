//! Why an elector did not do what it was asked for.

use std::fmt;

use crate::identity::IdentityError;
use crate::store::StoreError;

/// Why an elector could not be started. Nothing was sent to the store.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The operating system gave no randomness for the identity.
    Identity(IdentityError),
    /// A thread could not be spawned.
    Thread(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StartError::Identity(_) => "no identity could be made",
            StartError::Thread(_) => "a thread of the elector could not be spawned",
        })
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Identity(error) => Some(error),
            StartError::Thread(error) => Some(error),
        }
    }
}

/// Why a wait for leadership ended without it.
///
/// ```
/// use std::time::Duration;
/// use tenure::{CampaignError, Config, Elector, MemoryStore};
///
/// let store = MemoryStore::new();
/// let first = Elector::start(store.clone(), Config::builder("billing").build()?)?;
/// let second = Elector::start(store, Config::builder("billing").build()?)?;
/// let _guard = first.wait_for_leadership()?;
/// match second.wait_for_leadership_timeout(Duration::from_millis(20)) {
///     Ok(guard) => unreachable!("two leaders: {guard:?}"),
///     Err(CampaignError::TimedOut) => println!("somebody else leads"),
///     Err(CampaignError::Stopped) => println!("the program ends"),
///     Err(error) => return Err(error.into()), // a person has to mend something
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CampaignError {
    /// [`Elector::stop`](crate::Elector::stop) or a shutdown.
    Stopped,
    /// The time given to [`wait_for_leadership_timeout`](crate::Elector::wait_for_leadership_timeout) is over. What
    /// stood in the way, if anything but another leader, is in [`Status::last_error`](crate::Status::last_error).
    TimedOut,
    /// The store cannot work until a person has mended something: no table, no right, a wrong password. The
    /// elector can be used again.
    Store(StoreError),
    /// This participant only watches; see [`ConfigBuilder::observer`](crate::ConfigBuilder::observer).
    Observer,
    /// The elector's own thread broke. That is a bug in this crate; please report it.
    Failed,
}

impl fmt::Display for CampaignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CampaignError::Stopped => "the elector was stopped",
            CampaignError::TimedOut => "not elected within the given time",
            CampaignError::Store(_) => "the store cannot be used until somebody mends it",
            CampaignError::Observer => "an observer never campaigns; see Elector::events and Elector::status",
            CampaignError::Failed => "the elector's renewal thread broke; start another elector",
        })
    }
}

impl std::error::Error for CampaignError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CampaignError::Store(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a shutdown was not clean. The elector is stopped in any case.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ShutdownError {
    /// The grace is over and a guard is still held or a callback still runs. Renewals have ended and the lease
    /// was **not** released: nobody else leads before it expires.
    WorkStillRunning,
    /// The lease may not have been released; it expires by itself.
    Release(StoreError),
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShutdownError::WorkStillRunning => {
                "work is still running after the grace; the lease was left to expire"
            }
            ShutdownError::Release(_) => "the lease may not have been released; it expires by itself",
        })
    }
}

impl std::error::Error for ShutdownError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ShutdownError::WorkStillRunning => None,
            ShutdownError::Release(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;

    use super::*;
    use crate::callbacks::RunError;
    use crate::guard::{Lost, PublishError};
    use crate::lease::Fence;
    use crate::term::LossCause;

    /// What a user sees who prints an error and all that lies behind it.
    fn told(error: impl Error + Send + Sync + 'static) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            text = format!("{text}: {next}");
            cause = next.source();
        }
        assert!(!text.ends_with('.') && !text.starts_with(char::is_uppercase), "{text}");
        text
    }

    fn io() -> io::Error {
        io::Error::other("no more threads")
    }

    fn down() -> StoreError {
        StoreError::retryable("no answer").with_source(io::Error::other("reset"))
    }

    #[test]
    fn why_it_did_not_start() {
        let thread = "a thread of the elector could not be spawned: no more threads";
        assert_eq!(told(StartError::Thread(io())), thread);
        let identity = StartError::Identity(IdentityError::new("not yet"));
        assert_eq!(told(identity), "no identity could be made: no random numbers for an identity: not yet");
    }

    #[test]
    fn why_a_campaign_ended_without_a_term() {
        assert_eq!(told(CampaignError::Stopped), "the elector was stopped");
        assert_eq!(told(CampaignError::TimedOut), "not elected within the given time");
        let watches = "an observer never campaigns; see Elector::events and Elector::status";
        assert_eq!(told(CampaignError::Observer), watches);
        let broke = "the elector's renewal thread broke; start another elector";
        assert_eq!(told(CampaignError::Failed), broke);
        let error = CampaignError::Store(StoreError::fatal("no table").with_sqlstate("42P01"));
        let mend = "the store cannot be used until somebody mends it: no table (SQLSTATE 42P01)";
        assert_eq!(told(error), mend);
    }

    #[test]
    fn why_a_run_ended_before_it_was_stopped() {
        let panicked = RunError::Panicked { callback: "started_leading", message: "no more work".to_owned() };
        assert_eq!(told(panicked), "started_leading panicked: no more work");
        let thread = "a thread for a callback could not be spawned: no more threads";
        assert_eq!(told(RunError::Thread(io())), thread);
        assert_eq!(told(RunError::Observer), told(CampaignError::Observer));
        assert_eq!(told(RunError::Failed), told(CampaignError::Failed));
    }

    #[test]
    fn why_a_shutdown_was_not_clean() {
        let left = "work is still running after the grace; the lease was left to expire";
        assert_eq!(told(ShutdownError::WorkStillRunning), left);
        let release = "the lease may not have been released; it expires by itself: no answer: reset";
        assert_eq!(told(ShutdownError::Release(down())), release);
    }

    #[test]
    fn why_a_term_ended_and_a_payload_was_not_published() {
        let fence = Fence::try_from(7).unwrap();
        for (cause, text) in [
            (LossCause::Expired, "the deadline passed without a renewal"),
            (LossCause::Superseded, "the database refused the renewal"),
            (LossCause::Resigned, "resigned"),
            (LossCause::Stopped, "the elector was stopped"),
            (LossCause::Failed, "something in this process panicked"),
        ] {
            let over = format!("the term with fence 7 is over: {text}");
            let lost = Lost { fence, cause };
            assert_eq!(told(lost), over);
            assert_eq!(told(PublishError::Lost(lost)), format!("not published, the term is over: {over}"));
        }
        let later = "the store failed while publishing; later renewals publish the payload: no answer: reset";
        assert_eq!(told(PublishError::Store(down())), later);
        let large = "payload of 9 bytes is larger than the limit of 8";
        assert_eq!(told(PublishError::TooLarge { size: 9, limit: 8 }), large);
    }
}
