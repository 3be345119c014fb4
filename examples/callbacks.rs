//! The callback form: work starts in a thread of its own whenever this participant leads.
//!
//!     DATABASE_URL=postgres://app@localhost/app cargo run --example callbacks

use std::error::Error;
use std::time::Duration;

use tenure::{Callbacks, Config, Elector, Leader, Lost, PostgresStore, Term};

struct Work {
    elector: Elector,
}

impl Callbacks for Work {
    fn started_leading(&self, term: Term) {
        for batch in 1..=3 {
            match term.check() {
                Ok(fence) => println!("batch {batch} with fence {fence}"),
                Err(lost) => return println!("stopping: {lost}"),
            }
            if term.sleep(Duration::from_millis(200)).is_err() {
                return;
            }
        }
        self.elector.stop(); // done for good; returning alone would let it campaign again
    }

    fn stopped_leading(&self, lost: Lost) {
        println!("stopped: {lost}");
    }

    fn new_leader(&self, leader: &Leader) {
        println!("{} leads, fence {}", leader.holder, leader.fence);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to the PostgreSQL to use")?;
    let store = PostgresStore::connect(&url)?;
    store.ensure_schema()?;
    let elector = Elector::start(store, Config::builder("example-callbacks").build()?)?;
    elector.run(Work { elector: elector.clone() })?;
    Ok(())
}
