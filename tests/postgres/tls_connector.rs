//! A connector of the application's, without any of the crate's own.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tenure::{PostgresStore, Store};
use tenure_testground::{Authority, Postgres};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::bounds::all_time_out;
use crate::{OP, create, look, renewal};

pub(crate) fn connector(authority: &Authority) -> MakeRustlsConnect {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    MakeRustlsConnect::new(config)
}

#[test]
fn b20_whatever_connector_the_application_brings() {
    let authority = Authority::new("ours");
    let server = Postgres::builder().tls(&authority.server(&["localhost"])).start();
    let dsn = |host: &str, options: &str| {
        format!("host={host} port={} user=postgres dbname=postgres {options}", server.port())
    };
    let store = PostgresStore::connect_with_tls(&dsn("localhost", ""), connector(&authority)).unwrap();
    store.ensure_schema().unwrap();
    let lease = create(&store, "n", "a");
    assert!(store.renew(&renewal(&lease, "a"), OP).unwrap().is_some());
    assert_eq!(look(&store, "n").fence(), lease.fence());
    let sql =
        "SELECT count(*) FILTER (WHERE ssl), count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
               WHERE application_name = 'tenure'";
    let row = server.client().query_one(sql, &[]).unwrap();
    let (encrypted, all): (i64, i64) = (row.get(0), row.get(1));
    assert!(encrypted == all && all > 0, "{encrypted} of {all}");
    // What the connector does not like is a person's to mend.
    for (host, authority) in [("127.0.0.1", &authority), ("localhost", &Authority::new("another"))] {
        let store =
            PostgresStore::builder(&dsn(host, "")).tls_connector(connector(authority)).build().unwrap();
        let error = store.observe("n", OP).unwrap_err();
        assert!(
            error.is_fatal() && error.to_string().contains("with TLS: the handshake failed"),
            "{error:?}"
        );
    }
    // It may be told not to.
    let plain = PostgresStore::connect_with_tls(&dsn("127.0.0.1", "sslmode=disable"), connector(&authority));
    plain.unwrap().observe("n", OP).unwrap();
    server.pause();
    all_time_out("a stopped server", &store);
    server.resume();
}

#[test]
fn b20_a_server_without_tls_gets_nothing_from_it() {
    let database = Postgres::shared().database();
    let connect = |options: &str| {
        let dsn = format!("{}?connect_timeout=5{options}", database.dsn());
        PostgresStore::connect_with_tls(&dsn, connector(&Authority::new("ours"))).unwrap()
    };
    for options in ["", "&sslmode=require"] {
        let error = connect(options).observe("n", OP).unwrap_err();
        assert!(error.is_fatal() && error.to_string().contains("the server has none"), "{error:?}");
    }
    assert_eq!(connect("&sslmode=prefer").observe("n", OP).unwrap_err().sqlstate(), Some("42P01"));
}

#[test]
fn a_pool_of_the_applications_has_its_own_connector() {
    let manager = r2d2_postgres::PostgresConnectionManager::new(
        "host=127.0.0.1".parse().unwrap(),
        r2d2_postgres::postgres::NoTls,
    );
    let pool = r2d2::Pool::builder().min_idle(Some(0)).build_unchecked(manager);
    let builder = PostgresStore::pool_builder(pool).tls_connector(connector(&Authority::new("ours")));
    assert_eq!(builder.build().unwrap_err().field(), "tls_connector");
}
