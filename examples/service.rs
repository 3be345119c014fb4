//! A service of which one instance works at a time. SIGTERM or ctrl-c ends it cleanly: the work winds down, the
//! lease is released, another instance takes over at its next poll.
//!
//!     DATABASE_URL=postgres://app@localhost/app cargo run --example service

use std::error::Error;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tenure::{CampaignError, Config, Elector, PostgresStore};

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to the PostgreSQL to use")?;
    let store = PostgresStore::connect(&url)?;
    store.ensure_schema()?;
    let elector = Elector::start(store, Config::builder("example-service").build()?)?;

    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let on_signal = elector.clone();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            on_signal.stop();
        }
    });

    println!("{} waits for leadership", elector.identity());
    loop {
        let guard = match elector.wait_for_leadership() {
            Ok(guard) => guard,
            Err(CampaignError::Stopped) => break,
            Err(error) => return Err(error.into()),
        };
        println!("leading, fence {}", guard.fence());
        while let Ok(fence) = guard.check() {
            println!("working, fence {fence}");
            guard.sleep(Duration::from_millis(500)).ok(); // wakes early when the term ends
        }
        if let Err(lost) = guard.check() {
            println!("{lost}");
        }
    }
    // Waits for the work (there is none left) and the release.
    elector.shutdown(Duration::from_secs(10))?;
    println!("bye");
    Ok(())
}
