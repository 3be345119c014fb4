//! Signals as something that can be waited for together with sockets, and a bell for the threads of this process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use tenure::Time;

/// Whether the signal asks for the end.
pub(super) fn is_farewell(signal: i32) -> bool {
    matches!(signal, SIGTERM | SIGINT | SIGHUP | SIGQUIT)
}

/// The signals that this process takes instead of being ended by them.
#[derive(Debug)]
pub(super) struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    /// Those that came while somebody paused, each once.
    kept: Vec<i32>,
}

impl Signals {
    /// From now on these are taken, and SIGCHLD is.
    ///
    /// A signal that was ignored when this program was started (SIGHUP under `nohup`) stays so: the command inherits
    /// that, while of signals with a handler it gets the default back (execve(2)). SIGCHLD is taken in any case: where
    /// it is ignored, children that end can't be waited for (waitpid(2)).
    ///
    /// # Errors
    /// No more descriptors.
    pub(super) fn take(wanted: &[i32]) -> io::Result<Signals> {
        let ignored = ignored();
        let taken = wanted.iter().copied().filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let (read, write) = UnixStream::pair()?;
        let taken: Vec<i32> = taken.chain([SIGCHLD]).collect();
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, &taken)?;
        Ok(Signals { delivery, kept: Vec::new() })
    }

    /// Those that have come, SIGCHLD apart; never blocks.
    pub(super) fn pending(&mut self) -> Vec<i32> {
        self.keep();
        std::mem::take(&mut self.kept)
    }

    /// Waits until a signal comes, a child's end included, for `limit` at most. It is still pending afterwards, and the
    /// next pause waits for another one.
    pub(super) fn pause(&mut self, limit: Duration) {
        wait_for(&mut [PollFd::new(&*self, PollFlags::IN)], limit);
        self.keep();
    }

    /// Until here the descriptor is ready, from here on it is not.
    fn keep(&mut self) {
        for signal in self.delivery.pending() {
            if signal != SIGCHLD && !self.kept.contains(&signal) {
                self.kept.push(signal);
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

/// The set of signals that are ignored, one bit each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

/// An alarm on the boot clock, as something to wait for.
///
/// The time-out of poll(2) would not do alone: it stands still with a machine that sleeps, and goes on from where it was
/// in a process that was stopped and is continued (it is restarted with what was left of it). This alarm rings at its
/// instant, and has rung by the time one wakes up after it (timerfd_create(2), CLOCK_BOOTTIME).
#[derive(Debug)]
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    pub(super) fn new() -> Result<Alarm, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        timerfd_create(TimerfdClockId::Boottime, flags).map(Alarm)
    }

    /// Silent from now on, until that instant.
    pub(super) fn set(&self, at: Time) {
        // Zero would mean never.
        let nanos = i64::try_from(at.as_nanos()).unwrap_or(i64::MAX).max(1);
        let it_value = Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        // Where it can't be set the slices of the wait are still there.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &once);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of them is ready or a signal comes, for `limit` at most. Spurious ends do no harm: everybody looks
/// for himself.
pub(super) fn wait_for(descriptors: &mut [PollFd<'_>], limit: Duration) {
    let limit = Timespec::try_from(limit).unwrap_or_default();
    if let Err(error) = poll(descriptors, Some(&limit)) {
        // Without it one would spin; the caller's clock goes on deciding.
        if error != Errno::INTR {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether a descriptor is ready at this moment: a pidfd is, once its process is dead (pidfd_open(2)).
pub(super) fn is_ready(descriptor: impl AsFd) -> bool {
    let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut descriptors, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Wakes a thread that waits for descriptors.
#[derive(Clone, Debug)]
pub(super) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub(super) fn new() -> Result<Bell, Errno> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell(Arc::new(descriptor)))
    }

    /// Never blocks: a bell that has been rung 2^64 times rings already.
    pub(super) fn ring(&self) {
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// It is silent until it is rung again.
    pub(super) fn hush(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rustix::process::{Signal, getpid, kill_process};

    use super::super::alone::alone;
    use super::*;

    #[test]
    fn a_pause_loses_no_signal_and_the_next_one_is_a_pause_again() {
        if !alone("exec::signals::tests::a_pause_loses_no_signal_and_the_next_one_is_a_pause_again") {
            return;
        }
        let mut signals = Signals::take(&[signal_hook::consts::SIGUSR2]).unwrap();
        let begun = Instant::now();
        for _ in 0..2 {
            kill_process(getpid(), Signal::USR2).unwrap();
            signals.pause(Duration::from_secs(60));
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "woken by it");
        let begun = Instant::now();
        signals.pause(Duration::from_millis(100));
        assert!(begun.elapsed() >= Duration::from_millis(100), "nothing has come");
        assert_eq!(signals.pending(), [signal_hook::consts::SIGUSR2]);
        assert!(signals.pending().is_empty());
    }
}
