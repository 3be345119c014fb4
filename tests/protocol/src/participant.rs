//! A participant: its memory, its term, and its one call. Its clock always shows 0; see `memory`.

use crate::Ticks;
use crate::database::{Row, Seen, Statement};
use crate::memory::{Memory, Views};
use crate::rules::Anchor;

/// One unbroken leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    pub(crate) fence: u16,
    /// Live before this, by the participant's clock.
    pub(crate) deadline: Ticks,
}

/// The call that a participant waits for. `at` is when it was sent, by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    /// A write that has not arrived yet.
    Sent { what: Statement, at: Ticks },
    /// The answer to a write is on its way.
    Answered { what: Statement, at: Ticks, wrote: Option<Row>, timeline: u8 },
    /// The answer to a look is on its way.
    Looked(Seen),
}

/// A participant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Participant {
    pub(crate) identity: u8,
    pub(crate) memory: Memory,
    pub(crate) term: Option<Term>,
    pub(crate) call: Option<Call>,
    /// It has sent a write at this very instant, and does not send another.
    pub(crate) wrote: bool,
    /// A statement that it has given up, and that may land at any time.
    pub(crate) late: Option<Statement>,
}

impl Participant {
    pub(crate) fn new(identity: u8) -> Participant {
        Participant { identity, memory: Memory::default(), term: None, call: None, wrote: false, late: None }
    }

    /// Time passes: so much on the own clock, so much on the database's. A term whose deadline has passed is
    /// over.
    pub(crate) fn shift(&mut self, own: Ticks, database: Ticks, oldest: Ticks) {
        if let Some(term) = &mut self.term {
            term.deadline -= own;
        }
        self.look_at_clock();
        self.memory.shift(own, database, oldest);
        let row = |row: &mut Row| row.shift(database, oldest);
        match &mut self.call {
            Some(Call::Sent { what, at }) => {
                *at = (*at - own).max(oldest);
                what.rows().for_each(row);
            }
            Some(Call::Answered { what, at, wrote, .. }) => {
                *at = (*at - own).max(oldest);
                what.rows().chain(wrote).for_each(row);
            }
            // A look that takes so long is lost: longer than a lease.
            Some(Call::Looked(seen)) if seen.now - database < oldest => self.call = None,
            Some(Call::Looked(seen)) => {
                seen.now -= database;
                seen.row.iter_mut().for_each(row);
            }
            None => {}
        }
        self.late.iter_mut().flat_map(Statement::rows).for_each(row);
    }

    fn look_at_clock(&mut self) {
        if self.term.is_some_and(|term| term.deadline <= 0) {
            self.term = None;
        }
    }

    /// Every mark that it knows or has named.
    pub(crate) fn marks(&mut self) -> impl Iterator<Item = &mut u8> {
        let (what, answer) = match &mut self.call {
            Some(Call::Sent { what, .. }) => (Some(what), None),
            Some(Call::Answered { what, wrote, .. }) => (Some(what), wrote.as_mut()),
            Some(Call::Looked(seen)) => (None, seen.row.as_mut()),
            None => (None, None),
        };
        let named = what.into_iter().chain(&mut self.late).flat_map(Statement::rows).chain(answer);
        self.memory.marks().chain(named.map(|row| &mut row.mark))
    }

    /// The answer to the call comes. Whether a term lives that was over.
    pub(crate) fn answer(&mut self, views: Views<'_>) -> bool {
        match self.call.take() {
            Some(Call::Looked(seen)) => self.memory.observed(&seen, views),
            Some(Call::Answered { what, at, wrote, timeline }) => {
                return self.written(what, at, wrote, timeline, views);
            }
            waiting => self.call = waiting,
        }
        false
    }

    fn written(
        &mut self,
        what: Statement,
        at: Ticks,
        wrote: Option<Row>,
        timeline: u8,
        views: Views<'_>,
    ) -> bool {
        if let Some(row) = wrote {
            self.memory.wrote(row, timeline, views);
        }
        let anchor = if views.rules.anchor == Anchor::Send { at } else { 0 };
        let deadline = anchor + views.lease - views.rules.margin;
        match (what, wrote) {
            (Statement::Acquire { .. }, Some(row)) if deadline > 0 => {
                self.term = Some(Term { fence: row.fence, deadline });
                false
            }
            (Statement::Renew { fence }, Some(_)) => {
                let lives = self.term.is_some_and(|term| term.fence == fence);
                let again = !lives && self.term.is_none() && !views.rules.lost_is_final && deadline > 0;
                if lives || again {
                    self.term = Some(Term { fence, deadline });
                    self.look_at_clock();
                }
                again && self.term.is_some()
            }
            (Statement::Renew { fence }, None) if self.term.is_some_and(|term| term.fence == fence) => {
                self.term = None;
                false
            }
            _ => false,
        }
    }
}
