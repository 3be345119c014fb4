//! A log sink that keeps everything, and blocks for ever on the store's own warnings.

use std::sync::{Mutex, Once};

static KEPT: Mutex<String> = Mutex::new(String::new());

struct Sink;

impl log::Log for Sink {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}: {}\n", record.level(), record.target(), record.args());
        KEPT.lock().unwrap().push_str(&line);
        while record.level() == log::Level::Warn && record.target().starts_with("tenure") {
            std::thread::park();
        }
    }

    fn flush(&self) {}
}

/// Installs the sink, at trace level.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Sink).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
    });
}

/// What has been logged so far, by any test.
pub(crate) fn kept() -> String {
    KEPT.lock().unwrap().clone()
}
