//! Peers that never say a word.

use crate::port::listen_anywhere;
use parking_lot::Mutex;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Accepts connections and never answers. Everything is closed when it is dropped.
#[derive(Debug)]
pub struct MuteListener {
    listener: Arc<TcpListener>,
    closing: Arc<AtomicBool>,
    addr: SocketAddr,
    accepted: Arc<Mutex<Accepted>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Accepted {
    total: usize,
    open: Vec<TcpStream>,
}

/// A peer that accepts connections and never answers.
pub fn mute_listener() -> MuteListener {
    let listener = Arc::new(listen_anywhere());
    let addr = listener.local_addr().unwrap_or_else(|error| panic!("a listener without address: {error}"));
    let accepted = Arc::new(Mutex::new(Accepted::default()));
    let closing = Arc::new(AtomicBool::new(false));
    let thread = std::thread::spawn({
        let (listener, closing, accepted) = (listener.clone(), closing.clone(), accepted.clone());
        move || {
            while !closing.load(Ordering::Acquire) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let mut accepted = accepted.lock();
                accepted.total += 1;
                accepted.open.push(stream);
            }
        }
    });
    MuteListener { listener, closing, addr, accepted, thread: Some(thread) }
}

impl MuteListener {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// How many connections it has accepted so far.
    pub fn accepted(&self) -> usize {
        self.accepted.lock().total
    }

    /// Closes what it has accepted, so that a test can count its own descriptors.
    pub fn close_all(&self) {
        self.accepted.lock().open.clear();
    }
}

impl Drop for MuteListener {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        // Ends the blocking accept.
        let _ = SockRef::from(&*self.listener).shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A port whose connection attempts are swallowed: no answer to a SYN, as behind a firewall that drops. (A listener
/// whose queue is full.)
#[derive(Debug)]
pub struct SynBlackHole {
    addr: SocketAddr,
    _listener: Socket,
    _queue: Vec<TcpStream>,
}

/// A port on 127.0.0.1 that swallows connection attempts.
pub fn syn_black_hole() -> SynBlackHole {
    let fail = |error: std::io::Error| -> ! { panic!("can't make a port that swallows connects: {error}") };
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap_or_else(|error| fail(error));
    let port = (0..100).map(|_| crate::free_port()).find(|port| {
        let addr = SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, *port)));
        listener.bind(&addr).is_ok()
    });
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port.expect("a free port")));
    listener.listen(0).unwrap_or_else(|error| fail(error));
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&addr, Duration::from_millis(200)) {
        queue.push(stream);
        assert!(queue.len() < 100, "the listener's queue never fills up");
    }
    SynBlackHole { addr, _listener: listener, _queue: queue }
}

impl SynBlackHole {
    /// Where connection attempts are swallowed.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }
}
