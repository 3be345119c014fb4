//! Killing everything below this process, with a proof that nothing is left.
//!
//! This process is a *child subreaper*: a descendant whose parent ends becomes its child, whatever session or process
//! group it went off to (prctl(2), PR_SET_CHILD_SUBREAPER). So as long as any descendant lives, this process has a child
//! that is alive or not yet waited for, and ECHILD of waitid(2) says that there is none.
//!
//! Only direct children and their process groups are sent signals. A child stays where it is until this process waits
//! for it: until then its process id belongs to nobody else, and neither does the number of its group, of which it is a
//! member to the end. A group is killed at one stroke, so that nobody in it gets away by forking.

use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpgid, getpgrp, kill_process, kill_process_group,
    set_child_subreaper, waitid, waitpid,
};

/// Whatever ends wakes the hunter; this is for those that change parents without a sound.
const SHORT: Duration = Duration::from_millis(5);
/// When killing has not helped so often, it is not for lack of looking.
const QUICK_ROUNDS: u32 = 200;
const LONG: Duration = Duration::from_millis(100);

/// From now on descendants that lose their parents become this process's children. Not inherited by children.
///
/// # Errors
/// No such kernel: it came with Linux 3.4.
pub(super) fn become_subreaper() -> Result<(), Errno> {
    set_child_subreaper(Some(rustix::process::getpid()))
}

/// This process's children, those included that have ended and were not waited for. May miss some while they come and
/// go (proc(5) says so): a list to work on, not a proof.
pub(super) fn children() -> Vec<Pid> {
    by_thread().unwrap_or_else(by_parent)
}

fn by_thread() -> Option<Vec<Pid>> {
    let of = |thread: &str| fs::read_to_string(format!("/proc/self/task/{thread}/children"));
    // The first thread is there for as long as the process is.
    of(&std::process::id().to_string()).ok()?;
    let threads =
        fs::read_dir("/proc/self/task").ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // A thread that ends meanwhile leaves its children to another one; the next look finds them there.
    let lists: Vec<String> = threads.filter_map(|thread| of(&thread).ok()).collect();
    Some(lists.iter().flat_map(|list| list.split_whitespace()).filter_map(process).collect())
}

/// For kernels without CONFIG_PROC_CHILDREN.
fn by_parent() -> Vec<Pid> {
    let me = std::process::id().to_string();
    let names = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter_map(|name| {
            let stat = fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
            // The name in parentheses may contain anything, further parentheses included.
            let parent = stat[stat.rfind(')')? + 1..].split_whitespace().nth(1)?.to_owned();
            process(&name).filter(|_| parent == me)
        })
        .collect()
}

fn process(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

/// How a child has ended, if it has: as a shell's exit code. It stays where it is, and its id stays taken (waitid(2),
/// WNOWAIT).
pub(super) fn exit_code(child: Pid) -> Option<u8> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(child), options).ok().flatten()?;
    let code = status.exit_status().or_else(|| Some(128 + status.terminating_signal()?))?;
    u8::try_from(code & 0xff).ok()
}

/// Sends a signal to the process group of a child that has not been waited for; to the child alone while it has none.
/// Whoever is gone or out of reach gets none.
pub(super) fn signal_group(child: Pid, signal: Signal) {
    if kill_process_group(child, signal) == Err(Errno::SRCH) {
        let _ = kill_process(child, signal);
    }
}

/// Waits for those children that have ended, except one.
pub(super) fn reap_others(kept: Pid) {
    for child in children().into_iter().filter(|child| *child != kept) {
        reap(child);
    }
}

fn reap(child: Pid) {
    let _ = waitpid(Some(child), WaitOptions::NOHANG);
}

/// Kills a child, and its process group, unless that is this process's own.
fn kill(child: Pid) {
    if let Ok(group) = getpgid(Some(child)) {
        if group != getpgrp() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    let _ = kill_process(child, Signal::KILL);
}

/// Kills all children, and theirs, until there are none; `pause` waits for a child's end or for the time given.
///
/// Returns only with the proof. It goes on for ever where something can't be killed: a process in uninterruptible
/// sleep, or one that runs as somebody whom this process may not send signals to. `complain` is called once, when
/// it has gone on for long.
pub(super) fn kill_all(mut pause: impl FnMut(Duration), complain: impl FnOnce(Vec<i32>)) {
    let mut complain = Some(complain);
    for round in 0_u32.. {
        let children = children();
        children.iter().copied().for_each(kill);
        // Not before every group has been killed: with its first process a group's number goes.
        children.iter().copied().for_each(reap);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::All, options) {
            Err(Errno::CHILD) => return,
            // Somebody has ended: no reason to wait.
            Ok(Some(_)) => continue,
            _ => {}
        }
        if round > QUICK_ROUNDS {
            if let Some(complain) = complain.take() {
                complain(children.iter().map(|child| child.as_raw_pid()).collect());
            }
        }
        pause(if round > QUICK_ROUNDS { LONG } else { SHORT });
    }
}
