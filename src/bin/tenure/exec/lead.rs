//! One term: `tenure` renews, its guardian guards, the command runs.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, waitpid};
use signal_hook::consts as signals;
use tenure::{Clock, Elector, LeaderGuard, SystemClock, Time};

use super::channel::{Channel, Message, Plan, Received};
use super::signals::{Alarm, Bell, Signals, is_farewell, is_ready, wait_for};
use super::timing::{Countdown, Leads, NEWS};
use super::{guardian, reap, say};
use crate::failure::{FAILED, Failure};
use crate::options::StoreOptions;

/// A deadline that comes from two readings of a clock is never the same twice.
const BLUR: Duration = Duration::from_millis(1);
/// For a guardian that has nothing left to guard.
const MOMENT: Duration = Duration::from_secs(1);

/// The signals that are passed on to the command.
pub(super) const PASSED_ON: [i32; 8] = [
    signals::SIGTERM,
    signals::SIGINT,
    signals::SIGHUP,
    signals::SIGQUIT,
    signals::SIGUSR1,
    signals::SIGUSR2,
    signals::SIGWINCH,
    signals::SIGCONT,
];

/// How the command's run ended. Nothing of it is left in any case.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// By itself, with this exit code.
    Itself(u8),
    /// It was ended because the term was, or was about to be.
    Lost(String),
    /// It was killed because its guardian failed, or never started; and what the guardian ended with, if it had.
    Failed(String, Option<u8>),
}

/// What every term of a run has in common.
pub(super) struct Crew<'a> {
    pub(super) elector: &'a Elector,
    /// May hold a password.
    pub(super) store: &'a StoreOptions,
    pub(super) command: &'a [OsString],
    pub(super) leads: Leads,
    pub(super) bell: &'a Bell,
}

/// Whether this kernel has what the guarding takes.
///
/// # Errors
/// It has not, in a sentence.
pub(super) fn prepare() -> Result<(), Failure> {
    this_process().map_err(|error| lacks("pidfd_open", "5.3", error))?;
    reap::become_subreaper().map_err(|error| lacks("PR_SET_CHILD_SUBREAPER", "3.4", error))?;
    let me = std::fs::read_link("/proc/self");
    let me = me.map_err(|_| Failure::new(FAILED, "`tenure exec` needs /proc, which is not mounted here"))?;
    // Children are found in it, by the numbers that they have in its namespace.
    if me.to_str() != Some(&getpid().to_string()) {
        let sentence =
            "`tenure exec` needs the /proc of its own PID namespace; that of another one is mounted here";
        return Err(Failure::new(FAILED, sentence).hint("`unshare` mounts it with --mount-proc"));
    }
    Ok(())
}

fn lacks(what: &str, since: &str, error: Errno) -> Failure {
    let sentence = format!("`tenure exec` needs {what}, which this system does not give: {error}");
    Failure::new(FAILED, sentence).hint(format!("Linux has it since {since}; a sandbox may forbid it"))
}

fn this_process() -> Result<OwnedFd, Errno> {
    pidfd_open(getpid(), PidfdFlags::empty())
}

fn now() -> Time {
    SystemClock::new().now()
}

/// Never later than the term's own deadline: the clock is read before the rest is.
fn deadline(guard: &LeaderGuard) -> Time {
    now() + guard.remaining()
}

/// Runs the command under the guard's term. The farewells that came are added to `farewells`.
///
/// # Errors
/// The guardian could not be started.
pub(super) fn lead(
    crew: &Crew<'_>,
    guard: &LeaderGuard,
    signals: &mut Signals,
    farewells: &mut Vec<i32>,
) -> Result<End, Failure> {
    let mut term = Guarded::start(crew, guard)?;
    log::info!("{}: the command starts, fence {}", crew.elector.config().name(), guard.fence());
    loop {
        term.wait(signals, crew.bell);
        for signal in signals.pending() {
            term.owed.push(Message::Signal(signal));
            farewells.extend(Some(signal).filter(|signal| is_farewell(*signal)));
        }
        term.follow(guard);
        let gone = is_ready(&term.process);
        // In this order: what it said before it ended counts.
        term.listen();
        if term.gone {
            term.dismiss();
            return Ok(term.end());
        }
        if gone || now() >= term.patience() {
            return Ok(term.take_over(signals));
        }
        // What a shell had started before it became `tenure`, or a container's orphans.
        reap::reap_others(Some(term.guardian));
    }
}

/// A guardian and what is known of it.
struct Guarded {
    channel: Channel,
    guardian: Pid,
    /// The same as a descriptor.
    process: OwnedFd,
    /// What the guardian goes by, so far as it has been told.
    countdown: Countdown,
    alarm: Alarm,
    leads: Leads,
    /// What the guardian has not been told yet.
    owed: Vec<Message>,
    lost: Option<String>,
    exited: Option<(u8, bool)>,
    not_started: Option<String>,
    gone: bool,
    /// There is neither a guardian nor anybody whom it guarded.
    over: bool,
}

/// A panic on the way drops this before the guard, whose drop gives the lease back: first nobody may be left.
impl Drop for Guarded {
    fn drop(&mut self) {
        if !self.over {
            self.kill(|limit| wait_for(&mut [], limit));
        }
    }
}

impl Guarded {
    fn start(crew: &Crew<'_>, guard: &LeaderGuard) -> Result<Guarded, Failure> {
        let failed = |error: std::io::Error| Failure::new(FAILED, format!("no guardian: {error}"));
        let (channel, theirs) = Channel::pair().map_err(|error| failed(error.into()))?;
        let alarm = Alarm::new().map_err(|error| failed(error.into()))?;
        let config = crew.elector.config();
        let (fence, holder) = (guard.fence(), crew.elector.identity().as_str());
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("tenure")
            .arg(guardian::NAME)
            .args(crew.command)
            .env("TENURE_FENCE", fence.to_string())
            .env("TENURE_ELECTION", config.name())
            .env("TENURE_HOLDER", holder)
            .env_remove("TENURE_STORE")
            .stdin(Stdio::from(theirs));
        let child = command.spawn().map_err(failed)?;
        // The command holds the guardian's end of the channel, whose closing is to be noticed.
        drop(command);
        let guardian = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let guardian = guardian.ok_or_else(|| failed(std::io::ErrorKind::Other.into()))?;
        let told = deadline(guard);
        let plan = Plan {
            election: config.name().to_owned(),
            holder: holder.to_owned(),
            fence,
            store: crew.store.clone(),
            operation_timeout: config.operation_timeout(),
            leads: crew.leads,
            deadline: told,
        };
        // Not waited for so far, so that its number means no other process.
        let introduced = pidfd_open(guardian, PidfdFlags::empty()).and_then(|process| {
            let this = this_process()?;
            let descriptors = [std::io::stdin().as_fd().try_clone_to_owned().map_err(errno)?, this];
            channel
                .send(&Message::Plan(Box::new(plan)), &[descriptors[0].as_fd(), descriptors[1].as_fd()])?;
            Ok(process)
        });
        let process = introduced.map_err(|error| {
            dismiss(guardian);
            failed(error.into())
        })?;
        Ok(Guarded::of(guardian, process, (channel, alarm), crew.leads, told))
    }

    fn of(
        guardian: Pid,
        process: OwnedFd,
        (channel, alarm): (Channel, Alarm),
        leads: Leads,
        told: Time,
    ) -> Guarded {
        Guarded {
            channel,
            guardian,
            process,
            countdown: Countdown::new(leads, told),
            alarm,
            leads,
            owed: Vec::new(),
            lost: None,
            exited: None,
            not_started: None,
            gone: false,
            over: false,
        }
    }

    /// If nothing is gone by then, the guardian stands still.
    fn patience(&self) -> Time {
        self.countdown.kill_at() + self.leads.patience()
    }

    fn wait(&self, signals: &Signals, bell: &Bell) {
        self.alarm.set(self.patience());
        let mut descriptors = [
            PollFd::new(&self.alarm, PollFlags::IN),
            PollFd::new(signals, PollFlags::IN),
            PollFd::new(&self.channel, PollFlags::IN),
            PollFd::new(&self.process, PollFlags::IN),
            PollFd::new(bell, PollFlags::IN),
        ];
        // System waits stop while the machine is suspended, and a renewal makes no sound.
        wait_for(&mut descriptors, self.patience().saturating_since(now()).min(NEWS));
        bell.hush();
    }

    /// Tells the guardian what has become of the term.
    fn follow(&mut self, guard: &LeaderGuard) {
        match guard.check() {
            Ok(_) => {
                let deadline = deadline(guard);
                // Where it can't be told now, the next look tells it; until then the guardian is only stricter.
                let later = deadline > self.countdown.deadline() + BLUR;
                if later && self.channel.send(&Message::Deadline(deadline), &[]).is_ok() {
                    self.countdown.extend(deadline);
                    // Whoever has stopped the guardian does not keep the lease by it: a command that ended, or a signal
                    // for it, would go unnoticed for as long as this process renews.
                    let _ = kill_process(self.guardian, Signal::CONT);
                }
            }
            Err(lost) if self.lost.is_none() => {
                self.lost = Some(lost.to_string());
                self.owed.push(Message::End);
                self.countdown.end(now());
            }
            Err(_) => {}
        }
        while let Some(message) = self.owed.first() {
            if self.channel.send(message, &[]) == Err(Errno::AGAIN) {
                break;
            }
            self.owed.remove(0);
        }
    }

    /// Hears what the guardian has said.
    fn listen(&mut self) {
        loop {
            match self.channel.receive() {
                Received::Message(Message::Exited { code, ending }, _) => {
                    self.exited = Some((code, ending));
                    self.countdown.end(now());
                }
                Received::Message(Message::NotStarted(why), _) => self.not_started = Some(why),
                Received::Message(Message::Stuck(left), _) => complain(left),
                Received::Message(Message::Gone, _) => self.gone = true,
                Received::Message(..) => {}
                Received::Nothing | Received::Closed => return,
            }
        }
    }

    /// Waits for a guardian that has done its work.
    fn dismiss(&mut self) {
        wait_for(&mut [PollFd::new(&self.process, PollFlags::IN)], MOMENT);
        dismiss(self.guardian);
        self.over = true;
    }

    fn end(&self) -> End {
        if let Some(why) = &self.not_started {
            return End::Failed(format!("the command was not started: {why}"), None);
        }
        match self.exited {
            Some((code, false)) => End::Itself(code),
            _ => {
                End::Lost(self.lost.clone().unwrap_or_else(|| "the lease was not renewed in time".to_owned()))
            }
        }
    }

    fn kill(&mut self, pause: impl FnMut(Duration)) {
        let _ = kill_process(self.guardian, Signal::KILL);
        reap::kill_all(self.leads.look(), pause, complain);
        self.over = true;
    }

    /// The guardian is dead, or stands still while the deadline comes near. What it guarded becomes this process's as
    /// it dies, and is killed here.
    ///
    /// So is whatever else is a child of this process: one that the shell had before it became `tenure`, or the orphans
    /// of a container whose first process `tenure` is. They can't be told from those of the command.
    fn take_over(&mut self, signals: &mut Signals) -> End {
        let died_of = reap::exit_code(self.guardian);
        self.kill(|limit| signals.pause(limit));
        match self.exited {
            Some((code, false)) => End::Itself(code),
            _ => End::Failed(
                "the guardian of the command died or stood still; the command was killed".to_owned(),
                died_of,
            ),
        }
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Kills a guardian that guards nothing, if it is still there, and waits for its end.
fn dismiss(guardian: Pid) {
    let _ = kill_process(guardian, Signal::KILL);
    let _ = waitpid(Some(guardian), WaitOptions::empty());
}

fn complain(left: Vec<i32>) {
    let left: Vec<String> = left.iter().map(i32::to_string).collect();
    say(format_args!("the command was killed and is still not gone: {}", left.join(", ")));
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::alone::alone;
    use super::*;

    const LEFT_UNKNOWN: usize = usize::MAX;
    static LEFT: AtomicUsize = AtomicUsize::new(LEFT_UNKNOWN);

    /// In the place of the guard: who is there when it gives the lease back.
    struct Guard;

    impl Drop for Guard {
        fn drop(&mut self) {
            LEFT.store(reap::children().len(), Ordering::Relaxed);
        }
    }

    #[expect(clippy::zombie_processes, reason = "it is waited for by its number")]
    fn guarded() -> Guarded {
        let child = Command::new("sh")
            .args(["-c", "setsid sleep 600 & exec sleep 600"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let guardian = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        let process = pidfd_open(guardian, PidfdFlags::empty()).unwrap();
        let ears = (Channel::pair().unwrap().0, Alarm::new().unwrap());
        let leads = Leads { grace: Duration::ZERO, kill: Duration::ZERO };
        Guarded::of(guardian, process, ears, leads, now() + Duration::from_secs(600))
    }

    #[test]
    fn a_panic_leaves_nobody_when_the_guard_gives_the_lease_back() {
        if !alone("exec::lead::tests::a_panic_leaves_nobody_when_the_guard_gives_the_lease_back") {
            return;
        }
        reap::become_subreaper().unwrap();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _guard = Guard;
            let _term = guarded();
            panic!("in the middle of a term");
        }));
        reap::kill_all(Duration::ZERO, |limit| wait_for(&mut [], limit), complain);
        assert!(ended.is_err());
        assert_eq!(LEFT.load(Ordering::Relaxed), 0);
    }
}
