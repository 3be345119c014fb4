//! Host names with a bound: the system's resolver has none.
//!
//! A look-up runs on a thread of its own. When it does not answer in time the caller goes on without it; the
//! thread ends when the system gives up, and until then everybody who asks for the same name waits for that
//! same look-up, so that there is never more than one such thread per name.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

type Answer = Result<Vec<IpAddr>, (io::ErrorKind, String)>;
type LookUp = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

#[derive(Default)]
struct Pending {
    answer: Mutex<Option<Answer>>,
    answered: Condvar,
}

pub(super) struct Resolver {
    look_up: Arc<LookUp>,
    pending: Arc<Mutex<HashMap<String, Arc<Pending>>>>,
}

impl Resolver {
    /// The system's resolver.
    pub(super) fn system() -> Resolver {
        Resolver::with(|host| Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
    }

    pub(super) fn with(
        look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Resolver {
        Resolver { look_up: Arc::new(look_up), pending: Arc::default() }
    }

    /// The addresses of `host`, at least one.
    pub(super) fn resolve(&self, host: &str, until: Instant) -> io::Result<Vec<IpAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        let pending = self.join_or_start(host)?;
        let mut answer = pending.answer.lock();
        while answer.is_none() {
            if pending.answered.wait_until(&mut answer, until).timed_out() && answer.is_none() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the name look-up did not end in time"));
            }
        }
        match answer.as_ref() {
            Some(Ok(addresses)) if !addresses.is_empty() => Ok(addresses.clone()),
            Some(Err((kind, text))) => Err(io::Error::new(*kind, text.clone())),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
        }
    }

    fn join_or_start(&self, host: &str) -> io::Result<Arc<Pending>> {
        let mut all = self.pending.lock();
        if let Some(pending) = all.get(host) {
            return Ok(Arc::clone(pending));
        }
        let pending = Arc::<Pending>::default();
        let (name, result) = (host.to_owned(), Arc::clone(&pending));
        let (look_up, registry) = (Arc::clone(&self.look_up), Arc::clone(&self.pending));
        thread::Builder::new().name("tenure-pg-dns".into()).spawn(move || {
            let answer = look_up(&name).map_err(|error| (error.kind(), error.to_string()));
            registry.lock().remove(&name);
            *result.answer.lock() = Some(answer);
            result.answered.notify_all();
        })?;
        all.insert(host.to_owned(), Arc::clone(&pending));
        Ok(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn soon(millis: u64) -> Instant {
        Instant::now() + Duration::from_millis(millis)
    }

    #[test]
    fn rule_7_a_resolver_that_never_answers_costs_one_thread() {
        let started = Arc::new(AtomicUsize::new(0));
        let (release, gate) = crossbeam_channel::bounded::<()>(0);
        let count = Arc::clone(&started);
        let resolver = Resolver::with(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            gate.recv().ok();
            Ok(vec![IpAddr::from([127, 0, 0, 1])])
        });
        for _ in 0..50 {
            let error = resolver.resolve("db.invalid", soon(2)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(started.load(Ordering::SeqCst), 1);
        drop(release);
        assert_eq!(resolver.resolve("db.invalid", soon(5_000)).unwrap().len(), 1);
    }

    #[test]
    fn addresses_and_failures() {
        let resolver = Resolver::with(|_| Err(io::Error::other("no such name")));
        assert_eq!(resolver.resolve("::1", soon(0)).unwrap(), [IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])]);
        assert_eq!(resolver.resolve("x", soon(5_000)).unwrap_err().to_string(), "no such name");
        let nothing = Resolver::with(|_| Ok(vec![]));
        assert_eq!(nothing.resolve("x", soon(5_000)).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!Resolver::system().resolve("localhost", soon(5_000)).unwrap().is_empty());
    }
}
