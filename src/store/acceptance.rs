//! The acceptance suite: what a [`Store`] has to do, as checks that its author runs (feature `testing`).
//!
//! A store that passes every check can carry an election; there are no optional ones. What is optional is to list: a store
//! that has no [`list`](Store::list) of its own passes the checks about it. Wrap the store in a
//! [`Subject`] and call [`run_all`], or go through [`checks`] where each check should be a test of its own:
//!
//! ```
//! use tenure::{MemoryStore, acceptance};
//!
//! let subject = MemoryStore::new();
//! for check in acceptance::checks().iter().filter(|check| check.rule() == "rule 15") {
//!     if let Err(failure) = check.run(&subject) {
//!         panic!("{} ({}): {failure}", check.name(), check.rule());
//!     }
//! }
//! ```
//!
//! Checks may run side by side against one database: each works in elections of its own, whose names never come
//! back. They sleep in real time, so the store must run on a real clock that nobody steps meanwhile. All of them
//! together take about ten seconds, most of it spent waiting.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{MemoryStore, Store, StoreError};
use crate::identity::IdentityError;
use crate::lease::InvalidFence;

/// Leaves the check with a failure unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::store::acceptance::Failure::new(format!($($message)+)));
        }
    };
}

mod acquire;
mod bench;
mod contention;
mod list;
mod renew;
#[cfg(test)]
mod tests;
mod values;
mod waits;

use bench::Bench;

/// A store under test, and the means to disturb it.
pub trait Subject: fmt::Debug + Send + Sync {
    /// The store. Called once per check; all the answers must lead to the same rows.
    fn store(&self) -> Arc<dyn Store>;

    /// Locks the row of the election `name`, which exists, so that every write to it has to wait until the
    /// answer is dropped: in SQL, a transaction of another connection that has run `SELECT .. FOR UPDATE`, and
    /// ends without having changed anything. Returns once the row is locked.
    ///
    /// # Panics
    /// May panic where the row cannot be locked: the check cannot go on then.
    fn hold(&self, name: &str) -> Box<dyn Any>;

    /// How long a call may take that nothing disturbs. 10 s unless overridden.
    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
}

impl Subject for MemoryStore {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    fn hold(&self, name: &str) -> Box<dyn Any> {
        Box::new(self.lock(name))
    }
}

/// One promise of [`Store`], as something that can be run.
#[derive(Clone, Copy)]
pub struct Check {
    name: &'static str,
    rule: &'static str,
    body: fn(&Bench<'_>) -> Result<(), Failure>,
}

impl Check {
    /// What it checks, as an identifier: `renew_is_refused_once_expired`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The rule of the design that it guards, `rule 9`.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        self.rule
    }

    /// Runs it in a fresh election. Blocks for up to a few seconds.
    ///
    /// # Errors
    /// What the store did that it must not do, or that it failed where nothing disturbed it.
    pub fn run(&self, subject: &dyn Subject) -> Result<(), Failure> {
        (self.body)(&Bench::new(subject)?)
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("name", &self.name).field("rule", &self.rule).finish_non_exhaustive()
    }
}

/// What a store did that it must not do.
#[derive(Clone, Debug)]
pub struct Failure {
    message: String,
    source: Option<StoreError>,
}

impl Failure {
    fn new(message: String) -> Failure {
        Failure { message, source: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|e| e as &(dyn Error + 'static))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure { message: format!("an undisturbed call failed: {error}"), source: Some(error) }
    }
}

impl From<IdentityError> for Failure {
    fn from(error: IdentityError) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<InvalidFence> for Failure {
    fn from(error: InvalidFence) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(format!("a thread of the check could not be started: {error}"))
    }
}

/// Runs every check, one after the other.
///
/// ```no_run
/// tenure::acceptance::run_all(&tenure::MemoryStore::new());
/// ```
///
/// # Panics
/// If any check fails, once all have run; the message names each of them and says why.
pub fn run_all(subject: &dyn Subject) {
    let mut failed = Vec::new();
    for check in checks() {
        if let Err(failure) = check.run(subject) {
            failed.push(format!("{} ({}): {failure}", check.name, check.rule));
        }
    }
    assert!(failed.is_empty(), "{} of {} checks failed:\n{}", failed.len(), CHECKS.len(), failed.join("\n"));
}

/// Every check. The order means nothing.
#[must_use]
pub fn checks() -> &'static [Check] {
    CHECKS
}

macro_rules! checks {
    ($($rule:literal: $room:ident::$name:ident,)+) => {
        &[$(Check { name: stringify!($name), rule: concat!("rule ", $rule), body: $room::$name },)+]
    };
}

const CHECKS: &[Check] = checks! {
    "8": contention::one_of_many_creates,
    "8": contention::one_of_many_takes_over,
    "8": acquire::fences_never_repeat,
    "8": acquire::fences_are_the_next_above_stored_and_floor,
    "8": acquire::create_is_refused_over_any_row,
    "8": acquire::take_over_is_refused_without_a_row,
    "8": acquire::take_over_is_refused_over_another_version,
    "8": acquire::take_over_asks_no_clock,
    "8": acquire::over_ones_own_version_is_a_new_term,
    "8": acquire::every_write_is_another_version,
    "8": acquire::late_statements_change_nothing,
    "15": acquire::another_timeline_is_refused,
    "15": acquire::every_answer_carries_the_timeline,
    "9": renew::renew_keeps_the_term,
    "9": renew::renew_is_refused_to_anybody_else,
    "9": renew::renew_is_refused_once_expired,
    "9": renew::renew_is_refused_once_released,
    "9": renew::renew_is_refused_without_a_row,
    "9": renew::release_is_recognisable_and_claimable_at_once,
    "9": renew::release_does_nothing_to_anybody_else,
    "9": renew::release_twice_or_late_is_no_error,
    "8": renew::elections_do_not_touch_each_other,
    "14": values::observing_writes_nothing,
    "14": list::a_list_has_every_row_as_it_is_in_order,
    "14": list::listing_writes_nothing,
    "8": values::answers_are_the_row,
    "8": values::payloads_come_back_byte_for_byte,
    "9": values::the_last_write_decides_the_payload,
    "8": values::names_come_back_byte_for_byte,
    "9": values::holders_come_back_byte_for_byte,
    "16": values::granted_lengths_are_exact,
    "1": values::the_clock_of_the_answer_is_the_one_of_the_row,
    "7": waits::a_held_row_delays_no_call_past_its_timeout,
    "17": waits::an_acquire_that_waited_counts_from_after_the_wait,
    "17": waits::a_renewal_that_waited_counts_from_after_the_wait,
    "17": waits::a_renewal_that_outlived_its_lease_is_refused,
};
