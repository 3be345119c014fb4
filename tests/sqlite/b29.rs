//! Field bug B29: locked for minutes, clocks of whole seconds, two files.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tenure::{Bid, Clock, Renewal, SqliteStore, Store, StoreError, SystemClock, Time};
use tenure_testground::ClockShim;

use crate::child;
use crate::figures::figure;
use crate::fleet::{Fleet, LIMIT};
use crate::line::now;
use crate::node::Options;
use crate::place::{Place, connection, in_full, ms};
use crate::profile::{P3, SLACK};

fn boot_clock() -> Time {
    SystemClock::new().now()
}

/// Makes every writing call while somebody else has the lock. The longest that one took.
fn calls_are_bounded(store: &SqliteStore, fence: tenure::Fence) -> Duration {
    let timed = |what: &str, call: &dyn Fn() -> Result<(), StoreError>| {
        let begun = boot_clock();
        let error = call().expect_err(what);
        let took = boot_clock().saturating_since(begun);
        assert!(error.is_timeout() && error.is_retryable(), "{what}: {error}");
        assert!(error.to_string().contains("lease.db"), "{what} shows no path: {error}");
        assert!(took >= P3.op - ms(5) && took <= P3.op + ms(200) + SLACK, "{what} took {took:?}");
        took
    };
    let bid = Bid::new("other", "h", P3.lease);
    let renewal = Renewal::new("other", "h", fence, P3.lease);
    [
        timed("acquire", &|| store.acquire(&bid, P3.op).map(drop)),
        timed("renew", &|| store.renew(&renewal, P3.op).map(drop)),
        timed("release", &|| store.release("other", "h", fence, P3.op)),
    ]
    .into_iter()
    .max()
    .unwrap()
}

pub(crate) fn b29_a_a_file_that_is_locked_for_eight_seconds() {
    let place = Place::new();
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&place.options("a"));
    fleet.start(&place.options("b"));
    fleet.await_held(&first, ms(1_500));
    let store = place.another();
    let other = store.acquire(&Bid::new("other", "h", P3.lease), LIMIT).unwrap().expect("the first");
    let lock = place.lock();
    let locked = now();
    let mut longest = Duration::ZERO;
    while now() - locked < Duration::from_secs(8) {
        longest = longest.max(calls_are_bounded(&store, other.fence()));
        // Whoever only looks is not kept waiting.
        assert!(store.observe("e", P3.op).unwrap().lease().is_some());
    }
    let stepped_down = fleet.stepped_down(&first, locked, P3);
    assert_eq!(fleet.leads().len(), 1, "{}", fleet.told());
    drop(lock);
    let freed = now();
    let next = fleet.await_lead(P3.take(), "somebody leads again", |led| led.fence > first.fence);
    assert_eq!(next.fence, first.fence + 1);
    figure(format_args!(
        "locked for 8 s: the leader stepped down {stepped_down:.1?} after, the longest call with a time-out of {:?} \
         took {longest:.1?}, the next led {:.1?} after it was free",
        P3.op,
        next.at.saturating_sub(freed)
    ));
    fleet.finish();
    fleet.judge(2);
}

/// Each lease is watched through another connection until it is over.
pub(crate) fn b29_b_a_lease_lives_as_long_as_it_says() {
    const AT_ONCE: u64 = 10;
    const EACH: u64 = 10;
    const LEASE: Duration = ms(1_500);
    let place = Place::new();
    let lives = parking_lot::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for n in 0..AT_ONCE {
            let (place, lives) = (&place, &lives);
            scope.spawn(move || {
                let (store, watcher) = (place.another(), place.another());
                for turn in 0..EACH {
                    // At every phase of a second.
                    thread::sleep(ms((n * 97 + turn * 61) % 250));
                    let name = format!("{n}-{turn}");
                    let asked = boot_clock();
                    store.acquire(&Bid::new(&name, "h", LEASE), LIMIT).unwrap().expect("the first");
                    let granted = boot_clock();
                    thread::sleep(LEASE - ms(30));
                    let mut last_live = granted;
                    loop {
                        let looked = boot_clock();
                        let seen = watcher.observe(&name, LIMIT).unwrap().into_lease().expect("a row");
                        if seen.is_expired() {
                            break;
                        }
                        last_live = looked;
                        thread::sleep(ms(2));
                    }
                    let over = boot_clock().saturating_since(asked);
                    lives.lock().push((last_live.saturating_since(granted), over));
                }
            });
        }
    });
    let lives = lives.into_inner();
    assert_eq!(lives.len() as u64, AT_ONCE * EACH);
    for (seen_live, over) in &lives {
        assert!(*over >= LEASE - ms(10), "a lease of {LEASE:?} was over after {over:?}");
        assert!(*seen_live <= LEASE + ms(100), "a lease of {LEASE:?} was live for {seen_live:?}");
    }
    let shortest = lives.iter().map(|life| life.1).min().unwrap();
    let longest = lives.iter().map(|life| life.0).max().unwrap();
    figure(format_args!(
        "100 leases of {LEASE:?}: over after {shortest:.3?} at the earliest, live for {longest:.3?} at the most"
    ));
}

pub(crate) fn b29_c_a_busy_writer_costs_no_term() {
    let time = Duration::from_secs(if in_full() { 60 } else { 12 });
    let place = Place::new();
    place.connection().execute_batch("CREATE TABLE other (text TEXT)").unwrap();
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&place.options("a"));
    fleet.start(&place.options("b"));
    let (done, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        // Each transaction begins where the one before has ended.
        scope.spawn(|| {
            let writer = connection(place.path());
            while !done.load(Ordering::SeqCst) {
                writer.execute_batch("BEGIN IMMEDIATE").unwrap();
                for _ in 0..50 {
                    writer.execute("INSERT INTO other VALUES (hex(randomblob(500)))", []).unwrap();
                }
                writer.execute_batch("COMMIT").unwrap();
                commits.fetch_add(1, Ordering::SeqCst);
            }
        });
        let begun = now();
        while now() - begun < time {
            fleet.read();
            thread::sleep(ms(20));
        }
        done.store(true, Ordering::SeqCst);
    });
    fleet.no_lost();
    fleet.await_held(&first, time);
    assert_eq!(fleet.leads().len(), 1, "{}", fleet.told());
    let commits = commits.into_inner();
    assert!(u128::from(commits) > time.as_millis() / 100, "only {commits} transactions");
    figure(format_args!("a busy writer, {commits} transactions in {time:?}: no term lost"));
    fleet.finish();
    fleet.judge(1);
}

pub(crate) fn b29_d_one_file_by_any_name_and_none_by_a_relative_one() {
    let place = Place::new();
    let elsewhere = place.around().join("elsewhere");
    std::os::unix::fs::symlink(place.directory(), &elsewhere).unwrap();
    for directory in [place.directory(), place.around().to_owned()] {
        let mut child = child::start_in(&directory, "open", "lease.db");
        let word = child::word(&mut child).unwrap();
        let meant = directory.canonicalize().unwrap().join("lease.db");
        assert!(word.starts_with("fatal true") && word.contains(meant.to_str().unwrap()), "{word}");
    }
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&place.options("a"));
    let named = |path: std::path::PathBuf| format!("sqlite:{}", path.display());
    for (label, path) in [
        ("b", elsewhere.join("lease.db")),
        ("c", place.directory().join("../db/./lease.db")),
        ("d", elsewhere.join("../db//lease.db")),
    ] {
        fleet.start(&Options { dsn: named(path), ..place.options(label) });
    }
    fleet.await_held(&first, P3.lease + P3.retry * 4);
    assert_eq!(fleet.leads().len(), 1, "{}", fleet.told());
    fleet.kill(first.node);
    let next = fleet.await_lead(P3.take(), "another one leads", |led| led.fence != first.fence);
    assert_eq!(next.fence, first.fence + 1, "they have the same row");
    fleet.finish();
    fleet.judge(2);
}

/// Frozen in the middle of a transaction: nobody can write until it goes on or is gone, and everybody knows it in time.
pub(crate) fn b29_a_stopped_process_that_has_the_lock() {
    let place = Place::new();
    let fence = place.store.acquire(&Bid::new("other", "h", P3.lease), LIMIT).unwrap().unwrap().fence();
    let mut child = child::start("lock", place.path());
    assert_eq!(child::word(&mut child).as_deref(), Some("locked"));
    child.stop();
    let store = place.another();
    let longest = calls_are_bounded(&store, fence);
    // Whoever looks does not stand in line behind those who wait, in one store neither.
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let error = store.release("other", "h", fence, P3.lease).expect_err("it is locked");
                assert!(error.is_timeout() && error.to_string().contains("lease.db"), "{error}");
            });
        }
        let begun = boot_clock();
        while boot_clock().saturating_since(begun) < P3.lease / 2 {
            assert!(store.observe("other", P3.op).is_ok());
        }
    });
    child.kill();
    let begun = boot_clock();
    let bid = Bid::new("fresh", "h", P3.lease);
    assert!(place.store.acquire(&bid, LIMIT).unwrap().is_some());
    figure(format_args!(
        "a stopped process has the lock: the longest call with a time-out of {:?} took {longest:.1?}; free {:.1?} \
         after it is killed",
        P3.op,
        boot_clock().saturating_since(begun)
    ));
}

pub(crate) fn b29_steps_of_the_wall_clock_change_nothing() {
    let place = Place::new();
    let shim = ClockShim::new();
    let mut options = place.options("a");
    options.env.extend(shim.env());
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&options);
    fleet.start(&Options { label: "b".to_owned(), ..options });
    for step in [86_400.0, -86_400.0, 0.0] {
        shim.step(step);
        let seen = fleet.certain(first.fence).map_or(now(), |held| held.1);
        fleet.await_story(LIMIT, "it is renewed after the step", |fleet| {
            (fleet.certain(first.fence)?.1 > seen + P3.term()).then_some(())
        });
    }
    fleet.no_lost();
    assert_eq!(fleet.leads().len(), 1, "{}", fleet.told());
    fleet.finish();
    fleet.judge(1);
}
