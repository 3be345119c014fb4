//! Starts a server, a pooler and a child process, says which, and waits to be killed: for the test that nothing
//! outlives a test process. Also handy for a look at a server by hand.

#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;
use tenure_testground::{PgBouncer, Postgres, Process};

fn main() {
    let server = Postgres::shared();
    let paused = Postgres::start_new();
    let pooler = PgBouncer::in_front_of(server);
    let mut sleep = Command::new("sleep");
    sleep.arg("600");
    let child = Process::spawn(sleep);
    paused.pause();
    let pids = server.pids().into_iter().chain(paused.pids()).chain([pooler.pid(), child.pid()]);
    println!("dir {}", server.socket_dir().display());
    println!("dsn {}", pooler.dsn());
    println!("pids {}", pids.map(|pid| pid.to_string()).collect::<Vec<_>>().join(" "));
    std::thread::sleep(Duration::from_secs(600));
}
