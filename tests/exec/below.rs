//! Whoever is below `tenure`: generations of sessions, strangers, other namespaces.

use std::process::Command;

use tenure::AnyStore;
use tenure_testground::{await_until, is_running};

use crate::figures::figure;
use crate::fleet::LIMIT;
use crate::place::{MARGIN, Place, await_child, children, expiry, run, start, stop_at_once};
use crate::stillness::promised;
use crate::worker::{Kind, survivors, words};

const GENERATIONS: usize = 400;

/// Each a session of its own, and the parent of the next one: one after the other they would die for too long.
pub(crate) fn hundreds_of_generations_of_sessions_are_dead_in_time() {
    let place = Place::new();
    let script = place.path("generation");
    let text = "trap '' TERM HUP\nleft=$1; script=$2; shift 2\n[ $left -gt 0 ] || exec \"$@\"\n\
        setsid sh \"$script\" $((left - 1)) \"$script\" \"$@\" & wait\n";
    std::fs::write(&script, text).unwrap();
    let script = script.display().to_string();
    let first = ["sh".to_owned(), script.clone(), GENERATIONS.to_string(), script];
    let command = [&first[..], &words(&place.stamps(), Kind::Single, true)].concat();
    let mut tenure = start(place.exec(&[], &command), &place.path("errors"));
    place.await_life(1, 1);
    let guardian = await_child(tenure.pid(), "guardian");
    tenure.stop();
    await_until(LIMIT, "the guardian has done its work", || !is_running(guardian));
    let deadline = expiry(&AnyStore::open(&place.store).unwrap(), "e").saturating_before(MARGIN);
    let last = place.judge()[0].last;
    promised!(last < deadline, "alive at {last:?}, the term ends at {deadline:?}");
    let early = deadline.saturating_since(last);
    figure(format_args!("{GENERATIONS} generations of sessions: dead {early:.1?} before the deadline"));
    tenure.cont();
    assert_eq!(tenure.wait(LIMIT).code(), Some(123));
    let said = std::fs::read_to_string(place.path("errors")).unwrap();
    assert!(!said.contains("still not gone"), "it all went well: {said}");
}

/// What a shell had started before it became `tenure`, as a container's orphans where `tenure` is its first process.
pub(crate) fn strangers_are_waited_for() {
    let place = Place::new();
    let leader = start(place.work(&[], Kind::Single, false), &place.path("errors"));
    place.await_life(1, 1);
    let inner = place.work(&[], Kind::Single, false);
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 0.2 & sleep 2 & exec \"$@\"", "sh"]);
    shell.arg(inner.get_program()).args(inner.get_args()).env("TENURE_STORE", &place.store);
    let waiting = start(shell, &place.path("waiting"));
    let pid = waiting.pid();
    await_until(LIMIT, "both are there", || children(pid).len() == 2);
    await_until(LIMIT, "one is waited for while it waits", || children(pid).len() == 1);
    drop(leader);
    place.await_life(2, 1);
    let guardian = await_child(pid, "guardian");
    await_until(LIMIT, "the other one while it leads", || children(pid) == [guardian]);
    waiting.terminate();
}

/// It would look for the command's processes by the wrong numbers, and kill nobody, or somebody else.
pub(crate) fn the_proc_of_another_namespace_is_refused() {
    let place = Place::new();
    let within = |options: &[&str], command: Command| {
        let mut unshare = Command::new("timeout");
        unshare.args(["--signal=KILL", "20", "unshare", "--kill-child"]);
        unshare.args(["--user", "--map-root-user", "--pid", "--fork"]).args(options);
        unshare.arg(command.get_program()).args(command.get_args()).env("TENURE_STORE", &place.store);
        unshare
    };
    let (code, _, said) = run(within(&[], place.exec(&[], &["true"])));
    assert_eq!(code, 125, "{said}");
    assert!(said.contains("/proc") && said.contains("hint"), "{said}");
    assert!(!place.path("lease.db").exists(), "before any of it was touched");
    // With its own it is the first process of that namespace, or below another one.
    let leave = "setsid --fork sleep 60; exit 4";
    for shell in [&[] as &[&str], &["sh", "-c", "\"$@\"; exit $?", "sh"]] {
        let inner = place.exec(&["--grace=100ms"], &["sh", "-c", leave]);
        let words = [inner.get_program()].into_iter().chain(inner.get_args());
        let all: Vec<_> = shell.iter().map(std::ffi::OsStr::new).chain(words).collect();
        let mut command = Command::new(all[0]);
        command.args(&all[1..]);
        assert_eq!(run(within(&["--mount-proc"], command)).0, 4);
        assert!(place.lease().is_released());
    }
}

/// Whoever stops the guardian stops neither the end of the command nor a signal for it from being noticed.
pub(crate) fn a_stopped_guardian_is_continued_by_the_next_renewal() {
    let place = Place::new();
    for (deaf, code) in [(false, 143), (true, 137)] {
        let mut tenure = start(place.work(&[], Kind::Single, deaf), &place.path("errors"));
        let (mut guardian, mut command) = (0, 0);
        await_until(LIMIT, "it works", || {
            guardian = await_child(tenure.pid(), "guardian");
            command = children(guardian).first().copied().unwrap_or(0);
            survivors(&place.stamps()).contains(&command)
        });
        stop_at_once(guardian);
        if deaf {
            tenure_testground::kill_process(command);
        } else {
            tenure.terminate();
        }
        assert_eq!(tenure.wait(LIMIT).code(), Some(code));
        assert!(place.lease().is_released());
    }
}
