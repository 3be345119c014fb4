//! What needs PostgreSQL, but no second process: async runtimes, guards nobody keeps, names.

use std::time::{Duration, Instant};

use tenure::{CampaignError, Config, Elector, PostgresStore, Role, Store};
use tenure_testground::{await_until, mute_listener};

use crate::figures::figure;
use crate::fleet::{Ground, LIMIT, Way};
use crate::profile::{HASTY, P3, SLACK};
use crate::rows;
use crate::stillness::promised;

fn elector(ground: &Ground<'_>) -> Elector {
    let store = PostgresStore::connect(&ground.dsn()).expect("a usable DSN");
    Elector::start(store, P3.config("e").build().expect("a usable profile")).expect("two threads")
}

/// The driver brings a runtime of its own, which panics where it is used on a thread of another one.
pub(crate) fn leading_from_inside_an_async_runtime(way: Way) {
    let ground = Ground::shared(way);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = PostgresStore::connect(&ground.dsn()).expect("a usable DSN");
        store.ensure_schema().expect("the table is there");
        let elector = elector(&ground);
        let guard = elector.wait_for_leadership().expect("nobody else campaigns");
        assert!(guard.check().is_ok());
        guard.publish("from inside").expect("published");
        assert!(guard.sleep(P3.renew * 2).is_ok());
        guard.resign().expect("released");
        let again = elector.wait_for_leadership().expect("nobody else campaigns");
        drop(again);
        elector.shutdown(LIMIT).expect("a clean end");
        drop(store);
    });
    let entered = runtime.enter();
    let elector = self::elector(&ground);
    drop(elector.wait_for_leadership().expect("nobody else campaigns"));
    drop(elector);
    drop(entered);
    let rows = ground.rows();
    assert_eq!(rows.last().map(|row| (row.fence, row.is_released())), Some((3, true)), "{rows:#?}");
}

pub(crate) fn b14_a_guard_that_nobody_keeps_is_given_back_at_once(way: Way) {
    let ground = Ground::shared(way);
    let elector = elector(&ground);
    let _ = elector.wait_for_leadership().expect("nobody else campaigns");
    let dropped = Instant::now();
    assert!(!elector.is_leader());
    await_until(Duration::from_millis(500) + SLACK, "the row is released", || {
        ground.rows().last().is_some_and(rows::Row::is_released)
    });
    figure(format_args!("{way:?}: a guard dropped on its line: released within {:.1?}", dropped.elapsed()));
    assert_eq!(elector.status().role, Role::Idle);
    // Nothing goes on in the background.
    let before = ground.bytes_of_the_row();
    std::thread::sleep(P3.renew * 3);
    assert_eq!(ground.bytes_of_the_row(), before);
    // A guard that is leaked leads on, and a shutdown ends it all the same.
    let guard = elector.wait_for_leadership().expect("nobody else campaigns");
    let term = guard.term();
    std::mem::forget(guard);
    assert!(term.sleep(P3.lease).is_ok(), "a leaked guard leads on");
    let begun = Instant::now();
    let _ = elector.shutdown(Duration::from_millis(100));
    assert!(begun.elapsed() < P3.op + Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(!term.is_leader());
}

/// A wait may end at any moment between the look, the bid and the grant.
pub(crate) fn b14_a_wait_that_times_out_leaves_nothing_half_held(way: Way) {
    let ground = Ground::shared(way);
    let store = PostgresStore::connect(&ground.dsn()).expect("a usable DSN");
    let config = HASTY.config("e").build().expect("a usable profile");
    let elector = Elector::start(store, config).expect("two threads");
    let mut client = ground.database.client();
    let mut led = 0;
    for round in 0..300 {
        // About as long as it takes to be let in again and to win.
        let timeout = Duration::from_micros(fastrand::u64(0..30_000));
        match elector.wait_for_leadership_timeout(timeout) {
            Ok(guard) => {
                assert!(guard.check().is_ok());
                led += 1;
            }
            Err(CampaignError::TimedOut) => {}
            Err(error) => panic!("round {round}: {error}"),
        }
        assert!(!elector.is_leader(), "round {round}");
        await_until(LIMIT, format_args!("round {round}: the lease is free: {:?}", elector.status()), || {
            let sql = "SELECT count(*) FROM leader_election WHERE name = 'e' AND expires_at <> 'epoch'";
            client.query_one(sql, &[]).expect("a count").get::<_, i64>(0) == 0
                && elector.status().role == Role::Idle
        });
    }
    let terms = ground.rows().iter().filter(|row| !row.is_released()).count();
    assert!((5..=295).contains(&led), "{led} of 300 waits led: the timing misses the point");
    figure(format_args!("{way:?}: 300 waits of up to 30 ms: {led} led, {terms} grants"));
    elector.shutdown(LIMIT).expect("a clean end");
    let rows = ground.rows();
    assert!(rows.last().is_some_and(rows::Row::is_released), "{:?}", rows.last());
    let faults = rows::faults(&rows, HASTY.lease);
    promised!(faults.is_empty(), "{faults:#?}");
}

pub(crate) fn b16_every_name_that_is_accepted_is_an_election_of_its_own(way: Way) {
    let ground = Ground::shared(way);
    let store = PostgresStore::connect(&ground.dsn()).expect("a usable DSN");
    let longest = "é".repeat(127) + "x";
    let names = [
        " lead ",
        "x'); DROP TABLE leader_election;--",
        "日本語",
        "\u{e9}",
        "e\u{301}",
        "%s {} \n",
        "\\x00",
        "\"quoted\" 'quoted' $1 ?",
        &longest,
    ];
    let elections: Vec<_> = names
        .iter()
        .map(|name| {
            let config = P3.config(name).label(*name).payload(name.as_bytes());
            // A label may be shorter than a name.
            let config = config.build().or_else(|_| P3.config(name).payload(name.as_bytes()).build());
            let elector = Elector::start(store.clone(), config.expect("a usable name")).expect("two threads");
            let guard = elector.wait_for_leadership().unwrap_or_else(|error| panic!("{name:?}: {error}"));
            (elector, guard)
        })
        .collect();
    for (name, (elector, guard)) in names.iter().zip(&elections) {
        assert_eq!(guard.check().expect("all lead at once").get(), 1, "{name:?}");
        let lease = store.observe(name, LIMIT).expect("an answer").into_lease().expect("a row");
        assert_eq!(lease.name(), *name);
        assert_eq!(lease.holder(), elector.identity().as_str());
        assert_eq!(lease.payload(), Some(name.as_bytes()));
    }
    let mut client = ground.database.client();
    let stored: Vec<String> = client
        .query("SELECT name FROM leader_election", &[])
        .expect("rows")
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(stored.len(), names.len());
    assert!(names.iter().all(|name| stored.iter().any(|stored| stored == name)), "{stored:?}");
    for refused in ["", "a\0b", &"a".repeat(256), &"a".repeat(300_000)] {
        assert_eq!(Config::builder(refused).build().expect_err("refused").field(), "name");
    }
}

/// The longest leases that can be asked for, to the microsecond.
pub(crate) fn b28_granted_lengths_are_exact(way: Way) {
    let ground = Ground::shared(way);
    let store = PostgresStore::connect(&ground.dsn()).expect("a usable DSN");
    for (n, lease) in
        [Duration::from_secs(30 * 86_400), Duration::from_micros(2_234_567)].into_iter().enumerate()
    {
        let config = Config::builder(format!("long-{n}"))
            .lease_duration(lease)
            .safety_margin((lease / 20).max(Duration::from_millis(500)) + Duration::from_millis(1))
            .renew_interval(P3.renew)
            .operation_timeout(P3.op)
            .build()
            .expect("a usable lease");
        let elector = Elector::start(store.clone(), config).expect("two threads");
        let guard = elector.wait_for_leadership().expect("nobody else campaigns");
        let seen =
            store.observe(&format!("long-{n}"), LIMIT).expect("an answer").into_lease().expect("a row");
        assert_eq!(seen.length(), lease);
        assert!(guard.remaining() <= elector.config().term_duration());
    }
}

/// B19: the first of two hosts accepts and never answers; and where there is no other, the wait is bounded.
pub(crate) fn b19_a_mute_first_host_is_passed_by() {
    let ground = Ground::shared(Way::Direct);
    let mute = mute_listener();
    let dsn = |ports: &str| {
        let hosts = ports.split(',').map(|_| "127.0.0.1").collect::<Vec<_>>().join(",");
        format!("host={hosts} port={ports} user=postgres dbname={}", ground.database.name())
    };
    let start = |dsn: &str| {
        let store = PostgresStore::connect(dsn).expect("a usable DSN");
        Elector::start(store, P3.config("e").build().expect("a usable profile")).expect("two threads")
    };
    let begun = Instant::now();
    let both = start(&dsn(&format!("{},{}", mute.port(), ground.addr().port())));
    let guard = both.wait_for_leadership().expect("the second host answers");
    let took = begun.elapsed();
    assert!(took < P3.op + Duration::from_secs(2) + SLACK, "{took:?}");
    assert!(mute.accepted() >= 1, "the first host had its turn");
    figure(format_args!("a mute first host: led through the second after {took:.1?}"));
    assert!(guard.sleep(P3.lease).is_ok(), "and goes on");
    let alone = start(&dsn(&mute.port().to_string()));
    let begun = Instant::now();
    let outcome = alone.wait_for_leadership_timeout(Duration::from_secs(2));
    let took = begun.elapsed();
    assert!(matches!(outcome, Err(CampaignError::TimedOut)), "{outcome:?}");
    assert!(took <= Duration::from_millis(2_500), "{took:?}");
    let error = alone.status().last_error.expect("it says why");
    assert!(error.is_timeout() && error.is_retryable(), "{error}");
}
