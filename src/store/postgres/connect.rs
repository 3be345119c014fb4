//! Opening a connection within a deadline: name look-up, connecting, log-in, and one server after another.
//!
//! The servers of the connection string, and the addresses of each, are tried one by one, and none may use up
//! more than its share of the time that is left: a dead or mute one does not hide those behind it.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use r2d2::ManageConnection;
use r2d2_postgres::PostgresConnectionManager;

use super::connection::{Deadline, DeadlineConnector, Way};
use super::dsn::{Dsn, Host, Server};
use super::error;
use super::pool::Connection;
use super::resolver::Resolver;
use crate::store::StoreError;

const NO_STAND_IN: &str = "can't listen on the loopback interface, which a Unix-domain socket needs here";

pub(super) struct Opener {
    dsn: Dsn,
    resolver: Resolver,
    /// The server to begin with: the last good one, or the one after a bad one.
    first: AtomicUsize,
}

impl Opener {
    pub(super) fn new(dsn: Dsn) -> Opener {
        let first = if dsn.shuffled { RandomState::new().hash_one(0) as usize } else { 0 };
        let first = AtomicUsize::new(first % dsn.servers.len());
        Opener { dsn, resolver: Resolver::system(), first }
    }

    /// The servers, for messages.
    pub(super) fn describe(&self) -> String {
        self.dsn.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Whether a server that is reached by TCP has to prove who it is; see `Security`.
    pub(super) fn verifies(&self) -> Option<bool> {
        self.dsn.security.verifies()
    }

    /// Begin with another server than this one next time.
    pub(super) fn avoid(&self, server: usize) {
        self.first.store((server + 1) % self.dsn.servers.len(), Ordering::Relaxed);
    }

    /// A new connection to the first server that lets us in.
    pub(super) fn open(&self, until: Instant) -> Result<Connection, StoreError> {
        check_resources()?;
        let count = self.dsn.servers.len();
        let first = self.first.load(Ordering::Relaxed);
        let mut errors = Vec::new();
        for i in 0..count {
            let index = (first + i) % count;
            match self.open_server(index, share(until, count - i)) {
                Ok(connection) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(error) => errors.push(error),
            }
        }
        Err(all_failed(errors))
    }

    fn open_server(&self, index: usize, until: Instant) -> Result<Connection, StoreError> {
        let server = &self.dsn.servers[index];
        let until = match self.dsn.connect_timeout {
            Some(timeout) => until.min(Instant::now() + timeout),
            None => until,
        };
        let addresses = match &server.host {
            Host::Unix(directory) => return self.open_unix(index, server.socket_in(directory), until),
            Host::Address(address, _) => vec![*address],
            Host::Name(name) => self.look_up(name, server, until)?,
        };
        let mut last: Option<StoreError> = None;
        for (i, address) in addresses.iter().enumerate() {
            let until = share(until, addresses.len() - i);
            match self.reach(index, (*address, server.port), until) {
                Ok(connection) => return Ok(connection),
                // What a server said tells more than that nobody listens on the next address.
                Err(error) if !is_a_word(&error) && last.as_ref().is_some_and(is_a_word) => {}
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(error::timeout))
    }

    fn look_up(&self, name: &str, server: &Server, until: Instant) -> Result<Vec<IpAddr>, StoreError> {
        self.resolver.resolve(name, until).map_err(|error| {
            let message = format!("can't look up {server}: {error}");
            let timed_out = error.kind() == io::ErrorKind::TimedOut;
            let new = if timed_out { StoreError::timeout } else { StoreError::retryable };
            new(message).with_source(error)
        })
    }

    /// By TCP, in the clear and encrypted, as the parameters want it.
    fn reach(&self, index: usize, address: (IpAddr, u16), until: Instant) -> Result<Connection, StoreError> {
        let mut ways = self.dsn.security.ways().into_iter().map(|way| way.map_or(Way::Plain, Way::Tls));
        let first = self.log_in(index, address, ways.next().unwrap_or(Way::Plain), until);
        match (first, ways.next()) {
            // A server that wants no plain connections turned this one away (sslmode=allow).
            (Err(refusal), Some(way)) if has_sqlstate(&refusal) => {
                match self.log_in(index, address, way, until) {
                    Err(error) if !has_sqlstate(&error) => Err(refusal),
                    second => second,
                }
            }
            (first, _) => first,
        }
    }

    /// The driver lets nobody put a stream under a Unix-domain connection. So it is given a TCP connection to
    /// a listener that exists only for this moment; our connector drops that one and connects to the socket.
    fn open_unix(&self, index: usize, socket: PathBuf, until: Instant) -> Result<Connection, StoreError> {
        let stand_in = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let address = listener.local_addr()?;
            Ok((listener, (address.ip(), address.port())))
        };
        let (_listener, address) =
            stand_in().map_err(|error: io::Error| StoreError::retryable(NO_STAND_IN).with_source(error))?;
        self.log_in(index, address, Way::Unix(socket), until)
    }

    fn log_in(
        &self,
        index: usize,
        (address, port): (IpAddr, u16),
        way: Way,
        until: Instant,
    ) -> Result<Connection, StoreError> {
        let server = &self.dsn.servers[index];
        let mut config = self.dsn.base.clone();
        let name = match &server.host {
            Host::Name(name) | Host::Address(_, name) => name.clone(),
            Host::Unix(_) => address.to_string(),
        };
        config.host(&name).hostaddr(address).port(port);
        config.connect_timeout(until.saturating_duration_since(Instant::now()));
        let deadline = Deadline::default();
        deadline.arm(until);
        let connector = DeadlineConnector::new(deadline.clone(), way);
        let result = PostgresConnectionManager::new(config, connector).connect();
        deadline.disarm();
        match result {
            Ok(client) => Ok(Connection::new(client, deadline, index)),
            Err(error) => {
                let has_password = self.dsn.base.get_password().is_some();
                Err(error::of_connect(error, &server.to_string(), has_password))
            }
        }
    }
}

/// The driver panics where it can't create its runtime, for want of descriptors; see first whether one can be
/// created.
fn check_resources() -> Result<(), StoreError> {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(StoreError::retryable("can't open a connection: the process has run out of resources")
                .with_source(error))
        }
    }
}

/// When the first of `candidates` has had its share of the time that is left.
fn share(until: Instant, candidates: usize) -> Instant {
    let now = Instant::now();
    let left = until.saturating_duration_since(now);
    now + left / u32::try_from(candidates).unwrap_or(u32::MAX).max(1)
}

/// Whether the server, or what it showed of itself, is the reason.
fn is_a_word(error: &StoreError) -> bool {
    has_sqlstate(error) || error.is_fatal()
}

fn has_sqlstate(error: &StoreError) -> bool {
    error.sqlstate().is_some()
}

/// One error for several servers: fatal only where it is for each of them, since the others may come back.
fn all_failed(mut errors: Vec<StoreError>) -> StoreError {
    let Some(last) = errors.pop() else { return error::timeout() };
    if errors.is_empty() {
        return last;
    }
    errors.push(last.clone());
    let message = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let new = if errors.iter().all(StoreError::is_fatal) {
        StoreError::fatal
    } else if errors.iter().all(StoreError::is_timeout) {
        StoreError::timeout
    } else {
        StoreError::retryable
    };
    let sqlstate = errors.iter().rev().find_map(|error| error.sqlstate().map(str::to_owned));
    let error = new(message).with_source(last);
    match sqlstate {
        Some(code) => error.with_sqlstate(code),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::time::Duration;

    #[test]
    fn an_error_is_fatal_only_if_every_server_says_so() {
        let fatal = || StoreError::fatal("wrong password").with_sqlstate("28P01");
        let down = || StoreError::retryable("refused");
        assert!(all_failed(vec![fatal()]).is_fatal());
        assert!(all_failed(vec![fatal(), fatal()]).is_fatal());
        let mixed = all_failed(vec![fatal(), down()]);
        assert!(mixed.is_retryable());
        assert_eq!(mixed.sqlstate(), Some("28P01"));
        assert!(mixed.to_string().contains("wrong password") && mixed.to_string().contains("refused"));
        assert!(all_failed(vec![error::timeout(), error::timeout()]).is_timeout());
    }

    fn opener(dsn: &str, addresses: &[IpAddr]) -> Opener {
        let addresses = addresses.to_vec();
        let resolver = Resolver::with(move |_| Ok(addresses.clone()));
        Opener { resolver, ..Opener::new(Dsn::parse(dsn, &|_| None, None).unwrap()) }
    }

    fn refusal(opener: &Opener, patience: Duration) -> StoreError {
        opener.open(Instant::now() + patience).err().expect("nobody lets us in")
    }

    /// A server that turns away whoever comes; gives its port.
    fn refuses(sqlstate: &'static str) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                assert!(client.read(&mut [0; 1024]).unwrap() > 0);
                let fields = format!("SFATAL\0VFATAL\0C{sqlstate}\0Mgo away\0\0");
                let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
                client.write_all(&[b"E", &length[..], fields.as_bytes()].concat()).unwrap();
            }
        });
        port
    }

    #[test]
    fn what_a_server_said_is_not_hidden_by_another_address_where_nobody_listens() {
        let port = refuses("28P01");
        let (server, nobody) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::new(127, 0, 0, 77).into());
        for addresses in [[server, nobody], [nobody, server]] {
            let opener = opener(&format!("host=db.invalid user=x port={port} sslmode=disable"), &addresses);
            let error = refusal(&opener, Duration::from_secs(20));
            assert_eq!(error.sqlstate(), Some("28P01"), "{addresses:?}: {error}");
            let text = format!("db.invalid:{port} refused the connection: go away (SQLSTATE 28P01)");
            assert_eq!(error.to_string(), text);
            assert!(error.is_fatal(), "{error}");
        }
    }

    #[test]
    fn the_connect_timeout_of_the_string_bounds_each_server() {
        let mute = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = mute.local_addr().unwrap().port();
        let dsn = format!("hostaddr=127.0.0.1 user=x port={port} connect_timeout=1");
        let begun = Instant::now();
        let error = refusal(&opener(&dsn, &[]), Duration::from_secs(60));
        assert!(error.is_timeout(), "{error}");
        assert!((1..30).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_name_without_an_address_is_named() {
        let error = refusal(&opener("host=db.invalid user=x", &[]), Duration::from_secs(20));
        assert!(error.is_retryable() && !error.is_timeout(), "somebody may add it");
        assert_eq!(error.to_string(), "can't look up db.invalid:5432: the name has no address");
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn time_is_shared_out() {
        let until = Instant::now() + Duration::from_secs(9);
        let third = share(until, 3).saturating_duration_since(Instant::now());
        assert!(third <= Duration::from_secs(3) && third > Duration::from_secs(2), "{third:?}");
    }
}
