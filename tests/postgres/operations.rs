//! The four operations and everything that they must refuse.

use std::time::Duration;

use tenure::{Bid, Fence, Lease, PostgresStore, Renewal, Store, Timestamp};
use tenure_testground::{Postgres, Proxy};

use crate::{LEASE, OP, create, look, renewal, store};

#[test]
fn a_term_from_its_creation_to_its_release() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let vacant = store.observe("job", OP).unwrap();
    assert!(vacant.lease().is_none());
    assert_eq!(vacant.timeline(), Some(1));
    assert_eq!(store.timeline_available(), Some(true));

    let bid = Bid::new("job", "a", LEASE).payload(Some(b"\0hi")).timeline(Some(1));
    let first = store.acquire(&bid, OP).unwrap().unwrap();
    assert_eq!((first.holder(), first.fence().get(), first.payload()), ("a", 1, Some(&b"\0hi"[..])));
    assert_eq!((first.ttl(), first.length()), (LEASE, LEASE), "granted to the microsecond");
    assert_eq!((first.acquired_at(), first.timeline()), (first.renewed_at(), Some(1)));
    let seen = look(&store, "job");
    assert_eq!(seen.version(), first.version());
    assert_eq!(store.acquire(&bid, OP).unwrap(), None, "there is a row");

    let renewed = store.renew(&renewal(&first, "a").payload(Some(b"x")), OP).unwrap().unwrap();
    assert_eq!((renewed.fence(), renewed.acquired_at()), (first.fence(), first.acquired_at()));
    assert!(renewed.renewed_at() > first.renewed_at() && renewed.mark_differs(&first));
    assert_eq!((renewed.payload(), renewed.ttl()), (Some(&b"x"[..]), LEASE));
    let cleared = store.renew(&renewal(&first, "a"), OP).unwrap().unwrap();
    assert_eq!(cleared.payload(), None);
    store.renew(&renewal(&first, "a").payload(Some(b"kept")), OP).unwrap().unwrap();

    store.release("job", "a", first.fence(), OP).unwrap();
    let released = look(&store, "job");
    assert!(released.is_released() && released.is_expired());
    assert_eq!((released.fence(), released.payload()), (first.fence(), Some(&b"kept"[..])));
    store.release("job", "a", first.fence(), OP).unwrap();
    assert_eq!(look(&store, "job").version(), released.version(), "releasing twice writes once");
    assert_eq!(store.renew(&renewal(&first, "a"), OP).unwrap(), None, "released");

    let next = Bid::new("job", "b", LEASE).over(Some(released.version())).timeline(Some(1));
    let second = store.acquire(&next, OP).unwrap().unwrap();
    assert_eq!((second.holder(), second.fence().get(), second.payload()), ("b", 2, None));
    assert_eq!((second.acquired_at(), second.ttl()), (second.now(), LEASE));
    assert_eq!(look(&store, "job").version(), second.version());
}

trait Mark {
    fn mark_differs(&self, other: &Lease) -> bool;
}

impl Mark for Lease {
    fn mark_differs(&self, other: &Lease) -> bool {
        self.version().mark() != other.version().mark()
    }
}

#[test]
fn rule_8_a_version_that_changed_in_any_part_is_refused() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let columns = [
        ("holder", "holder = 'z'"),
        ("fence", "fence = 9"),
        ("renewed_at", "renewed_at = renewed_at - interval '1 microsecond'"),
        ("expires_at", "expires_at = expires_at + interval '1 microsecond'"),
        ("the mark alone", "holder = holder"),
    ];
    for expired in [false, true] {
        for (part, change) in columns {
            let name = format!("{part} {expired}");
            create(&store, &name, "a");
            if expired {
                database.execute(&format!(
                    "UPDATE leader_election SET expires_at = 'epoch' WHERE name = '{name}'"
                ));
            }
            let version = look(&store, &name).version();
            database.execute(&format!("UPDATE leader_election SET {change} WHERE name = '{name}'"));
            let before = look(&store, &name);
            let bid = Bid::new(&name, "b", LEASE).over(Some(version));
            assert_eq!(store.acquire(&bid, OP).unwrap(), None, "{name}");
            assert_eq!(look(&store, &name).version(), before.version(), "{name}: written all the same");
            // What the row is now may be taken over, expired or not.
            assert!(store.acquire(&bid.over(Some(before.version())), OP).unwrap().is_some(), "{name}");
        }
    }
}

#[test]
fn rule_8_and_15_nothing_happens_without_the_row_or_on_another_timeline() {
    let database = Postgres::shared().database();
    let store = store(&database);
    assert_eq!(store.acquire(&Bid::new("n", "a", LEASE).timeline(Some(2)), OP).unwrap(), None, "create");
    assert!(store.observe("n", OP).unwrap().lease().is_none());
    let lease = create(&store, "n", "a");
    let bid = Bid::new("n", "b", LEASE).over(Some(lease.version()));
    assert_eq!(store.acquire(&bid.clone().timeline(Some(2)), OP).unwrap(), None, "take over");
    assert_eq!(look(&store, "n").version(), lease.version());
    database.execute("DELETE FROM leader_election");
    assert_eq!(store.acquire(&bid.timeline(Some(1)), OP).unwrap(), None, "the row is gone");
    assert_eq!(store.renew(&renewal(&lease, "a"), OP).unwrap(), None);
    store.release("n", "a", lease.fence(), OP).unwrap();
    assert!(store.observe("n", OP).unwrap().lease().is_none(), "nothing may bring it back");
    // The participant's own floor carries the fences over the deletion.
    let again = store.acquire(&Bid::new("n", "a", LEASE).above(41), OP).unwrap().unwrap();
    assert_eq!(again.fence().get(), 42);
}

#[test]
fn rule_9_renewal_and_release_are_guarded() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let lease = store.acquire(&Bid::new("g", "h", LEASE).above(6), OP).unwrap().unwrap();
    assert_eq!(lease.fence().get(), 7);
    let fence = |number: i64| Fence::try_from(number).unwrap();
    for (holder, number) in [("other", 7), ("h", 6), ("h", 8)] {
        assert_eq!(store.renew(&Renewal::new("g", holder, fence(number), LEASE), OP).unwrap(), None);
        store.release("g", holder, fence(number), OP).unwrap();
        assert_eq!(look(&store, "g").version(), lease.version(), "{holder} {number}");
    }
    database.execute("UPDATE leader_election SET expires_at = clock_timestamp()");
    let expired = look(&store, "g");
    assert_eq!(store.renew(&renewal(&lease, "h"), OP).unwrap(), None, "expired, without a rival");
    assert_eq!(look(&store, "g").version(), expired.version());
    let next = store.acquire(&Bid::new("g", "k", LEASE).over(Some(expired.version())), OP).unwrap().unwrap();
    assert_eq!(next.fence().get(), 8);
    store.release("g", "h", lease.fence(), OP).unwrap();
    assert_eq!(look(&store, "g").version(), next.version(), "the old leader's release");
    // One's own valid lease may be taken over too: a new term.
    let own = store.acquire(&Bid::new("g", "k", LEASE).over(Some(next.version())), OP).unwrap().unwrap();
    assert_eq!(own.fence().get(), 9);
}

#[test]
fn b06_a_lease_is_renewed_by_its_own_term_and_by_nothing_else() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let fence = |number: i64| Fence::try_from(number).unwrap();
    let ten = Duration::from_secs(10);
    let renew = |holder, number| store.renew(&Renewal::new("g", holder, fence(number), ten), OP).unwrap();
    let held = || {
        database.execute("DELETE FROM leader_election");
        store.acquire(&Bid::new("g", "h", ten).above(6), OP).unwrap().expect("no row").version()
    };
    // Somebody else, the fence before, the fence after; the version has the mark of the row's last write.
    let version = held();
    for (holder, number) in [("other", 7), ("h", 6), ("h", 8)] {
        assert_eq!(renew(holder, number), None, "{holder} {number}");
        assert_eq!(look(&store, "g").version(), version, "{holder} {number}");
    }
    // A millisecond after the expiry, without a rival.
    database.execute("UPDATE leader_election SET expires_at = clock_timestamp() - interval '1 millisecond'");
    let expired = look(&store, "g").version();
    assert_eq!(renew("h", 7), None);
    assert_eq!(look(&store, "g").version(), expired);
    // After the expiry even the same holder begins a new term.
    let again = store.acquire(&Bid::new("g", "h", ten).over(Some(expired)), OP).unwrap().unwrap();
    assert_eq!((again.holder(), again.fence().get()), ("h", 8));
    // So it does over its own lease while that is valid.
    let version = held();
    let own = store.acquire(&Bid::new("g", "h", ten).over(Some(version)), OP).unwrap().unwrap();
    assert_eq!(own.fence().get(), 8);
    // The row is gone, and stays so.
    held();
    database.execute("DELETE FROM leader_election");
    assert_eq!(renew("h", 7), None);
    assert!(store.observe("g", OP).unwrap().lease().is_none());
    // The release of a term that was taken over.
    let bid = Bid::new("g", "k", ten).over(Some(held()));
    let next = store.acquire(&bid, OP).unwrap().unwrap();
    assert_eq!(next.fence().get(), 8);
    store.release("g", "h", fence(7), OP).unwrap();
    assert_eq!(look(&store, "g").version(), next.version());
    // Whoever has seen a fence goes on above it, also where the row is gone.
    for gone in ["DELETE FROM leader_election", "TRUNCATE leader_election"] {
        held();
        database.execute(gone);
        let above = store.acquire(&Bid::new("g", "h", ten).above(7), OP).unwrap().unwrap();
        assert_eq!(above.fence().get(), 8, "{gone}");
    }
}

/// Plants a row with this fence and takes it over.
fn fence_after(
    store: &PostgresStore,
    database: &tenure_testground::Database<'_>,
    stored: i64,
    above: i64,
) -> Option<i64> {
    let plant = format!(
        "INSERT INTO leader_election VALUES ('f', 'old', {stored}, 'epoch', 'epoch', 'epoch')
         ON CONFLICT (name) DO UPDATE SET fence = {stored}, holder = 'old'"
    );
    database.execute(&plant);
    let version = look(store, "f").version();
    match store.acquire(&Bid::new("f", "new", LEASE).over(Some(version)).above(above), OP) {
        Ok(lease) => Some(lease.unwrap().fence().get()),
        Err(error) => {
            assert_eq!(error.sqlstate(), Some("22003"));
            assert!(error.is_fatal());
            None
        }
    }
}

#[test]
fn rule_15_the_statements_compute_the_same_fences_as_the_crate() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let one = 1_i64 << 40;
    let highest = [
        1,
        2,
        41,
        one - 2,
        one - 1,
        one,
        one + 1,
        5 * one + 7,
        1023 * one,
        1024 * one - 1,
        1024 * one,
        1024 * one + 1,
        8_388_607 * one,
        i64::MAX - one,
        i64::MAX - 1,
        i64::MAX,
    ];
    for highest in highest {
        let expected = Fence::after(highest, Some(1)).map(Fence::get);
        assert_eq!(fence_after(&store, &database, highest, 0), expected, "stored {highest}");
        assert_eq!(fence_after(&store, &database, 1, highest), expected, "above {highest}");
        database.execute("DELETE FROM leader_election");
        let created = store.acquire(&Bid::new("f", "new", LEASE).above(highest), OP);
        let created = created.ok().map(|lease| lease.unwrap().fence().get());
        assert_eq!(created, expected, "created above {highest}");
        // Where there is a row, it does not matter what the fence would be.
        fence_after(&store, &database, 3, -5).unwrap();
        let none = store.acquire(&Bid::new("f", "new", LEASE).above(i64::MAX), OP);
        assert!(matches!(none, Ok(None)) || none.unwrap_err().sqlstate() == Some("22003"));
    }
}

#[test]
fn b04_rows_from_anywhere_in_time_can_be_read_and_taken_over() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let times = [
        ("infinity", i64::MAX),
        ("-infinity", i64::MIN),
        ("294276-12-31 23:59:59.999999+00", i64::MAX),
        ("294246-06-01 00:00:00+00", 0),
        ("4713-01-01 00:00:00+00 BC", -210_863_520_000_000_000),
        ("10000-01-01 00:00:00+00", 253_402_300_800_000_000),
    ];
    for (time, micros) in times {
        database.execute("DELETE FROM leader_election");
        database.execute(&format!(
            "INSERT INTO leader_election VALUES ('t', 'old', 3, 'epoch', '{time}', '{time}')"
        ));
        let lease = look(&store, "t");
        if !time.starts_with("294246") {
            assert_eq!(lease.expires_at(), Timestamp::from_micros(micros), "{time}");
        }
        let bid = Bid::new("t", "new", LEASE).over(Some(lease.version()));
        let taken = store.acquire(&bid, OP).unwrap().unwrap_or_else(|| panic!("{time} can't be taken over"));
        assert_eq!((taken.fence().get(), taken.ttl()), (4, LEASE));
    }
}

#[test]
fn b16_names_come_back_byte_for_byte() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let long = "x".repeat(256);
    let names = [
        " lead ",
        "x'); DROP TABLE leader_election;--",
        "日本語",
        "\u{e9}",
        "e\u{301}",
        "%s {} \n",
        &long[..255],
        &long,
        "\\",
        "$1",
        "NULL",
        "\u{1f512}",
    ];
    for (i, name) in names.iter().enumerate() {
        let holder = format!("{name}-{i}");
        let lease = store.acquire(&Bid::new(name, &holder, LEASE), OP).unwrap();
        assert!(lease.is_some(), "{name:?} is an election of its own");
        assert_eq!(look(&store, name).holder(), holder);
    }
    let rows: i64 = database.client().query_one("SELECT count(*) FROM leader_election", &[]).unwrap().get(0);
    assert_eq!(rows, names.len() as i64);
    for name in
        ["a\0b".to_owned(), (0..300_000).map(|i| char::from(b'a' + (i % 251 * i % 23) as u8)).collect()]
    {
        let error = store.acquire(&Bid::new(&name, "h", LEASE), OP).unwrap_err();
        assert!(error.is_fatal(), "{error}");
    }
}

#[test]
fn one_round_trip_for_each_operation() {
    let server = Postgres::shared();
    let database = server.database();
    let proxy = Proxy::to(server.addr());
    let store = PostgresStore::builder(&database.dsn_through(proxy.port())).pool_size(1).build().unwrap();
    store.ensure_schema().unwrap();
    let count = |what: &str, call: &dyn Fn()| {
        proxy.reset_counters();
        call();
        assert_eq!(proxy.snapshot().round_trips, 1, "{what}");
        assert_eq!(proxy.snapshot().connections, 0, "{what}");
    };
    count("observe", &|| drop(store.observe("r", OP).unwrap()));
    count("create", &|| drop(create(&store, "r", "a")));
    count("observe", &|| drop(look(&store, "r")));
    let lease = look(&store, "r");
    count("renew", &|| assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some()));
    count("renew, lost", &|| assert!(store.renew(&renewal(&lease, "b"), OP).unwrap().is_none()));
    count("release", &|| store.release("r", "a", lease.fence(), OP).unwrap());
    let bid = Bid::new("r", "b", LEASE).over(Some(look(&store, "r").version()));
    count("take over", &|| assert!(store.acquire(&bid, OP).unwrap().is_some()));
    count("take over, lost", &|| assert!(store.acquire(&bid, OP).unwrap().is_none()));
}

#[test]
fn b24_renewals_are_all_hot() {
    // A server of its own: any transaction of another test would keep dead row versions alive.
    let server = Postgres::start_new();
    let database = server.database();
    let store = store(&database);
    let lease = create(&store, "hot", "a");
    let payload = [7_u8; 200];
    for i in 0..20_000 {
        let payload = (i % 2 == 0).then_some(&payload[..]);
        store.renew(&renewal(&lease, "a").payload(payload), OP).unwrap().unwrap();
    }
    drop(store);
    let mut client = database.client();
    let statistics =
        "SELECT n_tup_upd, n_tup_hot_upd, pg_table_size('leader_election') FROM pg_stat_user_tables";
    tenure_testground::await_until(OP, "the statistics of all updates", || {
        client.query_one(statistics, &[]).unwrap().get::<_, i64>(0) >= 20_000
    });
    let row = client.query_one(statistics, &[]).unwrap();
    assert_eq!(row.get::<_, i64>(0), row.get::<_, i64>(1), "all HOT");
    assert!(row.get::<_, i64>(2) <= 64 * 1024, "{} bytes", row.get::<_, i64>(2));
}

#[test]
fn rule_14_observing_and_losing_write_nothing() {
    let server = Postgres::start_new();
    let database = server.database();
    let store = store(&database);
    let old = create(&store, "w", "a").version();
    let lease = store.acquire(&Bid::new("w", "a", LEASE).over(Some(old.clone())), OP).unwrap().unwrap();
    let mut client = database.client();
    let mut next_xid = || -> String {
        client.query_one("SELECT pg_snapshot_xmax(pg_current_snapshot())::text", &[]).unwrap().get(0)
    };
    let before = next_xid();
    for _ in 0..20 {
        look(&store, "w");
        assert_eq!(store.acquire(&Bid::new("w", "b", LEASE), OP).unwrap(), None);
        assert_eq!(store.acquire(&Bid::new("w", "b", LEASE).over(Some(old.clone())), OP).unwrap(), None);
        assert_eq!(store.renew(&renewal(&lease, "b"), OP).unwrap(), None);
        store.release("w", "b", lease.fence(), OP).unwrap();
    }
    assert_eq!(next_xid(), before, "a transaction id was used");
}

#[test]
fn sixteen_bids_over_the_same_version_have_one_winner() {
    let database = Postgres::shared().database();
    let store = PostgresStore::builder(&database.dsn()).pool_size(16).build().unwrap();
    store.ensure_schema().unwrap();
    for round in 0..60 {
        let name = format!("race {}", round / 10);
        let version = store.observe(&name, OP).unwrap().into_lease().map(|lease| lease.version());
        let winners: usize = std::thread::scope(|scope| {
            let bid = |i: i32| {
                let (store, name, version) = (&store, &name, version.clone());
                scope.spawn(move || {
                    let holder = format!("{round}-{i}");
                    let bid = Bid::new(name, &holder, LEASE).over(version);
                    store.acquire(&bid, Duration::from_secs(20)).unwrap().is_some()
                })
            };
            let threads: Vec<_> = (0..16).map(bid).collect();
            threads.into_iter().filter(|_| true).map(|thread| usize::from(thread.join().unwrap())).sum()
        });
        assert_eq!(winners, 1, "round {round}");
        assert_eq!(look(&store, &name).fence().get(), round % 10 + 1);
    }
}
