//! What an elector costs: calls, threads, descriptors, processor time.
//!
//! Counts of the process are taken in a process of their own, so that other tests don't show in them.

use std::process::Command;
use std::time::Duration;

use tenure::{LeaderGuard, MemoryStore};

use crate::faulty::{Faulty, Kind};
use crate::util::*;

/// Runs one of the tests below that are ignored otherwise, alone.
#[track_caller]
fn alone(test: &str) {
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && out.contains("1 passed"),
        "{out}\n{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

fn count(dir: &str) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

/// Processor time of all of this process's threads of the elector, in hundredths of a second.
fn ticks() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let stats = threads.filter_map(|t| std::fs::read_to_string(t.unwrap().path().join("stat")).ok());
    let ours = stats.filter(|stat| stat.contains("(tenure-"));
    ours.map(|stat| {
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    })
    .sum()
}

#[test]
fn rule_14_a_candidate_that_waits_writes_nothing() {
    let store = Faulty::new();
    let leader = start(store.memory(), calm());
    let _guard = leader.wait_for_leadership().unwrap();
    let elector = start(&store, calm());
    let waiting = elector.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().is_err());
    eventually("ten looks", || store.calls(Kind::Observe) >= 10);
    assert_eq!(store.all_calls(), store.calls(Kind::Observe));
    elector.stop();
    assert!(waiter.join().unwrap());
}

#[test]
fn an_idle_elector_is_silent() {
    let store = Faulty::new();
    let elector = start(&store, calm());
    std::thread::sleep(ms(400));
    assert_eq!(store.all_calls(), 0);
    drop(elector.wait_for_leadership().unwrap());
    eventually("the release", || is_released(&store));
    let calls = store.all_calls();
    std::thread::sleep(ms(400));
    assert_eq!(store.all_calls(), calls, "also after a term");
}

#[test]
fn b27_two_hundred_terms_leave_no_thread_and_no_descriptor() {
    alone("resources::leaks");
}

#[test]
#[ignore = "run alone by another test"]
fn leaks() {
    let cycle = |round: u64| {
        let store = MemoryStore::new();
        let elector = start(&store, calm());
        let events = elector.events();
        let guard = elector.wait_for_leadership().unwrap();
        match round % 4 {
            0 => drop(guard),
            1 => guard.resign().unwrap(),
            2 => elector.stop(),
            _ => {
                let term = guard.term();
                drop(elector);
                drop(guard);
                assert!(term.check().is_err());
            }
        }
        drop(events);
    };
    cycle(0);
    eventually("the baseline", || count("/proc/self/task") <= 3);
    let baseline = (count("/proc/self/task"), count("/proc/self/fd"));
    (0..200).for_each(cycle);
    eventually("the baseline again", || {
        count("/proc/self/task") <= baseline.0 && count("/proc/self/fd") <= baseline.1
    });
}

#[test]
fn nobody_spins() {
    alone("resources::processor_time");
}

#[test]
#[ignore = "run alone by another test"]
fn processor_time() {
    let store = MemoryStore::new();
    let of = |what: &str, limit: u64| {
        let before = ticks();
        std::thread::sleep(Duration::from_secs(2));
        let used = ticks() - before;
        assert!(used <= limit, "{what}: {used} hundredths of a second in two seconds");
    };
    let idle = start(&store, calm());
    of("idle", 1);
    let guard: LeaderGuard = idle.wait_for_leadership().unwrap();
    of("leading", 6);
    let candidate = start(&store, calm());
    let waiting = candidate.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().is_err());
    of("leading, and a candidate", 10);
    idle.stop();
    of("winding down, and a candidate", 10);
    candidate.stop();
    assert!(waiter.join().unwrap());
    drop(guard);
}
