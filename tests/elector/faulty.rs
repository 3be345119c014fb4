//! A store that breaks on demand, while it is in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tenure::{Bid, Fence, Lease, MemoryStore, Observation, Renewal, Store, StoreError};

use crate::util::eventually;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    Release,
    Observe,
}

use Kind::{Acquire, Observe, Release, Renew};

pub(crate) const ALL: [Kind; 4] = [Acquire, Renew, Release, Observe];

#[derive(Clone, Debug, Default)]
pub(crate) enum Mode {
    #[default]
    Pass,
    Fail(StoreError),
    /// Blocks, whatever its timeout, until the mode is another one; then does as that says.
    Hang,
    /// Does what it was asked, then blocks until the mode is another one, then gives the answer from before.
    HoldReply,
    /// As a good store without a database: waits for its timeout, does nothing.
    TimeOut,
    Delay(Duration),
    /// Does what it was asked and says that it does not know.
    LoseReply,
    Panic,
}

/// A `MemoryStore` with a switch for each kind of call. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Faulty(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    store: MemoryStore,
    modes: Mutex<[Mode; 4]>,
    switched: Condvar,
    calls: [AtomicU64; 4],
    hanging: [AtomicU64; 4],
}

impl Faulty {
    pub(crate) fn new() -> Faulty {
        Faulty::over(MemoryStore::new())
    }

    pub(crate) fn over(store: MemoryStore) -> Faulty {
        Faulty(Arc::new(Inner { store, ..Inner::default() }))
    }

    pub(crate) fn memory(&self) -> &MemoryStore {
        &self.0.store
    }

    pub(crate) fn set(&self, kinds: &[Kind], mode: &Mode) {
        let mut modes = self.0.modes.lock();
        for kind in kinds {
            modes[*kind as usize] = mode.clone();
        }
        self.0.switched.notify_all();
    }

    pub(crate) fn set_all(&self, mode: &Mode) {
        self.set(&ALL, mode);
    }

    /// Calls that were begun.
    pub(crate) fn calls(&self, kind: Kind) -> u64 {
        self.0.calls[kind as usize].load(Ordering::SeqCst)
    }

    pub(crate) fn all_calls(&self) -> u64 {
        ALL.iter().map(|kind| self.calls(*kind)).sum()
    }

    pub(crate) fn wait_for_call(&self, kind: Kind) {
        let before = self.calls(kind);
        eventually("another call", || self.calls(kind) > before);
    }

    pub(crate) fn wait_until_hanging(&self, kind: Kind) {
        let hanging = &self.0.hanging[kind as usize];
        eventually("a call that hangs", || hanging.load(Ordering::SeqCst) > 0);
    }

    fn mode(&self, kind: Kind) -> Mode {
        self.0.modes.lock()[kind as usize].clone()
    }

    fn hang(&self, kind: Kind) {
        let hangs = |mode: &Mode| matches!(mode, Mode::Hang | Mode::HoldReply);
        let mut modes = self.0.modes.lock();
        self.0.hanging[kind as usize].fetch_add(1, Ordering::SeqCst);
        while hangs(&modes[kind as usize]) {
            self.0.switched.wait(&mut modes);
        }
        self.0.hanging[kind as usize].fetch_sub(1, Ordering::SeqCst);
    }

    fn call<T>(
        &self,
        kind: Kind,
        timeout: Duration,
        call: impl Fn(&MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.calls[kind as usize].fetch_add(1, Ordering::SeqCst);
        if matches!(self.mode(kind), Mode::Hang) {
            self.hang(kind);
        }
        match self.mode(kind) {
            Mode::Pass => call(&self.0.store),
            Mode::Fail(error) => Err(error),
            Mode::Hang => Err(StoreError::retryable("hung again")),
            Mode::HoldReply => {
                let answer = call(&self.0.store);
                self.hang(kind);
                answer
            }
            Mode::TimeOut => {
                std::thread::sleep(timeout);
                Err(StoreError::timeout("no answer"))
            }
            Mode::Delay(by) => {
                std::thread::sleep(by);
                call(&self.0.store)
            }
            Mode::LoseReply => {
                let _ = call(&self.0.store);
                Err(StoreError::timeout("the reply was lost"))
            }
            Mode::Panic => panic!("the store is broken"),
        }
    }
}

impl Store for Faulty {
    fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        self.call(Acquire, timeout, |store| store.acquire(bid, timeout))
    }

    fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        self.call(Renew, timeout, |store| store.renew(renewal, timeout))
    }

    fn release(&self, name: &str, holder: &str, fence: Fence, timeout: Duration) -> Result<(), StoreError> {
        self.call(Release, timeout, |store| store.release(name, holder, fence, timeout))
    }

    fn observe(&self, name: &str, timeout: Duration) -> Result<Observation, StoreError> {
        self.call(Observe, timeout, |store| store.observe(name, timeout))
    }
}
