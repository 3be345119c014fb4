//! What happens to the row itself, and the orders of events that are outside of the promise (README, Limits).
//!
//! A fence rises above what the new leader has seen. So where the row is deleted or set back, nobody may lead
//! afterwards who has missed a term, and exactly these orders are avoided:
//!
//! 1. *The row is taken away while somebody has not seen its present term* (frozen, cut off, or about to have its
//!    first look). Hence only out of a calm, in which every node has said that it has seen it. This also excludes
//!    the released row that comes back while nobody has seen its successor.
//! 2. *The row is taken away while a statement is on its way that was to create it where there was none*, after
//!    an earlier such fault: it would find no row again, and know nothing of the term in between. A node makes one
//!    call at a time, so whoever has seen the present term has got its answer or has given it up. What was given up
//!    can only lie in a queue on the way, and these have flowed for the whole calm.
//! 3. *A node starts after that, and before somebody leads with a higher fence*: it would begin at the fence
//!    that it finds. Hence replacements wait (`may_settle`), and so that somebody is left who can be waited for,
//!    the veterans are never killed.
//!
//! Everything else may follow and does: paths cut, nodes frozen and killed, the server crashed, its clock stepped
//! while nobody leads. First looks after a step of the clock are inside the promise, since the nodes are started
//! with `ClockTrust::Strict`; so are two nodes that were never told apart by anything but the random part of their
//! identities.

use crate::arena::{Arena, SEATS};
use crate::fleet::rows::set_back;
use crate::plan::Tampering;

impl Arena<'_> {
    /// Whether a node that has never looked may have its first look.
    pub(crate) fn may_settle(&mut self) -> bool {
        if let Some(gone) = self.awaited {
            if self.fleet.latest().is_some_and(|led| led.fence > gone) {
                self.awaited = None;
            }
        }
        self.awaited.is_none()
    }

    /// Whether every seat is taken by a node that has seen the present term, and nothing is broken.
    pub(crate) fn everybody_watches(&self) -> bool {
        let Some(led) = self.leader() else { return false };
        self.actives.is_empty() && (0..SEATS).all(|seat| self.has_seen(seat, led.fence))
    }

    /// To be called out of a calm. Does nothing where the row is another term's than everybody has seen.
    pub(crate) fn tamper(&mut self, how: Tampering) {
        let present = self.leader().filter(|_| self.everybody_watches()).map(|led| led.fence);
        let fence = present.and_then(|fence| self.changed(how, fence));
        // As long as the row has the fence that it had, nothing is missing.
        self.awaited = present.filter(|present| fence.is_some_and(|fence| fence < *present));
        self.count(how.to_string(), fence.is_some());
        if let (Some(present), Some(fence)) = (present, fence) {
            self.note(format!("{how}: fence {present} is now {fence}"));
        }
    }

    /// The fence that is left; 0 for no row.
    fn changed(&self, how: Tampering, present: i64) -> Option<i64> {
        let mut client = self.ground.database.client();
        let mut work = client.transaction().expect("a transaction");
        // Nobody's term changes between the look and the change.
        work.batch_execute("LOCK TABLE leader_election IN ACCESS EXCLUSIVE MODE").expect("the table's lock");
        let row = work.query_opt("SELECT fence FROM leader_election WHERE name = 'e'", &[]);
        if row.expect("an answer").map(|row| row.get(0)) != Some(present) {
            return None;
        }
        let fence = match how {
            Tampering::Deleted => work.execute("DELETE FROM leader_election", &[]).map(|_| Some(0)),
            Tampering::Truncated => work.batch_execute("TRUNCATE leader_election").map(|()| Some(0)),
            Tampering::SetBack(writes) => set_back(&mut work, "true", writes),
            Tampering::SetBackToReleased => {
                let earlier = format!("expires_at = 'epoch' AND fence < {present}");
                set_back(&mut work, &earlier, 0)
            }
        };
        work.commit().expect("a commit");
        fence.expect("it can be changed")
    }

    /// So many of the last states of the row are kept for setting it back.
    pub(crate) fn prune_history(&self) {
        let sql = "DELETE FROM lease_history WHERE seq < (SELECT max(seq) - 500 FROM lease_history)";
        self.ground.database.execute(sql);
    }
}
