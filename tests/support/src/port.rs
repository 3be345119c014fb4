//! Ports for listeners.

use std::net::{Ipv4Addr, TcpListener};

/// A port on 127.0.0.1 that nobody listens on.
///
/// It lies below the range from which the system takes local ports of outgoing connections. So a server can be
/// stopped and started again on its port without a client's socket sitting there, and a client that tries a dead
/// port again and again can't end up connected to itself. Another process may still be faster: whoever binds the
/// port has to be ready to try another one.
pub fn free_port() -> u16 {
    for _ in 0..1000 {
        let port = candidate();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port on 127.0.0.1 in 1000 attempts");
}

/// Binds a listener to a port as [`free_port`] chooses them.
pub(crate) fn listen_anywhere() -> TcpListener {
    for _ in 0..1000 {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, candidate())) {
            return listener;
        }
    }
    panic!("no free port on 127.0.0.1 in 1000 attempts");
}

fn candidate() -> u16 {
    let ephemeral = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
    let first = ephemeral.and_then(|range| range.split_whitespace().next()?.parse::<u16>().ok());
    fastrand::u16(10_000..first.filter(|first| *first > 12_000).unwrap_or(32_768))
}
