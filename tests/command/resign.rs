//! `resign`: a leader that an operator deposes, and what is refused.

use std::time::{Duration, Instant};

use tenure::{LossCause, SqliteStore, Store};
use tenure_testground::{PgBouncer, Postgres};

use crate::{LIMIT, OP, create, elector, store, tenure};

const LEASE: Duration = Duration::from_secs(600);

/// Two electors; the leader is deposed through `url`.
fn depose(url: &str, database: &tenure_testground::Database<'_>, extra: &[&str]) {
    let store = store(database);
    let (first, second) = (elector(&store, "n", "first"), elector(&store, "n", "second"));
    let guard = first.wait_for_leadership_timeout(LIMIT).unwrap();
    let term = guard.term();
    let waiting = std::thread::spawn(move || {
        let guard = second.wait_for_leadership_timeout(LIMIT).unwrap();
        (Instant::now(), term.is_leader(), guard.fence(), guard)
    });
    // The other one has seen the leader before.
    let deposed_at = Instant::now();
    let ended = tenure(url, &[&["resign", "--election", "n", "--yes"], extra].concat());
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    let said = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let fence = guard.fence();
    for words in
        ["first-", &format!("(fence {fence}) steps down"), "nobody leads \"n\" for ", "until about 2"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    let row = store.observe("n", OP).unwrap().into_lease().unwrap();
    if row.holder().starts_with("operator-") {
        assert!(!row.is_released() && row.length() == Duration::from_secs(3), "{row:?}");
    }
    let lost = guard.lost().recv_timeout(LIMIT).unwrap();
    assert_eq!(lost.cause, LossCause::Superseded);
    let (elected_at, both, fence, _second) = waiting.join().unwrap();
    assert!(!both, "two leaders");
    // The operator's term has the fence between.
    assert!(fence.get() > guard.fence().get() + 1, "{fence:?}");
    let waited = elected_at - deposed_at;
    assert!(waited > Duration::from_millis(2_900), "the old leader might have gone on for: {waited:?}");
    assert!(waited < LIMIT);
}

#[test]
fn the_leader_steps_down_and_another_leads_one_lease_later() {
    let database = Postgres::shared().database();
    depose(&database.dsn(), &database, &[]);
}

#[test]
fn through_a_pooler_and_by_its_fence() {
    let database = Postgres::shared().database();
    let pooler = PgBouncer::in_front_of(database.server());
    depose(&pooler.dsn_for("postgres", database.name()), &database, &["--fence", "1"]);
}

#[test]
fn the_payload_is_kept_and_the_operator_is_named() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let bid = tenure::Bid::new("n", "web-0", LEASE).payload(Some(b"10.0.0.7"));
    let before = store.acquire(&bid, OP).unwrap().unwrap();
    let mut command = crate::command(&database.dsn(), &["resign", "--election", "n", "--yes"]);
    let ended = crate::Ended::of(command.env("USER", "alice").output().unwrap());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let row = store.observe("n", OP).unwrap().into_lease().unwrap();
    assert!(row.holder().starts_with("operator-alice@"), "{row:?}");
    assert_eq!((row.payload(), row.length()), (before.payload(), before.length()));
    assert_eq!(row.fence().get(), before.fence().get() + 1);
    assert!(crate::fine(&database.dsn(), &["status"]).contains("  deposed  "));
    let again = tenure(&database.dsn(), &["resign", "--election", "n", "--yes"]);
    again.complains(1, &["nobody leads \"n\"", "operator-alice@", "are left to wait"]);
    let unchanged = store.observe("n", OP).unwrap().into_lease().unwrap();
    assert_eq!(unchanged.version(), row.version(), "the wait does not begin again");
}

#[test]
fn a_leader_in_a_file_can_be_deposed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lease.db");
    let store = SqliteStore::open(&path).unwrap();
    store.ensure_schema().unwrap();
    let lease = create(&store, "n", "web-0", LEASE);
    let url = format!("sqlite:{}", path.display());
    assert_eq!(tenure(&url, &["resign", "--election", "n", "--yes"]).code, Some(0));
    let renewal = tenure::Renewal::new("n", "web-0", lease.fence(), LEASE);
    assert_eq!(store.renew(&renewal, OP).unwrap(), None, "its next renewal no longer matches");
}

#[test]
fn where_there_is_nothing_to_do_nothing_is_done() {
    let database = Postgres::shared().database();
    let store = store(&database);
    let resign = |name: &str, more: &[&str]| {
        tenure(&database.dsn(), &[&["resign", "--election", name], more].concat())
    };
    resign("n", &["--yes"]).complains(1, &["nobody has ever led \"n\"", "tenure status"]);
    let lease = create(&store, "n", "web-0", LEASE);
    let unchanged =
        || assert_eq!(store.observe("n", OP).unwrap().lease().unwrap().version(), lease.version());
    resign("n", &[]).complains(1, &["stdin is no terminal", "--yes"]);
    unchanged();
    resign("n", &["--yes", "--fence", "2"]).complains(1, &["the fence is 1, not 2, held by web-0"]);
    unchanged();
    store.release("n", "web-0", lease.fence(), OP).unwrap();
    resign("n", &["--yes"]).complains(1, &["nobody leads \"n\"", "web-0 has released"]);
    create(&store, "short", "web-1", Duration::from_millis(1));
    resign("short", &["--yes"]).complains(1, &["the lease of web-1 is over"]);
}

#[test]
fn an_answer_that_did_not_come_is_called_unknown() {
    let database = Postgres::shared().database();
    create(&store(&database), "n", "web-0", LEASE);
    database.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_catalog.pg_sleep(5); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE UPDATE ON leader_election FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let ended = tenure(&database.dsn(), &["resign", "--election", "n", "--yes", "--operation-timeout", "1s"]);
    ended.complains(125, &["hint: it may have happened, or still happen: `tenure status`"]);
}
