//! The database that holds the lease refuses the commit of a leader that has been superseded.
//!
//!     DATABASE_URL=postgres://app@localhost/app cargo run --example fenced_commit

use std::error::Error;

use postgres::{Client, NoTls};
use tenure::{Config, Elector, PostgresStore};

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to the PostgreSQL to use")?;
    let mut db = Client::connect(&url, NoTls)?;
    db.batch_execute(
        "CREATE TABLE IF NOT EXISTS example_balance (id int PRIMARY KEY, balance bigint);
         INSERT INTO example_balance VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET balance = 0",
    )?;

    let store = PostgresStore::connect(&url)?;
    store.ensure_schema()?;
    let elector = Elector::start(store, Config::builder("example-balance").build()?)?;
    let guard = elector.wait_for_leadership()?;

    let mut transaction = db.transaction()?;
    transaction.execute("UPDATE example_balance SET balance = 100 WHERE id = 1", &[])?;
    guard.commit(transaction)?;
    println!("balance 100: committed");

    let mut transaction = db.transaction()?;
    transaction.execute("UPDATE example_balance SET balance = 101 WHERE id = 1", &[])?;
    // Between the write and the commit, an operator makes the leader step down.
    Client::connect(&url, NoTls)?.execute(
        "UPDATE leader_election SET holder = 'operator', fence = fence + 1 WHERE name = 'example-balance'",
        &[],
    )?;
    match guard.commit(transaction) {
        Ok(()) => println!("balance 101: committed"),
        Err(error) => println!("balance 101: {error}"),
    }
    println!("leading: {}", guard.is_leader());

    let row = db.query_one("SELECT balance FROM example_balance WHERE id = 1", &[])?;
    println!("balance {}", row.get::<_, i64>(0));
    Ok(())
}
