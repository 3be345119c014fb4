//! The parts that a participant is made of. The usual ones are the real ones; tests put wrong ones in their place,
//! to see that the world notices.

use std::fmt;
use std::sync::Arc;

use crate::election::TermChange;
use crate::lease::Fence;
use crate::store::Store;
use crate::term::{AtomicTerm, LossCause};
use crate::time::Time;

/// What the world asks of a term.
pub(crate) trait LiveTerm: fmt::Debug {
    fn fence(&self) -> Fence;
    fn check(&self, now: Time) -> Result<Time, LossCause>;
    fn is_live_at(&self, now: Time) -> bool;
    fn extend(&self, now: Time, deadline: Time) -> Result<(), LossCause>;
    fn seal(&self, now: Time, cause: LossCause) -> Result<(), LossCause>;
}

impl LiveTerm for AtomicTerm {
    fn fence(&self) -> Fence {
        AtomicTerm::fence(self)
    }
    fn check(&self, now: Time) -> Result<Time, LossCause> {
        AtomicTerm::check(self, || now)
    }
    fn is_live_at(&self, now: Time) -> bool {
        AtomicTerm::is_live_at(self, now)
    }
    fn extend(&self, now: Time, deadline: Time) -> Result<(), LossCause> {
        AtomicTerm::extend(self, || now, deadline)
    }
    fn seal(&self, now: Time, cause: LossCause) -> Result<(), LossCause> {
        AtomicTerm::seal(self, || now, cause)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) term: fn(Fence, Time) -> Arc<dyn LiveTerm>,
    /// What stands between the participant and the store.
    pub(crate) store: Option<Arc<dyn Store>>,
    /// Wrong: the deadline counts from the reply.
    pub(crate) anchors_at_reply: bool,
    /// Wrong: each look is its first, so the database's clock alone decides.
    pub(crate) forgets: bool,
}

impl Default for Parts {
    fn default() -> Parts {
        Parts {
            term: |fence, deadline| Arc::new(AtomicTerm::new(fence, deadline)),
            store: None,
            anchors_at_reply: false,
            forgets: false,
        }
    }
}

impl Parts {
    /// What the participant's process makes of a change that the machine asked for at `now`, after a call sent at
    /// `sent`.
    pub(super) fn understand(&self, now: Time, sent: Time, change: TermChange) -> Option<TermChange> {
        if !self.anchors_at_reply {
            return Some(change);
        }
        let late = now.saturating_since(sent);
        match change {
            TermChange::Begin { fence, deadline } => {
                Some(TermChange::Begin { fence, deadline: deadline + late })
            }
            TermChange::Extend { fence, deadline } => {
                Some(TermChange::Extend { fence, deadline: deadline + late })
            }
            // Its own deadline is a later one.
            TermChange::End { cause: LossCause::Expired, .. } => None,
            TermChange::End { .. } => Some(change),
        }
    }
}
