//! Each fault is what it is said to be, and the counters count.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tenure_testground::postgres::types::Type;
use tenure_testground::postgres::{Client, NoTls};
use tenure_testground::{Direction, Flow, Mode, Postgres, Proxy, await_until, mute_listener};

const SOON: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(300);

/// Sends back what it receives, and reports it.
fn echo() -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    let _ = sender.send(buffer[..read].to_vec());
                    let _ = stream.write_all(&buffer[..read]);
                }
            });
        }
    });
    (addr, received)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.addr()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn exchange(stream: &mut TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(text)?;
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).map(|()| answer)
}

/// Neither bytes nor an end within a while.
fn assert_silent(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(QUIET)).unwrap();
    let heard = stream.read(&mut [0; 16]);
    assert!(matches!(&heard, Err(error) if error.kind() == ErrorKind::WouldBlock), "heard {heard:?}");
    stream.set_read_timeout(Some(SOON)).unwrap();
}

fn assert_reset(stream: &mut TcpStream) {
    let heard = stream.read(&mut [0; 16]);
    assert!(matches!(&heard, Err(error) if error.kind() == ErrorKind::ConnectionReset), "heard {heard:?}");
}

#[test]
fn pass_passes_also_a_lot_and_the_end() {
    let (addr, _received) = echo();
    let proxy = Proxy::to(addr);
    let mut stream = connect(&proxy);
    assert_eq!(exchange(&mut stream, b"hello").unwrap(), b"hello");
    let lot = vec![42; 3_000_000];
    let mut writer = stream.try_clone().unwrap();
    let sent = lot.clone();
    let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut back = vec![0; lot.len()];
    stream.read_exact(&mut back).unwrap();
    writing.join().unwrap();
    assert!(back == lot);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    await_until(SOON, "the connection is gone", || proxy.connections().is_empty());
    let counters = proxy.snapshot();
    assert_eq!(
        [counters.from_client, counters.to_server, counters.from_server, counters.to_client],
        [3_000_005; 4]
    );
}

#[test]
fn delay_delays_each_way_and_keeps_the_order() {
    let (addr, _received) = echo();
    let proxy = Proxy::to(addr);
    let mut stream = connect(&proxy);
    let took = |stream: &mut TcpStream| {
        let begun = Instant::now();
        assert_eq!(exchange(stream, b"x").unwrap(), b"x");
        begun.elapsed()
    };
    assert!(took(&mut stream) < Duration::from_millis(100));
    proxy.set(Mode::Delay { by: Duration::from_millis(100), jitter: Duration::ZERO });
    let both = took(&mut stream);
    assert!((Duration::from_millis(200)..Duration::from_millis(300)).contains(&both), "{both:?}");
    proxy.set(Mode::Pass);
    proxy.set_flow(
        Direction::ToClient,
        Flow::Delay { by: Duration::from_millis(100), jitter: Duration::ZERO },
    );
    let one = took(&mut stream);
    assert!((Duration::from_millis(100)..Duration::from_millis(190)).contains(&one), "{one:?}");
    proxy.set(Mode::Delay { by: Duration::from_millis(1), jitter: Duration::from_millis(30) });
    for i in 0..100 {
        stream.write_all(&[i]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut back = [0; 100];
    stream.read_exact(&mut back).unwrap();
    assert!(back.into_iter().eq(0..100), "{back:?}");
}

#[test]
fn delays_overlap_instead_of_adding_up() {
    let (addr, _received) = echo();
    let proxy = Proxy::to(addr);
    let mut stream = connect(&proxy);
    proxy.set(Mode::Delay { by: Duration::from_millis(100), jitter: Duration::ZERO });
    let begun = Instant::now();
    for i in 0..10 {
        stream.write_all(&[i]).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    stream.read_exact(&mut [0; 10]).unwrap();
    assert!(begun.elapsed() < Duration::from_millis(450), "{:?}", begun.elapsed());
}

#[test]
fn black_hole_moves_nothing_and_delivers_late() {
    let (addr, received) = echo();
    let proxy = Proxy::to(addr);
    let mut old = connect(&proxy);
    exchange(&mut old, b"a").unwrap();
    received.recv_timeout(SOON).unwrap();
    proxy.set(Mode::BlackHole);
    old.write_all(b"late").unwrap();
    assert_silent(&mut old);
    let mut new = connect(&proxy);
    new.write_all(b"mute").unwrap();
    assert_silent(&mut new);
    drop(connect(&proxy));
    assert!(received.try_recv().is_err());
    proxy.set(Mode::Pass);
    let mut answer = [0; 4];
    old.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"late");
    new.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"mute");
}

#[test]
fn a_black_hole_hides_that_the_server_is_gone() {
    let server = mute_listener();
    let proxy = Proxy::to(server.addr());
    let mut stream = connect(&proxy);
    await_until(SOON, "the connection reaches the server", || server.accepted() == 1);
    proxy.set(Mode::BlackHole);
    server.close_all();
    assert_silent(&mut stream);
    proxy.set(Mode::Pass);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn swallowed_replies_are_lost_and_requests_are_not() {
    let (addr, received) = echo();
    let proxy = Proxy::to(addr);
    let mut stream = connect(&proxy);
    proxy.set(Mode::SwallowReplies);
    stream.write_all(b"write").unwrap();
    assert_eq!(received.recv_timeout(SOON).unwrap(), b"write");
    assert_silent(&mut stream);
    let counters = proxy.snapshot();
    assert_eq!((counters.to_server, counters.from_server, counters.to_client), (5, 5, 0));
    // The stream has a gap: nothing of it may ever be seen again.
    proxy.set(Mode::Pass);
    assert_reset(&mut stream);
    assert_eq!(exchange(&mut connect(&proxy), b"new").unwrap(), b"new");
}

#[test]
fn held_requests_arrive_later_even_without_their_client() {
    let (addr, received) = echo();
    let proxy = Proxy::to(addr);
    let mut stream = connect(&proxy);
    exchange(&mut stream, b"a").unwrap();
    received.recv_timeout(SOON).unwrap();
    proxy.set(Mode::HoldRequests);
    stream.write_all(b"ghost").unwrap();
    await_until(SOON, "the request is in the proxy", || proxy.snapshot().from_client == 6);
    assert_silent(&mut stream);
    drop(stream);
    assert!(received.recv_timeout(QUIET).is_err());
    proxy.set(Mode::Pass);
    assert_eq!(received.recv_timeout(SOON).unwrap(), b"ghost");
}

#[test]
fn reset_resets_what_is_there_and_what_comes() {
    let (addr, _received) = echo();
    let proxy = Proxy::to(addr);
    let mut old = connect(&proxy);
    exchange(&mut old, b"a").unwrap();
    proxy.set(Mode::Reset);
    assert_reset(&mut old);
    assert!(proxy.connections().is_empty());
    assert_reset(&mut connect(&proxy));
    proxy.set(Mode::Pass);
    assert_eq!(exchange(&mut connect(&proxy), b"b").unwrap(), b"b");
}

#[test]
fn refuse_refuses_what_comes_and_leaves_what_is_there() {
    let (addr, _received) = echo();
    let proxy = Proxy::to(addr);
    let mut old = connect(&proxy);
    exchange(&mut old, b"a").unwrap();
    proxy.set(Mode::Refuse);
    let refused = TcpStream::connect(proxy.addr());
    assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::ConnectionRefused), "{refused:?}");
    assert_eq!(exchange(&mut old, b"b").unwrap(), b"b");
    proxy.set(Mode::Pass);
    assert_eq!(exchange(&mut connect(&proxy), b"c").unwrap(), b"c");
}

#[test]
fn throttle_keeps_to_its_rate() {
    let (addr, _received) = echo();
    let proxy = Proxy::to(addr);
    let mut stream = connect(&proxy);
    proxy.set(Mode::Throttle(10_000));
    let begun = Instant::now();
    exchange(&mut stream, &[7; 5_000]).unwrap();
    let took = begun.elapsed();
    assert!((Duration::from_millis(400)..Duration::from_millis(1_000)).contains(&took), "{took:?}");
}

#[test]
fn connections_can_be_ended_one_by_one_or_all() {
    let (addr, _received) = echo();
    let proxy = Proxy::to(addr);
    let mut streams: Vec<TcpStream> = (0..4).map(|_| connect(&proxy)).collect();
    for stream in &mut streams {
        exchange(stream, b"a").unwrap();
    }
    let ids = proxy.connections();
    proxy.close(ids[0]);
    proxy.reset(ids[1]);
    assert_eq!(streams[0].read(&mut [0; 1]).unwrap(), 0);
    assert_reset(&mut streams[1]);
    assert_eq!(exchange(&mut streams[2], b"b").unwrap(), b"b");
    proxy.close_all();
    assert_eq!(streams[3].read(&mut [0; 1]).unwrap(), 0);
    assert!(proxy.connections().is_empty());
    assert_eq!(proxy.snapshot().connections, 4);
}

#[test]
fn new_connections_go_to_the_new_target() {
    let ((one, at_one), (two, at_two)) = (echo(), echo());
    let proxy = Proxy::to(one);
    let mut old = connect(&proxy);
    exchange(&mut old, b"a").unwrap();
    proxy.retarget(two);
    exchange(&mut old, b"b").unwrap();
    exchange(&mut connect(&proxy), b"c").unwrap();
    assert_eq!(at_one.iter().take(2).collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!(at_two.recv_timeout(SOON).unwrap(), b"c");
}

#[test]
fn a_dead_target_looks_dead() {
    let proxy = Proxy::to(([127, 0, 0, 1], tenure_testground::free_port()).into());
    assert_reset(&mut connect(&proxy));
}

#[test]
fn a_query_is_one_round_trip_and_a_prepared_one_is_two() {
    let server = Postgres::shared();
    let database = server.database();
    let proxy = Proxy::to(server.addr());
    let mut client = Client::connect(&database.dsn_through(proxy.port()), NoTls).unwrap();
    assert_eq!(proxy.snapshot().round_trips, 1, "connecting");
    proxy.reset_counters();
    assert_eq!(proxy.snapshot().round_trips, 0);
    client.simple_query("SELECT 1").unwrap();
    assert_eq!(proxy.snapshot().round_trips, 1, "a simple query");
    for expected in 2..200 {
        client.query_typed("SELECT $1::int8, repeat('x', 300000)", &[(&1i64, Type::INT8)]).unwrap();
        assert_eq!(proxy.snapshot().round_trips, expected, "a typed query with a long answer");
    }
    proxy.reset_counters();
    drop(client);
    await_until(SOON, "the connection is gone", || proxy.connections().is_empty());
    assert_eq!(proxy.snapshot().round_trips, 0, "the farewell");
    let mut client = Client::connect(&database.dsn_through(proxy.port()), NoTls).unwrap();
    proxy.reset_counters();
    client.query("SELECT $1::int8", &[&1i64]).unwrap();
    assert_eq!(proxy.snapshot().round_trips, 2, "prepare and execute");
}
