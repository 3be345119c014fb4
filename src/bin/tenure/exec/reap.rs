//! Killing everything below this process, with a proof that nothing is left.
//!
//! This process is a *child subreaper*: a descendant whose parent ends becomes its child, whatever session or process
//! group it went off to (prctl(2), PR_SET_CHILD_SUBREAPER). So as long as any descendant lives, this process has a child
//! that is alive or not yet waited for, and ECHILD of waitid(2) says that there is none.
//!
//! What is sent to a number is sent to direct children and their process groups only. A child stays where it is until
//! this process waits for it: until then its process id belongs to nobody else, and neither does the number of its group,
//! of which it is a member to the end. A group is killed at one stroke, so that nobody in it gets away by forking.
//!
//! That alone would kill one generation after the other, each as soon as the one before it has got a processor to die on.
//! So whoever is further down is killed as well, by a descriptor that can't come to mean another process.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, getpgid, getpgrp,
    kill_process, kill_process_group, pidfd_open, pidfd_send_signal, set_child_subreaper, waitid, waitpid,
};

use super::signals::is_ready;

/// Whatever ends wakes the hunter; this is for those that change parents without a sound.
const SHORT: Duration = Duration::from_millis(5);
/// When nobody has died for so many of them, it is not for lack of looking.
const QUICK_ROUNDS: u32 = 200;
/// Descendants that are followed at once, for each of which a descriptor is open. Where there are not so many descriptors
/// it is fewer.
const FOLLOWED: usize = 512;
/// One round in so many looks for them.
const LOOKS_BELOW: usize = 8;
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
    // The first thread is there for as long as the process is.
    fs::metadata(format!("/proc/self/task/{}/children", std::process::id())).ok()?;
    children_of("self", None)
}

/// The children of a process, where the kernel lists them: of those threads that are looked at in time.
fn children_of(process: &str, until: Option<Instant>) -> Option<Vec<Pid>> {
    let tasks = format!("/proc/{process}/task");
    let of = |thread: &str| fs::read_to_string(format!("{tasks}/{thread}/children"));
    let threads = fs::read_dir(&tasks).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let threads = threads.take_while(|_| until.is_none_or(|until| Instant::now() < until));
    // A thread that ends meanwhile leaves its children to another one; the next look finds them there.
    let lists: Vec<String> = threads.filter_map(|thread| of(&thread).ok()).collect();
    Some(lists.iter().flat_map(|list| list.split_whitespace()).filter_map(number).collect())
}

/// For kernels without CONFIG_PROC_CHILDREN.
fn by_parent() -> Vec<Pid> {
    let me = Some(rustix::process::getpid());
    let names = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| number(&name).filter(|process| parent_of(*process) == me)).collect()
}

fn parent_of(process: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain anything, further parentheses included.
    number(stat[stat.rfind(')')? + 1..].split_whitespace().nth(1)?)
}

fn number(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

/// How a child has ended, if it has: as a shell's exit code. It stays where it is, and its id stays taken (waitid(2),
/// WNOWAIT).
pub(super) fn exit_code(child: Pid) -> Option<u8> {
    let status = ended(WaitId::Pid(child)).ok().flatten()?;
    let code = status.exit_status().or_else(|| Some(128 + status.terminating_signal()?))?;
    u8::try_from(code & 0xff).ok()
}

/// Whether one of those children has ended, whom this leaves where he is.
fn ended(which: WaitId<'_>) -> Result<Option<WaitIdStatus>, Errno> {
    waitid(which, WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
}

/// Sends a signal to the process group of a child that has not been waited for; to the child alone while it has none.
/// Whoever is gone or out of reach gets none.
pub(super) fn signal_group(child: Pid, signal: Signal) {
    if kill_process_group(child, signal) == Err(Errno::SRCH) {
        let _ = kill_process(child, signal);
    }
}

/// Waits for those children that have ended, except one.
pub(super) fn reap_others(kept: Option<Pid>) {
    // Mostly nobody has, and that is soon known.
    if !matches!(ended(WaitId::All), Ok(Some(_))) {
        return;
    }
    children().into_iter().filter(|child| Some(*child) != kept).for_each(reap);
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

/// Whoever is below these children, each after its parent: as many as are followed at once, and found in time. Each
/// thread of each process has to be looked at, and there may be tens of thousands.
fn below(children: &[Pid], until: Instant) -> Vec<OwnedFd> {
    let held = |process: Pid| pidfd_open(process, PidfdFlags::empty()).ok();
    let mut found: Vec<(Pid, OwnedFd)> =
        children.iter().take(FOLLOWED).filter_map(|child| Some((*child, held(*child)?))).collect();
    let (first, mut next) = (found.len(), 0);
    while next < found.len() && found.len() < FOLLOWED && Instant::now() < until {
        let parent = found[next].0;
        let room = FOLLOWED - found.len();
        let children = children_of(&parent.to_string(), Some(until)).unwrap_or_default();
        for child in children.into_iter().take(room) {
            let Some(process) = held(child) else { continue };
            // The number may have come to mean somebody else. Whoever has it is a child of the parent's number; and the
            // parent still lives, so that nobody else had that one.
            if parent_of(child) == Some(parent) && !is_ready(&found[next].1) {
                found.push((child, process));
            }
        }
        next += 1;
    }
    found.into_iter().skip(first).map(|(_, process)| process).collect()
}

/// Kills all children, and theirs, until there are none; `pause` waits for a child's end or for the time given.
/// For up to `look` at once it looks for those further down, and kills nobody meanwhile.
///
/// Returns only with the proof. It goes on for ever where something can't be killed: a process in uninterruptible
/// sleep, or one that runs as somebody whom this process may not send signals to. `complain` is called once, when
/// it has gone on for long.
pub(super) fn kill_all(look: Duration, mut pause: impl FnMut(Duration), complain: impl FnOnce(Vec<i32>)) {
    let mut complain = Some(complain);
    let mut in_vain = 0_u32;
    for round in 0_usize.. {
        let children = children();
        // Found while their parents live: with each that dies the way to those below it is lost. Not every time, since
        // those that get away all the time get away meanwhile.
        let found = (round % LOOKS_BELOW == 0).then(|| below(&children, Instant::now() + look));
        // Those that have come last first: where some get away all the time, the others of the list are dead.
        children.iter().rev().copied().for_each(kill);
        for process in found.iter().flatten().rev() {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        // Not before every group has been killed: with its first process a group's number goes.
        children.iter().copied().for_each(reap);
        match ended(WaitId::All) {
            Err(Errno::CHILD) => return,
            // Somebody has ended: no reason to wait.
            Ok(Some(_)) => {
                in_vain = 0;
                continue;
            }
            _ => in_vain = in_vain.saturating_add(1),
        }
        if in_vain > QUICK_ROUNDS {
            if let Some(complain) = complain.take() {
                complain(children.iter().map(|child| child.as_raw_pid()).collect());
            }
        }
        pause(if in_vain > QUICK_ROUNDS { LONG } else { SHORT });
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::super::alone::alone;
    use super::*;

    const LONG_ENOUGH: Duration = Duration::from_secs(20);

    /// Ended with its test.
    struct Tree(Child);

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn nobody_is_looked_for_once_the_time_is_over() {
        if !alone("exec::reap::tests::nobody_is_looked_for_once_the_time_is_over") {
            return;
        }
        // `cat` ends when this process does, or drops its end of the pipe. By itself a shell gives those in the background
        // another input.
        let mut tree = Command::new("sh");
        tree.args(["-c", "exec 3<&0; cat <&3 & wait"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let tree = Tree(tree.spawn().unwrap());
        let parent = Pid::from_raw(tree.0.id().try_into().unwrap()).unwrap();
        let begun = Instant::now();
        while below(&[parent], begun + LONG_ENOUGH).is_empty() {
            assert!(begun.elapsed() < LONG_ENOUGH, "it never has a child");
            std::thread::sleep(Duration::from_millis(1));
        }
        let number = parent.to_string();
        assert_eq!(children_of(&number, None).map(|found| found.len()), Some(1));
        assert_eq!(children_of(&number, Some(Instant::now())), Some(Vec::new()));
        assert!(below(&[parent], Instant::now()).is_empty());
    }
}
