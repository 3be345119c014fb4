//! Signals that interrupt whatever a process waits in.

use crate::preload;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// The library that is loaded into the process.
const SOURCE: &str = include_str!("signal_storm.c");

/// The environment that a process has to be started with so that each of its threads gets a SIGALRM every so often,
/// from its start to its end, with a handler that does nothing and does not restart system calls.
pub fn signal_storm(every: Duration) -> Vec<(String, String)> {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| preload::compile("signal_storm", SOURCE));
    vec![
        ("LD_PRELOAD".to_owned(), library.display().to_string()),
        ("SIGNAL_STORM".to_owned(), every.as_micros().to_string()),
    ]
}
