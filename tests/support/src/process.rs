//! Watching, stopping and re-executing processes.

use crate::scene;
use rustix::process::{Pid, Resource, Signal, getrlimit};
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Waits until `condition` holds, looking every few milliseconds, and panics with `what` when it does not within
/// the time given.
#[track_caller]
pub fn await_until(within: Duration, what: impl Display, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > within {
            panic!("not within {within:?}: {what}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How many threads a process has.
pub fn threads(pid: u32) -> usize {
    entries(pid, "task")
}

/// How many file descriptors a process has open.
pub fn descriptors(pid: u32) -> usize {
    // Reading one's own list takes a descriptor.
    entries(pid, "fd") - usize::from(pid == std::process::id())
}

fn entries(pid: u32, list: &str) -> usize {
    let path = format!("/proc/{pid}/{list}");
    std::fs::read_dir(&path).unwrap_or_else(|error| panic!("can't read {path}: {error}")).count()
}

/// How often each thread of a process has begun to wait for something.
pub fn waits(pid: u32) -> Vec<u64> {
    let path = format!("/proc/{pid}/task");
    let threads = std::fs::read_dir(&path).unwrap_or_else(|error| panic!("can't read {path}: {error}"));
    // A thread that ends meanwhile has nothing to say.
    let statuses =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("status")).ok());
    let count = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).expect("the kernel counts")
    };
    statuses.map(count).collect()
}

/// The processor time that a process has used.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = stat(pid).unwrap_or_else(|| panic!("there is no process {pid}"));
    Duration::from_millis(stat.ticks * 10)
}

/// How many descriptors a process may have from now on; those that it has stay. `None`: as many as this process.
pub fn limit_descriptors(pid: u32, most: Option<u64>) {
    limit(pid, Resource::Nofile, most);
}

/// How many threads the user that a process runs as may have for this process to start one more. `None`: as many as
/// for this process. No limit for root.
pub fn limit_threads(pid: u32, most: Option<u64>) {
    limit(pid, Resource::Nproc, most);
}

/// The soft limit, which may be raised again. Set as the user that the process runs as: root in a container has no say
/// in the limits of others.
fn limit(pid: u32, resource: Resource, most: Option<u64>) {
    let option = if resource == Resource::Nproc { "--nproc" } else { "--nofile" };
    let most = most.or(getrlimit(resource).current).map_or("unlimited".to_owned(), |most| most.to_string());
    let owner = std::fs::metadata(format!("/proc/{pid}")).unwrap_or_else(|error| panic!("no {pid}: {error}"));
    let mut command = Command::new("prlimit");
    command.args(["--pid", &pid.to_string(), &format!("{option}={most}:")]);
    if owner.uid() != rustix::process::geteuid().as_raw() {
        command.uid(owner.uid()).gid(owner.gid());
    }
    let output = command.output().unwrap_or_else(|error| panic!("can't run prlimit: {error}"));
    assert!(output.status.success(), "prlimit: {}", String::from_utf8_lossy(&output.stderr));
}

/// What `/proc/PID/stat` says about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    pub(crate) state: char,
    pub(crate) parent: u32,
    /// Processor time in hundredths of a second, the kernel's on its behalf included.
    ticks: u64,
    /// In clock ticks since boot; tells a process from a later one with the same id.
    pub(crate) started: u64,
}

pub(crate) fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, further parentheses included.
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let (user, system) = (fields.nth(9)?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?);
    let started = fields.nth(6)?.parse().ok()?;
    Some(Stat { pid, state, parent, ticks: user + system, started })
}

pub(crate) fn children(parent: u32) -> Vec<Stat> {
    let processes = std::fs::read_dir("/proc").unwrap_or_else(|error| panic!("can't read /proc: {error}"));
    processes
        .filter_map(|entry| stat(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .filter(|stat| stat.parent == parent)
        .collect()
}

impl Stat {
    /// Whether this very process still runs (a zombie does not).
    pub(crate) fn still_runs(&self) -> bool {
        stat(self.pid).is_some_and(|now| now.started == self.started && !matches!(now.state, 'Z' | 'X'))
    }
}

/// Whether there is a process with this id that is not a zombie.
pub fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.still_runs())
}

/// SIGSTOP, and waits until the process has stopped.
pub fn stop_process(pid: u32) {
    signal(pid, Signal::STOP);
    await_until(Duration::from_secs(10), format_args!("process {pid} stops"), || {
        stat(pid).is_none_or(|stat| matches!(stat.state, 'T' | 'Z' | 'X'))
    });
}

/// SIGCONT.
pub fn cont_process(pid: u32) {
    signal(pid, Signal::CONT);
}

/// SIGKILL.
pub fn kill_process(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Sends a signal; a process that is gone already is no error.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let target = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    match rustix::process::kill_process(target, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("can't send {signal:?} to process {pid}: {error}"),
    }
}

/// Waits for a child's end, at most for the time given.
pub(crate) fn wait_for_exit(child: &mut std::process::Child, within: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if begun.elapsed() > within => return None,
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(error) => panic!("can't wait for process {}: {error}", child.id()),
        }
    }
}

/// A child process whose output is read line by line; killed when dropped, or when the test process ends.
#[derive(Debug)]
pub struct Process {
    child: std::process::Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Process {
    /// Starts `command` with its standard output piped here and its standard input closed. Standard error is left
    /// as the command has it.
    pub fn spawn(mut command: Command) -> Process {
        command.env(scene::MARK, scene::name()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("can't start {command:?}: {error}"));
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = channel();
        // Ends with the child's last line; the pipe is closed when the child is killed.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Process { child, lines, seen: Vec::new() }
    }

    /// Starts this very test binary again, with other arguments and environment.
    pub fn spawn_self(configure: impl FnOnce(&mut Command)) -> Process {
        let this = std::env::current_exe().unwrap_or_else(|error| panic!("can't find this binary: {error}"));
        let mut command = Command::new(this);
        configure(&mut command);
        Process::spawn(command)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of output; `None` when the output has ended. Panics when none comes in time.
    #[track_caller]
    pub fn line(&mut self, within: Duration) -> Option<String> {
        match self.lines.recv_timeout(within) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("process {} printed nothing within {within:?}; so far: {:#?}", self.pid(), self.seen)
            }
        }
    }

    /// The line that has come already, if any; does not wait.
    pub fn try_line(&mut self) -> Option<String> {
        let line = self.lines.try_recv().ok()?;
        self.seen.push(line.clone());
        Some(line)
    }

    /// Skips to the first line that `wanted` accepts. Panics when none comes in time or the output ends.
    #[track_caller]
    pub fn expect_line(&mut self, within: Duration, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        while let Some(left) = within.checked_sub(begun.elapsed()) {
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("process {} ended without: {what}; it said: {:#?}", self.pid(), self.seen)
                }
            }
        }
        panic!("process {} not within {within:?}: {what}; it said: {:#?}", self.pid(), self.seen);
    }

    /// Every line read so far.
    pub fn seen(&self) -> &[String] {
        &self.seen
    }

    /// Forgets the lines read so far: for a process that is listened to for hours.
    pub fn forget(&mut self) {
        self.seen.clear();
    }

    /// SIGSTOP, and waits until it has stopped.
    pub fn stop(&self) {
        stop_process(self.pid());
    }

    /// SIGCONT.
    pub fn cont(&self) {
        cont_process(self.pid());
    }

    /// SIGTERM: the polite request to end.
    pub fn terminate(&self) {
        signal(self.pid(), Signal::TERM);
    }

    /// How it has ended, if it has; does not wait.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGKILL, and waits until it is gone. How it ended: of something else, where it was quicker.
    #[track_caller]
    pub fn kill(&mut self) -> ExitStatus {
        // Until it has been waited for, the id is still the child's own.
        self.child.kill().unwrap_or_else(|error| panic!("can't kill process {}: {error}", self.pid()));
        let gone = wait_for_exit(&mut self.child, Duration::from_secs(10));
        gone.unwrap_or_else(|| panic!("process {} survives SIGKILL", self.pid()))
    }

    /// Waits for its end. Panics when it does not end in time.
    #[track_caller]
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        match wait_for_exit(&mut self.child, within) {
            Some(status) => status,
            None => {
                panic!("process {} has not ended within {within:?}; it said: {:#?}", self.pid(), self.seen)
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = wait_for_exit(&mut self.child, Duration::from_secs(10));
    }
}
