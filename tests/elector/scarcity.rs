//! No more threads to be had: an error, never a panic, and no term left behind.

use std::process::Command;

use tenure::{Elector, MemoryStore, RunError, StartError, Term};

use crate::util::*;

/// A user that owns no process here; the kernel counts its threads from zero.
const NOBODY: &str = "61234";

/// Runs the test `inner` as that user with at most `threads` threads.
fn with_threads(threads: u32, inner: &str) -> Option<(bool, String)> {
    // Where nobody else may run it, it is run from a place where they may.
    let dir = tempfile::tempdir().unwrap();
    let exe = dir.path().join("scarcity");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let run = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        .args(["prlimit", &format!("--nproc={threads}")])
        .arg(&exe)
        .args(["--exact", inner, "--ignored", "--nocapture", "--test-threads=1"])
        .env("RUST_BACKTRACE", "0")
        .output()
        .ok()?;
    let text = [run.stdout, run.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if text.contains("setpriv:") || text.contains("failed to set") {
        return None;
    }
    Some((run.status.success(), text))
}

#[test]
fn b27_without_threads_there_is_an_error_and_no_panic() {
    let mut outcomes = Vec::new();
    for threads in 1..=12 {
        let Some((success, text)) = with_threads(threads, "scarcity::starved") else {
            eprintln!("skipped: limits cannot be set here");
            return;
        };
        assert!(success, "{threads} threads: {text}");
        let outcome = text.lines().find(|l| l.contains("outcome:")).unwrap_or("none").to_owned();
        outcomes.push(outcome.split("outcome: ").last().unwrap_or_default().to_owned());
    }
    let has = |what: &str| outcomes.iter().any(|o| o == what);
    assert!(has("no elector"), "{outcomes:?}");
    assert!(has("no thread for a callback"), "{outcomes:?}");
    assert!(has("fine"), "{outcomes:?}");
}

#[test]
#[ignore = "run with limits by another test"]
fn starved() {
    let store = MemoryStore::new();
    let elector = match Elector::start(store.clone(), calm().build().unwrap()) {
        Ok(elector) => elector,
        Err(StartError::Thread(error)) => {
            println!("outcome: no elector");
            assert!(error.raw_os_error().is_some(), "{error}");
            // What was begun ends.
            eventually("the end of the threads", || {
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
        Ok(()) => println!("outcome: fine"),
        Err(RunError::Thread(error)) => {
            println!("outcome: no thread for a callback");
            assert!(error.raw_os_error().is_some(), "{error}");
        }
        Err(error) => panic!("{error}"),
    }
    assert!(!elector.is_leader());
    assert!(row(&store).is_none_or(|lease| lease.is_released()), "no term is left behind");
    elector.shutdown(BOUND).unwrap();
}
