//! The guardian: a process that does nothing but see to it that the command does not outlive the term.
//!
//! It has one thread, a session of its own, and no database until the very end. It knows the deadline, learns
//! later ones from `tenure`, and needs nobody to act at the ones that it knows. Everything that the command starts is
//! below it, and it ends only when nothing of that is left.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, set_parent_process_death_signal, setsid};
use signal_hook::consts as signals;
use tenure::{Clock, Store, SystemClock, Time};

use super::channel::{Channel, Message, Plan, Received};
use super::reap;
use super::signals::{Alarm, Signals, is_farewell, is_ready, wait_for};
use super::stage;
use super::timing::{Act, Countdown};

/// The hidden command's name.
pub(super) const NAME: &str = "guardian";

/// System waits stop while the machine is suspended; none is longer than this before the clock is read again.
const SLICE: Duration = Duration::from_millis(200);

/// Before a release that failed is tried again.
const AGAIN: Duration = Duration::from_millis(50);

/// What would end or stop it by default, and SIGCONT, which wakes it. It acts by its channel and its clock alone; the
/// terminal's hang-up and its keys are for `tenure`.
const UNHEARD: [i32; 16] = [
    signals::SIGHUP,
    signals::SIGINT,
    signals::SIGQUIT,
    signals::SIGTERM,
    signals::SIGUSR1,
    signals::SIGUSR2,
    signals::SIGALRM,
    signals::SIGVTALRM,
    signals::SIGPROF,
    signals::SIGCONT,
    signals::SIGTSTP,
    signals::SIGTTIN,
    signals::SIGTTOU,
    signals::SIGIO,
    signals::SIGXCPU,
    signals::SIGXFSZ,
];

/// `tenure guardian COMMAND ARGUMENTS..`, with its end of the channel as its standard input.
pub(super) fn main(command: Vec<OsString>) -> ExitCode {
    let Some(channel) = take_channel() else { return stage::by_hand() };
    match Guardian::prepare(channel) {
        Ok(Some(guardian)) => guardian.run(&command),
        // `tenure` is gone before it has said anything.
        Ok(None) => ExitCode::SUCCESS,
        // `tenure` sees that it ends without a word.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Moves the channel away from standard input, which nobody who is started from here may find it at.
fn take_channel() -> Option<Channel> {
    let channel = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).ok().and_then(Channel::of)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null").ok()?).ok()?;
    Some(channel)
}

struct Guardian {
    channel: Channel,
    /// The peer has closed its end.
    closed: bool,
    plan: Plan,
    /// The command's standard input, until the command has it.
    stdin: Option<OwnedFd>,
    /// The process that is `tenure`, by a descriptor that can't come to mean another one.
    tenure: OwnedFd,
    signals: Signals,
    alarm: Alarm,
    countdown: Countdown,
}

fn now() -> Time {
    SystemClock::new().now()
}

impl Guardian {
    /// Ready for anything, and told what to guard.
    fn prepare(channel: Channel) -> Result<Option<Guardian>, std::io::Error> {
        // Were this process stopped when `tenure` is killed, nobody would be there to continue or kill it. So the kernel
        // continues it then (prctl(2), PR_SET_PDEATHSIG). The thread that has started it is the first one of `tenure`, and
        // lives as long as that. A death before this line shows on the descriptor that comes with the plan, or by no plan.
        // First of all: some of what follows takes milliseconds.
        set_parent_process_death_signal(Some(Signal::CONT))?;
        let signals = Signals::take(&UNHEARD)?;
        let alarm = Alarm::new()?;
        setsid()?;
        reap::become_subreaper()?;
        loop {
            wait_for(&mut [PollFd::new(&channel, PollFlags::IN)], SLICE);
            match channel.receive() {
                Received::Nothing => {}
                Received::Message(Message::Plan(plan), descriptors) => {
                    let Ok([stdin, tenure]) = <[OwnedFd; 2]>::try_from(descriptors) else { return Ok(None) };
                    let countdown = Countdown::new(plan.leads, plan.deadline);
                    let stdin = Some(stdin);
                    let plan = *plan;
                    return Ok(Some(Guardian {
                        channel,
                        closed: false,
                        plan,
                        stdin,
                        tenure,
                        signals,
                        alarm,
                        countdown,
                    }));
                }
                Received::Message(..) | Received::Closed => return Ok(None),
            }
        }
    }

    fn run(mut self, command: &[OsString]) -> ExitCode {
        if let Some(leader) = self.start(command) {
            self.guard(leader);
            // Nothing is written to standard error from here: whoever reads it may stand still.
            let stuck = |left| {
                let _ = self.channel.send(&Message::Stuck(left), &[]);
            };
            reap::kill_all(self.plan.leads.look(), |limit| self.signals.pause(limit), stuck);
        }
        // Nothing is left but this process: nobody who reads what the command wrote has to wait for it.
        let _ = self.channel.send(&Message::Gone, &[]);
        silence();
        self.hand_over();
        ExitCode::SUCCESS
    }

    /// Starts the command, if there is time for it.
    fn start(&mut self, command: &[OsString]) -> Option<Pid> {
        let stdin = self.stdin.take()?;
        if !matches!(self.countdown.act(now()), Act::Wait(_)) {
            return None;
        }
        let mut stage = Command::new("/proc/self/exe");
        stage.arg0("tenure").args(stage::arguments(std::process::id(), self.countdown.kill_at()));
        let child = match stage.args(command).stdin(Stdio::from(stdin)).spawn() {
            Ok(child) => child,
            Err(error) => {
                let _ = self.channel.send(&Message::NotStarted(error.to_string()), &[]);
                return None;
            }
        };
        i32::try_from(child.id()).ok().and_then(Pid::from_raw)
    }

    /// Until everything is to be killed, or has ended by itself.
    fn guard(&mut self, leader: Pid) {
        let mut exited = false;
        loop {
            self.listen(leader);
            let _ = self.signals.pending();
            if let Some(code) = reap::exit_code(leader).filter(|_| !exited) {
                exited = true;
                let exit = Message::Exited { code, ending: self.countdown.is_ending() };
                let _ = self.channel.send(&exit, &[]);
                self.countdown.end(now());
            }
            reap::reap_others(Some(leader));
            // What the command left behind is below this process by now: its own end came after that.
            if exited && reap::children().iter().all(|child| *child == leader) {
                return;
            }
            match self.countdown.act(now()) {
                Act::Kill => return,
                Act::Terminate => terminate(leader),
                Act::Wait(until) => self.wait(until),
            }
        }
    }

    fn wait(&self, until: Time) {
        let limit = until.saturating_since(now()).min(SLICE);
        self.alarm.set(until);
        let mut descriptors =
            vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.alarm, PollFlags::IN)];
        if !self.closed {
            // Once they are ready they stay so, and there is nothing more to learn from them.
            descriptors.push(PollFd::new(&self.channel, PollFlags::IN));
            descriptors.push(PollFd::new(&self.tenure, PollFlags::IN));
        }
        wait_for(&mut descriptors, limit);
    }

    /// Hears what `tenure` has said, and whether it is there at all.
    fn listen(&mut self, leader: Pid) {
        while !self.closed {
            match self.channel.receive() {
                Received::Nothing => break,
                Received::Message(Message::Deadline(deadline), _) => self.countdown.extend(deadline),
                Received::Message(Message::Signal(signal), _) => {
                    if let Some(named) = Signal::from_named_raw(signal) {
                        reap::signal_group(leader, named);
                    }
                    if is_farewell(signal) {
                        wake(leader);
                    }
                }
                Received::Message(Message::End, _) => self.countdown.end(now()),
                Received::Message(..) => {}
                Received::Closed => self.closed = true,
            }
        }
        if self.closed || is_ready(&self.tenure) {
            self.closed = true;
            self.countdown.end(now());
        }
    }

    /// Gives the lease back in the name of a `tenure` that was killed, so that nobody waits for it to expire.
    ///
    /// Only with both proofs: nothing of the command is left, and `tenure` is dead, so that no statement of its own
    /// can follow except one that is on its way. Of those a renewal does not bring a released lease back (rule 9).
    fn hand_over(&mut self) {
        if !self.closed && !is_ready(&self.tenure) {
            return;
        }
        // The descriptors of a dying process are closed a moment before it is dead.
        while !is_ready(&self.tenure) {
            if now() >= self.countdown.deadline() {
                return;
            }
            wait_for(&mut [PollFd::new(&self.tenure, PollFlags::IN)], SLICE);
        }
        let plan = &self.plan;
        let Ok(store) = plan.store.open() else { return };
        // Past the deadline the lease is all but over by itself; and there is nobody left to tell.
        while now() < self.countdown.deadline() {
            match store.release(&plan.election, &plan.holder, plan.fence, plan.operation_timeout) {
                Err(error) if error.is_retryable() => self.signals.pause(AGAIN),
                _ => return,
            }
        }
    }
}

/// Asks everybody within reach to end: the command's process group, and those that have lost their parents.
fn terminate(leader: Pid) {
    reap::signal_group(leader, Signal::TERM);
    for other in reap::children().into_iter().filter(|child| *child != leader) {
        let in_group = rustix::process::getpgid(Some(other)) == Ok(leader);
        if !in_group {
            reap::signal_group(other, Signal::TERM);
        }
    }
    wake(leader);
}

/// Whoever stands still could not act on it.
fn wake(leader: Pid) {
    reap::signal_group(leader, Signal::CONT);
}

/// Lets go of standard output and error, which somebody may read to their end.
fn silence() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(null.as_fd());
    }
}
