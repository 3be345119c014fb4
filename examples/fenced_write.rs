//! The receiver of the writes compares fences: a leader that wakes up late cannot overwrite its successor.
//!
//!     DATABASE_URL=postgres://app@localhost/app cargo run --example fenced_write

use std::error::Error;
use std::time::Duration;

use postgres::{Client, NoTls};
use tenure::{Config, Elector, Fence, PostgresStore};

/// Writes only where no higher fence has written. Says whether it did.
fn write(db: &mut Client, fence: Fence, balance: i64) -> Result<bool, postgres::Error> {
    let changed = db.execute(
        "UPDATE example_account SET balance = $2, fence = $1 WHERE id = 1 AND fence <= $1",
        &[&fence, &balance],
    )?;
    Ok(changed == 1)
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to the PostgreSQL to use")?;
    let mut db = Client::connect(&url, NoTls)?;
    db.batch_execute(
        "CREATE TABLE IF NOT EXISTS example_account (id int PRIMARY KEY, balance bigint, fence bigint NOT NULL);
         INSERT INTO example_account VALUES (1, 0, 0) ON CONFLICT DO NOTHING",
    )?;

    let store = PostgresStore::connect(&url)?;
    store.ensure_schema()?;
    let config = || Config::builder("example-account").retry_period(Duration::from_millis(200)).build();
    let first = Elector::start(store.clone(), config()?)?.wait_for_leadership()?;
    let old = first.check()?;
    println!("first leader, fence {old}: written: {}", write(&mut db, old, 100)?);
    first.resign()?;

    let second = Elector::start(store, config()?)?.wait_for_leadership()?;
    let new = second.check()?;
    println!("second leader, fence {new}: written: {}", write(&mut db, new, 200)?);

    // The first leader did not notice and writes once more.
    println!("first leader again, fence {old}: written: {}", write(&mut db, old, 101)?);
    let row = db.query_one("SELECT balance, fence FROM example_account WHERE id = 1", &[])?;
    println!("balance {} of fence {}", row.get::<_, i64>(0), row.get::<_, i64>(1));
    Ok(())
}
