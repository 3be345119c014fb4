//! What is logged, and a log sink that blocks and one that panics: neither may cost a term (rule 6).

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use log::Level;
use log::kv::{Key, Value, VisitSource};
use tenure::{Bid, Config, Elector, LossCause, MemoryStore, Store};

/// Blocks or panics in every record, and already when asked whether it wants one.
struct Sink {
    blocks: AtomicBool,
    panics: AtomicBool,
    entered: AtomicU64,
    lines: Mutex<Vec<String>>,
    records: Mutex<Vec<Written>>,
}

static SINK: Sink = Sink {
    blocks: AtomicBool::new(false),
    panics: AtomicBool::new(false),
    entered: AtomicU64::new(0),
    lines: Mutex::new(Vec::new()),
    records: Mutex::new(Vec::new()),
};

/// A record, as a sink that understands key-values sees it.
#[derive(Clone, Debug)]
struct Written {
    level: Level,
    keys: BTreeMap<String, String>,
}

impl Written {
    fn get(&self, key: &str) -> &str {
        self.keys.get(key).map_or("", String::as_str)
    }
}

struct Keys<'a>(&'a mut BTreeMap<String, String>);

impl<'kvs> VisitSource<'kvs> for Keys<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), log::kv::Error> {
        let earlier = self.0.insert(key.as_str().to_owned(), value.to_string());
        assert_eq!(earlier, None, "{key} twice");
        Ok(())
    }
}

/// The records of one election so far.
fn records(election: &str) -> Vec<Written> {
    let all = SINK.records.lock().unwrap();
    all.iter().filter(|record| record.get("election") == election).cloned().collect()
}

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
        let mut keys = BTreeMap::new();
        record.key_values().visit(&mut Keys(&mut keys)).unwrap();
        self.records.lock().unwrap().push(Written { level: record.level(), keys });
        self.lines.lock().unwrap().push(format!("{} {} {}", record.level(), record.target(), record.args()));
    }

    fn flush(&self) {}
}

/// There is one log in a process, so one test has it at a time.
fn log_of_mine() -> MutexGuard<'static, ()> {
    static LOG: Mutex<()> = Mutex::new(());
    let mine = LOG.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _ = log::set_logger(&SINK);
    log::set_max_level(log::LevelFilter::Trace);
    mine
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
    let _mine = log_of_mine();
    leads_and_ends_in_time("sound");
    let logged = |what: &str| SINK.lines.lock().unwrap().iter().any(|line| line == what);
    eventually("the lines", || {
        logged("INFO tenure sound: the term with fence 2 is over: the elector was stopped")
    });
    assert!(logged("INFO tenure sound: elected, fence 1"));
    let over = "WARN tenure sound: the term with fence 1 is over: the deadline passed without a renewal";
    let why = "; the last renewal failed: ";
    assert!(SINK.lines.lock().unwrap().iter().any(|line| line.starts_with(&format!("{over}{why}"))));

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
    let mut dropped = 0;
    for round in 0..700 {
        let elector = Elector::start(store.clone(), config(&format!("many {round}"))).unwrap();
        let Ok(guard) = elector.wait_for_leadership_timeout(ms(10_000)) else {
            panic!("not elected in round {round}");
        };
        dropped += elector.status().log_lines_dropped;
        drop(elector); // Waits for nothing as long as there is the guard.
        drop(guard);
    }
    assert!(started.elapsed() < ms(30_000));
    // Four lines for each so far: a campaign, a look, a bid, a term. 1,024 may wait, and one is being written.
    assert!(dropped + 1_024 + 1 >= 700 * 4, "only {dropped} lines were counted as lost");
    assert_eq!(elector.status().log_lines_dropped, 0, "each counts its own");
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

/// The one record of this event, with the keys that every record has.
#[track_caller]
fn the(election: &str, event: &str) -> Written {
    let all = records(election);
    let mut fitting = all.iter().filter(|record| record.get("event") == event);
    let record = fitting.next().unwrap_or_else(|| panic!("no {event} in {all:#?}"));
    assert!(fitting.next().is_none(), "several {event} in {all:#?}");
    assert!(record.get("identity").starts_with("label-"), "{record:?}");
    record.clone()
}

fn labelled(name: &str) -> Config {
    Config::builder(name)
        .lease_duration(ms(8_000))
        .renew_interval(ms(10))
        .operation_timeout(ms(1_000))
        .retry_period(ms(20))
        .label("label")
        .build()
        .unwrap()
}

#[test]
fn records_carry_what_they_tell_of_under_keys() {
    let _mine = log_of_mine();
    let (store, name) = (MemoryStore::new(), "keys");
    let elector = Elector::start(store.clone(), labelled(name)).unwrap();
    let guard = elector.wait_for_leadership().unwrap();
    eventually("a renewal", || records(name).iter().any(|record| record.get("event") == "renewed"));
    guard.resign().unwrap();
    let guard = elector.wait_for_leadership().unwrap();
    let seen = store.observe(name, ms(1_000)).unwrap().into_lease().unwrap();
    let bid = Bid::new(name, "usurper", ms(60_000)).above(seen.fence().get()).over(Some(seen.version()));
    // A renewal may come in between; then the leader stays.
    let mut taken = store.acquire(&bid, ms(1_000)).unwrap().is_some();
    eventually("the usurper", || {
        if !taken {
            let seen = store.observe(name, ms(1_000)).unwrap().into_lease().unwrap();
            let bid = bid.clone().over(Some(seen.version()));
            taken = store.acquire(&bid, ms(1_000)).unwrap().is_some();
        }
        taken && elector.status().leader.as_deref() == Some("usurper")
    });
    drop(guard);
    let identity = elector.identity().to_string();
    elector.shutdown(ms(5_000)).unwrap();
    eventually("the last line", || records(name).iter().any(|record| record.get("event") == "observed"));

    let all = records(name);
    let of = |event: &str| -> Vec<&Written> { all.iter().filter(|r| r.get("event") == event).collect() };
    assert!(all.iter().all(|record| record.get("identity") == identity), "{all:#?}");
    let fences: Vec<&str> = of("elected").iter().map(|r| r.get("fence")).collect();
    assert_eq!(fences, ["1", "2"]);
    let ends: Vec<(Level, &str, &str)> =
        of("lost").iter().map(|r| (r.level, r.get("fence"), r.get("cause"))).collect();
    assert_eq!(ends, [(Level::Info, "1", "resigned"), (Level::Warn, "2", "superseded")]);
    let observed = the(name, "observed");
    assert_eq!(
        (observed.level, observed.get("holder"), observed.get("fence")),
        (Level::Info, "usurper", "3")
    );
    let released = the(name, "released");
    assert!(released.level == Level::Info && released.get("took_ms").parse::<f64>().unwrap() >= 0.0);
    let renewed = of("renewed");
    assert!(renewed.iter().all(|r| r.level == Level::Trace));
    for key in ["took_ms", "headroom_ms", "remaining_ms"] {
        let value: f64 = renewed[0].get(key).parse().unwrap();
        assert!((0.0..=7_000.0).contains(&value), "{key} {value}");
    }
    assert!(of("answered").iter().any(|r| r.get("operation") == "observe" && r.level == Level::Trace));
}

#[test]
fn b01_a_failure_carries_its_code_and_an_end_carries_the_failure() {
    let _mine = log_of_mine();
    let (store, name) = (MemoryStore::new(), "codes");
    let elector = Elector::start(Denied(store), config(name)).unwrap();
    let guard = elector.wait_for_leadership_timeout(ms(10_000)).unwrap();
    assert_eq!(guard.lost().recv_timeout(ms(10_000)).unwrap().cause, LossCause::Expired);
    drop(guard);
    elector.shutdown(ms(5_000)).unwrap();
    eventually("the end", || records(name).iter().any(|record| record.get("event") == "lost"));
    let all = records(name);
    for event in ["failed", "lost"] {
        let record = all.iter().find(|record| record.get("event") == event).unwrap();
        assert_eq!(record.level, Level::Warn);
        assert_eq!((record.get("sqlstate"), record.get("error_kind")), ("42501", "fatal"), "{record:?}");
        assert_eq!(record.get("error"), "permission denied (SQLSTATE 42501)");
    }
    let failed = all.iter().find(|record| record.get("event") == "failed").unwrap();
    assert_eq!(failed.get("operation"), "renew");
}

/// May read and take, and not renew.
#[derive(Clone, Debug)]
struct Denied(MemoryStore);

impl Store for Denied {
    fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<tenure::Lease>, tenure::StoreError> {
        self.0.acquire(bid, timeout)
    }
    fn renew(
        &self,
        _: &tenure::Renewal<'_>,
        _: Duration,
    ) -> Result<Option<tenure::Lease>, tenure::StoreError> {
        Err(tenure::StoreError::fatal("permission denied").with_sqlstate("42501"))
    }
    fn release(
        &self,
        name: &str,
        holder: &str,
        fence: tenure::Fence,
        timeout: Duration,
    ) -> Result<(), tenure::StoreError> {
        self.0.release(name, holder, fence, timeout)
    }
    fn observe(&self, name: &str, timeout: Duration) -> Result<tenure::Observation, tenure::StoreError> {
        self.0.observe(name, timeout)
    }
}

#[test]
fn a_healthy_day_is_a_handful_of_lines() {
    let _mine = log_of_mine();
    let (store, name) = (MemoryStore::new(), "healthy");
    let leader = Elector::start(store.clone(), labelled(name)).unwrap();
    let follower = Elector::start(store, labelled(name)).unwrap();
    let guard = leader.wait_for_leadership().unwrap();
    let waiting = follower.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().is_ok());
    // A renewal every five seconds makes that half an hour of a real day.
    eventually("renewals", || leader.status().renewals >= 400);
    guard.resign().unwrap();
    assert!(waiter.join().unwrap());
    for elector in [leader, follower] {
        assert_eq!(elector.status().log_lines_dropped, 0);
        elector.shutdown(ms(5_000)).unwrap();
    }
    eventually("the last line", || {
        records(name).iter().filter(|record| record.get("event") == "released").count() == 2
    });
    let all = records(name);
    let loud: Vec<&Written> = all.iter().filter(|record| record.level <= Level::Info).collect();
    // Two terms begin and end, and are released; the follower sees the first one come, and perhaps go.
    assert!((7..=8).contains(&loud.len()), "{loud:#?}");
    assert!(loud.iter().all(|record| record.level == Level::Info), "{loud:#?}");
    let debug = all.iter().filter(|record| record.level == Level::Debug).count();
    assert_eq!(debug, 4, "two campaigns");
    let trace = all.iter().filter(|record| record.level == Level::Trace).count();
    assert!(trace >= 800, "renewals, and the looks of the follower: {trace}");
}
