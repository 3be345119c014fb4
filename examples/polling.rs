//! A program with a loop of its own, which does a little more whenever it happens to lead. A thread campaigns;
//! the loop only asks.
//!
//!     DATABASE_URL=postgres://app@localhost/app cargo run --example polling

use std::error::Error;
use std::thread;
use std::time::Duration;

use tenure::{Config, Elector, PostgresStore, Term};

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to the PostgreSQL to use")?;
    let store = PostgresStore::connect(&url)?;
    store.ensure_schema()?;
    let elector = Elector::start(store, Config::builder("example-polling").build()?)?;

    // Holds every term to its end, and campaigns for the next.
    let campaigner = elector.clone();
    let campaigning = thread::spawn(move || {
        campaigner.run(|term: Term| while term.sleep(Duration::from_secs(3600)).is_ok() {})
    });

    for tick in 0..20 {
        // Asked at the moment of use, every time: the answer is only as good as it is fresh.
        match elector.fence() {
            Some(fence) => println!("tick {tick}: leading, fence {fence}"),
            None => println!("tick {tick}: following {:?}", elector.status().leader),
        }
        thread::sleep(Duration::from_millis(100));
    }
    elector.stop();
    campaigning.join().map_err(|_| "the campaigning thread panicked")??;
    Ok(())
}
