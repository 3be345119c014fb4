//! Rule 12, the fenced commit: who may, who may not, and what is left behind.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use tenure::{
    AnyStore, Bid, CommitError, Config, Elector, LeaderGuard, LossCause, MemoryStore, PostgresStore, Store,
    StoreError,
};
use tenure_testground::postgres::{Client, IsolationLevel, NoTls, Transaction};
use tenure_testground::{Database, PgBouncer, Postgres, Proxy, await_until};

use crate::pooler::FOREIGN_OPERATORS;
use crate::{LEASE, OP, create, look, store};

pub(crate) const WORK: &str = "CREATE TABLE work (id serial PRIMARY KEY, note text, at timestamptz)";

/// With the defaults, so that no renewal disturbs a short test.
pub(crate) fn lead(store: impl Store, name: &str) -> LeaderGuard {
    let config = Config::builder(name).build().unwrap();
    Elector::start(store, config).unwrap().wait_for_leadership_timeout(OP).unwrap()
}

pub(crate) fn write<'a>(db: &'a mut Client, note: &str) -> Transaction<'a> {
    let mut transaction = db.transaction().unwrap();
    transaction.execute("INSERT INTO work (note) VALUES ($1)", &[&note]).unwrap();
    transaction
}

/// As the simple protocol does: without a prepared statement, in whatever path.
fn write_simply(db: &mut Client) -> Transaction<'_> {
    let mut transaction = db.transaction().unwrap();
    transaction.batch_execute("INSERT INTO public.work (note) VALUES ('x')").unwrap();
    transaction
}

fn write_at(db: &mut Client, level: IsolationLevel) -> Transaction<'_> {
    let mut transaction = db.build_transaction().isolation_level(level).start().unwrap();
    transaction.execute("INSERT INTO work (note) VALUES ('x')", &[]).unwrap();
    transaction
}

pub(crate) fn written(database: &Database<'_>) -> i64 {
    database.client().query_one("SELECT count(*) FROM work", &[]).unwrap().get(0)
}

/// Waits until another session of the database shows this in `pg_stat_activity`.
pub(crate) fn await_session(database: &Database<'_>, what: &str) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid() AND {what}"
    );
    let mut watch = database.client();
    await_until(OP, what, || watch.query_one(&sql, &[]).unwrap().get::<_, i64>(0) > 0);
}

/// Nothing was committed, for a reason that is not the term's.
#[track_caller]
fn refused(result: Result<(), CommitError>) -> StoreError {
    match result {
        Err(CommitError::NotCommitted(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn cause(result: Result<(), CommitError>) -> LossCause {
    match result {
        Err(CommitError::Stale(lost)) => lost.cause,
        other => panic!("{other:?}"),
    }
}

#[test]
fn rule_12_the_leader_commits_and_leaves_nothing_in_its_session() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    let guard = lead(store(&database), "it's \\ \"mine\"");
    let mut db = database.client();
    let settings = "SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'),
                           (SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'WITH settings%')";
    for turn in 1..=3 {
        guard.commit(write(&mut db, "a")).unwrap();
        assert_eq!(written(&database), turn);
        let row = db.query_one(settings, &[]).unwrap();
        assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1), row.get::<_, i64>(2)), ("0", "0", 0));
    }
    guard.check().unwrap();
    guard.resign().unwrap();
}

/// Whatever a store is wrapped in, the term knows where its lease is.
#[test]
fn rule_12_the_leader_commits_through_any_store() {
    let database = Postgres::shared().database();
    store(&database);
    database.execute(WORK);
    let mut db = database.client();
    let url = AnyStore::open(&database.dsn()).unwrap();
    let shared: Arc<dyn Store> = Arc::new(store(&database));
    let guards = [lead(url.clone(), "by-url"), lead(shared, "shared"), lead(Arc::new(url), "both")];
    for guard in &guards {
        guard.commit(write(&mut db, "x")).unwrap();
    }
    assert_eq!(written(&database), 3);
}

/// What the documentation warns of: a savepoint that is rolled back takes the lock with it. Given the outermost
/// transaction, the check holds to its end.
#[test]
fn rule_12_the_check_lasts_as_long_as_the_transaction_that_it_was_given() {
    let database = Postgres::shared().database();
    let other = store(&database);
    database.execute(WORK);
    let guard = lead(store(&database), "e");
    let mut db = database.client();
    let seen = other.observe("e", OP).unwrap().into_lease().unwrap();
    let short = Duration::from_millis(300);
    let taken = || other.acquire(&Bid::new("e", "h", LEASE).over(Some(seen.version())), short);
    let mut outer = write(&mut db, "x");
    guard.verify(&mut outer).unwrap();
    drop(outer.transaction().unwrap());
    assert!(taken().unwrap_err().is_retryable(), "the row is locked, whatever becomes of a later savepoint");
    drop(outer);
    let mut outer = write(&mut db, "x");
    let mut nested = outer.transaction().unwrap();
    guard.verify(&mut nested).unwrap();
    drop(nested);
    assert!(taken().unwrap().is_some(), "nobody has the row any more");
    drop(outer);
    assert_eq!(written(&database), 0);
}

#[test]
fn a_fenced_commit_is_one_round_trip_more_than_a_commit() {
    let server = Postgres::shared();
    let database = server.database();
    database.execute(WORK);
    let guard = lead(store(&database), "a");
    let [plain, fenced] = [false, true].map(|fenced| {
        let proxy = Proxy::to(server.addr());
        let mut db = Client::connect(&database.dsn_through(proxy.port()), NoTls).unwrap();
        for _ in 0..10 {
            let transaction = write_simply(&mut db);
            if fenced { guard.commit(transaction).unwrap() } else { transaction.commit().unwrap() }
        }
        proxy
    });
    // A reply is counted a moment after it is passed on.
    let trips = |proxy: &Proxy| proxy.snapshot().round_trips;
    await_until(OP, "ten more", || trips(&fenced) == trips(&plain) + 10);
}

#[test]
fn rule_12_a_stale_leader_commits_nothing_and_learns_that_it_is_one() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    let store = store(&database);
    let mut db = database.client();
    for (case, sql) in [
        ("superseded", "UPDATE leader_election SET holder = 'b', fence = fence + 1"),
        ("released", "UPDATE leader_election SET expires_at = 'epoch'"),
        ("expired, and nobody came", "UPDATE leader_election SET expires_at = clock_timestamp()"),
        ("deleted", "DELETE FROM leader_election"),
        ("another holder", "UPDATE leader_election SET holder = holder || 'x'"),
        ("another fence", "UPDATE leader_election SET fence = fence + 1"),
        ("a lower fence", "UPDATE leader_election SET fence = fence - 1"),
    ] {
        let guard = lead(store.clone(), case);
        let transaction = write(&mut db, case);
        assert_eq!(database.client().execute(&format!("{sql} WHERE name = '{case}'"), &[]).unwrap(), 1);
        let error = guard.commit(transaction).unwrap_err();
        let CommitError::Stale(lost) = &error else { panic!("{case}: {error:?}") };
        assert_eq!((lost.fence, lost.cause), (guard.fence(), LossCause::Superseded), "{case}");
        assert_eq!(error.to_string(), "not committed, the term is over", "{case}");
        assert_eq!(error.source().unwrap().to_string(), lost.to_string(), "{case}");
        // Rule 5: told so once, told so always, and those who wait hear of it before the next renewal.
        assert_eq!(guard.check(), Err(*lost), "{case}");
        assert_eq!(guard.lost().recv_timeout(Duration::from_secs(2)), Ok(*lost), "{case}");
        assert_eq!(cause(guard.term().commit(write(&mut db, case))), LossCause::Superseded, "{case}");
    }
    assert_eq!(written(&database), 0);
}

#[test]
fn rule_12_only_its_own_row_counts() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    let store = store(&database);
    // The row of another election, and one of another holder under its name in another table.
    let guard = lead(store.clone(), "a");
    database.execute("CREATE TABLE other (LIKE leader_election INCLUDING ALL)");
    database.execute("UPDATE leader_election SET name = 'b' WHERE name = 'a'");
    create(&store, "a", "somebody");
    let named = PostgresStore::builder(&database.dsn()).table("other").build().unwrap();
    let elsewhere = lead(named, "a");
    let mut db = database.client();
    assert_eq!(cause(guard.commit(write(&mut db, "x"))), LossCause::Superseded);
    elsewhere.commit(write(&mut db, "y")).unwrap();
    assert_eq!(written(&database), 1);
}

#[test]
fn rule_12_another_database_refuses() {
    let server = Postgres::shared();
    let (here, with_table, bare) = (server.database(), server.database(), server.database());
    for database in [&with_table, &bare] {
        database.execute(WORK);
    }
    create(&store(&with_table), "a", "somebody");
    let guard = lead(store(&here), "a");
    let error = refused(guard.commit(write(&mut bare.client(), "x")));
    assert!(error.is_fatal() && error.sqlstate() == Some("42P01"), "{error}");
    assert!(error.to_string().contains(r#""public"."leader_election""#), "{error}");
    guard.check().expect("nothing was learned about the term");
    assert_eq!(cause(guard.commit(write(&mut with_table.client(), "x"))), LossCause::Superseded);
    assert_eq!((written(&with_table), written(&bare)), (0, 0));
}

#[test]
fn rule_12_a_term_that_is_over_here_does_not_ask() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    let guard = lead(store(&database), "a");
    let term = guard.term();
    let mut db = database.client();
    // The row would say yes.
    guard.resign().unwrap();
    database.execute("UPDATE leader_election SET expires_at = clock_timestamp() + '1 hour'");
    assert_eq!(cause(term.commit(write(&mut db, "x"))), LossCause::Resigned);
    let mut transaction = write(&mut db, "x");
    assert_eq!(cause(term.verify(&mut transaction)), LossCause::Resigned);
    drop(transaction);
    assert_eq!(written(&database), 0);
}

#[test]
fn what_is_not_the_terms_fault_says_nothing_about_the_term() {
    let server = Postgres::shared();
    let database = server.database();
    database.execute(WORK);
    let guard = lead(store(&database), "a");
    let mut db = database.client();

    let mut aborted = write(&mut db, "x");
    aborted.batch_execute("SELECT 1 / 0").unwrap_err();
    assert_eq!(
        refused(guard.commit(aborted)).sqlstate(),
        Some("25P02"),
        "the driver alone says that it committed"
    );

    let mut read_only = db.build_transaction().read_only(true).start().unwrap();
    assert_eq!(refused(guard.verify(&mut read_only)).sqlstate(), Some("25006"));
    drop(read_only);

    let error = refused(lead(MemoryStore::new(), "a").commit(write(&mut db, "x")));
    assert!(error.is_fatal() && error.to_string().contains("not in a table of PostgreSQL"), "{error}");

    guard.check().unwrap();
    guard.commit(write(&mut db, "y")).unwrap();
    assert_eq!(written(&database), 1);
}

#[test]
fn the_role_needs_what_an_elector_needs() {
    let server = Postgres::start_new();
    let database = server.database();
    database.execute(WORK);
    server.create_role("app", "");
    let guard = lead(store(&database), "a");
    database.execute("GRANT ALL ON work, work_id_seq TO app; GRANT SELECT, INSERT ON leader_election TO app");
    let mut db = Client::connect(&database.dsn_for("app"), NoTls).unwrap();
    let error = refused(guard.commit(write(&mut db, "x")));
    assert!(error.is_fatal() && error.sqlstate() == Some("42501"), "{error}");
    assert!(error.to_string().contains("SELECT, INSERT and UPDATE"), "{error}");
    database.execute("GRANT UPDATE ON leader_election TO app");
    guard.commit(write(&mut db, "y")).unwrap();
    assert_eq!(written(&database), 1);
}

/// What the server does at the end of a transaction that wrote this.
const AT_THE_END: &str = "
    CREATE FUNCTION at_the_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.note = 'fail' THEN RAISE 'no' USING ERRCODE = '23514'; END IF;
        IF NEW.note = 'die' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
        IF NEW.note = 'dawdle' THEN PERFORM pg_sleep(0.5); END IF;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER at_the_end AFTER INSERT ON work DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION at_the_end()";

#[test]
fn a_commit_that_fails_is_told_from_one_that_is_not_answered() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    database.execute(AT_THE_END);
    let guard = lead(store(&database), "a");
    let mut db = database.client();
    let error = guard.commit(write(&mut db, "fail")).unwrap_err();
    assert_eq!((&*error.to_string(), error.source().is_some()), ("not committed", true));
    let error = refused(Err(error));
    assert_eq!(error.to_string(), "the database refused to commit: no (SQLSTATE 23514)");
    let error = guard.commit(write(&mut db, "die")).unwrap_err();
    assert!(matches!(&error, CommitError::Unknown(why) if why.is_retryable()), "{error:?}");
    assert_eq!(
        (&*error.to_string(), error.source().is_some()),
        ("whether it was committed is unknown", true)
    );
    assert_eq!(written(&database), 0);

    let proxy = Proxy::to(database.server().addr());
    let mut db = Client::connect(&database.dsn_through(proxy.port()), NoTls).unwrap();
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| guard.commit(write(&mut db, "dawdle")));
        await_session(&database, "query = 'COMMIT' AND wait_event = 'PgSleep'");
        proxy.reset_all();
        let error = commit.join().unwrap().unwrap_err();
        assert!(matches!(&error, CommitError::Unknown(why) if why.is_retryable()), "{error:?}");
    });
    await_until(OP, "the server does what it was asked for", || written(&database) == 1);
    guard.check().unwrap();
}

#[test]
fn older_snapshots_are_refused_and_can_be_repeated() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    let store = store(&database);
    let mut db = database.client();
    for (name, level) in [("rr", IsolationLevel::RepeatableRead), ("ser", IsolationLevel::Serializable)] {
        // The snapshot is older than the lease.
        let transaction = write_at(&mut db, level);
        let guard = lead(store.clone(), name);
        let error = refused(guard.commit(transaction));
        assert!(error.is_retryable() && error.sqlstate() == Some("40001"), "{error}");
        guard.check().expect("it is not the term that is stale");
        // Older than the last renewal.
        let transaction = write_at(&mut db, level);
        guard.publish("renewed").unwrap();
        let error = refused(guard.commit(transaction));
        assert!(error.is_retryable() && error.sqlstate() == Some("40001"), "{error}");
        guard.check().expect("nor now");
        // The same work once more.
        guard.commit(write_at(&mut db, level)).unwrap();
        // Younger than the end of the term.
        database.execute(&format!("UPDATE leader_election SET fence = fence + 1 WHERE name = '{name}'"));
        assert_eq!(cause(guard.commit(write_at(&mut db, level))), LossCause::Superseded);
    }
    assert_eq!(written(&database), 2);
}

#[test]
fn rule_13_through_a_transaction_pooler() {
    let server = Postgres::shared();
    let database = server.database();
    database.execute(WORK);
    let direct = store(&database);
    let pooler = PgBouncer::in_front_of(server);
    let dsn = pooler.dsn_for("postgres", database.name());
    let guards: Vec<_> = (0..4).map(|n| lead(direct.clone(), &format!("p{n}"))).collect();
    std::thread::scope(|scope| {
        for guard in &guards {
            let dsn = &dsn;
            scope.spawn(move || {
                let mut db = Client::connect(dsn, NoTls).unwrap();
                for _ in 0..100 {
                    guard.commit(write_simply(&mut db)).unwrap();
                }
            });
        }
    });
    assert_eq!(written(&database), 400);
    let mut db = Client::connect(&dsn, NoTls).unwrap();
    database.execute("UPDATE leader_election SET fence = fence + 1");
    for guard in &guards {
        assert_eq!(cause(guard.commit(write_simply(&mut db))), LossCause::Superseded);
    }
    assert_eq!(written(&database), 400);
}

#[test]
fn b22_a_foreign_search_path_in_the_callers_session_slips_nothing_in() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    database.execute(FOREIGN_OPERATORS);
    // In `evil` the lease would be everybody's.
    database.execute(
        "CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
             $$ SELECT '-infinity'::timestamptz $$;
         CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT NULL::text $$;
         CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT '1ms' $$;
         CREATE TABLE evil.leader_election (name text)",
    );
    let store = store(&database);
    for path in ["pg_catalog,evil", "evil,pg_catalog"] {
        let guard = lead(store.clone(), path);
        let limit = "-cidle_in_transaction_session_timeout%3D1min";
        let dsn = format!("{}?options=-csearch_path%3D{path}%20{limit}", database.dsn());
        let mut db = Client::connect(&dsn, NoTls).unwrap();
        let mut transaction = write_simply(&mut db);
        guard.verify(&mut transaction).unwrap();
        let set = "SELECT pg_catalog.current_setting('lock_timeout')";
        assert_eq!(transaction.query_one(set, &[]).unwrap().get::<_, &str>(0), "0", "{path}");
        guard.commit(transaction).unwrap();
        database.execute(&format!(
            "UPDATE leader_election SET expires_at = clock_timestamp() WHERE name = '{path}'"
        ));
        assert_eq!(cause(guard.commit(write_simply(&mut db))), LossCause::Superseded, "{path}");
    }
    assert_eq!(written(&database), 2);
}

#[test]
fn a_lease_that_is_committed_under_is_not_changed() {
    let database = Postgres::shared().database();
    database.execute(WORK);
    let store = store(&database);
    let guard = lead(store.clone(), "a");
    let before = look(&store, "a");
    guard.commit(write(&mut database.client(), "x")).unwrap();
    assert_eq!(look(&store, "a").version(), before.version(), "a candidate sees no change");
    assert!(before.length() == LEASE);
    assert_eq!(store.lease_table().as_deref(), Some(r#""public"."leader_election""#));
    assert_eq!(std::sync::Arc::new(store).lease_table(), Some(r#""public"."leader_election""#.to_owned()));
}
