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
    /// The elector's own thread broke. That is a bug in this crate; please report it.
    Failed,
}

impl fmt::Display for CampaignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CampaignError::Stopped => "the elector was stopped",
            CampaignError::TimedOut => "not elected within the given time",
            CampaignError::Store(_) => "the store cannot be used",
            CampaignError::Failed => "the elector's renewal thread broke",
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
