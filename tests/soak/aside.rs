//! What is said to the servers by threads of their own: a server that stands still must not hold the soak up.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tenure_testground::await_until;
use tenure_testground::postgres::{Client, Config, NoTls};

use crate::fleet::LIMIT;

/// Statements under way. An error is none of theirs: the server may be down, or end their session.
#[derive(Debug, Default)]
pub(crate) struct Asides {
    threads: Vec<JoinHandle<()>>,
}

/// What goes on until this is dropped, or until its session is ended by somebody else.
#[derive(Debug)]
pub(crate) struct Open {
    _until: Sender<()>,
}

fn connect(dsn: &str) -> Option<Client> {
    let mut config: Config = dsn.parse().expect("a DSN of our own");
    config.connect_timeout(Duration::from_secs(2));
    config.connect(NoTls).ok()
}

impl Asides {
    pub(crate) fn say(&mut self, dsn: &str, sql: &'static str) {
        let dsn = dsn.to_owned();
        self.threads.push(thread::spawn(move || {
            if let Some(mut client) = connect(&dsn) {
                let _ = client.simple_query(sql);
            }
        }));
    }

    /// Says `begin` now, and `end` when what this returns is dropped, or as soon as `begin` is answered after that.
    pub(crate) fn hold(&mut self, dsn: &str, begin: &'static str, end: &'static str) -> Open {
        let (sender, until): (Sender<()>, Receiver<()>) = channel();
        let dsn = dsn.to_owned();
        self.threads.push(thread::spawn(move || {
            let Some(mut client) = connect(&dsn) else { return };
            if client.simple_query(begin).is_ok() {
                let _ = until.recv();
                let _ = client.simple_query(end);
            }
        }));
        Open { _until: sender }
    }

    /// Waits until all is said and nothing is held any more.
    #[track_caller]
    pub(crate) fn finish(&mut self) {
        await_until(LIMIT, "what was said to the servers is over", || {
            self.threads.iter().all(JoinHandle::is_finished)
        });
        self.threads.drain(..).for_each(|thread| thread.join().expect("it does not panic"));
    }
}
