//! The doors with random bytes: not a fuzzer, but the same promises in every run of the tests.

use fastrand::Rng;

use super::*;
use crate::store::{MemoryStore, Store};
use crate::time::{Clock, Time};

fn random(rounds: u32, longest: usize, door: impl Fn(&[u8])) {
    let mut rng = Rng::with_seed(4711);
    for _ in 0..rounds {
        let length = rng.usize(0..=longest);
        // Small numbers are where the choices are.
        let mask = [0xff, 0x0f, 0x3f][rng.usize(0..3)];
        let bytes: Vec<u8> = (0..length).map(|_| rng.u8(..) & mask).collect();
        door(&bytes);
    }
}

#[test]
fn configurations() {
    random(20_000, 80, config);
}

#[test]
fn elections() {
    random(20_000, 300, election);
}

#[test]
fn schedules() {
    random(100, 400, schedule);
}

#[cfg(feature = "postgres")]
#[test]
fn names_and_connection_strings() {
    random(5_000, 60, dsn);
    random(5_000, 130, table);
}

/// Never shows the same time twice.
#[derive(Debug, Default)]
struct Counter(std::sync::atomic::AtomicU64);

impl Clock for Counter {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.fetch_add(10_000, std::sync::atomic::Ordering::Relaxed))
    }
}

#[test]
fn two_stores_of_one_kind() {
    random(2_000, 300, |bytes| {
        let pair = [0, 1].map(|_| MemoryStore::with_clock(Counter::default()));
        stores(bytes, "n", pair.each_ref().map(|store| store as &dyn Store));
    });
}

#[test]
#[should_panic(expected = "observes")]
fn a_difference_between_stores_is_seen() {
    let pair = [MemoryStore::new(), MemoryStore::new()];
    pair[1].set_timeline(Some(2));
    pair[0]
        .acquire(
            &crate::Bid::new("n", "anna", std::time::Duration::from_secs(1)),
            std::time::Duration::from_secs(1),
        )
        .unwrap();
    stores(&[0, 4], "n", pair.each_ref().map(|store| store as &dyn Store));
}
