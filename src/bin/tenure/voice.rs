//! Standard error, spoken to through a thread of its own.
//!
//! Whoever reads it may stand still: a pipe that nobody empties, a terminal after Ctrl-S. A term must not stand still with
//! him, nor the wait for one, nor the end of this process. So nobody here waits for a line to be written, and what
//! there is no room for any more is dropped.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

/// Pieces that wait to be written. Far more than come at once where anybody reads.
const ROOM: usize = 4096;

#[derive(Debug)]
enum Piece {
    Text(Vec<u8>),
    /// Answered once all that came before it is written.
    Ask(Sender<()>),
}

/// `None`: no thread could be started for it.
static VOICE: OnceLock<Option<Sender<Piece>>> = OnceLock::new();

fn voice() -> Option<&'static Sender<Piece>> {
    let start = || {
        let (voice, said) = bounded(ROOM);
        let thread = std::thread::Builder::new().name("tenure-voice".to_owned());
        thread.spawn(|| write(said)).ok().map(|_| voice)
    };
    VOICE.get_or_init(start).as_ref()
}

#[expect(clippy::needless_pass_by_value, reason = "its end is the end of the thread")]
fn write(said: Receiver<Piece>) {
    for piece in &said {
        match piece {
            // It may be gone.
            Piece::Text(text) => drop(io::stderr().write_all(&text)),
            Piece::Ask(written) => drop(written.send(())),
        }
    }
}

/// Writes it to standard error, soon. Never blocks, unless this process can't have another thread.
pub(crate) fn say(text: impl Into<Vec<u8>>) {
    let text = text.into();
    match voice() {
        Some(voice) => drop(voice.try_send(Piece::Text(text))),
        None => drop(io::stderr().write_all(&text)),
    }
}

/// Whether all that was said before has been taken up: where not, more of it would only wait, too.
pub(crate) fn is_heard() -> bool {
    VOICE.get().and_then(Option::as_ref).is_none_or(Sender::is_empty)
}

/// Waits until all that was said is written, for `limit` at most.
pub(crate) fn finish(limit: Duration) {
    let Some(Some(voice)) = VOICE.get() else { return };
    let (written, answer) = bounded(1);
    if voice.try_send(Piece::Ask(written)).is_ok() {
        let _ = answer.recv_timeout(limit);
    }
}

/// For who wants something to write to.
#[derive(Debug)]
pub(crate) struct Voice;

impl Write for Voice {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        say(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
