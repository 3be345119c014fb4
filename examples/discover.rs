//! Finding the leader: it publishes its address with the lease, and whoever looks for it watches. Watching writes
//! nothing, and needs no right to.
//!
//!     DATABASE_URL=postgres://app@localhost/app cargo run --example discover

use std::error::Error;
use std::time::Duration;

use tenure::{Config, Elector, Event, Leader, PostgresStore};

fn address(leader: &Leader) -> String {
    leader.payload.as_deref().map_or_else(String::new, |bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Waits for the next news of the leader.
fn print_news(news: &crossbeam_channel::Receiver<Event>) -> Result<(), Box<dyn Error>> {
    loop {
        match news.recv_timeout(Duration::from_secs(30))? {
            Event::Observed { leader, .. } => println!("the leader is at {}", address(&leader)),
            Event::Published { leader, .. } => println!("the leader moved to {}", address(&leader)),
            Event::Vacant { last, .. } => println!("nobody leads; the last one was at {}", address(&last)),
            _ => continue,
        }
        return Ok(());
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to the PostgreSQL to use")?;
    let store = PostgresStore::connect(&url)?;
    store.ensure_schema()?;

    // A client, elsewhere: it looks twice a second. (For who leads by the last look there is `observer.status()`.)
    let watching =
        Config::builder("example-discover").observer(true).retry_period(Duration::from_millis(500));
    let observer = Elector::start(store.clone(), watching.build()?)?;
    let news = observer.events();

    // The service.
    let config = Config::builder("example-discover").payload("10.0.0.7:8080").build()?;
    let elector = Elector::start(store, config)?;
    let guard = elector.wait_for_leadership()?;
    print_news(&news)?;
    guard.publish("10.0.0.7:9090")?;
    print_news(&news)?;
    guard.resign()?;
    print_news(&news)?;
    Ok(())
}
