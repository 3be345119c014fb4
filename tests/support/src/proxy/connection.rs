//! One connection: a thread that owns both sockets and never blocks on either.

use super::lane::Lane;
use super::mode::{Flow, Plan};
use super::{Counters, Shared};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

const LIVE: u8 = 0;
const CLOSE: u8 = 1;
const RESET: u8 = 2;

/// How others reach a connection's thread.
#[derive(Debug)]
pub(super) struct Line {
    wake: OwnedFd,
    order: AtomicU8,
}

impl Line {
    pub(super) fn new() -> Line {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.unwrap_or_else(|error| panic!("no eventfd: {error}"));
        Line { wake, order: AtomicU8::new(LIVE) }
    }

    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    pub(super) fn end(&self, reset: bool) {
        self.order.store(if reset { RESET } else { CLOSE }, Ordering::Release);
        self.wake();
    }

    fn order(&self) -> u8 {
        self.order.load(Ordering::Acquire)
    }
}

/// Serves a connection until it ends.
pub(super) fn serve(shared: &Shared, client: TcpStream, line: &Arc<Line>) {
    while shared.plan.read().to_server == Flow::Stall && line.order() == LIVE {
        wait(line, &[], None);
    }
    if line.order() != LIVE {
        return hang_up(line.order() == RESET, &[&client]);
    }
    let target = *shared.target.lock();
    match TcpStream::connect_timeout(&target, Duration::from_secs(5)) {
        Ok(server) => Connection::new(client, server).run(shared, line),
        // The client sees what comes closest to a refused connect.
        Err(_) => hang_up(true, &[&client]),
    }
}

/// Makes sure that closing the sockets resets the connections. The caller closes them.
fn hang_up(reset: bool, sockets: &[&TcpStream]) {
    for socket in sockets.iter().filter(|_| reset) {
        let _ = socket2::SockRef::from(*socket).set_linger(Some(Duration::ZERO));
    }
}

#[derive(Debug)]
struct Connection {
    client: TcpStream,
    server: TcpStream,
    to_server: Lane,
    to_client: Lane,
    /// Client bytes that no server byte has followed yet.
    asked: bool,
}

impl Connection {
    fn new(client: TcpStream, server: TcpStream) -> Connection {
        for socket in [&client, &server] {
            socket
                .set_nonblocking(true)
                .unwrap_or_else(|error| panic!("can't make a socket non-blocking: {error}"));
            let _ = socket.set_nodelay(true);
        }
        let now = Instant::now();
        Connection { client, server, to_server: Lane::new(now), to_client: Lane::new(now), asked: false }
    }

    fn run(mut self, shared: &Shared, line: &Line) {
        loop {
            // Held over the whole step: once a mode is set, nothing happens under the one before.
            let plan = shared.plan.read();
            let order = line.order();
            if order != LIVE {
                return hang_up(order == RESET, &[&self.client, &self.server]);
            }
            let now = Instant::now();
            if self.step(&plan, now, &shared.counters) {
                return hang_up(true, &[&self.client, &self.server]);
            }
            if self.to_server.finished && self.to_client.finished {
                return;
            }
            let current = *plan;
            drop(plan);
            self.sleep(&current, now, line);
        }
    }

    /// One turn for each direction; true when the connection is broken.
    fn step(&mut self, plan: &Plan, now: Instant, counters: &parking_lot::Mutex<Counters>) -> bool {
        // Replies first: what the server sent lies before whatever the client answers to it.
        let back = self.to_client.turn(plan.to_client, &self.server, &self.client, now);
        let counted_back = self.asked && back.read > 0;
        self.asked &= !counted_back;
        let there = self.to_server.turn(plan.to_server, &self.client, &self.server, now);
        self.asked |= there.read > 0;
        let mut counters = counters.lock();
        counters.from_server += back.read as u64;
        counters.to_client += back.written as u64;
        counters.round_trips += u64::from(counted_back);
        counters.from_client += there.read as u64;
        counters.to_server += there.written as u64;
        back.broken || there.broken
    }

    fn sleep(&self, plan: &Plan, now: Instant, line: &Line) {
        let interest = |read: bool, write: bool| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, read);
            flags.set(PollFlags::OUT, write);
            flags
        };
        let client = interest(
            self.to_server.wants_to_read(plan.to_server),
            self.to_client.wants_to_write(plan.to_client),
        );
        let server = interest(
            self.to_client.wants_to_read(plan.to_client),
            self.to_server.wants_to_write(plan.to_server),
        );
        let wake_at =
            [self.to_server.wake_at(plan.to_server, now), self.to_client.wake_at(plan.to_client, now)];
        wait(line, &[(&self.client, client), (&self.server, server)], wake_at.into_iter().flatten().min());
    }
}

/// Waits for a socket, for the line, or for the time. A socket without interest is left out: its hang-up would be
/// reported all the same, again and again.
fn wait(line: &Line, sockets: &[(&TcpStream, PollFlags)], until: Option<Instant>) {
    let mut set = vec![PollFd::new(&line.wake, PollFlags::IN)];
    let interesting = sockets.iter().filter(|(_, interest)| !interest.is_empty());
    set.extend(interesting.map(|(socket, interest)| PollFd::new(*socket, *interest)));
    let timeout = until.map(|until| {
        let left = until.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    // An interruption is as good as a wake-up.
    let _ = poll(&mut set, timeout.as_ref());
    let mut count = [0; 8];
    let _ = rustix::io::read(&line.wake, &mut count);
}
