//! Peers that speak the beginning of TLS, and then do what they should not: stall, lie, break off.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tenure::{PostgresStore, Store};
use tenure_testground::{Authority, Credentials, Mode, Proxy, mute_listener};

use crate::bounds::{all_time_out, die, recovers};
use crate::tls::{Ground, refusal, ssl};
use crate::tls_connector::connector;
use crate::{OP, SLACK, timed};

const REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// A peer that does this with each of so many clients; gives its port.
fn peer<R: Send + 'static>(
    clients: usize,
    serve: impl Fn(TcpStream) -> R + Send + 'static,
) -> (u16, JoinHandle<Vec<R>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = move || (0..clients).map(|_| serve(listener.accept().unwrap().0)).collect();
    (port, std::thread::spawn(serve))
}

fn asked(client: &mut TcpStream) {
    let mut request = [0; 8];
    client.read_exact(&mut request).unwrap();
    assert_eq!(request, REQUEST);
}

fn dsn(port: u16, options: &str) -> String {
    format!("host=127.0.0.1 port={port} user=x password=S3cr3t {options}")
}

#[test]
fn b20_under_require_nothing_but_the_question_is_sent_in_the_clear() {
    for answer in [b"N", b"E", b"R", b"X"] {
        let (port, peer) = peer(1, |mut client| {
            asked(&mut client);
            client.write_all(answer).unwrap();
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).unwrap();
            rest
        });
        let error = refusal(&dsn(port, "sslmode=require"));
        assert!(error.to_string().contains("with TLS"), "{error}");
        assert_eq!(error.is_fatal(), answer == b"N", "{error:?}");
        assert_eq!(peer.join().unwrap(), [b""], "{error}");
    }
}

#[test]
fn b20_what_is_sent_along_with_the_answer_is_not_taken_for_the_servers_word() {
    let (port, peer) = peer(2, |mut client| {
        asked(&mut client);
        // "You are in", by somebody in between who can't do the handshake.
        client.write_all(b"SR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).ok();
        rest
    });
    for mode in ["prefer", "require"] {
        let error = refusal(&dsn(port, &format!("sslmode={mode}")));
        assert!(error.to_string().contains("with TLS: the handshake failed"), "{error}");
        assert!(error.is_retryable() && error.sqlstate().is_none(), "{error:?}");
    }
    for heard in peer.join().unwrap() {
        assert!(heard.starts_with(&[0x16, 0x03]), "not a handshake: {heard:?}");
        assert!(!heard.windows(4).any(|window| window == b"user"), "a log-in: {heard:?}");
    }
}

#[test]
fn rule_7_questions_and_handshakes_that_stall() {
    let mute = mute_listener();
    for options in ["sslmode=prefer", "sslmode=require", "sslmode=require sslnegotiation=direct"] {
        all_time_out(options, &PostgresStore::connect(&dsn(mute.port(), options)).unwrap());
    }
    // One whose kernel answers for it when it has ended, and one that goes silent in the middle of it.
    let (port, peer) = peer(4, |mut client| {
        asked(&mut client);
        client.write_all(b"S").unwrap();
        let mut hello = Vec::new();
        client.read_to_end(&mut hello).ok();
        hello.len()
    });
    all_time_out("a handshake", &PostgresStore::connect(&dsn(port, "sslmode=require")).unwrap());
    assert!(peer.join().unwrap().into_iter().all(|length| length > 100), "the handshake had begun");
}

#[test]
fn rule_7_a_handshake_that_drips_is_bounded_too() {
    let ground = Ground::shared();
    let proxy = Proxy::to(ground.server.addr());
    proxy.set(Mode::Throttle(20));
    let dsn =
        ground.dsn("sslmode=require").replace(&ground.server.port().to_string(), &proxy.port().to_string());
    let store = PostgresStore::connect(&dsn).unwrap();
    all_time_out("a byte now and then", &store);
    proxy.set(Mode::Pass);
    recovers("a byte now and then", &store);
}

#[test]
fn rule_7_a_server_that_is_stopped_under_tls() {
    let ground = Ground::fresh();
    let connect = || PostgresStore::connect(&ground.dsn("sslmode=verify-full sslrootcert={ca}")).unwrap();
    let (open, dropped, cold) = (connect(), connect(), connect());
    for store in [&open, &dropped] {
        store.observe("bound", OP).unwrap();
    }
    ground.server.pause();
    let ((), took) = timed(|| drop(dropped));
    assert!(took < Duration::from_millis(100), "dropping took {took:?}");
    all_time_out("open connections", &open);
    all_time_out("new connections", &cold);
    ground.server.resume();
    recovers("after SIGCONT", &open);
    recovers("after SIGCONT, new", &cold);
}

#[test]
fn a_path_that_fails_under_tls() {
    let ground = Ground::shared();
    for mode in [Mode::BlackHole, Mode::SwallowReplies, Mode::HoldRequests] {
        let proxy = Proxy::to(ground.server.addr());
        let dsn = ground.dsn("sslmode=require");
        let dsn = dsn.replace(&ground.server.port().to_string(), &proxy.port().to_string());
        let store = PostgresStore::connect(&dsn).unwrap();
        store.observe("bound", OP).unwrap();
        proxy.set(mode);
        all_time_out(&format!("{mode:?}"), &store);
        proxy.set(Mode::Pass);
        recovers(&format!("{mode:?}"), &store);
        // A reset, and an end without the good-bye of TLS, are made good with one new connection.
        proxy.reset_all();
        store.observe("bound", OP).unwrap();
        proxy.close_all();
        store.observe("bound", OP).unwrap();
    }
    assert!(ssl(&ground.server, &ground.dsn("sslmode=require")));
}

#[test]
fn handshakes_that_break_off_may_be_tried_again() {
    // What is left unread makes closing a reset.
    for (most, how) in [(4096, "eof"), (1, "reset")] {
        let (port, peer) = peer(3, move |mut client| {
            asked(&mut client);
            client.write_all(b"S").unwrap();
            assert!(client.read(&mut vec![0; most]).unwrap() > 0);
        });
        let custom = dsn(port, "sslmode=require");
        let custom = PostgresStore::connect_with_tls(&custom, connector(&Authority::new("ours"))).unwrap();
        for error in [
            refusal(&dsn(port, "sslmode=prefer")),
            refusal(&dsn(port, "sslmode=require")),
            custom.observe("n", OP).unwrap_err(),
        ] {
            assert!(error.is_retryable() && !error.is_timeout(), "{how}: {error:?}");
            assert!(error.to_string().contains("with TLS: the handshake failed"), "{error}");
            assert!(error.to_string().contains(how), "{error}");
        }
        peer.join().unwrap();
    }
    let (port, peer) = peer(1, |mut client| asked(&mut client));
    let error = refusal(&dsn(port, "sslmode=require"));
    assert!(
        error.is_retryable() && error.to_string().contains("did not answer the request for TLS"),
        "{error}"
    );
    peer.join().unwrap();
}

#[test]
fn what_a_peer_says_instead_of_shaking_hands() {
    // The beginning of TLS 1.1, with nothing random in it.
    let old = [&[0x16, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2][..], &[7; 32], &[0, 0xc0, 0x13, 0]].concat();
    let alert = |code| vec![0x15, 3, 3, 0, 2, 2, code];
    for (answer, is_fatal, word) in [
        (old, true, "no version or cipher in common"),
        (alert(0x28), true, "refuses the handshake: HandshakeFailure"),
        (alert(0x2a), true, "see to sslcert and sslkey"),
        (alert(0x50), false, "broke the handshake off: InternalError"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), false, "the handshake failed"),
    ] {
        let (port, peer) = peer(1, move |mut client| {
            asked(&mut client);
            client.write_all(b"S").unwrap();
            assert!(client.read(&mut [0; 4096]).unwrap() > 0);
            client.write_all(&answer).unwrap();
            client.read_to_end(&mut Vec::new()).ok();
        });
        let error = refusal(&dsn(port, "sslmode=require"));
        assert_eq!(error.is_fatal(), is_fatal, "{error:?}");
        assert!(error.to_string().contains(word), "{error}");
        peer.join().unwrap();
    }
}

/// Does the server's part of a handshake, after the question unless `direct`.
fn encrypt(
    config: &Arc<ServerConfig>,
    mut client: TcpStream,
    direct: bool,
) -> StreamOwned<ServerConnection, TcpStream> {
    if !direct {
        asked(&mut client);
        client.write_all(b"S").unwrap();
    }
    StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), client)
}

fn server_config(protocol: &[u8]) -> Arc<ServerConfig> {
    let own = Credentials::self_signed(&["127.0.0.1"]);
    let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config)
}

const DEATHS: usize = 40;

#[test]
fn a_fatal_error_is_not_hidden_by_the_end_of_an_encrypted_stream() {
    for direct in [false, true] {
        let config = server_config(b"postgresql");
        let count = std::sync::atomic::AtomicUsize::new(0);
        let (port, peer) = peer(DEATHS, move |client| {
            let mut stream = encrypt(&config, client, direct);
            die(&mut stream, Some("good-bye"));
            assert_eq!(stream.conn.alpn_protocol(), Some(&b"postgresql"[..]));
            // With the good-bye of TLS, and without.
            if count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2 == 0 {
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            }
        });
        let options = if direct { "sslmode=require sslnegotiation=direct" } else { "sslmode=require" };
        for i in 0..DEATHS {
            let store = PostgresStore::connect(&dsn(port, options)).unwrap();
            let error = store.observe("n", OP).unwrap_err();
            assert_eq!(error.sqlstate(), Some("57P01"), "{i}: {error:?}");
            assert!(error.is_retryable() && error.to_string().contains("good-bye"), "{error}");
        }
        peer.join().unwrap();
    }
}

/// Gives everybody the same certificate, with whatever key.
#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

#[test]
fn b20_a_certificate_without_its_key_proves_nothing() {
    let (own, other) = (Credentials::self_signed(&["127.0.0.1"]), Credentials::self_signed(&["127.0.0.1"]));
    let files = tempfile::tempdir().unwrap();
    let (root, _) = own.write(files.path(), "own");
    // Certificates are public: this is what somebody in between has.
    let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
    for (version, credentials, honest) in
        [(&TLS12, &own, true), (&TLS12, &other, false), (&TLS13, &own, true), (&TLS13, &other, false)]
    {
        let key = PrivateKeyDer::from_pem_slice(credentials.key.as_bytes()).unwrap();
        let key = ring::sign::any_supported_type(&key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Always(Arc::new(CertifiedKey::new(chain.clone(), key)))));
        let config = Arc::new(config);
        let modes = ["prefer".to_owned(), format!("verify-full sslrootcert={}", root.display())];
        let (port, peer) = peer(modes.len(), move |client| {
            let mut stream = encrypt(&config, client, false);
            match honest {
                true => die(&mut stream, Some("good-bye")),
                false => assert!(stream.read(&mut [0; 64]).is_err()),
            }
        });
        for mode in modes {
            let error = refusal(&dsn(port, &format!("sslmode={mode}")));
            assert_eq!(error.sqlstate(), honest.then_some("57P01"), "{version:?} {mode}: {error}");
            let told = error.to_string().contains("the server's signature is not of its certificate's key");
            assert_eq!(told, !honest, "{version:?} {mode}: {error}");
        }
        peer.join().unwrap();
    }
}

#[test]
fn a_server_of_another_protocol_is_told_from_a_database() {
    let config = server_config(b"http/1.1");
    let (port, peer) = peer(1, move |client| {
        let mut stream = encrypt(&config, client, true);
        assert!(stream.read(&mut [0; 64]).is_err());
    });
    let begun = Instant::now();
    let error = refusal(&dsn(port, "sslmode=require sslnegotiation=direct"));
    assert!(error.is_fatal() && error.to_string().contains("refuses the handshake"), "{error:?}");
    assert!(begun.elapsed() < OP + SLACK);
    peer.join().unwrap();
}
