//! What can happen to a database, done to the memory store on purpose: clock steps, fail-overs, restores,
//! deletes, and a row that somebody else keeps locked.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::{MemoryStore, Row, State};
use crate::lease::Fence;
use crate::store::StoreError;
use crate::time::{Clock, SystemClock};

#[derive(Default)]
pub(super) struct Hooks {
    /// How many holds each row has; rows without one are not in here.
    holds: HashMap<String, usize>,
    history: HashMap<String, Vec<(Fence, String)>>,
}

impl Hooks {
    pub(super) fn record(&mut self, name: &str, fence: Fence, holder: &str) {
        self.history.entry(name.to_owned()).or_default().push((fence, holder.to_owned()));
    }
}

/// Only for tests (feature `testing`): what happens to databases.
impl MemoryStore {
    /// Moves the store's clock by so many microseconds, either way, for everybody at once.
    pub fn step_clock(&self, micros: i64) {
        let mut state = self.0.state.lock();
        state.stepped_micros = state.stepped_micros.saturating_add(micros);
    }

    /// Sets the timeline that observations carry and fences follow (rule 15). A new store has none.
    pub fn set_timeline(&self, timeline: Option<u32>) {
        self.0.state.lock().timeline = timeline;
    }

    /// Takes a picture of one row, or of its absence.
    pub fn snapshot(&self, name: &str) -> RowSnapshot {
        RowSnapshot { name: name.to_owned(), row: self.0.state.lock().rows.get(name).cloned() }
    }

    /// Puts a row back to how it was, as loading a backup does. That is a write like any other, so the row gets
    /// a new mark; other rows, the clock and the timeline stay.
    pub fn restore(&self, snapshot: &RowSnapshot) {
        let mut state = self.0.state.lock();
        let mark = state.next_mark();
        state.put(snapshot);
        if let Some(row) = state.rows.get_mut(&snapshot.name) {
            row.mark = mark;
        }
    }

    /// A fail-over that lost the writes since the snapshots: puts those rows back and changes the timeline, both
    /// in one step.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{Bid, MemoryStore, Store};
    ///
    /// let store = MemoryStore::new();
    /// store.set_timeline(Some(1));
    /// let before = store.snapshot("backup");
    /// let second = Duration::from_secs(1);
    /// store.acquire(&Bid::new("backup", "host-1", 15 * second), second)?;
    ///
    /// store.promote(2, &[before]);
    /// let seen = store.observe("backup", second)?;
    /// assert_eq!((seen.lease(), seen.timeline()), (None, Some(2)));
    /// # Ok::<(), tenure::StoreError>(())
    /// ```
    pub fn promote(&self, timeline: u32, kept: &[RowSnapshot]) {
        let mut state = self.0.state.lock();
        state.timeline = Some(timeline);
        for snapshot in kept {
            state.put(snapshot);
        }
    }

    /// Deletes one row. Says whether there was one.
    pub fn delete(&self, name: &str) -> bool {
        self.0.state.lock().rows.remove(name).is_some()
    }

    /// Every term ever granted in this election, in order: its fence and its holder. Survives deletes, restores
    /// and fail-overs.
    #[must_use]
    pub fn history(&self, name: &str) -> Vec<(Fence, String)> {
        self.0.state.lock().hooks.history.get(name).cloned().unwrap_or_default()
    }

    /// Locks one row, which need not exist, as another transaction could: every write to it waits until the hold
    /// is dropped or its own timeout is over, and then ends with a [timeout](StoreError::is_timeout), nothing
    /// written. Reads don't wait. Never blocks itself; a row can have several holds.
    #[must_use = "dropping the hold lets the row go"]
    pub fn lock(&self, name: &str) -> RowHold {
        *self.0.state.lock().hooks.holds.entry(name.to_owned()).or_default() += 1;
        RowHold { store: self.clone(), name: name.to_owned() }
    }

    pub(super) fn wait_for_holds(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<MutexGuard<'_, State>, StoreError> {
        // Real time, whatever clock drives the store: a wait is a wait.
        let started = SystemClock.now();
        let mut state = self.state(timeout)?;
        while state.hooks.holds.contains_key(name) {
            let left = timeout.saturating_sub(SystemClock.now().saturating_since(started));
            if left.is_zero() {
                return Err(StoreError::timeout("the row is locked by somebody else"));
            }
            self.0.freed.wait_for(&mut state, left);
        }
        Ok(state)
    }
}

impl State {
    fn put(&mut self, snapshot: &RowSnapshot) {
        match &snapshot.row {
            Some(row) => self.rows.insert(snapshot.name.clone(), row.clone()),
            None => self.rows.remove(&snapshot.name),
        };
    }
}

/// One row of a [`MemoryStore`] as it was once, or that it was not there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct RowSnapshot {
    name: String,
    row: Option<Row>,
}

/// Keeps one row of a [`MemoryStore`] locked until it is dropped.
pub struct RowHold {
    store: MemoryStore,
    name: String,
}

impl fmt::Debug for RowHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowHold").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for RowHold {
    fn drop(&mut self) {
        let mut state = self.store.0.state.lock();
        if let Some(holds) = state.hooks.holds.get_mut(&self.name) {
            *holds -= 1;
            if *holds == 0 {
                state.hooks.holds.remove(&self.name);
            }
        }
        drop(state);
        self.store.0.freed.notify_all();
    }
}
