//! The process's log thread. A log sink that blocks or panics costs log lines, never a term (rule 6).

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam_channel::{Sender, bounded};
use log::kv::{Source, ToKey, ToValue, Value, VisitSource};
use log::{Level, Record};
use parking_lot::Mutex;

use super::line::Fields;

/// How many log lines may wait for the sink.
const LOG_LINES: usize = 1024;

#[derive(Debug)]
pub(super) enum LogLine {
    Text {
        level: Level,
        election: Arc<str>,
        identity: Arc<str>,
        text: String,
        fields: Fields,
    },
    /// Whoever sent it waits until it is dropped: everything before it has been written then.
    Flush(Sender<Infallible>),
}

/// The key-values of a line: those of the participant, then its own.
struct KeyValues<'a> {
    election: &'a str,
    identity: &'a str,
    fields: &'a Fields,
}

impl Source for KeyValues<'_> {
    fn visit<'kvs>(&'kvs self, visitor: &mut dyn VisitSource<'kvs>) -> Result<(), log::kv::Error> {
        visitor.visit_pair("election".to_key(), Value::from(self.election))?;
        visitor.visit_pair("identity".to_key(), Value::from(self.identity))?;
        for (key, value) in self.fields {
            visitor.visit_pair(key.to_key(), value.to_value())?;
        }
        Ok(())
    }
}

/// The way to the log thread. It lives as long as the process: a sink may block it for ever.
pub(super) fn log_thread() -> std::io::Result<Sender<LogLine>> {
    static LOG: Mutex<Option<Sender<LogLine>>> = Mutex::new(None);
    let mut log = LOG.lock();
    if let Some(sender) = &*log {
        return Ok(sender.clone());
    }
    let (sender, lines) = bounded::<LogLine>(LOG_LINES);
    std::thread::Builder::new().name("tenure-log".to_owned()).spawn(move || {
        for line in lines {
            match line {
                // A sink that panics loses its line and nothing else.
                LogLine::Text { level, election, identity, text, fields } => {
                    let values = KeyValues { election: &election, identity: &identity, fields: &fields };
                    let _ = catch_unwind(AssertUnwindSafe(|| {
                        log::logger().log(
                            &Record::builder()
                                .args(format_args!("{election}: {text}"))
                                .level(level)
                                .target("tenure")
                                .module_path_static(Some("tenure"))
                                .key_values(&values)
                                .build(),
                        );
                    }));
                }
                LogLine::Flush(waiting) => drop(waiting),
            }
        }
    })?;
    *log = Some(sender.clone());
    Ok(sender)
}
