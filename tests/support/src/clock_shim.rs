//! Clocks that can be stepped while a process runs.

use crate::{preload, scene};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;

/// The library that is loaded into the process.
const SOURCE: &str = include_str!("clock_shim.c");

/// Where the offsets lie in the shared file, in 8-byte words.
#[derive(Clone, Copy, Debug)]
enum Word {
    Realtime = 0,
    Monotonic = 1,
    Boottime = 2,
}

/// Moves the clocks of processes started with [`ClockShim::env`], while they run.
///
/// It works on programs that ask libc for the time, and not on those that ask the kernel: rustix does that unless
/// it is built with its feature `use-libc`. Compiled with the system's C compiler, once per test process.
/// Only what a process reads is moved: sleeps and time-outs that the kernel measures keep their length.
#[derive(Debug)]
pub struct ClockShim {
    file: File,
    path: PathBuf,
    _dir: TempDir,
}

impl ClockShim {
    /// Clocks that go right until they are stepped.
    #[expect(clippy::new_without_default, reason = "it makes files")]
    pub fn new() -> ClockShim {
        let dir = scene::server_dir("clock", scene::Medium::Disk);
        let path = dir.path().join("offsets");
        std::fs::write(&path, [0; 24])
            .unwrap_or_else(|error| panic!("can't write {}: {error}", path.display()));
        scene::set_mode(&path, 0o644);
        let file = File::options().read(true).write(true).open(&path);
        let file = file.unwrap_or_else(|error| panic!("can't open {}: {error}", path.display()));
        ClockShim { file, path, _dir: dir }
    }

    /// The environment that a process has to be started with.
    pub fn env(&self) -> Vec<(String, String)> {
        let pair = |name: &str, path: &Path| (name.to_owned(), path.display().to_string());
        vec![pair("LD_PRELOAD", library()), pair("CLOCK_SHIM", &self.path)]
    }

    /// The file of the offsets, for a [`BootOffset`].
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Steps the wall clock (`CLOCK_REALTIME`) by so many seconds, forward or back: what a database's
    /// `clock_timestamp()` follows.
    pub fn step(&self, seconds: f64) {
        self.add(Word::Realtime, seconds);
    }

    /// What a suspend of the machine looks like from inside: wall clock and boot clock leap, the monotonic clock
    /// has stood still.
    pub fn suspend(&self, seconds: f64) {
        self.add(Word::Boottime, seconds);
        self.add(Word::Realtime, seconds);
    }

    /// Moves the boot clock (`CLOCK_BOOTTIME`) alone.
    pub fn step_boottime(&self, seconds: f64) {
        self.add(Word::Boottime, seconds);
    }

    /// Moves the monotonic clock (`CLOCK_MONOTONIC`) alone. A process that waits until an instant of this clock
    /// (as the standard library's timed waits do) rather than for a time waits longer or shorter from then on.
    pub fn step_monotonic(&self, seconds: f64) {
        self.add(Word::Monotonic, seconds);
    }

    /// How far the wall clock is off now, in seconds.
    pub fn offset(&self) -> f64 {
        self.read(Word::Realtime) as f64 / 1e9
    }

    fn read(&self, word: Word) -> i64 {
        read(&self.file, word)
    }

    fn add(&self, word: Word, seconds: f64) {
        let nanoseconds = self.read(word) + (seconds * 1e9) as i64;
        let written = self.file.write_all_at(&nanoseconds.to_ne_bytes(), word as u64 * 8);
        written.unwrap_or_else(|error| panic!("can't write the clock's offset: {error}"));
    }
}

/// How far a [`ClockShim`] has moved the boot clock, for a program that asks the kernel for it, where the shim does
/// not come in: such a program adds it by itself.
#[derive(Debug)]
pub struct BootOffset(File);

impl BootOffset {
    /// Of the shim with this [`ClockShim::path`].
    pub fn open(path: &Path) -> BootOffset {
        let file = File::open(path);
        BootOffset(file.unwrap_or_else(|error| panic!("can't open {}: {error}", path.display())))
    }

    /// Now. A boot clock leaps forward only.
    pub fn get(&self) -> Duration {
        Duration::from_nanos(u64::try_from(read(&self.0, Word::Boottime)).expect("it leaps forward only"))
    }
}

fn read(file: &File, word: Word) -> i64 {
    let mut bytes = [0; 8];
    let read = file.read_exact_at(&mut bytes, word as u64 * 8);
    read.unwrap_or_else(|error| panic!("can't read the clock's offset: {error}"));
    i64::from_ne_bytes(bytes)
}

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| preload::compile("clock_shim", SOURCE))
}
