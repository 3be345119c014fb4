//! One term: its fence, and one atomic word that is either its deadline or the reason why it is over.
//!
//! Rules 4 and 5. The word is written only by compare-and-swap from a value that the writer saw, and a value
//! that says "over" is never replaced. So whatever order the callers, the watchdog and the renewal thread run
//! in, once anybody was told that the term is over, nobody is told that it is live.
//!
//! This module knows no thread and no clock: the clock is passed in as a function, because *when* it is read
//! matters. It is read after the word. A thread that is frozen between the two then compares an old deadline
//! with a new instant and errs on the safe side; the other way round it would compare an old instant.

use std::fmt;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::lease::Fence;
use crate::time::Time;

#[cfg(all(test, loom))]
mod interleavings;

/// Why a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// The deadline passed without a renewal: the database was out of reach, or this process stood still.
    Expired,
    /// The database refused the renewal, or a commit that was fenced: somebody else took the lease, or the row was
    /// changed or deleted.
    Superseded,
    /// The guard was dropped or [`resign`](crate::LeaderGuard::resign) was called.
    Resigned,
    /// [`Elector::stop`](crate::Elector::stop) or a shutdown. The lease is kept until the guard is dropped, so
    /// that nobody else starts while the work winds down.
    Stopped,
    /// Something in this process broke: the store, a callback, or whoever held the guard panicked.
    Failed,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LossCause::Expired => "the deadline passed without a renewal",
            LossCause::Superseded => "the database refused the renewal",
            LossCause::Resigned => "resigned",
            LossCause::Stopped => "the elector was stopped",
            LossCause::Failed => "something in this process panicked",
        })
    }
}

/// Words up to this one are reasons, not deadlines. A deadline that early lies within the first microsecond
/// after boot, long before any process ran.
const LAST_REASON: u64 = 15;

fn word_of(cause: LossCause) -> u64 {
    match cause {
        LossCause::Expired => 1,
        LossCause::Superseded => 2,
        LossCause::Resigned => 3,
        LossCause::Stopped => 4,
        LossCause::Failed => 5,
    }
}

/// A deadline too early to be one is one that has passed.
fn word_of_deadline(deadline: Time) -> u64 {
    match deadline.as_nanos() {
        0..=LAST_REASON => word_of(LossCause::Expired),
        nanos => nanos,
    }
}

fn cause_of(word: u64) -> Option<LossCause> {
    match word {
        2 => Some(LossCause::Superseded),
        3 => Some(LossCause::Resigned),
        4 => Some(LossCause::Stopped),
        5 => Some(LossCause::Failed),
        0..=LAST_REASON => Some(LossCause::Expired),
        _ => None,
    }
}

/// A term, shared by the renewal thread, the watchdog and everybody who checks.
pub(crate) struct AtomicTerm {
    fence: Fence,
    // One word, so no reader can see a deadline of one state with the end of another. The orderings are those
    // of a lock word: a thread that reads an end (Acquire) also sees what the thread that wrote it (Release,
    // through the swap) did before.
    word: AtomicU64,
}

impl AtomicTerm {
    /// A term that lives until `deadline`.
    pub(crate) fn new(fence: Fence, deadline: Time) -> AtomicTerm {
        AtomicTerm { fence, word: AtomicU64::new(word_of_deadline(deadline)) }
    }

    /// The term's fence; it never changes.
    pub(crate) fn fence(&self) -> Fence {
        self.fence
    }

    /// The deadline if the term is live now. Finding the deadline passed ends the term for everybody.
    pub(crate) fn check(&self, now: impl Fn() -> Time) -> Result<Time, LossCause> {
        self.live_word(&now).map(Time::from_nanos)
    }

    /// Whether a check at `now` would succeed; without ending the term if it would not.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_live_at(&self, now: Time) -> bool {
        let word = self.word.load(Ordering::Acquire);
        cause_of(word).is_none() && now.as_nanos() < word
    }

    /// Whether somebody has ended the term or found it over; a term whose deadline nobody has compared yet is not.
    pub(crate) fn is_sealed(&self) -> bool {
        cause_of(self.word.load(Ordering::Acquire)).is_some()
    }

    /// Moves the deadline, unless the term is over. The new deadline may be earlier than the old one.
    pub(crate) fn extend(&self, now: impl Fn() -> Time, deadline: Time) -> Result<(), LossCause> {
        self.replace(now, word_of_deadline(deadline))
    }

    /// Ends the term. An error means that it was over already, and why.
    pub(crate) fn seal(&self, now: impl Fn() -> Time, cause: LossCause) -> Result<(), LossCause> {
        self.replace(now, word_of(cause))
    }

    /// Replaces a word that is still live by another one.
    fn replace(&self, now: impl Fn() -> Time, new: u64) -> Result<(), LossCause> {
        loop {
            let word = self.live_word(&now)?;
            if self.word.compare_exchange(word, new, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(());
            }
        }
    }

    /// The word of a live term, as compared with the clock after it was read.
    fn live_word(&self, now: &impl Fn() -> Time) -> Result<u64, LossCause> {
        loop {
            let word = self.word.load(Ordering::Acquire);
            if let Some(cause) = cause_of(word) {
                return Err(cause);
            }
            if now().as_nanos() < word {
                return Ok(word);
            }
            let expired = word_of(LossCause::Expired);
            if self.word.compare_exchange(word, expired, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Err(LossCause::Expired);
            }
            // Somebody extended or ended it in between: look at what they wrote.
        }
    }
}

impl fmt::Debug for AtomicTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Ordering::Acquire);
        let mut out = f.debug_struct("AtomicTerm");
        out.field("fence", &self.fence);
        match cause_of(word) {
            Some(cause) => out.field("over", &cause),
            None => out.field("deadline", &Time::from_nanos(word)),
        };
        out.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    fn term(deadline: u64) -> AtomicTerm {
        AtomicTerm::new(Fence::try_from(7).unwrap(), at(deadline))
    }

    #[test]
    fn rule_4_live_before_the_deadline_and_over_at_it() {
        let term = term(100);
        assert_eq!(term.check(|| at(99)), Ok(at(100)));
        assert_eq!(term.check(|| at(100)), Err(LossCause::Expired));
    }

    #[test]
    fn what_tests_may_see_of_a_term_ends_nothing() {
        let term = term(100);
        assert!(term.is_live_at(at(99)));
        assert!(!term.is_live_at(at(100)) && !term.is_live_at(at(101)));
        assert!(!term.is_sealed());
        assert_eq!(term.check(|| at(99)), Ok(at(100)), "nobody was told");
        term.seal(|| at(1), LossCause::Resigned).unwrap();
        assert!(!term.is_live_at(at(2)) && term.is_sealed());
    }

    #[test]
    fn rule_5_lost_is_final() {
        let term = term(100);
        assert_eq!(term.check(|| at(100)), Err(LossCause::Expired));
        // Neither an earlier instant, nor a late renewal, nor another end changes what was said.
        assert_eq!(term.check(|| at(1)), Err(LossCause::Expired));
        assert_eq!(term.extend(|| at(1), at(500)), Err(LossCause::Expired));
        assert_eq!(term.seal(|| at(1), LossCause::Resigned), Err(LossCause::Expired));
        assert_eq!(term.check(|| at(1)), Err(LossCause::Expired));
    }

    #[test]
    fn rule_5_a_renewal_that_arrives_after_the_deadline_ends_the_term() {
        let term = term(100);
        assert_eq!(term.extend(|| at(100), at(500)), Err(LossCause::Expired));
        assert_eq!(term.check(|| at(1)), Err(LossCause::Expired));
    }

    #[test]
    fn an_extension_moves_the_deadline_either_way() {
        let term = term(100);
        term.extend(|| at(50), at(200)).unwrap();
        assert_eq!(term.check(|| at(150)), Ok(at(200)));
        term.extend(|| at(150), at(160)).unwrap();
        assert_eq!(term.check(|| at(160)), Err(LossCause::Expired));
    }

    #[test]
    fn every_cause_is_told_as_it_was_given() {
        for cause in [LossCause::Superseded, LossCause::Resigned, LossCause::Stopped, LossCause::Failed] {
            let term = term(100);
            term.seal(|| at(1), cause).unwrap();
            assert_eq!(term.check(|| at(1)), Err(cause));
            assert_eq!(term.seal(|| at(1), LossCause::Expired), Err(cause));
        }
    }

    #[test]
    fn a_term_whose_deadline_has_passed_is_not_resigned_but_expired() {
        let term = term(100);
        assert_eq!(term.seal(|| at(100), LossCause::Resigned), Err(LossCause::Expired));
    }

    #[test]
    fn rule_4_the_clock_is_read_after_the_deadline() {
        // A thread that is frozen just before it reads the clock meets an extension that ran meanwhile.
        let term = term(100);
        let frozen = Cell::new(false);
        let now = || {
            if !frozen.replace(true) {
                term.extend(|| at(50), at(200)).unwrap();
                return at(150);
            }
            at(151)
        };
        assert_eq!(term.check(now), Ok(at(200)), "the old deadline has passed, the new one has not");

        // And one that is frozen past everything learns so.
        assert_eq!(term.check(|| at(1_000)), Err(LossCause::Expired));
    }

    #[test]
    fn an_end_that_meets_an_extension_ends_what_was_extended() {
        let term = term(100);
        let met = Cell::new(false);
        let now = || {
            if !met.replace(true) {
                term.extend(|| at(50), at(200)).unwrap();
            }
            at(60)
        };
        assert_eq!(term.seal(now, LossCause::Stopped), Ok(()));
        assert_eq!(term.check(|| at(60)), Err(LossCause::Stopped), "not live until 200");
    }

    #[test]
    fn absurd_deadlines_are_over() {
        for deadline in 0..=LAST_REASON {
            assert_eq!(term(deadline).check(|| at(0)), Err(LossCause::Expired));
        }
        let term = term(100);
        term.extend(|| at(1), at(0)).unwrap();
        assert_eq!(term.check(|| at(0)), Err(LossCause::Expired));
    }

    #[test]
    fn debug_output_tells_the_deadline_or_the_end() {
        let term = term(1_000);
        assert_eq!(
            format!("{term:?}"),
            format!("AtomicTerm {{ fence: {:?}, deadline: {:?} }}", term.fence(), at(1_000))
        );
        term.seal(|| at(1), LossCause::Stopped).unwrap();
        assert_eq!(format!("{term:?}"), format!("AtomicTerm {{ fence: {:?}, over: Stopped }}", term.fence()));
    }
}
