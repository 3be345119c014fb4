//! B18: what was acknowledged is still there after a crash, whatever the role's settings say.

use tenure::{Bid, PostgresStore, Store};
use tenure_testground::Postgres;

use crate::{LEASE, OP, create, look, store};

#[test]
fn b18_an_acknowledged_take_over_survives_a_crash() {
    let server = Postgres::builder().fsync(true).setting("wal_writer_delay", "10s").start();
    let database = server.database();
    let lease = create(&store(&database), "d", "old");
    for setting in ["off", "local"] {
        server.create_role(setting, "");
        database.execute(&format!("GRANT SELECT, INSERT, UPDATE ON leader_election TO \"{setting}\""));
        server.execute(&format!("ALTER ROLE \"{setting}\" SET synchronous_commit = {setting}"));
        let store = PostgresStore::connect(&database.dsn_for(setting)).unwrap();
        let version = look(&store, "d").version();
        server.execute("CHECKPOINT");
        let taken = store.acquire(&Bid::new("d", setting, LEASE).over(Some(version)), OP).unwrap().unwrap();
        server.kill9();
        server.start();
        let after = look(&store, "d");
        assert_eq!(after.version(), taken.version(), "lost with synchronous_commit = {setting}");
        assert!(after.fence() > lease.fence());
    }
}

#[test]
fn rule_16_settings_are_raised_for_the_statement_and_never_lowered() {
    let database = Postgres::shared().database();
    let store = PostgresStore::builder(&database.dsn()).pool_size(1).build().unwrap();
    store.ensure_schema().unwrap();
    // What the statement's own transaction sees, as a trigger finds it.
    database.execute(
        "CREATE TABLE seen (setting text);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.seen VALUES (current_setting('synchronous_commit'));
             RETURN NEW; END $$;
         CREATE TRIGGER note AFTER INSERT OR UPDATE ON leader_election FOR EACH ROW EXECUTE FUNCTION note()",
    );
    for (setting, expected) in [
        ("off", "on"),
        ("local", "on"),
        ("on", "on"),
        ("remote_write", "remote_write"),
        ("remote_apply", "remote_apply"),
    ] {
        let name = database.name();
        database.execute(&format!("ALTER DATABASE {name} SET synchronous_commit = {setting}; TRUNCATE seen"));
        let store = PostgresStore::builder(&database.dsn()).pool_size(1).build().unwrap();
        let lease = create(&store, setting, "a");
        store.renew(&crate::renewal(&lease, "a"), OP).unwrap().unwrap();
        let bid = Bid::new(setting, "b", LEASE).over(Some(look(&store, setting).version()));
        let taken = store.acquire(&bid, OP).unwrap().unwrap();
        store.release(setting, "b", taken.fence(), OP).unwrap();
        let seen = database.client().query("SELECT setting FROM seen", &[]).unwrap();
        let seen: Vec<String> = seen.iter().map(|row| row.get(0)).collect();
        assert_eq!(seen, vec![expected; 4], "{setting}");
    }
}
