//! Rule 12 against leaders that stand still between their write and its commit, for longer than their lease.
//!
//! Their clock stands still: they neither renew nor find out, and their own `check()` goes on saying that they lead.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use tenure::{
    Bid, Clock, CommitError, Config, Elector, Fence, LeaderGuard, PostgresStore, Store, SystemClock, Time,
};
use tenure_testground::postgres::{Client, Transaction};
use tenure_testground::{Database, Postgres};

use crate::{LEASE, OP, look, store};

const WORK: &str = "CREATE TABLE work (election text, fence bigint)";
const LANES: u32 = 20;

/// Commits as the old leader; says whether it did.
type Commit = fn(&LeaderGuard, Transaction<'_>) -> bool;

fn fenced(guard: &LeaderGuard, transaction: Transaction<'_>) -> bool {
    match guard.commit(transaction) {
        Ok(()) => true,
        Err(CommitError::Stale(_)) => false,
        Err(other) => panic!("{other:?}"),
    }
}

fn plain(guard: &LeaderGuard, transaction: Transaction<'_>) -> bool {
    guard.is_leader() && transaction.commit().is_ok()
}

/// The system's clock, until it is told to stand still.
#[derive(Clone, Debug, Default)]
struct FreezingClock(Arc<OnceLock<Time>>);

impl Clock for FreezingClock {
    fn now(&self) -> Time {
        self.0.get().copied().unwrap_or_else(|| SystemClock::new().now())
    }
}

/// Leads, and is frozen: from here on it goes on leading by its own clock.
fn lead_frozen(store: &PostgresStore, name: &str) -> LeaderGuard {
    let config = || {
        Config::builder(name)
            .lease_duration(Duration::from_secs(1))
            .renew_interval(Duration::from_millis(200))
            .operation_timeout(Duration::from_millis(300))
            .safety_margin(Duration::from_millis(50))
            .build()
    };
    loop {
        let clock = FreezingClock::default();
        let elector = Elector::start_with_clock(store.clone(), config().unwrap(), clock.clone()).unwrap();
        let guard = elector.wait_for_leadership_timeout(OP).unwrap();
        let _ = clock.0.set(clock.now());
        // On a busy machine the term may have been over by then.
        if guard.is_leader() {
            return guard;
        }
    }
}

fn write<'a>(db: &'a mut Client, name: &str, fence: Fence) -> Transaction<'a> {
    let mut transaction = db.transaction().unwrap();
    transaction.execute("INSERT INTO work VALUES ($1, $2)", &[&name, &fence]).unwrap();
    transaction
}

fn written(db: &mut Client, name: &str, fence: Fence) -> i64 {
    let sql = "SELECT count(*) FROM work WHERE election = $1 AND fence = $2";
    db.query_one(sql, &[&name, &fence]).unwrap().get(0)
}

/// An old leader writes, and is frozen; a successor leads and commits; the old one commits.
fn freeze(store: &PostgresStore, name: &str, db: &mut [Client; 2], commit: Commit) -> bool {
    let [first, second] = db;
    let old = lead_frozen(store, name);
    let transaction = write(first, name, old.fence());

    let successor = Elector::start(store.clone(), Config::builder(name).build().unwrap()).unwrap();
    let new = successor.wait_for_leadership_timeout(OP).expect("the lease of the frozen one has run out");
    assert!(new.fence() > old.fence());
    new.commit(write(second, name, new.fence())).unwrap();

    assert!(old.is_leader(), "it does not know");
    let committed = commit(&old, transaction);
    assert_eq!(written(second, name, old.fence()), i64::from(committed));
    assert_eq!(written(second, name, new.fence()), 1);
    new.resign().unwrap();
    committed
}

/// How many of so many stale commits took place, in each of many elections at the same time.
fn stale_commits(database: &Database<'_>, rounds: u32, commit: Commit) -> u32 {
    database.execute(WORK);
    let store = PostgresStore::builder(&database.dsn()).pool_size(8).build().unwrap();
    store.ensure_schema().unwrap();
    let stale = AtomicU32::new(0);
    thread::scope(|scope| {
        for lane in 0..LANES {
            let (store, stale, name) = (&store, &stale, format!("lane {lane}"));
            let mut db = [database.client(), database.client()];
            scope.spawn(move || {
                for _ in 0..rounds {
                    stale.fetch_add(freeze(store, &name, &mut db, commit).into(), Ordering::Relaxed);
                }
            });
        }
    });
    stale.into_inner()
}

#[test]
fn rule_12_two_hundred_leaders_frozen_before_their_commit_commit_nothing() {
    let server = Postgres::start_new();
    assert_eq!(stale_commits(&server.database(), 200 / LANES, fenced), 0);
    // So that this would be seen: the same, with the driver's own commit.
    assert_eq!(stale_commits(&server.database(), 1, plain), LANES);
}

/// Not frozen at all, but busy: a take-over comes at some moment or other of the many commits.
#[test]
fn rule_12_nothing_of_an_older_fence_appears_once_a_term_has_begun() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    let store = store(&database);
    let mut watch = database.client();
    let mut workers = [database.client(), database.client(), database.client()];
    let committed = AtomicI64::new(0);
    for round in 0..100_u64 {
        let name = format!("race {round}");
        let guard = lead_frozen(&store, &name);
        let over = AtomicBool::new(false);
        let (taken, at_the_beginning) = thread::scope(|scope| {
            let busy = workers.each_mut().map(|db| {
                let (guard, name, committed, over) = (&guard, &name, &committed, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) && fenced(guard, write(db, name, guard.fence())) {
                        committed.fetch_add(1, Ordering::Relaxed);
                    }
                })
            });
            thread::sleep(Duration::from_micros(3_000 + 97 * (round % 50)));
            let seen = look(&store, &name);
            let bid =
                Bid::new(&name, "successor", LEASE).over(Some(seen.version())).timeline(seen.timeline());
            let taken = store.acquire(&bid, OP);
            let at_the_beginning = written(&mut watch, &name, guard.fence());
            let begun = Instant::now();
            while begun.elapsed() < OP && !busy.iter().all(ScopedJoinHandle::is_finished) {
                thread::yield_now();
            }
            over.store(true, Ordering::Relaxed);
            (taken, at_the_beginning)
        });
        let lease = taken.unwrap().expect("commits do not change the row");
        assert!(lease.fence() > guard.fence());
        assert_eq!(written(&mut watch, &name, guard.fence()), at_the_beginning, "{name}");
    }
    assert!(committed.into_inner() > 100, "hardly anything was committed");
}
