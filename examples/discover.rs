//! Finding the leader: it publishes its address with the lease, everybody else reads it. Reading writes nothing.
//!
//!     DATABASE_URL=postgres://app@localhost/app cargo run --example discover

use std::error::Error;
use std::time::Duration;

use tenure::{Config, Elector, PostgresStore, Store};

fn address_of_the_leader(store: &PostgresStore) -> Result<Option<String>, Box<dyn Error>> {
    let seen = store.observe("example-discover", Duration::from_secs(2))?;
    let live = seen.into_lease().filter(|lease| !lease.is_expired());
    Ok(live.and_then(|lease| lease.payload().map(|bytes| String::from_utf8_lossy(bytes).into_owned())))
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to the PostgreSQL to use")?;
    let store = PostgresStore::connect(&url)?;
    store.ensure_schema()?;

    let config = Config::builder("example-discover").payload("10.0.0.7:8080").build()?;
    let elector = Elector::start(store.clone(), config)?;
    let guard = elector.wait_for_leadership()?;
    println!("the leader is at {:?}", address_of_the_leader(&store)?);

    guard.publish("10.0.0.7:9090")?;
    println!("the leader moved to {:?}", address_of_the_leader(&store)?);

    guard.resign()?;
    println!("and now at {:?}", address_of_the_leader(&store)?);
    Ok(())
}
