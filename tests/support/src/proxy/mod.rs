//! A loopback TCP proxy that injects faults and counts.

mod connection;
mod lane;
mod mode;

pub use mode::{Direction, Flow, Mode};

use crate::port::listen_anywhere;
use crate::process::await_until;
use connection::Line;
use mode::{Admission, Plan};
use parking_lot::{Mutex, RwLock};
use socket2::SockRef;
use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Stands between a client and a server on loopback, lets traffic through, and stops doing so when told.
///
/// A mode holds from the moment when [`Proxy::set`] returns, for connections that exist and for new ones. Each
/// connection has a thread and three descriptors of the process that the proxy runs in: a test that counts its own
/// calls [`Proxy::close_all`] or drops the proxy first. Dropping it ends all its threads.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    door: Mutex<Option<Door>>,
}

/// A connection through a proxy; ids rise in the order of acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(u64);

/// What has gone through a proxy since it was made, or since [`Proxy::reset_counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Connections accepted, those included that were reset at once.
    pub connections: u64,
    /// Bytes that clients have sent.
    pub from_client: u64,
    /// Bytes of these that have been passed on.
    pub to_server: u64,
    /// Bytes that servers have sent.
    pub from_server: u64,
    /// Bytes of these that have been passed on.
    pub to_client: u64,
    /// A round trip is a maximal run of client bytes followed by at least one server byte, on one connection. It
    /// counts when the first of those server bytes comes in, which is before any of them is passed on. What the
    /// server says unasked (a notification) and what nothing answers (the farewell of a client) are none.
    pub round_trips: u64,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    plan: RwLock<Plan>,
    counters: Mutex<Counters>,
    connections: Mutex<BTreeMap<ConnectionId, Served>>,
}

#[derive(Debug)]
struct Served {
    line: Arc<Line>,
    thread: JoinHandle<()>,
}

/// The listener and the thread that accepts.
#[derive(Debug)]
struct Door {
    listener: Arc<TcpListener>,
    closing: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Proxy {
    /// A proxy to `target`, on a free port of 127.0.0.1, passing everything.
    pub fn to(target: SocketAddr) -> Proxy {
        let listener = listen_anywhere();
        let addr =
            listener.local_addr().unwrap_or_else(|error| panic!("a listener without address: {error}"));
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            plan: RwLock::new(Mode::Pass.into()),
            counters: Mutex::default(),
            connections: Mutex::default(),
        });
        let door = Mutex::new(Some(Door::open(listener, &shared)));
        Proxy { addr, shared, door }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Sends connections accepted from now on somewhere else. Those that exist stay: see [`Proxy::close_all`].
    pub fn retarget(&self, target: SocketAddr) {
        *self.shared.target.lock() = target;
    }

    /// Switches both directions and what becomes of new connections.
    pub fn set(&self, mode: Mode) {
        self.apply(mode.into());
    }

    /// Switches one direction and leaves the other as it is.
    pub fn set_flow(&self, direction: Direction, flow: Flow) {
        let mut plan = *self.shared.plan.read();
        match direction {
            Direction::ToServer => plan.to_server = flow,
            Direction::ToClient => plan.to_client = flow,
        }
        self.apply(plan);
    }

    fn apply(&self, plan: Plan) {
        let mut door = self.door.lock();
        // Waits for the steps in progress, none of which blocks.
        *self.shared.plan.write() = plan;
        if plan.admission == Admission::Refuse {
            door.take().into_iter().for_each(Door::close);
        } else if door.is_none() {
            let mut listener = None;
            await_until(
                Duration::from_secs(10),
                format_args!("port {} can be opened again", self.port()),
                || {
                    listener = TcpListener::bind(self.addr).ok();
                    listener.is_some()
                },
            );
            *door = listener.map(|listener| Door::open(listener, &self.shared));
        }
        drop(door);
        if plan.admission == Admission::Reset {
            self.reset_all();
        }
        for served in self.shared.connections.lock().values() {
            served.line.wake();
        }
    }

    /// What has gone through.
    pub fn snapshot(&self) -> Counters {
        // Between steps: whatever a client has received is counted.
        let _still = self.shared.plan.write();
        *self.shared.counters.lock()
    }

    /// Starts counting from zero. A test that wants to know what one operation costs connects, calls this, and
    /// looks at [`Proxy::snapshot`] after the operation.
    pub fn reset_counters(&self) {
        let _still = self.shared.plan.write();
        *self.shared.counters.lock() = Counters::default();
    }

    /// The connections that are open, in the order of acceptance.
    pub fn connections(&self) -> Vec<ConnectionId> {
        self.shared.connections.lock().keys().copied().collect()
    }

    /// Closes one connection on both sides, in order; one that is gone already is no error.
    pub fn close(&self, id: ConnectionId) {
        self.shared.end(Some(id), false);
    }

    /// Resets one connection on both sides (RST).
    pub fn reset(&self, id: ConnectionId) {
        self.shared.end(Some(id), true);
    }

    /// Closes all connections.
    pub fn close_all(&self) {
        self.shared.end(None, false);
    }

    /// Resets all connections.
    pub fn reset_all(&self) {
        self.shared.end(None, true);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.door.get_mut().take().into_iter().for_each(Door::close);
        self.close_all();
    }
}

impl Shared {
    /// Ends one connection or all, and waits until their sockets are closed.
    fn end(&self, which: Option<ConnectionId>, reset: bool) {
        let ended = {
            let mut connections = self.connections.lock();
            match which {
                Some(id) => connections.remove_entry(&id).into_iter().collect(),
                None => std::mem::take(&mut *connections),
            }
        };
        for served in ended.values() {
            served.line.end(reset);
        }
        for served in ended.into_values() {
            let _ = served.thread.join();
        }
    }

    fn admit(self: &Arc<Shared>, client: TcpStream, id: ConnectionId) {
        let plan = self.plan.read();
        self.counters.lock().connections += 1;
        if plan.admission != Admission::Accept {
            let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
            return;
        }
        let line = Arc::new(Line::new());
        // Locked until the thread is entered, so that it can't leave before.
        let mut connections = self.connections.lock();
        let thread = std::thread::spawn({
            let (shared, line) = (self.clone(), line.clone());
            move || {
                connection::serve(&shared, client, &line);
                shared.connections.lock().remove(&id);
            }
        });
        connections.insert(id, Served { line, thread });
    }
}

impl Door {
    fn open(listener: TcpListener, shared: &Arc<Shared>) -> Door {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let listener = Arc::new(listener);
        let closing = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (listener, closing, shared) = (listener.clone(), closing.clone(), shared.clone());
            move || {
                while !closing.load(Ordering::Acquire) {
                    match listener.accept() {
                        Ok((client, _)) => {
                            shared.admit(client, ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed)));
                        }
                        Err(_) => std::thread::sleep(Duration::from_millis(1)),
                    }
                }
            }
        });
        Door { listener, closing, thread }
    }

    /// Closes the listener; what is in its queue is reset by the kernel.
    fn close(self) {
        self.closing.store(true, Ordering::Release);
        // Ends the blocking accept.
        let _ = SockRef::from(&*self.listener).shutdown(Shutdown::Both);
        let _ = self.thread.join();
    }
}
