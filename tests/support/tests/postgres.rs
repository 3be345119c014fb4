//! The throw-away server does what it says.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tenure_testground::postgres::{Client, NoTls};
use tenure_testground::{Postgres, await_until, is_running};

const SOON: Duration = Duration::from_secs(10);

fn number(client: &mut Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).unwrap().get(0)
}

fn text(client: &mut Client, sql: &str) -> String {
    client.query_one(sql, &[]).unwrap().get(0)
}

#[test]
fn it_answers_on_tcp_and_on_its_socket() {
    let server = Postgres::start_new();
    assert_eq!(number(&mut server.client(), "SELECT 1::bigint"), 1);
    let mut by_socket = Client::connect(&server.socket_dsn_for("postgres", "postgres"), NoTls).unwrap();
    assert_eq!(text(&mut by_socket, "SHOW data_directory"), server.data_dir().display().to_string());
    assert!(UnixStream::connect(server.socket_dir().join(format!(".s.PGSQL.{}", server.port()))).is_ok());
}

#[test]
fn settings_environment_roles_and_databases() {
    let server = Postgres::builder().setting("work_mem", "5MB").fsync(true).env("TZ", "Asia/Tokyo").start();
    assert_eq!(text(&mut server.client(), "SHOW work_mem"), "5MB");
    assert_eq!(text(&mut server.client(), "SHOW fsync"), "on");
    let environment = std::fs::read(format!("/proc/{}/environ", server.pid()));
    if let Ok(environment) = environment {
        assert!(String::from_utf8_lossy(&environment).contains("TZ=Asia/Tokyo"));
    }
    server.create_role("app", "NOINHERIT");
    let (one, two) = (server.database(), server.create_database("od\u{e9}"));
    one.execute("CREATE TABLE only_here (i int); GRANT SELECT ON only_here TO app");
    let mut app = Client::connect(&one.dsn_for("app"), NoTls).unwrap();
    assert_eq!(number(&mut app, "SELECT count(*) FROM only_here"), 0);
    assert!(two.client().query("SELECT * FROM only_here", &[]).is_err());
}

#[test]
fn a_paused_server_answers_nothing_until_it_is_resumed() {
    let server = Postgres::start_new();
    let mut client = server.client();
    server.pause();
    let states =
        server.pids().into_iter().map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap());
    let states: Vec<String> = states.collect();
    assert!(states.len() > 5 && states.iter().all(|stat| stat.contains(") T ")), "{states:#?}");
    let asking = std::thread::spawn(move || number(&mut client, "SELECT 2::bigint"));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!asking.is_finished(), "a stopped server has answered");
    server.resume();
    await_until(SOON, "the answer comes after the resumption", || asking.is_finished());
    assert_eq!(asking.join().unwrap(), 2);
}

#[test]
fn a_crash_ends_every_process_and_the_data_survive_it() {
    let server = Postgres::start_new();
    server.execute("CREATE TABLE t AS SELECT 7::bigint AS n");
    let (pids, port) = (server.pids(), server.port());
    let mut client = server.client();
    server.kill9();
    assert!(pids.iter().all(|pid| !is_running(*pid)));
    assert!(client.simple_query("SELECT 1").is_err());
    server.start();
    assert_eq!(server.port(), port);
    assert_eq!(number(&mut server.client(), "SELECT n FROM t"), 7);
    assert!(server.log().contains("automatic recovery in progress"), "{}", server.log());
}

#[test]
fn a_paused_server_can_crash_too() {
    let server = Postgres::start_new();
    let pids = server.pids();
    server.pause();
    server.kill9();
    assert!(pids.iter().all(|pid| !is_running(*pid)));
    server.start();
    server.client();
}

#[test]
fn stops_and_restarts_keep_the_port() {
    let server = Postgres::start_new();
    let (port, pid) = (server.port(), server.pid());
    server.restart();
    assert_ne!(server.pid(), pid);
    assert_eq!(server.port(), port);
    server.stop_immediate();
    assert!(Client::connect(&server.dsn(), NoTls).is_err());
    server.start();
    server.client();
    assert_eq!(server.log().matches("received fast shutdown request").count(), 1);
    assert_eq!(server.log().matches("received immediate shutdown request").count(), 1);
}

#[test]
fn a_stop_that_takes_too_long_is_a_crash() {
    let server = Postgres::start_new();
    server.stop_within(SOON, false);
    server.start();
    server.stop_within(SOON, true);
    server.start();
    assert_eq!(server.log().matches("received fast shutdown request").count(), 1);
    assert_eq!(server.log().matches("received immediate shutdown request").count(), 1);
    let pids = server.pids();
    server.pause();
    server.stop_within(Duration::from_millis(100), false);
    assert!(pids.iter().all(|pid| !is_running(*pid)));
    server.start();
    assert_eq!(server.log().matches("received fast shutdown request").count(), 1);
}

#[test]
fn a_standby_follows_and_is_promoted_to_the_next_timeline() {
    let primary = Postgres::start_new();
    let standby = Postgres::standby_of(&primary);
    assert!(standby.is_in_recovery());
    primary.execute("CREATE TABLE t AS SELECT 7::bigint AS n");
    primary.await_replay(&standby);
    assert_eq!(number(&mut standby.client(), "SELECT n FROM t"), 7);
    let sender = text(&mut primary.client(), "SELECT application_name FROM pg_stat_replication");
    assert_eq!(sender, standby.cluster_name());
    primary.kill9();
    standby.promote();
    standby.execute("INSERT INTO t VALUES (8)");
    let timeline = text(&mut standby.client(), "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)");
    assert_eq!(timeline, "00000002");
}

#[test]
fn several_servers_at_once_share_nothing() {
    let servers: Vec<Postgres> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..3).map(|_| scope.spawn(Postgres::start_new)).collect();
        starting.into_iter().map(|server| server.join().unwrap()).collect()
    });
    for (i, server) in servers.iter().enumerate() {
        server.execute(&format!("CREATE TABLE t AS SELECT {i}::bigint AS n"));
    }
    servers[1].kill9();
    for i in [0, 2] {
        assert_eq!(number(&mut servers[i].client(), "SELECT n FROM t"), i as i64);
    }
}

#[test]
fn the_shared_server_gives_each_test_its_own_database() {
    let shared = Postgres::shared();
    let begun = Instant::now();
    let (one, two) = (shared.database(), shared.database());
    assert!(begun.elapsed() < SOON);
    assert_ne!(one.name(), two.name());
    one.execute("CREATE TABLE t (i int)");
    two.execute("CREATE TABLE t (i int)");
    assert_eq!(Postgres::shared().pid(), shared.pid());
}

#[test]
fn dropping_it_leaves_nothing_also_in_a_panic_or_paused() {
    let seen = std::sync::Mutex::new(Vec::new());
    let note = |server: &Postgres| seen.lock().unwrap().push((server.pids(), server.socket_dir().to_owned()));
    std::thread::scope(|scope| {
        let panicking = scope.spawn(|| {
            let server = Postgres::start_new();
            note(&server);
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(panicking.join().is_err());
        scope.spawn(|| {
            let server = Postgres::start_new();
            server.pause();
            note(&server);
        });
        scope.spawn(|| {
            let server = Postgres::start_new();
            note(&server);
            server.kill9();
        });
    });
    for (pids, dir) in seen.into_inner().unwrap() {
        assert!(pids.len() > 5);
        await_until(SOON, "every process of the server is gone", || !pids.iter().any(|pid| is_running(*pid)));
        assert!(!dir.exists(), "{} is left", dir.display());
    }
}
