//! Small libraries in C that are loaded into a process before all others.

use crate::scene;
use std::path::PathBuf;
use std::process::Command;

/// Compiles a library with the system's C compiler, for whatever user the process runs as.
pub(crate) fn compile(name: &str, text: &str) -> PathBuf {
    let source = scene::root().join(format!("{name}.c"));
    let library = scene::root().join(format!("{name}.so"));
    std::fs::write(&source, text).unwrap_or_else(|error| panic!("can't write {}: {error}", source.display()));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    let output = cc.output().unwrap_or_else(|error| panic!("can't run the C compiler: {error}"));
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    scene::set_mode(&library, 0o755);
    library
}
