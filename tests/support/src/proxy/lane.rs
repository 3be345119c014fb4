//! One direction of one connection: what has been read and not yet written.

use super::mode::Flow;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// How much is read ahead of a receiver that doesn't keep up.
const READ_AHEAD: usize = 256 * 1024;
/// How much is kept while requests are held.
const HELD: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Lane {
    queue: VecDeque<Chunk>,
    queued: usize,
    /// The sender has ended its side; the receiver may learn of it then.
    ended: Option<Instant>,
    /// The receiver has been told.
    pub(super) finished: bool,
    /// Bytes are missing: the receiver must never see what comes after them.
    torn: bool,
    /// The receiver's socket is full.
    blocked: bool,
    budget: Budget,
}

#[derive(Debug)]
struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
    written: usize,
}

/// What became of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    pub(super) read: usize,
    pub(super) written: usize,
    /// The connection can't go on.
    pub(super) broken: bool,
}

impl Lane {
    pub(super) fn new(now: Instant) -> Lane {
        Lane {
            queue: VecDeque::new(),
            queued: 0,
            ended: None,
            finished: false,
            torn: false,
            blocked: false,
            budget: Budget { bytes: 0.0, at: now },
        }
    }

    /// Reads what there is, writes what may be written; never waits.
    pub(super) fn turn(&mut self, flow: Flow, from: &TcpStream, to: &TcpStream, now: Instant) -> Moved {
        let mut moved = Moved::default();
        if self.wants_to_read(flow) {
            moved.read = self.read(flow, from, now);
        }
        if flow == Flow::Discard && !self.queue.is_empty() {
            self.queue.clear();
            self.queued = 0;
            self.torn = true;
        }
        if flow.moves() {
            match self.write(flow, to, now) {
                Some(written) if !self.torn => moved.written = written,
                _ => moved.broken = true,
            }
        }
        moved
    }

    pub(super) fn wants_to_read(&self, flow: Flow) -> bool {
        let limit = match flow {
            Flow::Stall => 0,
            Flow::Hold | Flow::Discard => HELD,
            _ => READ_AHEAD,
        };
        self.ended.is_none() && self.queued < limit
    }

    pub(super) fn wants_to_write(&self, flow: Flow) -> bool {
        self.blocked && flow.moves()
    }

    /// When it has to have a turn without any socket being ready.
    pub(super) fn wake_at(&self, flow: Flow, now: Instant) -> Option<Instant> {
        if self.finished || self.blocked {
            return None;
        }
        let next = self.queue.front().map(|chunk| chunk.due).or(self.ended)?;
        match flow {
            Flow::Delay { .. } => Some(next),
            Flow::Throttle(rate) => Some(now + Budget::time_for_a_byte(rate)),
            _ => None,
        }
    }

    fn read(&mut self, flow: Flow, mut from: &TcpStream, now: Instant) -> usize {
        let due = match flow {
            Flow::Delay { by, jitter } => now + by + jitter.mul_f64(fastrand::f64()),
            _ => now,
        };
        // Jitter must not overtake.
        let due = self.queue.back().map_or(due, |last| due.max(last.due));
        let mut buffer = vec![0; 64 * 1024];
        match from.read(&mut buffer) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            // A reset counts as an end: what was sent before it still arrives.
            Ok(0) | Err(_) => {
                self.ended = Some(due);
                0
            }
            Ok(read) if flow == Flow::Discard => {
                self.torn = true;
                read
            }
            Ok(read) => {
                buffer.truncate(read);
                self.queued += read;
                self.queue.push_back(Chunk { due, bytes: buffer, written: 0 });
                read
            }
        }
    }

    /// `None`: the receiver is gone, or must not get any more.
    fn write(&mut self, flow: Flow, mut to: &TcpStream, now: Instant) -> Option<usize> {
        if self.torn {
            return None;
        }
        let waits = |due: Instant| matches!(flow, Flow::Delay { .. }) && due > now;
        let mut written = 0;
        self.blocked = false;
        while let Some(chunk) = self.queue.front_mut() {
            let rest = &chunk.bytes[chunk.written..];
            let allowed = match flow {
                Flow::Throttle(rate) => self.budget.available(rate, now).min(rest.len()),
                _ => rest.len(),
            };
            if allowed == 0 || waits(chunk.due) {
                return Some(written);
            }
            match to.write(&rest[..allowed]) {
                Ok(some) => {
                    chunk.written += some;
                    written += some;
                    self.queued -= some;
                    self.budget.spend(some);
                    if chunk.written == chunk.bytes.len() {
                        self.queue.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Some(written);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        if self.ended.is_some_and(|due| !waits(due)) && !self.finished {
            let _ = to.shutdown(Shutdown::Write);
            self.finished = true;
        }
        Some(written)
    }
}

/// Bytes that a throttled lane may write; saved up for 50 ms at most.
#[derive(Debug)]
struct Budget {
    bytes: f64,
    at: Instant,
}

impl Budget {
    fn available(&mut self, rate: u64, now: Instant) -> usize {
        let rate = rate.max(1) as f64;
        self.bytes =
            (self.bytes + rate * now.duration_since(self.at).as_secs_f64()).min((rate / 20.0).max(1.0));
        self.at = now;
        self.bytes as usize
    }

    fn spend(&mut self, bytes: usize) {
        self.bytes = (self.bytes - bytes as f64).max(0.0);
    }

    fn time_for_a_byte(rate: u64) -> Duration {
        Duration::from_secs_f64(1.0 / rate.max(1) as f64).max(Duration::from_millis(1))
    }
}
