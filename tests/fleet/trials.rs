//! How the programs of tests register what they run.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use libtest_mimic::Trial;
use tempfile::TempDir;

/// They mostly wait, but each has processes of its own, and two cores bear only so many.
pub(crate) const AT_ONCE: usize = 6;

/// Users that own no process here: the kernel counts their threads from zero. One for each test that needs one, since
/// tests run at the same time.
pub(crate) const NOBODIES: [u32; 4] = [61_234, 61_235, 61_236, 61_237];

/// Names of functions, with the functions.
#[allow(unused_macros, reason = "the soak has nothing to register")]
macro_rules! named {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), $module::$name)),*]
    };
}
pub(crate) use named;

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Whoever is not root is told that there is one more.
pub(crate) fn for_root(trial: Trial) -> Trial {
    if is_root() { trial } else { trial.with_kind("needs root").with_ignored_flag(true) }
}

/// A copy of this program that everybody may run, in a directory that goes away with what is returned. Another process
/// copies: what this one has open for writing while some thread starts a child is open in that child too, and a program
/// that is open for writing can't be run.
pub(crate) fn public_copy() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("copy");
    let this = std::env::current_exe().expect("this program");
    let mut install = std::process::Command::new("install");
    let status = install.args(["-m", "0755"]).arg(this).arg(&copy).status();
    assert!(status.expect("install").success(), "this program can't be copied");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).expect("one's own directory");
    (dir, copy)
}
