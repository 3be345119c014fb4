//! The throw-away pooler does what it says.

use std::time::{Duration, Instant};
use tenure_testground::postgres::{Client, NoTls, SimpleQueryMessage};
use tenure_testground::{PgBouncer, Postgres, Proxy, await_until, is_running};

const SOON: Duration = Duration::from_secs(10);

fn simple(client: &mut Client, sql: &str) -> Result<String, tenure_testground::postgres::Error> {
    let messages = client.simple_query(sql)?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
        _ => None,
    });
    Ok(row.expect("a row"))
}

fn connect(dsn: &str) -> Client {
    Client::connect(dsn, NoTls).unwrap()
}

#[test]
fn it_passes_databases_and_named_users_on() {
    let server = Postgres::start_new();
    let database = server.database();
    server.create_role("app", "");
    let pooler = PgBouncer::in_front_of(&server);
    let mut client = connect(&database.dsn_through(pooler.port()));
    assert_eq!(simple(&mut client, "SELECT current_database()").unwrap(), database.name());
    assert!(Client::connect(&pooler.dsn_for("app", database.name()), NoTls).is_err());
    pooler.add_user("app");
    let mut client = connect(&pooler.dsn_for("app", database.name()));
    assert_eq!(simple(&mut client, "SELECT current_user").unwrap(), "app");
}

#[test]
fn the_pool_is_shared_between_transactions_and_no_larger_than_asked() {
    let server = Postgres::start_new();
    let pooler = PgBouncer::in_front_of(&server);
    let backends: std::collections::BTreeSet<String> = std::thread::scope(|scope| {
        let client = || {
            let mut client = connect(&pooler.dsn());
            (0..20).map(|_| simple(&mut client, "SELECT pg_backend_pid()").unwrap()).collect::<Vec<_>>()
        };
        let clients: Vec<_> = (0..6).map(|_| scope.spawn(client)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert!(!backends.is_empty() && backends.len() <= 2, "{backends:?}");
    let config = pooler.admin("SHOW CONFIG");
    let value = |key: &str| config.iter().find(|row| row["key"] == key).unwrap()["value"].clone();
    assert_eq!(
        ["pool_mode", "default_pool_size", "server_login_retry"].map(value),
        ["transaction", "2", "1"].map(str::to_owned)
    );
    assert_eq!(value("ignore_startup_parameters"), "");
}

#[test]
fn settings_are_passed_on() {
    let server = Postgres::start_new();
    let builder = PgBouncer::builder(server.port()).pool_size(5).pool_mode("session").server_login_retry(7);
    let pooler = builder.setting("query_wait_timeout", "33").start();
    let config = pooler.admin("SHOW CONFIG");
    let value = |key: &str| config.iter().find(|row| row["key"] == key).unwrap()["value"].clone();
    assert_eq!(
        ["default_pool_size", "pool_mode", "server_login_retry", "query_wait_timeout"].map(value),
        ["5", "session", "7", "33"].map(str::to_owned)
    );
}

#[test]
fn pause_holds_queries_back_until_resume() {
    let server = Postgres::start_new();
    let pooler = PgBouncer::in_front_of(&server);
    let mut client = connect(&pooler.dsn());
    simple(&mut client, "SELECT 1").unwrap();
    pooler.admin("PAUSE");
    let asking = std::thread::spawn(move || simple(&mut client, "SELECT 2").unwrap());
    std::thread::sleep(Duration::from_millis(300));
    assert!(!asking.is_finished());
    pooler.admin("RESUME");
    await_until(SOON, "the answer after RESUME", || asking.is_finished());
    assert_eq!(asking.join().unwrap(), "2");
    pooler.admin("RECONNECT");
}

#[test]
fn restart_closes_connections_and_keeps_the_port() {
    let server = Postgres::start_new();
    let pooler = PgBouncer::in_front_of(&server);
    let (port, pid) = (pooler.port(), pooler.pid());
    let mut client = connect(&pooler.dsn());
    pooler.restart();
    assert_eq!(pooler.port(), port);
    assert!(!is_running(pid));
    assert!(simple(&mut client, "SELECT 1").is_err());
    simple(&mut connect(&pooler.dsn()), "SELECT 1").unwrap();
    pooler.kill9();
    assert!(Client::connect(&pooler.dsn(), NoTls).is_err());
    pooler.start();
    simple(&mut connect(&pooler.dsn()), "SELECT 1").unwrap();
}

#[test]
fn a_stopped_pooler_answers_nothing() {
    let server = Postgres::start_new();
    let pooler = PgBouncer::in_front_of(&server);
    let mut client = connect(&pooler.dsn());
    pooler.pause_process();
    let asking = std::thread::spawn(move || simple(&mut client, "SELECT 1").unwrap());
    std::thread::sleep(Duration::from_millis(200));
    assert!(!asking.is_finished());
    pooler.resume_process();
    assert_eq!(asking.join().unwrap(), "1");
}

#[test]
fn it_can_be_pointed_at_another_server_and_go_through_a_proxy() {
    let (one, two) = (Postgres::start_new(), Postgres::start_new());
    let proxy = Proxy::to(one.addr());
    let pooler = PgBouncer::builder(proxy.port()).start();
    let mut client = connect(&pooler.dsn());
    assert_eq!(simple(&mut client, "SHOW port").unwrap(), one.port().to_string());
    assert!(proxy.snapshot().connections >= 1);
    pooler.retarget(two.port());
    pooler.admin("RECONNECT");
    await_until(SOON, "queries reach the other server", || {
        simple(&mut client, "SHOW port").is_ok_and(|port| port == two.port().to_string())
    });
}

#[test]
fn dropping_it_leaves_nothing_even_stopped() {
    let server = Postgres::start_new();
    let pooler = PgBouncer::in_front_of(&server);
    let pid = pooler.pid();
    pooler.pause_process();
    let begun = Instant::now();
    drop(pooler);
    assert!(!is_running(pid) && begun.elapsed() < SOON);
}
