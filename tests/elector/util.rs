//! Settings, waits with a hard bound, and what the tests look at.

use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use tenure::{Config, ConfigBuilder, Elector, Event, Lease, LossCause, Store};

pub(crate) const NAME: &str = "election";
/// No test waits for longer than this, however slow the machine is.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// For what ends terms: lease 1 s, term 900 ms, renewals every 200 ms.
pub(crate) fn brisk() -> ConfigBuilder {
    Config::builder(NAME)
        .lease_duration(ms(1_000))
        .renew_interval(ms(200))
        .retry_period(ms(100))
        .operation_timeout(ms(200))
        .safety_margin(ms(100))
        .label("test")
}

/// For what must not end terms, on a machine that may stand still for seconds.
pub(crate) fn calm() -> ConfigBuilder {
    brisk().lease_duration(ms(8_000)).safety_margin(ms(500)).operation_timeout(ms(1_000))
}

pub(crate) fn start(store: &(impl Store + Clone), config: ConfigBuilder) -> Elector {
    Elector::start(store.clone(), config.build().unwrap()).unwrap()
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < BOUND, "never saw {what}");
        std::thread::sleep(ms(2));
    }
}

/// Runs `f` in a thread of its own and gives its result, unless it takes longer than `limit`.
#[track_caller]
pub(crate) fn within<T: Send + 'static>(limit: Duration, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = bounded(1);
    let thread = std::thread::spawn(move || {
        let _ = done.send(f());
    });
    match result.recv_timeout(limit) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("took longer than {limit:?}"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => unreachable!("the thread ended without a result"),
        },
    }
}

pub(crate) fn row(store: &impl Store) -> Option<Lease> {
    store.observe(NAME, ms(1_000)).unwrap().into_lease()
}

pub(crate) fn is_released(store: &impl Store) -> bool {
    row(store).is_some_and(|lease| lease.is_released())
}

/// Whether the row is held by somebody and not over.
pub(crate) fn is_held(store: &impl Store) -> bool {
    row(store).is_some_and(|lease| !lease.is_expired())
}

/// The terms' events so far: fence, and the cause where it was lost.
pub(crate) fn terms(events: &Receiver<Event>) -> Vec<(i64, Option<LossCause>)> {
    let term = |event| match event {
        Event::Elected { fence, .. } => Some((fence.get(), None)),
        Event::Lost { fence, cause, .. } => Some((fence.get(), Some(cause))),
        _ => None,
    };
    events.try_iter().filter_map(term).collect()
}

/// Collects the terms' events until there are `count` of them.
#[track_caller]
pub(crate) fn wait_for_terms(events: &Receiver<Event>, count: usize) -> Vec<(i64, Option<LossCause>)> {
    let mut all = Vec::new();
    eventually("the terms' events", || {
        all.extend(terms(events));
        all.len() >= count
    });
    all
}
