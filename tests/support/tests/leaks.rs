//! A binary of its own, with this one test, since it counts the threads and descriptors of the process.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tenure_testground::{Mode, Proxy, await_until, descriptors, mute_listener, threads};

#[test]
fn a_proxy_leaves_no_thread_and_no_descriptor() {
    let me = std::process::id();
    let before = (threads(me), descriptors(me));
    for mode in [Mode::Pass, Mode::BlackHole, Mode::SwallowReplies, Mode::HoldRequests, Mode::Refuse] {
        let server = mute_listener();
        let proxy = Proxy::to(server.addr());
        let mut streams: Vec<TcpStream> =
            (0..20).map(|_| TcpStream::connect(proxy.addr()).unwrap()).collect();
        await_until(Duration::from_secs(10), "all connections", || server.accepted() == 20);
        assert!(threads(me) >= before.0 + 21);
        proxy.set(mode);
        for stream in &mut streams {
            stream.write_all(&[0; 1000]).unwrap();
        }
        drop(proxy);
        for stream in &mut streams {
            assert!(!matches!(stream.read(&mut [0; 1]), Ok(1..)));
        }
        drop((server, streams));
        let after = (threads(me), descriptors(me));
        assert_eq!(after, before, "after {mode:?}");
    }
}
