//! `tenure exec`: a command that runs while its host leads, and is dead before anybody else can.
//!
//! ```text
//! tenure exec              renews the lease; may be killed or frozen at any moment
//!   └─ tenure guardian     knows the deadline, kills everything below it in time, needs nobody for it
//!        └─ the command    and all its descendants
//! ```
//!
//! | room | what |
//! | --- | --- |
//! | `timing` | when the command is asked to end and when it is killed; no clock, no process |
//! | `channel` | what the two processes say to each other |
//! | `signals` | signals and other threads, as something to wait for |
//! | `reap` | killing everything below a process, with the proof that nothing is left |
//! | `stage` | the process that becomes the command |
//! | `guardian` | the process that guards it |
//! | `lead` | one term, as `tenure` itself sees it; stands in for a guardian that is dead or frozen |
//! | `wait` | the time before it |

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::options::{StoreOptions, Timings};

#[cfg(all(test, target_os = "linux"))]
mod alone;
#[cfg(target_os = "linux")]
mod channel;
#[cfg(target_os = "linux")]
mod guardian;
#[cfg(target_os = "linux")]
mod lead;
#[cfg(target_os = "linux")]
mod reap;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(target_os = "linux")]
mod stage;
#[cfg(target_os = "linux")]
mod timing;
#[cfg(target_os = "linux")]
mod wait;

/// What stands below the options.
const MORE: &str = "\
The command and every process that it starts are dead before the term's
deadline, also where tenure is killed or frozen. It finds TENURE_FENCE,
TENURE_ELECTION and TENURE_HOLDER in its environment, and TENURE_STORE removed
from it. SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH and
SIGCONT are passed on to its process group; the lease is kept until it ends.

The table, and for SQLite the file, is created where it is missing. Looks are
500 ms apart if --retry-period does not say otherwise, and 100 ms for SQLite.

Exit codes: the command's own, or 128 and the number of the signal that ended
it or the wait; 2 the options cannot be read; 123 the leadership was lost;
124 not elected within --wait; 125 the store refuses, a setting does not fit,
or tenure failed; 126 the command cannot be run; 127 there is no such command.

Examples:
  tenure exec --store sqlite:/var/lib/app/lease.db --election worker -- ./worker
  TENURE_STORE=postgres://app@db/app tenure exec --election worker -- ./worker
  # from cron on many hosts, on one of them
  tenure exec --election report --once --at-least 30s -- ./report
  # for ever
  tenure exec --election worker --restart -- ./worker --verbose";

/// Run a command while this host leads; kill it before anybody else can.
#[derive(Debug, Args)]
#[command(after_help = MORE)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing is run there"))]
pub(crate) struct Exec {
    #[command(flatten)]
    store: StoreOptions,
    /// The election: participants with the same name compete.
    #[arg(long, value_name = "NAME")]
    election: String,
    /// Give up after waiting for leadership this long, with exit code 124.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// Run if we can lead now; end with exit code 0 where somebody else leads.
    #[arg(long, conflicts_with_all = ["wait", "restart"])]
    once: bool,
    /// After a loss wait for leadership again, and run the command again.
    #[arg(long)]
    restart: bool,
    /// Keep the lease this long from the command's start, if it ends sooner.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    at_least: Option<Duration>,
    /// From SIGTERM to SIGKILL; a fifth of the term by default, or what the other times leave of it.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    grace: Option<Duration>,
    /// The readable part of this participant's identity: host and process by default.
    #[arg(long)]
    label: Option<String>,
    /// Published with the lease, for everybody to read.
    #[arg(long)]
    payload: Option<String>,
    #[command(flatten)]
    timings: Timings,
    /// What to run.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND", help_heading = None)]
    command: Vec<OsString>,
}

/// The processes that `tenure exec` starts of this program, by their first argument. None of the user's business, so
/// that they are in no help text and no completion.
pub(crate) fn inner() -> Option<ExitCode> {
    #[cfg(target_os = "linux")]
    {
        let mut arguments = std::env::args_os().skip(1);
        match arguments.next()?.to_str()? {
            guardian::NAME => Some(guardian::main(arguments.collect())),
            stage::NAME => Some(stage::main(arguments)),
            _ => None,
        }
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(not(target_os = "linux"))]
impl Exec {
    pub(crate) fn run(self) -> Result<ExitCode, crate::failure::Failure> {
        use crate::failure::{FAILED, Failure};
        Err(Failure::new(FAILED, "`tenure exec` is there on Linux only"))
    }
}

#[cfg(target_os = "linux")]
fn say(what: impl std::fmt::Display) {
    // Some of it may be a server's word.
    crate::voice::say(format!("tenure: {}\n", crate::text::printable(&what.to_string())));
}
