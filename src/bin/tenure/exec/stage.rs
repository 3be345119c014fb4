//! The last step before the command: a process that becomes it.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};
use tenure::{Clock, SystemClock, Time};

use crate::failure::{FAILED, Failure};

/// There is such a program, but it can't be run: as `env`, `nohup` and `timeout` have it.
pub(super) const CANNOT_RUN: u8 = 126;
/// There is no such program.
pub(super) const NOT_FOUND: u8 = 127;

/// The hidden command's name.
pub(super) const NAME: &str = "stage";

/// What the guardian starts: `tenure stage PARENT NOT-AFTER COMMAND ARGUMENTS..`.
pub(super) fn arguments(guardian: u32, not_after: Time) -> [String; 3] {
    [NAME.to_owned(), guardian.to_string(), not_after.as_nanos().to_string()]
}

/// Becomes the command, in a session of its own. Returns only where that was not possible.
pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let number = |text: Option<OsString>| text?.to_str()?.parse::<u64>().ok();
    let (parent, not_after) = (number(arguments.next()), number(arguments.next()));
    let (Some(parent), Some(not_after), Some(command)) = (parent, not_after, arguments.next()) else {
        return by_hand();
    };
    let prepared = prepare(parent, Time::from_nanos(not_after));
    prepared.unwrap_or_else(|| cannot_run(&command, &Command::new(&command).args(arguments).exec())).tell()
}

/// What stands in the way of becoming the command.
///
/// The kernel kills this process, and later the command, when the guardian dies, were it killed together with `tenure`
/// (prctl(2), PR_SET_PDEATHSIG: kept over an exec, unless that is of a set-user-ID program; not passed on to children).
/// It does so for a death from now on, so afterwards the parent must still be the guardian, which has only one thread.
fn prepare(guardian: u64, not_after: Time) -> Option<Failure> {
    let failed =
        |what: &str, error| Failure::new(FAILED, format!("the command was not started: {what}: {error}"));
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Some(failed("PR_SET_PDEATHSIG", error));
    }
    if getppid().map(Pid::as_raw_pid).and_then(|pid| u64::try_from(pid).ok()) != Some(guardian) {
        return Some(Failure::new(FAILED, "the command was not started: its guardian is gone"));
    }
    if let Err(error) = setsid() {
        return Some(failed("setsid", error));
    }
    // Whoever stood still up to here has no term any more.
    (SystemClock::new().now() >= not_after)
        .then(|| Failure::new(FAILED, "the command was not started: the term is all but over"))
}

/// Somebody has called a part of `tenure exec`.
pub(super) fn by_hand() -> ExitCode {
    Failure::new(FAILED, "this is a part of `tenure exec`, and not for use by hand").tell()
}

fn cannot_run(command: &OsStr, error: &std::io::Error) -> Failure {
    let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
    Failure::new(code, format!("cannot run {}: {error}", command.to_string_lossy()))
}

/// Whether there is such a command at all: a host that lacks it must not win elections only to lose them.
///
/// # Errors
/// The code and the sentence with which `tenure` would have ended after it was elected.
pub(super) fn look_for(command: &OsStr) -> Result<(), Failure> {
    let usable = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    let mut found = false;
    let path = Path::new(command);
    let places: Vec<_> = if path.components().count() > 1 || path.is_absolute() {
        vec![path.to_owned()]
    } else {
        let places = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        std::env::split_paths(&places).map(|place| place.join(path)).collect()
    };
    for place in places {
        if usable(&place) {
            return Ok(());
        }
        found |= place.exists();
    }
    let error = if found { Errno::ACCESS } else { Errno::NOENT };
    Err(cannot_run(command, &error.into()))
}
