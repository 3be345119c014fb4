//! B20: the password comes from wherever it may come from, and is in nothing that a program prints. Each is a process
//! of its own, since the environment and the log's sink are the process's own.

use std::process::Command;
use std::time::Duration;

use tenure::{Config, Elector, PostgresStore, Store, Term};
#[cfg(feature = "tls")]
use tenure_testground::Authority;
use tenure_testground::{Postgres, Process, await_until, free_port};

use crate::leaks::{as_child, await_word, say};

const OP: Duration = Duration::from_secs(10);
const PASSWORD: &str = "S3cr3t-%40 x'";
const ENCODED: &str = "S3cr3t-%2540%20x%27";
const QUOTED: &str = r"'S3cr3t-%40 x\''";
/// In all forms of it, also the wrong ones.
const MARK: &str = "S3cr3t";

/// A server that wants passwords over TCP, and the DSN without one.
fn with_passwords() -> (Postgres, String) {
    let server = Postgres::start_new();
    server.create_role("app", &format!("PASSWORD '{}'", PASSWORD.replace('\'', "''")));
    let rules = "local all all trust\nhost all postgres all trust\nhost all all all scram-sha-256\n";
    std::fs::write(server.data_dir().join("pg_hba.conf"), rules).unwrap();
    server.reload();
    let dsn = format!("postgres://app@127.0.0.1:{}/postgres", server.port());
    await_until(OP, "the new rules hold", || {
        PostgresStore::connect(&dsn)
            .unwrap()
            .observe("p", OP)
            .unwrap_err()
            .to_string()
            .contains("no password")
    });
    (server, dsn)
}

pub(crate) fn b20_the_password_may_come_from_the_environment() {
    let (_server, dsn) = with_passwords();
    for (password, code) in [(PASSWORD, "42P01"), ("S3cr3tWrong", "28P01")] {
        let mut child = Process::spawn_self(|command| {
            as_child(command, "logs_in", &dsn).env("PGPASSWORD", password);
        });
        let said = await_word(&mut child, "refused");
        assert!(said.contains(code) && !said.contains(MARK), "{said}");
        assert!(child.wait(OP).success());
    }
}

/// What the environment says of TLS holds where the connection string is silent, and nowhere else.
#[cfg(feature = "tls")]
pub(crate) fn b20_tls_may_be_asked_for_in_the_environment() {
    let authority = Authority::new("ours");
    let server = Postgres::builder().tls(&authority.server(&["localhost"])).start();
    let files = tempfile::tempdir().unwrap();
    let path = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let (ca, other) = (
        path(authority.write(files.path(), "ca.crt")),
        path(Authority::new("another").write(files.path(), "other.crt")),
    );
    let (cert, key) = authority.client("app").write(files.path(), "app");
    let (cert, key) = (path(cert), path(key));
    let (here, by_address) = ("host=localhost", "host=127.0.0.1");
    let cases = [
        (here, &[("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", &*ca)][..], "42P01"),
        (by_address, &[("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", &ca)], "for the host 127.0.0.1"),
        (here, &[("PGSSLMODE", "verify-ca"), ("PGSSLROOTCERT", &other)], "other.crt has signed"),
        (here, &[("PGSSLROOTCERT", "system"), ("SSL_CERT_FILE", &ca)], "42P01"),
        (here, &[("PGSSLMODE", "verify-full"), ("SSL_CERT_FILE", &ca)], "42P01"),
        (
            here,
            &[("PGSSLMODE", "verify-full"), ("SSL_CERT_FILE", &other)],
            "the system's (sslrootcert=system)",
        ),
        (here, &[("PGSSLMODE", "verify-full"), ("SSL_CERT_FILE", &key)], "malformed: sslrootcert is missing"),
        (here, &[("PGSSLMODE", "require"), ("PGSSLNEGOTIATION", "direct")], "sslnegotiation=direct takes"),
        (here, &[("PGSSLCERT", &cert), ("PGSSLKEY", &key)], "42P01"),
        (here, &[("PGSSLCERT", &cert), ("PGSSLKEY", &cert)], "malformed: sslkey names"),
        (here, &[("PGSSLMODE", "strict")], "malformed: sslmode has an unknown value (from PGSSLMODE)"),
        (here, &[("PGSSLROOTCERT", "/nonexistent")], "malformed: sslrootcert names /nonexistent"),
        ("host=localhost sslmode=disable", &[("PGSSLMODE", "strict")], "42P01"),
        ("host=localhost sslmode=disable", &[("PGSSLROOTCERT", "/nonexistent")], "42P01"),
    ];
    for (host, variables, outcome) in cases {
        let dsn = format!("{host} port={} user=postgres password=S3cr3t", server.port());
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = as_child(&mut command, "tries", &dsn).env("HOME", "/nonexistent");
        let run = command.env_remove("SSL_CERT_DIR").envs(variables.iter().copied()).output().unwrap();
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(text.contains(outcome), "{dsn} {variables:?}: not {outcome}: {text}");
        assert!(!text.contains(MARK), "{text}");
    }
}

#[cfg(feature = "tls")]
pub(crate) fn child_tries(dsn: &str) {
    match PostgresStore::connect(dsn) {
        Ok(store) => say(&format!("{:?}", store.observe("p", OP))),
        Err(error) => say(&format!("malformed: {error} {error:?}")),
    }
}

pub(crate) fn child_logs_in(dsn: &str) {
    let store = PostgresStore::connect(dsn).unwrap();
    say(&format!("refused: {}", store.observe("p", OP).unwrap_err()));
}

pub(crate) fn b20_whatever_is_shown_the_password_is_not_in_it() {
    let (server, bare) = with_passwords();
    PostgresStore::connect(&server.dsn()).unwrap().ensure_schema().unwrap();
    server.execute("GRANT SELECT, INSERT, UPDATE ON leader_election TO app");
    let port = server.port();
    let url = format!("postgres://app:{ENCODED}@127.0.0.1:{port}/postgres");
    let pairs = format!("host=127.0.0.1 port={port} user=app password={QUOTED} dbname=postgres");
    let refused = |dsn: &str| dsn.replace(&port.to_string(), &free_port().to_string());
    let wrong = |dsn: &str| dsn.replace(MARK, "S3cr3tWrong");
    // What each comes to: the DSN, PGPASSWORD, and what has to be said.
    let cases = [
        (url.clone(), None, "started_leading panicked: out of luck"),
        (pairs.clone(), None, "started_leading panicked: out of luck"),
        (bare.clone(), Some(PASSWORD), "started_leading panicked: out of luck"),
        (wrong(&url), None, "28P01"),
        (wrong(&pairs), None, "28P01"),
        (bare, Some("S3cr3tWrong"), "28P01"),
        (refused(&url), None, "refused"),
        (refused(&pairs), None, "refused"),
        (url.replace("@127.0.0.1", "/S3cr3t@127.0.0.1"), None, "malformed"),
        (pairs.replace("x\\''", "x"), None, "malformed"),
    ];
    for (dsn, password, outcome) in cases {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = as_child(&mut command, "shows_all", &dsn).env("RUST_BACKTRACE", "0");
        password.map(|password| command.env("PGPASSWORD", password));
        let run = command.output().unwrap();
        let text =
            [run.stdout, run.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(run.status.success() && text.contains(outcome), "{outcome}: {text}");
        assert!(!text.contains(MARK) && !text.contains("%2540"), "{outcome}: {text}");
    }
}

/// The key-values of a record.
struct Values(String);

impl<'kvs> log::kv::VisitSource<'kvs> for Values {
    fn visit_pair(
        &mut self,
        key: log::kv::Key<'kvs>,
        value: log::kv::Value<'kvs>,
    ) -> Result<(), log::kv::Error> {
        self.0.push_str(&format!(" {key}={value:?}"));
        Ok(())
    }
}

/// Everything that is logged, at whatever level, goes to standard error.
struct Everything;

impl log::Log for Everything {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    #[allow(clippy::print_stderr, reason = "a log")]
    fn log(&self, record: &log::Record<'_>) {
        let mut values = Values(String::new());
        record.key_values().visit(&mut values).expect("the visitor never fails");
        eprintln!("{} {}: {}{}", record.level(), record.target(), record.args(), values.0);
    }

    fn flush(&self) {}
}

/// Shows all that can be shown, and leads until its work panics.
pub(crate) fn child_shows_all(dsn: &str) {
    log::set_logger(&Everything).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    say(&format!("{:?}", PostgresStore::builder(dsn)));
    let store = match PostgresStore::connect(dsn) {
        Ok(store) => store,
        Err(error) => return say(&format!("malformed: {error} {error:?}")),
    };
    let config = Config::builder("shown").label("l").build().unwrap();
    say(&format!("{store:?} {config:?}"));
    let elector = Elector::start(store, config).unwrap();
    let events = elector.events();
    match elector.wait_for_leadership_timeout(Duration::from_secs(2)) {
        Ok(guard) => say(&format!("{guard:?} {:?}", guard.term())),
        Err(error) => say(&format!("{error} {error:?}")),
    }
    let status = elector.status();
    say(&format!("{elector:?} {status:?} {:?}", events.try_iter().collect::<Vec<_>>()));
    if let Some(error) = status.last_error {
        say(&format!("{error} {error:?}"));
        return;
    }
    let worked =
        elector.run(|term: Term| panic!("{}", if term.is_leader() { "out of luck" } else { "lost" }));
    say(&worked.map_err(|error| format!("{error} {error:?}")).unwrap_err());
}
