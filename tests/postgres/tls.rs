//! TLS with the crate's own connector: who is let in, who is not, and what is said then.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;
use tenure::{AnyStore, CampaignError, Config, Elector, PostgresStore, Store, StoreError};
use tenure_testground::{Authority, Credentials, PgBouncer, Postgres, await_until};

use crate::{LEASE, OP, create, look, renewal, timed};

/// A server whose certificate is for `localhost`, and files for its clients.
pub(crate) struct Ground {
    pub(crate) authority: Authority,
    pub(crate) server: Postgres,
    files: TempDir,
}

impl Ground {
    fn new(configure: impl FnOnce(&Authority, tenure_testground::PostgresBuilder) -> Postgres) -> Ground {
        let files = tempfile::tempdir().unwrap();
        let authority = Authority::new("ours");
        authority.write(files.path(), "ca.crt");
        Authority::new("another").write(files.path(), "other.crt");
        let server = configure(&authority, Postgres::builder());
        PostgresStore::connect(&server.dsn()).unwrap().ensure_schema().unwrap();
        Ground { authority, server, files }
    }

    /// The one that tests share.
    pub(crate) fn shared() -> &'static Ground {
        static SHARED: OnceLock<Ground> = OnceLock::new();
        SHARED.get_or_init(Ground::fresh)
    }

    /// One that may be stopped.
    pub(crate) fn fresh() -> Ground {
        Ground::new(|ca, builder| builder.tls(&ca.server(&["localhost"])).start())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// For the superuser, at the server's port; for `localhost` unless the options name a host. `{ca}` stands for the
    /// file with the certificate of the server's authority, `{other}` for another one's.
    pub(crate) fn dsn(&self, options: &str) -> String {
        self.dsn_at(self.server.port(), "postgres", options)
    }

    fn dsn_at(&self, port: u16, user: &str, options: &str) -> String {
        let host = if options.contains("host") { "" } else { "host=localhost" };
        let options = options
            .replace("{ca}", self.path("ca.crt").to_str().unwrap())
            .replace("{other}", self.path("other.crt").to_str().unwrap())
            .replace("{files}", self.files.path().to_str().unwrap());
        format!("{host} port={port} user={user} dbname=postgres {options}")
    }
}

/// Whether the connections of a new store are encrypted; its name tells them from others.
fn try_ssl(server: &Postgres, dsn: &str) -> Result<bool, StoreError> {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let name = format!("tls-{}", COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let store = PostgresStore::builder(dsn).application_name(&name).build()?;
    store.observe("n", OP)?;
    let sql =
        "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = $1";
    let row = server.client().query_one(sql, &[&name]).unwrap();
    Ok(row.get::<_, Option<bool>>(0).expect("the session is there"))
}

#[track_caller]
pub(crate) fn ssl(server: &Postgres, dsn: &str) -> bool {
    try_ssl(server, dsn).unwrap_or_else(|error| panic!("{dsn}: {error}"))
}

/// The error of a store that gets no connection; it came at once.
#[track_caller]
pub(crate) fn refusal(dsn: &str) -> StoreError {
    let store = PostgresStore::connect(dsn).unwrap_or_else(|error| panic!("{dsn}: {error}"));
    let (error, took) = timed(|| store.observe("n", OP).expect_err(dsn));
    assert!(took < OP / 2, "{dsn}: {took:?}: {error}");
    error
}

/// A person must mend it, and is told what, where and why.
#[track_caller]
pub(crate) fn fatal(dsn: &str, words: &[&str]) {
    let error = refusal(dsn);
    assert!(error.is_fatal() && !error.is_timeout(), "{dsn}: {error:?}");
    for word in words {
        assert!(error.to_string().contains(word), "{dsn}: not {word}: {error}");
    }
    assert!(std::error::Error::source(&error).is_some(), "{error}");
}

#[test]
fn b20_every_mode_is_as_good_as_its_word() {
    let ground = Ground::shared();
    for (options, encrypted) in [
        ("sslmode=disable", false),
        ("sslmode=allow", false),
        ("", true),
        ("sslmode=prefer", true),
        ("sslmode=require", true),
        ("host=127.0.0.1 sslmode=require sslrootcert={ca}", true),
        ("host=127.0.0.1 sslmode=verify-ca sslrootcert={ca}", true),
        ("sslmode=verify-full sslrootcert={ca}", true),
        ("host=localhost hostaddr=127.0.0.1 sslmode=verify-full sslrootcert={ca}", true),
    ] {
        assert_eq!(ssl(&ground.server, &ground.dsn(options)), encrypted, "{options}");
    }
    let ca = ground.path("ca.crt").display().to_string();
    let url = format!("postgres://postgres@localhost:{}/postgres?sslmode=verify-full", ground.server.port());
    let url = format!("{url}&sslrootcert={}", ca.replace('/', "%2F"));
    assert!(ssl(&ground.server, &url));
    AnyStore::open(&url).unwrap().observe("n", OP).unwrap();
    // A socket has nobody in between, and no TLS.
    let socket =
        format!("host={} sslmode=verify-full sslrootcert={ca}", ground.server.socket_dir().display());
    assert!(!ssl(&ground.server, &ground.dsn(&socket)));
}

#[test]
fn b20_a_certificate_that_does_not_hold_is_refused_and_named() {
    let ground = Ground::shared();
    let place = format!("localhost:{}", ground.server.port());
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        let dsn = ground.dsn(&format!("sslmode={mode} sslrootcert={{other}}"));
        fatal(&dsn, &[&place, "sslrootcert=", "other.crt", "signed"]);
    }
    for host in ["host=127.0.0.1", "host=db.invalid hostaddr=127.0.0.1", "hostaddr=127.0.0.1"] {
        let dsn = ground.dsn(&format!("{host} sslmode=verify-full sslrootcert={{ca}}"));
        let name = if host.contains("invalid") { "db.invalid" } else { "127.0.0.1" };
        fatal(&dsn, &["sslmode=verify-full", &format!("for the host {name}"), "localhost"]);
    }
    // No system trusts an authority that is a minute old.
    fatal(&ground.dsn("sslmode=verify-full"), &["the system's", "sslrootcert"]);
    fatal(&ground.dsn("sslrootcert=system"), &["the system's", "sslrootcert"]);
    fatal(&ground.dsn("host=_..x hostaddr=127.0.0.1 sslmode=require"), &["_..x", "name"]);
}

#[test]
fn b20_a_wrong_certificate_ends_a_campaign_at_once() {
    let ground = Ground::shared();
    let store = PostgresStore::connect(&ground.dsn("sslmode=verify-full sslrootcert={other}")).unwrap();
    let elector = Elector::start(store, Config::builder("tls").build().unwrap()).unwrap();
    match elector.wait_for_leadership_timeout(OP) {
        Err(CampaignError::Store(error)) => assert!(error.to_string().contains("sslrootcert="), "{error}"),
        other => panic!("{other:?}"),
    }
    let shown = format!("{:?}", elector.status());
    assert!(shown.contains("sslrootcert="), "{shown}");
}

#[test]
fn addresses_names_and_dates() {
    let ca = Authority::new("ours");
    for (credentials, fits) in [
        (ca.server(&["127.0.0.1"]), true),
        (ca.server(&["db.invalid", "127.0.0.1"]), true),
        (ca.server(&["127.0.0.2"]), false),
        (ca.server(&["db.invalid"]), false),
    ] {
        let ground = Ground::new(|_, builder| builder.tls(&credentials).start());
        ca.write(ground.files.path(), "ca.crt");
        let full = ground.dsn("host=127.0.0.1 sslmode=verify-full sslrootcert={ca}");
        match fits {
            true => assert!(ssl(&ground.server, &full)),
            false => fatal(&full, &["for the host 127.0.0.1"]),
        }
        assert!(ssl(&ground.server, &ground.dsn("host=127.0.0.1 sslmode=verify-ca sslrootcert={ca}")));
    }
    let ground = Ground::new(|ca, builder| builder.tls(&ca.expired_server(&["localhost"])).start());
    assert!(ssl(&ground.server, &ground.dsn("sslmode=require")), "nobody asked for its dates");
    for mode in ["require", "verify-ca", "verify-full"] {
        fatal(&ground.dsn(&format!("sslmode={mode} sslrootcert={{ca}}")), &["has expired"]);
    }
}

#[test]
fn the_dates_of_the_root_itself_are_not_looked_at() {
    let old = Authority::expired("old");
    let ground = Ground::new(|_, builder| builder.tls(&old.server(&["localhost"])).start());
    old.write(ground.files.path(), "old.crt");
    assert!(ssl(&ground.server, &ground.dsn("sslmode=verify-full sslrootcert={files}/old.crt")));
}

#[test]
fn a_self_signed_certificate_is_known_by_itself_and_by_nothing_else() {
    let own = Credentials::self_signed(&["localhost"]);
    let ground = Ground::new(|_, builder| builder.tls(&own).start());
    own.write(ground.files.path(), "own");
    Credentials::self_signed(&["localhost"]).write(ground.files.path(), "twin");
    for mode in ["require", "verify-ca", "verify-full"] {
        let with = |root: &str| ground.dsn(&format!("sslmode={mode} sslrootcert={{files}}/{root}.crt"));
        assert!(ssl(&ground.server, &with("own")), "{mode}");
        fatal(&with("twin"), &["twin.crt"]);
    }
    fatal(
        &ground.dsn("host=127.0.0.1 sslmode=verify-full sslrootcert={files}/own.crt"),
        &["the host 127.0.0.1"],
    );
    for (from, to, word) in [(2019, 2020, "has expired"), (2900, 2901, "not valid yet")] {
        let other = Credentials::self_signed_between(&["localhost"], from, to);
        let ground = Ground::new(|_, builder| builder.tls(&other).start());
        other.write(ground.files.path(), "own");
        fatal(&ground.dsn("sslmode=verify-ca sslrootcert={files}/own.crt"), &[word, "certificate"]);
        assert!(ssl(&ground.server, &ground.dsn("sslmode=require")));
    }
}

#[test]
fn b20_a_server_without_tls_is_not_spoken_to_in_the_clear() {
    let ground = Ground::new(|_, builder| builder.start());
    for options in
        ["sslmode=require", "sslmode=verify-ca sslrootcert={ca}", "sslmode=verify-full sslrootcert={ca}"]
    {
        fatal(&ground.dsn_at(ground.server.port(), "postgres", options), &["the server has none", "sslmode"]);
    }
    for options in ["", "sslmode=prefer", "sslmode=prefer sslrootcert={ca}", "sslmode=allow"] {
        assert!(!ssl(&ground.server, &ground.dsn(options)), "{options}");
    }
    // PostgreSQL before 17 takes the beginning of a handshake for nonsense, whether it has TLS or not.
    for ground in [&ground, Ground::shared()] {
        let error = refusal(&ground.dsn("sslmode=require sslnegotiation=direct"));
        assert!(error.to_string().contains("sslnegotiation=direct takes PostgreSQL 17"), "{error}");
        assert!(error.is_retryable() && !error.is_timeout(), "{error:?}");
    }
}

#[test]
fn what_the_rules_of_the_server_want() {
    let ground = Ground::new(|ca, builder| {
        let rules = "hostssl all crypt all trust\nhostnossl all clear all trust";
        builder.tls(&ca.server(&["localhost"])).rules(rules).start()
    });
    for role in ["crypt", "clear"] {
        ground.server.create_role(role, "SUPERUSER");
    }
    let dsn = |role: &str, options: &str| ground.dsn_at(ground.server.port(), role, options);
    for mode in ["allow", "prefer", "require"] {
        assert!(ssl(&ground.server, &dsn("crypt", &format!("sslmode={mode}"))), "{mode}");
    }
    for mode in ["disable", "allow"] {
        assert!(!ssl(&ground.server, &dsn("clear", &format!("sslmode={mode}"))), "{mode}");
    }
    // Where libpq would go on in the clear, somebody in between could make it do so.
    for (role, mode, word) in
        [("crypt", "disable", "no encryption"), ("clear", "prefer", "SSL"), ("clear", "require", "SSL")]
    {
        let error = refusal(&dsn(role, &format!("sslmode={mode}")));
        assert_eq!(error.sqlstate(), Some("28000"), "{role} {mode}: {error}");
        assert!(error.is_fatal() && error.to_string().contains(word), "{role} {mode}: {error}");
    }
    // What the server said of the plain attempt stands, where TLS has nothing to add.
    let plain = Ground::new(|_, builder| builder.rules("host all nobody all trust").start());
    let error = refusal(&plain.dsn_at(plain.server.port(), "x", "sslmode=allow"));
    assert_eq!(error.sqlstate(), Some("28000"), "{error}");
}

#[test]
fn clients_with_certificates() {
    let clients = Authority::new("clients");
    let ground = Ground::new(|ca, builder| {
        let builder = builder.tls(&ca.server(&["localhost"])).client_authority(&clients);
        builder.rules("hostssl all app all trust clientcert=verify-full").start()
    });
    ground.server.create_role("app", "SUPERUSER");
    let files = ground.files.path();
    clients.client("app").write(files, "right");
    clients.client("somebody").write(files, "wrong");
    ground.authority.client("app").write(files, "foreign");
    let with = |name: &str| {
        let options = format!("sslmode=verify-full sslrootcert={{ca}} sslcert={{files}}/{name}.crt");
        ground.dsn_at(ground.server.port(), "app", &format!("{options} sslkey={{files}}/{name}.key"))
    };
    assert!(ssl(&ground.server, &with("right")));
    let missing = ground.dsn_at(ground.server.port(), "app", "sslmode=verify-full sslrootcert={ca}");
    for (dsn, word) in [(with("wrong"), "authentication failed"), (missing, "valid client certificate")] {
        let error = refusal(&dsn);
        assert_eq!(error.sqlstate(), Some("28000"), "{dsn}: {error}");
        assert!(error.is_fatal() && error.to_string().contains(word), "{dsn}: {error}");
    }
    // The server breaks the handshake off when it is over for us; its reason may be lost with the connection.
    let store = PostgresStore::connect(&with("foreign")).unwrap();
    await_until(OP, "the server's reason", || {
        let error = store.observe("n", OP).expect_err("nobody has signed this one");
        assert!(error.is_fatal() == error.to_string().contains("sslcert and sslkey"), "{error}");
        error.is_fatal()
    });
}

#[test]
fn channel_binding_and_passwords() {
    let ground = Ground::new(|ca, builder| {
        let rules = "host all app all scram-sha-256\nhostssl all md5 all password";
        builder.tls(&ca.server(&["localhost"])).rules(rules).start()
    });
    for role in ["app", "md5"] {
        ground.server.create_role(role, "SUPERUSER PASSWORD 'S3cr3t'");
    }
    let dsn = |role, options: &str| ground.dsn_at(ground.server.port(), role, options);
    for binding in ["disable", "prefer", "require"] {
        let options =
            format!("sslmode=verify-full sslrootcert={{ca}} channel_binding={binding} password=S3cr3t");
        assert!(ssl(&ground.server, &dsn("app", &options)), "{binding}");
    }
    for (role, options) in [
        // A plain connection has nothing to be bound to, and a plain password binds nothing.
        ("app", "sslmode=allow channel_binding=require password=S3cr3t"),
        ("md5", "sslmode=require channel_binding=require password=S3cr3t"),
        ("app", "sslmode=require password=S3cr3tWrong"),
        ("app", "sslmode=verify-full sslrootcert={other} password=S3cr3t"),
    ] {
        let dsn = dsn(role, options);
        let error = refusal(&dsn);
        assert!(error.is_fatal(), "{options}: {error:?}");
        let store = PostgresStore::connect(&dsn).unwrap();
        let shown = format!("{error} {error:?} {store:?} {:?}", PostgresStore::builder(&dsn));
        assert!(!shown.contains("S3cr3t"), "{shown}");
    }
}

#[test]
fn files_are_read_again_when_they_have_changed() {
    let ground = Ground::fresh();
    let root = ground.path("root.crt");
    let replace = |text: &str| {
        // As it is done right: in one step.
        let new = ground.path("new.crt");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &root).unwrap();
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenure'";
        ground.server.execute(sql);
    };
    let (ours, another) = (ground.authority.certificate(), Authority::new("another").certificate());
    replace(&ours);
    let store =
        PostgresStore::connect(&ground.dsn("sslmode=verify-full sslrootcert={files}/root.crt")).unwrap();
    store.observe("n", OP).unwrap();
    replace(&another);
    let error = store.observe("n", OP).unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("root.crt"), "{error:?}");
    for rubbish in ["", "-----BEGIN CERTIFICATE-----\n"] {
        replace(rubbish);
        let error = store.observe("n", OP).unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains("sslrootcert names"), "{error:?}");
    }
    std::fs::remove_file(&root).unwrap();
    let error = store.observe("n", OP).unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("sslrootcert names"), "{error:?}");
    replace(&format!("{another}{ours}"));
    store.observe("n", OP).unwrap();
}

#[test]
fn through_a_pooler_that_wants_tls() {
    let ground = Ground::shared();
    let pooler =
        PgBouncer::builder(ground.server.port()).tls(&ground.authority.server(&["localhost"])).start();
    let dsn = |options: &str| ground.dsn_at(pooler.port(), "postgres", options);
    for mode in ["allow", "prefer", "require", "verify-full sslrootcert={ca}"] {
        let store = PostgresStore::connect(&dsn(&format!("sslmode={mode}"))).unwrap();
        let (name, me) = (format!("pooled {mode}"), "a");
        let lease = create(&store, &name, me);
        assert!(store.renew(&renewal(&lease, me), OP).unwrap().is_some(), "{mode}");
        store.release(&name, me, lease.fence(), OP).unwrap();
        assert!(look(&store, &name).is_released(), "{mode}");
    }
    fatal(&dsn("host=127.0.0.1 sslmode=verify-full sslrootcert={ca}"), &["for the host 127.0.0.1"]);
    fatal(&dsn("sslmode=verify-ca sslrootcert={other}"), &["other.crt"]);
    let error = refusal(&dsn("sslmode=disable"));
    assert!(error.to_string().contains("SSL required"), "{error}");
}

#[test]
fn of_several_servers_the_one_that_can_be_trusted_is_taken() {
    let ground = Ground::shared();
    // Of the same name, and with another key.
    let stranger = Ground::fresh();
    let plain = Postgres::shared();
    let ports = format!("{},{},{}", stranger.server.port(), plain.port(), ground.server.port());
    let options = "host=localhost,localhost,localhost sslmode=verify-full sslrootcert={ca}";
    let dsn =
        ground.dsn(options).replace(&format!("port={}", ground.server.port()), &format!("port={ports}"));
    assert!(ssl(&ground.server, &dsn));
    let dsn =
        dsn.replace(&format!(",{}", ground.server.port()), &format!(",{}", tenure_testground::free_port()));
    let error = refusal(&dsn);
    assert!(error.is_retryable(), "the third may come back: {error}");
    assert!(error.to_string().contains("same name") && error.to_string().contains("refused"), "{error}");
}

#[test]
fn a_term_over_tls() {
    let ground = Ground::shared();
    let store = PostgresStore::connect(&ground.dsn("sslmode=verify-full sslrootcert={ca}")).unwrap();
    let config = Config::builder("a term").lease_duration(LEASE).build().unwrap();
    let elector = Elector::start(store.clone(), config).unwrap();
    let guard = elector.wait_for_leadership_timeout(OP).unwrap();
    guard.publish("over TLS").unwrap();
    assert_eq!(look(&store, "a term").payload(), Some(&b"over TLS"[..]));
    assert!(guard.remaining() > Duration::from_secs(5));
    guard.resign().unwrap();
    assert!(look(&store, "a term").is_released());
}
