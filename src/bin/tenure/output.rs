//! What goes to stdout, and in which shape: for people and their terminals, or for programs.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::failure::Failure;
use crate::text::is_harmless;
pub(crate) use crate::text::printable;

/// JSON on one line; what [`printable`] escapes is escaped here too, in JSON's own way.
pub(crate) fn json_line(value: &Value) -> String {
    escaped(&value.to_string(), false)
}

/// JSON for people, over several lines.
pub(crate) fn json_lines(value: &Value) -> String {
    escaped(&format!("{value:#}"), true)
}

/// Characters beyond ASCII only occur inside strings, where they may be escaped.
fn escaped(json: &str, lines: bool) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if is_harmless(c) || (lines && c == '\n') {
            shown.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        }
    }
    shown
}

/// Writes lines to stdout, and at once. A reader that has left is no failure: see [`Failure`].
pub(crate) fn say(lines: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{lines}")?;
    Ok(stdout.flush()?)
}

/// Whether whoever read stdout has left.
pub(crate) fn is_unread() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A pipe without a reader is in error.
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

/// How many characters fit on a line; `None` where stdout is no terminal.
pub(crate) fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Cut to so many characters; what was cut off leaves a mark.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A duration with two figures that mean something: `850ms`, `9.8s`, `12m 5s`, `3h 12m`, `5d 3h`.
pub(crate) fn short(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0 => format!("{millis}ms"),
        1..60 if millis < 100 => format!("{seconds}s"),
        1..60 => format!("{seconds}.{}s", millis / 100),
        60..3_600 => format!("{minutes}m {}s", seconds % 60),
        3_600..86_400 => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

/// As wide as any terminal, for sentences.
pub(crate) const WIDTH: usize = 80;

/// The words of a text in lines of this width; each but the first begins with so many spaces.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let (mut lines, mut used) = (String::new(), indent);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !lines.is_empty() {
            if used + 1 + length > width {
                lines.push('\n');
                lines.push_str(&" ".repeat(indent));
                used = indent;
            } else {
                lines.push(' ');
                used += 1;
            }
        }
        lines.push_str(word);
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_would_obey_is_sent() {
        assert_eq!(printable("web-0 \"é 日本\" \\"), "web-0 \"é 日本\" \\");
        let hostile = "\u{1b}[2J\u{9b}31m\r\n\t\0\u{7f}\u{202e}\u{2066}\u{200b}\u{feff}\u{e0001}";
        let shown = printable(hostile);
        assert!(shown.chars().all(|c| c.is_ascii_graphic()), "{shown}");
        assert!(shown.starts_with("\\u{1b}[2J\\u{9b}31m\\r\\n\\t\\u{0}\\u{7f}\\u{202e}"), "{shown}");
        let value = Value::from(hostile);
        for json in [json_line(&value), json_lines(&value)] {
            assert!(json.chars().all(|c| c.is_ascii_graphic()), "{json}");
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value, "and it reads back as it was");
        }
        let lines = json_lines(&serde_json::json!({ "a": "é" }));
        assert_eq!(lines, "{\n  \"a\": \"é\"\n}");
    }

    #[test]
    fn durations_are_short() {
        let cases = [
            (0, "0ms"),
            (850, "850ms"),
            (1_000, "1s"),
            (9_840, "9.8s"),
            (59_999, "59.9s"),
            (725_000, "12m 5s"),
            (11_520_000, "3h 12m"),
            (442_800_000, "5d 3h"),
        ];
        for (millis, shown) in cases {
            assert_eq!(short(Duration::from_millis(millis)), shown);
        }
    }

    #[test]
    fn what_is_cut_leaves_a_mark_and_lines_end_in_time() {
        assert_eq!(cut("éééé", 4), "éééé");
        assert_eq!(cut("ééééé", 4), "ééé…");
        assert_eq!(wrapped("one two three four", 11, 2), "one two\n  three\n  four");
        assert_eq!(wrapped("incomprehensibilities x", 5, 1), "incomprehensibilities\n x");
    }
}
