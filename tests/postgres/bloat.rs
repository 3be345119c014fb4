//! B24: renewals behind a snapshot that somebody has forgotten.

use std::time::{Duration, Instant};

use tenure::{Lease, PostgresStore, Store};
use tenure_testground::Postgres;
use tenure_testground::postgres::Client;

use crate::{OP, create, renewal, store};

/// A quarter of a day with a renewal every five seconds.
const RENEWALS: usize = 17_280 / 4;
/// For how long it goes on under a snapshot: a whole day would take most of a minute.
const QUARTERS: usize = 2;
/// For each of them; it was 2 MB for a day.
const GROWTH: i64 = 2 * 1024 * 1024 / 4;

/// Renews so often, and returns what each renewal took.
fn renew(store: &PostgresStore, lease: &Lease, times: usize) -> Vec<Duration> {
    let mut took: Vec<Duration> = Vec::with_capacity(times);
    for n in 0..times {
        let begun = Instant::now();
        let renewed = store.renew(&renewal(lease, "a"), OP).expect("an answer");
        took.push(begun.elapsed());
        assert!(renewed.is_some(), "renewal {n} lost the lease");
    }
    took
}

/// What so many hundredths of the renewals took at the most: in pieces, of which the middle one counts, so that a
/// machine that was busy for a moment does not.
fn quantile(took: &[Duration], hundredths: usize) -> Duration {
    let of_piece = |piece: &[Duration]| {
        let mut piece = piece.to_vec();
        piece.sort();
        piece[piece.len() * hundredths / 100]
    };
    let mut pieces: Vec<Duration> = took.chunks(took.len() / 5).map(of_piece).collect();
    pieces.sort();
    pieces[pieces.len() / 2]
}

fn size(client: &mut Client, relation: &str) -> i64 {
    client.query_one("SELECT pg_relation_size($1::text::regclass)", &[&relation]).unwrap().get(0)
}

#[test]
fn b24_a_forgotten_snapshot_costs_little_and_nothing_once_it_is_gone() {
    let server = Postgres::start_new();
    let database = server.database();
    let store = store(&database);
    let lease = create(&store, "hot", "a");
    let mut client = database.client();
    let before = renew(&store, &lease, RENEWALS / 4);
    let (table, index) = ("leader_election", "leader_election_pkey");
    let start = (size(&mut client, table), size(&mut client, index));

    let mut forgotten = database.client();
    let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    forgotten.batch_execute(snapshot).unwrap();
    let mut quarters = Vec::new();
    for quarter in 1..=QUARTERS {
        let took = renew(&store, &lease, RENEWALS);
        let p99 = quantile(&took, 99);
        assert!(p99 < Duration::from_millis(50), "quarter {quarter}: {p99:?}");
        let grown = size(&mut client, table) - start.0;
        assert!(grown <= GROWTH * quarter as i64, "{grown} bytes after {quarter} quarters of a day");
        quarters.push((grown, quantile(&took, 50), p99));
    }
    assert!(quarters[0].0 > 64 * 1024, "the snapshot holds nothing back: {quarters:?}");
    let index = size(&mut client, index) - start.1;
    forgotten.batch_execute("COMMIT").unwrap();

    // The first renewals clean up.
    renew(&store, &lease, 50);
    let after = renew(&store, &lease, RENEWALS / 4);
    let (before, after) = (quantile(&before, 50), quantile(&after, 50));
    assert!(after < before * 2, "{before:?} before, {after:?} after the snapshot: {quarters:?}");
    assert_eq!(index, 0, "the index has grown");
    println!(
        "median {before:?} before, {after:?} after; grown, median, p99 under the snapshot: {quarters:?}"
    );
}
