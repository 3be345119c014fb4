//! Rule 7: whatever the network and the server do, a call is back within its timeout and a little.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use tenure::{PostgresStore, Store};
use tenure_testground::{Database, Mode, MuteListener, Postgres, Proxy, mute_listener, syn_black_hole};

use crate::{OP, SLACK, create, look, operations, renewal, store, timed};

const TIMEOUT: Duration = Duration::from_millis(400);

/// All four operations fail as time-outs, in time.
pub(crate) fn all_time_out(what: &str, store: &PostgresStore) {
    for (operation, result, took) in operations(store, TIMEOUT) {
        let error = result.expect_err(operation);
        assert!(error.is_timeout() && error.is_retryable(), "{what}, {operation}: {error}");
        assert!(took < TIMEOUT + SLACK, "{what}, {operation}: {took:?}");
        assert!(took >= TIMEOUT - Duration::from_millis(5), "{what}, {operation} gave up early: {took:?}");
    }
}

pub(crate) fn recovers(what: &str, store: &PostgresStore) {
    let (result, took) = timed(|| store.observe("bound", OP));
    result.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(took < Duration::from_secs(5), "{what}: {took:?}");
}

#[test]
fn a_server_that_is_stopped() {
    let server = Postgres::start_new();
    let database = server.database();
    let open = store(&database);
    let cold = PostgresStore::connect(&database.dsn()).unwrap();
    let by_socket = PostgresStore::connect(&database.socket_dsn()).unwrap();
    let cold_by_socket = PostgresStore::connect(&database.socket_dsn()).unwrap();
    by_socket.observe("bound", OP).unwrap();
    server.pause();
    all_time_out("open connections", &open);
    all_time_out("new connections", &cold);
    all_time_out("open socket", &by_socket);
    all_time_out("new socket", &cold_by_socket);
    let (error, took) = timed(|| open.ensure_schema().unwrap_err());
    assert!(error.is_timeout() && took < Duration::from_secs(10) + SLACK, "{took:?}: {error}");
    let ((), took) = timed(|| drop((open, by_socket)));
    assert!(took < Duration::from_millis(100), "dropping took {took:?}");
    server.resume();
    recovers("after SIGCONT", &cold);
    recovers("after SIGCONT, by socket", &cold_by_socket);
}

#[test]
fn peers_that_never_answer() {
    let mute = mute_listener();
    let store = |port| PostgresStore::connect(&format!("host=127.0.0.1 user=x port={port}")).unwrap();
    all_time_out("accepts and says nothing", &store(mute.port()));
    let hole = syn_black_hole();
    all_time_out("swallows connects", &store(hole.port()));
}

#[test]
fn a_path_that_fails_under_an_open_connection() {
    let server = Postgres::shared();
    let database = server.database();
    store(&database);
    let modes = [Mode::BlackHole, Mode::SwallowReplies, Mode::HoldRequests, Mode::Throttle(20)];
    for mode in modes {
        let proxy = Proxy::to(server.addr());
        let store = PostgresStore::connect(&database.dsn_through(proxy.port())).unwrap();
        store.observe("bound", OP).unwrap();
        proxy.set(mode);
        all_time_out(&format!("{mode:?}"), &store);
        proxy.set(Mode::Pass);
        recovers(&format!("{mode:?}"), &store);
    }
}

#[test]
fn a_reset_is_survived_by_one_fresh_connection() {
    let server = Postgres::shared();
    let database = server.database();
    let proxy = Proxy::to(server.addr());
    let store = PostgresStore::connect(&database.dsn_through(proxy.port())).unwrap();
    store.ensure_schema().unwrap();
    let lease = create(&store, "r", "a");
    for _ in 0..3 {
        proxy.reset_all();
        assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
        proxy.close_all();
        assert_eq!(look(&store, "r").fence(), lease.fence());
    }
    // Sessions ended by the server are no different.
    database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenure'
         AND datname = current_database()",
    );
    assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
    proxy.set(Mode::Refuse);
    proxy.reset_all();
    let (error, took) = timed(|| store.observe("r", OP).unwrap_err());
    assert!(error.is_retryable() && !error.is_timeout(), "{error}");
    assert!(took < Duration::from_secs(2), "a refused connection takes no waiting: {took:?}");
}

fn two_hosts(first: u16, database: &Database<'_>) -> PostgresStore {
    let (port, name) = (database.server().port(), database.name());
    let dsn = format!("host=127.0.0.1,127.0.0.1 port={first},{port} user=postgres dbname={name}");
    PostgresStore::connect(&dsn).unwrap()
}

/// A server that lets so many in and answers the first statement of each with the end of the stream, after a FATAL
/// error where it has last words.
fn dying_server(deaths: usize, last_words: Option<&'static str>) -> (u16, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = move || {
        for _ in 0..deaths {
            let (client, _) = listener.accept().unwrap();
            die(client, last_words);
        }
    };
    (port, std::thread::spawn(serve))
}

/// Lets a client in, and answers its first statement with last words, if any.
pub(crate) fn die(mut client: impl Read + Write, last_words: Option<&str>) {
    let mut startup = [0; 1024];
    assert!(client.read(&mut startup).unwrap() > 0);
    client.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
    assert!(client.read(&mut startup).unwrap() > 0);
    if let Some(words) = last_words {
        let fields = format!("SFATAL\0VFATAL\0C57P01\0M{words}\0\0");
        let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
        client.write_all(&[b"E", &length[..], fields.as_bytes()].concat()).unwrap();
    }
}

const DEATHS: usize = 60;

#[test]
fn a_fatal_error_is_not_hidden_by_the_end_of_the_stream() {
    let (port, server) = dying_server(DEATHS, Some("good-bye"));
    for i in 0..DEATHS {
        let store =
            PostgresStore::connect(&format!("host=127.0.0.1 user=x port={port} sslmode=disable")).unwrap();
        let error = store.observe("n", OP).unwrap_err();
        assert_eq!(error.sqlstate(), Some("57P01"), "{i}: {error}");
        assert!(error.is_retryable() && error.to_string().contains("good-bye"), "{error}");
    }
    server.join().unwrap();
}

#[test]
fn a_fresh_connection_that_ends_in_the_middle_of_a_call_is_not_replaced_by_another() {
    let (port, server) = dying_server(1, None);
    let store =
        PostgresStore::connect(&format!("host=127.0.0.1 user=x port={port} sslmode=disable")).unwrap();
    let error = store.observe("n", OP).unwrap_err();
    assert!(error.is_retryable() && !error.is_timeout() && error.sqlstate().is_none(), "{error}");
    assert!(error.to_string().starts_with("the connection to the database was lost: "), "{error}");
    assert!(std::error::Error::source(&error).is_some());
    server.join().unwrap();
}

#[test]
fn b19_a_mute_first_host_leaves_time_for_the_second() {
    let database = Postgres::shared().database();
    store(&database);
    let mute: MuteListener = mute_listener();
    let hole = syn_black_hole();
    for (what, first) in
        [("mute", mute.port()), ("black hole", hole.port()), ("nobody", tenure_testground::free_port())]
    {
        let store = two_hosts(first, &database);
        let timeout = Duration::from_secs(2);
        let (result, took) = timed(|| store.observe("bound", timeout));
        result.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(took < timeout, "{what}: {took:?}");
        // From then on it begins with the one that works.
        let timeout = Duration::from_millis(500);
        let (result, took) = timed(|| store.observe("bound", timeout));
        result.unwrap_or_else(|error| panic!("{what}, again: {error}"));
        assert!(took < Duration::from_millis(400), "{what}, again: {took:?}");
    }
}

#[test]
fn a_call_without_time_is_not_sent() {
    let server = Postgres::shared();
    let database = server.database();
    let proxy = Proxy::to(server.addr());
    let store = PostgresStore::connect(&database.dsn_through(proxy.port())).unwrap();
    assert!(store.observe("n", Duration::ZERO).unwrap_err().is_timeout());
    assert_eq!(proxy.snapshot().connections, 0);
    assert!(store.observe("n", Duration::MAX).unwrap_err().is_fatal(), "no table, and no overflow either");
}

#[test]
fn many_callers_of_a_small_pool_are_all_back_in_time() {
    let mute = mute_listener();
    let dsn = format!("host=127.0.0.1 user=x port={}", mute.port());
    let store = PostgresStore::connect(&dsn).unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| assert!(store.observe("n", TIMEOUT).unwrap_err().is_timeout()));
        }
    });
    assert!(begun.elapsed() < TIMEOUT + SLACK + Duration::from_millis(250), "{:?}", begun.elapsed());
}

#[test]
fn the_callers_thread_may_belong_to_an_async_runtime() {
    let database = Postgres::shared().database();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = store(&database);
        let lease = create(&store, "rt", "a");
        assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
        store.release("rt", "a", lease.fence(), OP).unwrap();
        assert!(look(&store, "rt").is_released());
        drop(store);
    });
}
