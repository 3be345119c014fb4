//! The one temporary directory of a test process, and the reaper that cleans up after it.
//!
//! Values clean up after themselves when they are dropped, also in a panic. What is never dropped (statics, a test
//! process that is killed) is left to the reaper: a small shell in a process group of its own that waits for the end
//! of a pipe whose other end only the test process holds. When that process is gone, for whatever reason, the reaper
//! ends the servers and child processes that carry this scene's unique name, and removes the directory.

use std::ffi::OsStr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Child processes carry the scene's name in this environment variable, so that the reaper knows them.
pub(crate) const MARK: &str = "TENURE_GROUND";

const REAPER: &str = r#"
trap '' HUP INT QUIT TERM
cat >/dev/null
name=${1##*/}
servers() {
  for file in $(grep -lsF -- "$name" /proc/[0-9]*/cmdline); do
    pid=${file#/proc/}; pid=${pid%%/*}
    read -r comm <"/proc/$pid/comm" || continue
    case $comm in postgres|pgbouncer|initdb|pg_basebackup) echo "$pid" ;; esac
  done
}
nodes() {
  for file in $(grep -lsF -- "TENURE_GROUND=$name" /proc/[0-9]*/environ); do
    pid=${file#/proc/}; echo "${pid%%/*}"
  done
}
round=0
while [ $round -lt 400 ]; do
  pids=$(nodes); [ -z "$pids" ] || kill -KILL $pids
  pids=$(servers); [ -n "$pids" ] || break
  if [ $round -eq 0 ]; then kill -QUIT $pids; kill -CONT $pids; fi
  if [ $round -ge 60 ]; then kill -KILL $pids; fi
  round=$((round + 1)); sleep 0.05
done
for file in "$1"/*/data/postmaster.pid; do
  [ -f "$file" ] || continue
  segment=$(sed -n '7s/.* //p' "$file"); [ -z "$segment" ] || ipcrm -m "$segment"
done
rm -rf -- "$1"
"#;

struct Scene {
    root: PathBuf,
    /// Holds the pipe whose end the reaper waits for.
    _reaper: Child,
}

fn scene() -> &'static Scene {
    static SCENE: OnceLock<Scene> = OnceLock::new();
    SCENE.get_or_init(|| {
        let root = tempfile::Builder::new()
            .prefix("tenure-")
            .rand_bytes(10)
            .tempdir()
            .unwrap_or_else(|error| panic!("no temporary directory: {error}"))
            .keep();
        // The servers may run as another user, who has to get through.
        set_mode(&root, 0o755);
        let reaper = Command::new("/bin/sh")
            .args(["-c", REAPER, "tenure-reaper"])
            .arg(&root)
            .current_dir("/")
            .env_remove(MARK)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("can't start the reaper: {error}"));
        Scene { root, _reaper: reaper }
    })
}

/// The directory of this process; its last component is the scene's unique name.
pub(crate) fn root() -> &'static Path {
    &scene().root
}

/// The scene's unique name.
pub(crate) fn name() -> &'static str {
    root().file_name().and_then(OsStr::to_str).expect("made from ASCII")
}

/// A directory in the scene for a server, owned by the user that runs it.
pub(crate) fn server_dir(kind: &str) -> TempDir {
    let dir = tempfile::Builder::new()
        .prefix(&format!("{kind}-"))
        .tempdir_in(root())
        .unwrap_or_else(|error| panic!("no directory for {kind} in {}: {error}", root().display()));
    set_mode(dir.path(), 0o755);
    give_away(dir.path());
    dir
}

/// Makes the servers' user the owner of `path`.
pub(crate) fn give_away(path: &Path) {
    if let Some(account) = account() {
        chown(path, Some(account.uid), Some(account.gid))
            .unwrap_or_else(|error| panic!("can't give {} to the servers' user: {error}", path.display()));
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .unwrap_or_else(|error| panic!("can't set the mode of {}: {error}", path.display()));
}

/// The user that servers run as when this process is root, whom PostgreSQL and PgBouncer refuse.
#[derive(Clone, Copy, Debug)]
struct Account {
    uid: u32,
    gid: u32,
}

fn account() -> Option<Account> {
    static ACCOUNT: OnceLock<Option<Account>> = OnceLock::new();
    *ACCOUNT.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let find = |user: &str| {
            let fields: Vec<&str> = passwd
                .lines()
                .map(|line| line.split(':').collect())
                .find(|fields: &Vec<&str>| fields[0] == user)?;
            Some(Account { uid: fields.get(2)?.parse().ok()?, gid: fields.get(3)?.parse().ok()? })
        };
        let account = find("postgres").or_else(|| find("nobody"));
        Some(account.expect("servers refuse to run as root, and /etc/passwd has neither postgres nor nobody"))
    })
}

/// A command that runs as the servers' user, in `dir`, out of reach of the terminal's signals.
pub(crate) fn server_command(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).stdin(Stdio::null()).process_group(0).env_remove(MARK);
    // A user's own settings must not reach the servers (PGDATA, PGPORT, PGOPTIONS, ..).
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("PG")) {
            command.env_remove(name);
        }
    }
    if let Some(account) = account() {
        command.uid(account.uid).gid(account.gid);
    }
    command
}

/// Finds `program` in the directories given and in `PATH`.
pub(crate) fn find_program(program: &str, directories: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path);
    directories.iter().cloned().chain(in_path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
