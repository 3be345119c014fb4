//! A log sink that blocks and one that panics: neither may cost a term (rule 6).

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::{Config, Elector, LossCause, MemoryStore, Store};

/// Blocks or panics in every record, and already when asked whether it wants one.
struct Sink {
    blocks: AtomicBool,
    panics: AtomicBool,
    entered: AtomicU64,
    lines: Mutex<Vec<String>>,
}

static SINK: Sink = Sink {
    blocks: AtomicBool::new(false),
    panics: AtomicBool::new(false),
    entered: AtomicU64::new(0),
    lines: Mutex::new(Vec::new()),
};

impl Sink {
    fn misbehave(&self) {
        self.entered.fetch_add(1, Ordering::SeqCst);
        while self.blocks.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!self.panics.load(Ordering::SeqCst), "the sink is broken");
    }
}

impl log::Log for Sink {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        self.misbehave();
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        self.misbehave();
        self.lines.lock().unwrap().push(format!("{} {} {}", record.level(), record.target(), record.args()));
    }

    fn flush(&self) {}
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < ms(30_000), "never saw {what}");
        std::thread::sleep(ms(2));
    }
}

fn config(name: &str) -> Config {
    let config = Config::builder(name).lease_duration(ms(1_500)).renew_interval(ms(200));
    config.operation_timeout(ms(200)).safety_margin(ms(100)).retry_period(ms(100)).build().unwrap()
}

fn is_released(store: &MemoryStore, name: &str) -> bool {
    store.observe(name, ms(1_000)).unwrap().lease().is_some_and(tenure::Lease::is_released)
}

/// A whole life of a leader, with bounds far below what a blocked sink would take.
fn leads_and_ends_in_time(name: &str) {
    let store = MemoryStore::new();
    let elector = Elector::start(store.clone(), config(name)).unwrap();
    let guard = elector.wait_for_leadership_timeout(ms(10_000)).unwrap();
    // Several leases, and a line for each publication would be held up.
    eventually("renewals", || elector.status().renewals >= 8);
    assert!(guard.is_leader());
    // The watchdog: the renewals time out, the term ends with its deadline.
    let hold = store.lock(name);
    let term = guard.term();
    let locked = Instant::now();
    let lost = guard.lost().recv_timeout(ms(10_000)).unwrap();
    assert_eq!(lost.cause, LossCause::Expired);
    assert!(locked.elapsed() < ms(1_400 + 1_000), "{:?}", locked.elapsed());
    assert!(term.check().is_err());
    drop(hold);
    drop(guard);
    // A second term, stopped, dropped, shut down.
    let guard = elector.wait_for_leadership_timeout(ms(10_000)).unwrap();
    let started = Instant::now();
    elector.stop();
    assert_eq!(guard.check().unwrap_err().cause, LossCause::Stopped);
    drop(guard);
    elector.shutdown(ms(5_000)).unwrap();
    assert!(started.elapsed() < ms(2_000), "{:?}", started.elapsed());
    assert!(is_released(&store, name));
}

#[test]
fn rule_6_b12_b13_a_log_sink_that_blocks_or_panics_costs_log_lines_only() {
    log::set_logger(&SINK).unwrap();
    log::set_max_level(log::LevelFilter::Trace);

    leads_and_ends_in_time("sound");
    let logged = |what: &str| SINK.lines.lock().unwrap().iter().any(|line| line == what);
    eventually("the lines", || {
        logged("INFO tenure sound: the term with fence 2 is over: the elector was stopped")
    });
    assert!(logged("INFO tenure sound: elected, fence 1"));
    assert!(logged(
        "WARN tenure sound: the term with fence 1 is over: the deadline passed without a renewal"
    ));

    SINK.panics.store(true, Ordering::SeqCst);
    leads_and_ends_in_time("panicking");
    SINK.panics.store(false, Ordering::SeqCst);

    let entered = SINK.entered.load(Ordering::SeqCst);
    SINK.blocks.store(true, Ordering::SeqCst);
    leads_and_ends_in_time("blocked");
    assert!(SINK.entered.load(Ordering::SeqCst) > entered, "the sink was not even asked");
    // More lines than may wait are lost, and nobody waits for them.
    let store = MemoryStore::new();
    let elector = Elector::start(store.clone(), config("many")).unwrap();
    let started = Instant::now();
    for round in 0..700 {
        let Ok(guard) = Elector::start(store.clone(), config(&format!("many {round}")))
            .unwrap()
            .wait_for_leadership_timeout(ms(10_000))
        else {
            panic!("not elected in round {round}");
        };
        drop(guard);
    }
    assert!(started.elapsed() < ms(30_000));
    drop(elector);
    SINK.blocks.store(false, Ordering::SeqCst);

    // The sink is sound again, and so is the way to it once the waiting lines are through.
    eventually("the end of the waiting lines", || {
        let entered = SINK.entered.load(Ordering::SeqCst);
        std::thread::sleep(ms(200));
        SINK.entered.load(Ordering::SeqCst) == entered
    });
    leads_and_ends_in_time("after");
    eventually("the lines", || logged("INFO tenure after: elected, fence 1"));
}
