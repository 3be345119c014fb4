//! Where PostgreSQL is, and a fresh data directory without waiting for `initdb` each time.

use crate::scene;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// A program of the PostgreSQL server: from `TENURE_PG_BIN` (a directory), else the newest version in the places
/// where distributions put it, else from `PATH`.
pub(super) fn program(name: &str) -> PathBuf {
    static DIRECTORIES: OnceLock<Vec<PathBuf>> = OnceLock::new();
    let directories = DIRECTORIES.get_or_init(|| {
        if let Some(directory) = std::env::var_os("TENURE_PG_BIN") {
            return vec![directory.into()];
        }
        let versions = |parent: &str, bin: &str| {
            let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir(parent)
                .into_iter()
                .flatten()
                .filter_map(|entry| {
                    let entry = entry.ok()?;
                    let name = entry.file_name().into_string().ok()?;
                    let version = name.trim_start_matches("pgsql-").parse().ok()?;
                    Some((version, entry.path().join(bin)))
                })
                .collect();
            found.sort();
            found.into_iter().rev().map(|(_, path)| path)
        };
        versions("/usr/lib/postgresql", "bin").chain(versions("/usr", "bin")).collect()
    });
    scene::find_program(name, directories).unwrap_or_else(|| {
        panic!("no {name} found: install the PostgreSQL server, or set TENURE_PG_BIN to the directory of its programs")
    })
}

/// Puts a fresh data directory at `data`; the first one of a process is made by `initdb`, the others are copies.
pub(super) fn create_data_directory(data: &Path) {
    static TEMPLATE: OnceLock<TempDir> = OnceLock::new();
    let template = TEMPLATE.get_or_init(|| {
        let dir = scene::server_dir("template");
        let mut initdb = scene::server_command(&program("initdb"), dir.path());
        initdb.args(["--no-sync", "--no-instructions", "--auth=trust", "--username=postgres"]);
        initdb.args(["--encoding=UTF8", "--locale=C", "-D"]).arg(dir.path().join("data"));
        run(initdb, dir.path());
        dir
    });
    let parent = data.parent().expect("a data directory lies in its server's directory");
    let mut copy = scene::server_command(Path::new("cp"), parent);
    copy.args(["-a", "--reflink=auto"]).arg(template.path().join("data")).arg(data);
    run(copy, parent);
}

/// Runs a command to its end, and panics with its output if it fails.
pub(super) fn run(mut command: Command, dir: &Path) {
    let log = dir.join("setup.log");
    let output = File::create(&log).unwrap_or_else(|error| panic!("can't create {}: {error}", log.display()));
    let errors = output.try_clone().unwrap_or_else(|error| panic!("can't share {}: {error}", log.display()));
    let status = command
        .stdout(output)
        .stderr(errors)
        .status()
        .unwrap_or_else(|error| panic!("can't run {command:?}: {error}"));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(status.success(), "{command:?} failed with {status}:\n{}", said());
}
