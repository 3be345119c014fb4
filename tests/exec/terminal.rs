//! Terminals, and readers that stand still.

use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use tenure_testground::{Process, await_until, is_running, threads};

use crate::fleet::LIMIT;
use crate::place::{LEASE, Place, await_child, children, ms, now, start};
use crate::worker::Kind;

/// What `sh` in `script` makes of the words.
fn on_a_terminal(place: &Place, before: &str, words: &Command) -> Command {
    let all: Vec<_> = words.get_args().map(|word| word.to_str().unwrap().replace(' ', "\\ ")).collect();
    let line = format!("{before}; {} {}", words.get_program().to_str().unwrap(), all.join(" "));
    let mut script = Command::new("script");
    script.args(["-qefc", &line, "/dev/null"]).env("TENURE_STORE", &place.store).env("SHELL", "/bin/sh");
    script
}

/// One that can be typed on; gone with it is whatever runs there.
struct Typed(Child);

impl Drop for Typed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `script` runs it on a terminal of its own.
pub(crate) fn the_line_on_a_terminal_says_who_leads() {
    let place = Place::new();
    let leader = start(place.work(&["--label=web-1"], Kind::Single, false), &place.path("errors"));
    place.await_life(1, 1);
    let guardian = await_child(leader.pid(), "guardian");
    let command = on_a_terminal(&place, "stty cols 60", &place.exec(&[], &["echo", "it runs"]));
    let mut terminal = start(command, &place.path("script"));
    std::thread::sleep(ms(500));
    drop(leader);
    let said = terminal.expect_line(LIMIT, "it runs", |line| line.contains("it runs"));
    let shown: Vec<&str> =
        said.split('\r').filter(|part| part.contains("tenure: waiting to lead e")).collect();
    assert!(shown.iter().any(|part| part.contains("; web-1-")), "{said:?}");
    assert!(shown.iter().all(|part| part.trim_end_matches("\x1b[K").chars().count() <= 59), "{said:?}");
    assert!(said.contains("\r\x1b[Kit runs"), "cleared before the command writes: {said:?}");
    assert!(!is_running(guardian));
    let _ = terminal.wait(LIMIT);
}

/// Ctrl-S stops what is written, and not the election: whoever led without running anything would keep all others out.
pub(crate) fn a_terminal_that_stands_still_holds_up_no_term() {
    let place = Place::new();
    let leader = start(place.work(&[], Kind::Single, false), &place.path("errors"));
    let life = place.await_life(1, 1);
    let mut command = on_a_terminal(&place, "true", &place.work(&[], Kind::Single, false));
    let mut script = Typed(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let mut keys = script.0.stdin.take().unwrap();
    let tenure = || children(script.0.id()).into_iter().flat_map(children).next();
    await_until(LIMIT, "it waits", || tenure().is_some_and(|pid| threads(pid) > 1));
    std::thread::sleep(ms(300));
    keys.write_all(b"\x13").unwrap();
    std::thread::sleep(ms(300));
    drop(leader);
    let next = place.await_life(2, 1);
    assert!(next.fence > life.fence);
    keys.write_all(b"\x11\x03").unwrap();
    await_until(LIMIT, "Ctrl-C ends it", || place.lease().is_released());
}

/// A socket whose other end nobody reads, and that other end.
fn full() -> (Stdio, UnixStream) {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let refused = std::iter::repeat_with(|| ours.write_all(&[b'x'; 512])).find_map(Result::err).unwrap();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    ours.set_nonblocking(false).unwrap();
    (Stdio::from(OwnedFd::from(ours)), theirs)
}

pub(crate) fn a_reader_that_stands_still_holds_up_nothing() {
    let place = Place::new();
    let (errors, _unread) = full();
    let mut talkative = place.exec(&[], &["sh", "-c", "exit 7"]);
    talkative.env("RUST_LOG", "trace").stderr(errors);
    assert_eq!(Process::spawn(talkative).wait(LIMIT).code(), Some(7));
    // A loss is told, to nobody: it ends all the same, or goes on.
    for (restart, code) in [(&[] as &[&str], 123), (&["--restart"], 143)] {
        let (errors, _unread) = full();
        let mut command = place.exec(restart, &["sh", "-c", "echo up; exec sleep 60"]);
        command.stderr(errors);
        let mut process = Process::spawn(command);
        process.expect_line(LIMIT, "up", |line| line == "up");
        process.stop();
        let stopped = now();
        await_until(LIMIT, "the term is over", || now() > stopped + LEASE);
        process.cont();
        if !restart.is_empty() {
            process.expect_line(LIMIT, "up again", |line| line == "up");
            process.terminate();
        }
        assert_eq!(process.wait(LIMIT).code(), Some(code));
    }
}
