//! Many candidates for one row, and candidates that only look.

use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure::{CampaignError, Elector, PostgresStore};
use tenure_testground::{Postgres, Proxy};

use crate::figures::figure;
use crate::fleet::{Ground, LIMIT, Way};
use crate::profile::{HASTY, P3, Profile};
use crate::rows::{self, Takeover, takeover};
use crate::stillness::promised;

const CANDIDATES: usize = 16;
const TERMS: i64 = 2_000;

fn elector(dsn: &str, profile: Profile, label: &str) -> Elector {
    let store = PostgresStore::connect(dsn).expect("a usable DSN");
    let config = profile.config("e").label(label).build().expect("a usable profile");
    Elector::start(store, config).expect("two threads")
}

pub(crate) fn sixteen_candidates_and_two_thousand_terms(way: Way) {
    let ground = Ground::shared(way);
    let begun = Instant::now();
    let leading = AtomicUsize::new(0);
    let highest = AtomicI64::new(0);
    let terms = Mutex::new(Vec::new());
    let barrier = Barrier::new(CANDIDATES);
    std::thread::scope(|scope| {
        for n in 0..CANDIDATES {
            let (ground, leading, highest, terms, barrier) = (&ground, &leading, &highest, &terms, &barrier);
            scope.spawn(move || {
                let elector = elector(&ground.dsn(), HASTY, &format!("c{n}"));
                barrier.wait();
                while highest.load(Ordering::SeqCst) < TERMS {
                    let guard = match elector.wait_for_leadership_timeout(LIMIT) {
                        Ok(guard) => guard,
                        Err(CampaignError::TimedOut) if highest.load(Ordering::SeqCst) >= TERMS => break,
                        Err(error) => panic!("candidate {n}: {error}"),
                    };
                    assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two leaders");
                    let fence = guard.check().expect("a fresh term").get();
                    assert!(
                        highest.swap(fence, Ordering::SeqCst) < fence,
                        "fence {fence} is not above the last"
                    );
                    terms.lock().push((fence, elector.identity().to_string()));
                    assert_eq!(leading.fetch_sub(1, Ordering::SeqCst), 1, "two leaders");
                    guard.resign().expect("a release");
                }
                elector.shutdown(LIMIT).expect("a clean end");
            });
        }
    });
    let took = begun.elapsed();
    let (rows, terms) = (ground.rows(), terms.into_inner());
    let faults = rows::faults(&rows, HASTY.lease);
    promised!(faults.is_empty(), "{faults:#?}");
    let distinct: std::collections::BTreeSet<i64> = rows.iter().map(|row| row.fence).collect();
    assert!(distinct.len() >= usize::try_from(TERMS).expect("small"), "{} terms", distinct.len());
    // One winner each, and the row says who.
    for (fence, identity) in &terms {
        assert!(
            rows.iter().filter(|row| row.fence == *fence).all(|row| row.holder == *identity),
            "fence {fence}"
        );
    }
    assert!(terms.windows(2).all(|pair| pair[0].0 < pair[1].0), "fences rise");
    let gaps = distinct.iter().skip(1).map(|fence| match takeover(&rows, *fence) {
        Takeover::AfterRelease(gap) => gap,
        Takeover::AfterExpiry(gap) => panic!("nobody crashed: fence {fence} {gap:?}"),
    });
    let mut gaps: Vec<Duration> = gaps.collect();
    gaps.sort();
    let winners: std::collections::BTreeSet<&String> = terms.iter().map(|(_, who)| who).collect();
    assert!(winners.len() >= CANDIDATES / 2, "only {} candidates ever won", winners.len());
    assert!(took < Duration::from_secs(60), "{took:?}");
    figure(format_args!(
        "{way:?}: {CANDIDATES} candidates, {} terms of {} winners in {took:.1?}; hand-over median {:.1?}, longest {:.1?}",
        distinct.len(),
        winners.len(),
        gaps[gaps.len() / 2],
        gaps[gaps.len() - 1]
    ));
}

/// Where the server's log and its transaction counter stand.
fn position(client: &mut tenure_testground::postgres::Client) -> (String, String) {
    let sql = "SELECT pg_current_wal_insert_lsn()::text, pg_snapshot_xmax(pg_current_snapshot())::text";
    let row = client.query_one(sql, &[]).expect("the server's position");
    (row.get(0), row.get(1))
}

pub(crate) fn rule_14_candidates_that_look_write_nothing(way: Way) {
    let server = Postgres::builder().writes_nothing_unasked().start();
    let ground = Ground::on(&server, way);
    ground.database.execute(
        "INSERT INTO leader_election (name, holder, fence, acquired_at, renewed_at, expires_at)
         VALUES ('e', 'ghost', 5, now(), now(), now() + interval '1 hour'); CHECKPOINT",
    );
    let proxy = Proxy::to(ground.addr());
    let dsn = ground.database.dsn_through(proxy.port());
    let electors: Vec<Elector> = (0..3).map(|n| elector(&dsn, P3, &format!("c{n}"))).collect();
    let mut client = ground.database.client();
    std::thread::scope(|scope| {
        for elector in &electors {
            scope.spawn(|| {
                let outcome = elector.wait_for_leadership();
                assert!(matches!(outcome, Err(CampaignError::Stopped)), "{outcome:?}");
            });
        }
        // Connected, and what a first look leaves behind is there.
        tenure_testground::await_until(LIMIT, "all have looked twice", || proxy.snapshot().round_trips >= 12);
        let before = position(&mut client);
        let looks = proxy.snapshot().round_trips;
        std::thread::sleep(Duration::from_secs(4));
        let looks = proxy.snapshot().round_trips - looks;
        let after = position(&mut client);
        electors.iter().for_each(Elector::stop);
        assert_eq!(before, after, "after {looks} looks");
        let expected = 3 * 4_000 / 300;
        assert!(looks >= expected / 2 && looks <= expected * 2, "{looks} looks");
        figure(format_args!(
            "{way:?}: {looks} looks in 4 s: WAL and transaction counter at {before:?} all the time"
        ));
    });
    // The measure itself: one write moves both.
    let before = position(&mut client);
    ground.database.execute("UPDATE leader_election SET expires_at = now()");
    let after = position(&mut client);
    assert!(before.0 != after.0 && before.1 != after.1, "{before:?} {after:?}");
}
