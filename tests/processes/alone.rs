//! What an elector costs its process, and what becomes of it in one that has nothing left. Each is a process of its
//! own, so that other tests don't show in the counts.

use std::process::Command;
use std::time::Duration;

use tenure::{
    Clock, Config, Elector, LeaderGuard, MemoryStore, PostgresStore, RunError, StartError, Store,
    SystemClock, Term,
};
use tenure_testground::{Postgres, await_until};

use crate::fleet::trials::{NOBODIES, public_copy};
use crate::leaks::{as_child, child, prepare, say};

const LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "election";

/// Timings that lose no term on a machine that may stand still for seconds.
fn calm() -> Config {
    Config::builder(NAME)
        .lease_duration(Duration::from_secs(8))
        .renew_interval(Duration::from_millis(200))
        .retry_period(Duration::from_millis(100))
        .operation_timeout(Duration::from_secs(1))
        .safety_margin(Duration::from_millis(500))
        .build()
        .unwrap()
}

fn start(store: &MemoryStore) -> Elector {
    Elector::start(store.clone(), calm()).unwrap()
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

pub(crate) fn b27_two_hundred_terms_leave_no_thread_and_no_descriptor() {
    assert!(child("terms", "").wait(LIMIT).success());
}

pub(crate) fn child_terms(_: &str) {
    let cycle = |round: u64| {
        let store = MemoryStore::new();
        let elector = start(&store);
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
    await_until(LIMIT, "the baseline", || count("/proc/self/task") <= 3);
    let baseline = (count("/proc/self/task"), count("/proc/self/fd"));
    (0..200).for_each(cycle);
    await_until(LIMIT, "the baseline again", || {
        count("/proc/self/task") <= baseline.0 && count("/proc/self/fd") <= baseline.1
    });
}

pub(crate) fn nobody_spins() {
    assert!(child("spins", "").wait(LIMIT).success());
}

pub(crate) fn child_spins(_: &str) {
    let store = MemoryStore::new();
    let of = |what: &str, limit: u64| {
        let before = ticks();
        std::thread::sleep(Duration::from_secs(2));
        let used = ticks() - before;
        assert!(used <= limit, "{what}: {used} hundredths of a second in two seconds");
    };
    let idle = start(&store);
    of("idle", 1);
    let guard: LeaderGuard = idle.wait_for_leadership().unwrap();
    of("leading", 6);
    let candidate = start(&store);
    let waiting = candidate.clone();
    let waiter = std::thread::spawn(move || waiting.wait_for_leadership().is_err());
    of("leading, and a candidate", 10);
    idle.stop();
    of("winding down, and a candidate", 10);
    candidate.stop();
    assert!(waiter.join().unwrap());
    drop(guard);
}

/// Runs a child as that user with at most `threads` threads.
pub(crate) fn with_threads(user: u32, threads: u32, name: &str, dsn: &str) -> (bool, String) {
    let (_dir, exe) = public_copy();
    let user = user.to_string();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
        .args(["prlimit", &format!("--nproc={threads}")])
        .arg(&exe)
        .env("RUST_BACKTRACE", "0");
    let run = as_child(&mut command, name, dsn).output().unwrap();
    let text = [run.stdout, run.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (run.status.success(), text)
}

/// Needs root, to become somebody who has no process yet.
pub(crate) fn b27_without_threads_there_is_an_error_and_no_panic() {
    let mut outcomes = Vec::new();
    for threads in 1..=12 {
        let (success, text) = with_threads(NOBODIES[0], threads, "starved", "");
        assert!(success, "{threads} threads: {text}");
        outcomes.extend(text.lines().filter_map(|line| line.strip_prefix('>')).map(str::to_owned));
    }
    for outcome in ["no elector", "no thread for a callback", "fine"] {
        assert!(outcomes.iter().any(|o| o == outcome), "{outcome}: {outcomes:?}");
    }
}

/// A time namespace shifts the boot clock and leaves the one that stops during suspend alone, which is what a machine
/// that has slept looks like. Needs root.
pub(crate) fn rule_3_the_clock_counts_what_the_machine_slept() {
    const SLEPT: u64 = 100_000;
    let mut command = Command::new("unshare");
    command.args(["--time", &format!("--boottime={SLEPT}"), "--fork"]).arg(std::env::current_exe().unwrap());
    let run = as_child(&mut command, "clock", "").output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let theirs: u64 = text.trim().trim_start_matches('>').parse().unwrap_or_else(|_| panic!("{run:?}"));
    let ours = SystemClock::new().now().as_nanos() / 1_000_000_000;
    assert!(theirs.abs_diff(ours + SLEPT) < 60, "{theirs} there, {ours} here");
}

pub(crate) fn child_clock(_: &str) {
    say(&(SystemClock::new().now().as_nanos() / 1_000_000_000).to_string());
}

pub(crate) fn child_starved(_: &str) {
    let store = MemoryStore::new();
    let elector = match Elector::start(store.clone(), calm()) {
        Ok(elector) => elector,
        Err(StartError::Thread(error)) => {
            say("no elector");
            assert!(error.raw_os_error().is_some(), "{error}");
            // What was begun ends.
            await_until(LIMIT, "the end of the threads", || {
                let threads = std::fs::read_dir("/proc/self/task").unwrap();
                let names =
                    threads.filter_map(|t| std::fs::read_to_string(t.unwrap().path().join("comm")).ok());
                names.filter(|name| name.starts_with("tenure-") && name.trim() != "tenure-log").count() == 0
            });
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let stopper = elector.clone();
    match elector.run(move |_: Term| stopper.stop()) {
        Ok(()) => say("fine"),
        Err(RunError::Thread(error)) => {
            say("no thread for a callback");
            assert!(error.raw_os_error().is_some(), "{error}");
        }
        Err(error) => panic!("{error}"),
    }
    assert!(!elector.is_leader());
    assert!(
        store.observe(NAME, LIMIT).unwrap().lease().is_none_or(tenure::Lease::is_released),
        "no term is left behind"
    );
    elector.shutdown(LIMIT).unwrap();
}

pub(crate) fn rule_7_a_store_without_threads_gives_an_error_and_no_panic() {
    let database = Postgres::shared().database();
    prepare(&database);
    let mut outcomes = Vec::new();
    for threads in 1..=6 {
        let (success, text) = with_threads(NOBODIES[1], threads, "starved_store", &database.dsn());
        assert!(success && !text.contains("panicked"), "{threads} threads: {text}");
        outcomes.extend(text.lines().filter_map(|line| line.strip_prefix('>')).map(str::to_owned));
    }
    // One for the statements, and one for the pool; there need be no second one for statements.
    assert_eq!(outcomes, ["refused", "refused", "fine", "fine", "fine", "fine"]);
}

pub(crate) fn child_starved_store(dsn: &str) {
    let store = PostgresStore::connect(dsn).unwrap();
    let look = || store.observe(NAME, LIMIT);
    if let Err(error) = look() {
        assert!(error.is_retryable(), "{error}");
        assert_eq!(error.to_string(), "can't start a thread for the database");
        assert!(std::error::Error::source(&error).is_some());
        say("refused");
        return;
    }
    // Two calls at once ask for a second thread, whether there can be one or not.
    std::thread::scope(|scope| {
        let looks = || (0..200).for_each(|_| drop(look().unwrap()));
        let other = std::thread::Builder::new().spawn_scoped(scope, looks);
        looks();
        drop(other);
    });
    say("fine");
}
