//! A cron without a single host that everything hangs on: at every tick exactly one of several hosts runs the job.
//!
//!     cargo run --example cron_like
//!     cargo run --example cron_like -- postgres://app@localhost/app
//!
//! Three threads stand for three hosts, of which the leading one "is rebooted" after every third run; all of it ends
//! after a dozen ticks. With a URL the lease and the record of what was run are in that database, and any number of
//! these programs may run at a time.
//!
//! Leadership alone does not make it once: a host may lead, run the tick's job and resign, and the next one leads in
//! the same tick. So every run has a row, unique by job and tick, written with the fence.
//!
//! - Here the row is committed *before* the job runs: **at most once**. A host that dies in between leaves a row which
//!   says that it was begun and never finished; somebody has to look.
//! - Committed *after* the job it would be **at least once**: whoever finds no row runs the job, perhaps again.
//! - Where the job only writes to the same database, do it in the transaction of the row: **once**.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use postgres::{Client, NoTls};
use tenure::{AnyStore, CommitError, Config, Elector, Fence, LeaderGuard};

type Failure = Box<dyn Error + Send + Sync>;
/// By tick: the fence of whoever began the run, and whether it was finished.
type Runs = Arc<Mutex<BTreeMap<i64, (Fence, bool)>>>;

const JOB: &str = "send-reports";
/// A minute in a real one. A tick is a number: how many of these have passed since 1970, by the host's clock. That
/// clock decides what the tick is called, and never who leads.
const PERIOD: Duration = Duration::from_millis(300);
const TICKS: u64 = 12;
const RUNS_BEFORE_A_REBOOT: usize = 3;

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn tick_now() -> i64 {
    (since_1970().as_millis() / PERIOD.as_millis()) as i64
}

fn until_the_next_tick() -> Duration {
    let into = since_1970().as_millis() % PERIOD.as_millis();
    PERIOD - Duration::from_millis(into as u64)
}

/// What was run, in which term, and whether it was finished.
enum Record {
    Memory(Runs),
    Postgres(Box<Client>),
}

impl Record {
    fn open(url: &str, memory: &Runs) -> Result<Record, Failure> {
        if !url.starts_with("postgres") {
            return Ok(Record::Memory(memory.clone()));
        }
        let mut client = Client::connect(url, NoTls)?;
        client.batch_execute(
            // Several at once may want to create it.
            "SELECT pg_advisory_xact_lock(7417); CREATE TABLE IF NOT EXISTS example_runs (job text, tick bigint,
             fence bigint NOT NULL, finished bool NOT NULL, PRIMARY KEY (job, tick))",
        )?;
        Ok(Record::Postgres(Box::new(client)))
    }

    /// Writes down that the tick's job is begun; false where it has been already.
    fn begin(&mut self, guard: &LeaderGuard, tick: i64) -> Result<bool, Failure> {
        match self {
            Record::Memory(runs) => {
                let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
                let is_new = !runs.contains_key(&tick);
                runs.entry(tick).or_insert((guard.fence(), false));
                Ok(is_new)
            }
            Record::Postgres(client) => {
                let mut transaction = client.transaction()?;
                let written = transaction.execute(
                    "INSERT INTO example_runs VALUES ($1, $2, $3, false) ON CONFLICT (job, tick) DO NOTHING",
                    &[&JOB, &tick, &guard.fence()],
                )?;
                // A leader that has been superseded begins nothing, however long it stood still before this line.
                guard.commit(transaction)?;
                Ok(written == 1)
            }
        }
    }

    fn finish(&mut self, tick: i64) -> Result<(), Failure> {
        match self {
            Record::Memory(runs) => {
                let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(run) = runs.get_mut(&tick) {
                    run.1 = true;
                }
            }
            Record::Postgres(client) => {
                let sql = "UPDATE example_runs SET finished = true WHERE job = $1 AND tick = $2";
                client.execute(sql, &[&JOB, &tick])?;
            }
        }
        Ok(())
    }
}

/// Runs the job of every tick in this term that has not been run; an end of the term is no error.
fn lead(host: &str, guard: &LeaderGuard, record: &mut Record, last: i64) -> Result<(), Failure> {
    let mut runs = 0;
    while let Ok(fence) = guard.check() {
        let tick = tick_now();
        if tick > last {
            return Ok(());
        }
        match record.begin(guard, tick) {
            Ok(true) => {
                println!("tick {tick}: {host} runs {JOB}, fence {fence}");
                record.finish(tick)?;
                runs += 1;
            }
            Ok(false) => println!("tick {tick}: {host} leads, and finds that it has been run"),
            // Nothing was written, and the guard knows.
            Err(error) if matches!(error.downcast_ref(), Some(CommitError::Stale(_))) => continue,
            Err(error) => return Err(error),
        }
        if runs == RUNS_BEFORE_A_REBOOT {
            println!("tick {tick}: {host} is rebooted");
            return Ok(());
        }
        guard.sleep(until_the_next_tick()).ok(); // wakes early when the term ends
    }
    Ok(())
}

fn host(host: &str, url: &str, mut record: Record, last: i64) -> Result<(), Failure> {
    let store = AnyStore::open(url)?;
    store.ensure_schema()?;
    let config =
        Config::builder("example-cron").label(host).retry_period(Duration::from_millis(50)).build()?;
    let elector = Elector::start(store, config)?;
    while tick_now() <= last {
        if let Ok(guard) = elector.wait_for_leadership_timeout(PERIOD) {
            lead(host, &guard, &mut record, last)?;
            guard.resign()?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or("memory:cron".to_owned());
    let (memory, last) = (Runs::default(), tick_now() + TICKS as i64);
    let hosts = ["anna", "ben", "clara"].map(|name| {
        let (url, record) = (url.clone(), Record::open(&url, &memory));
        thread::spawn(move || host(name, &url, record?, last))
    });
    for host in hosts {
        host.join().map_err(|_| "a host panicked")??;
    }
    Ok(())
}
