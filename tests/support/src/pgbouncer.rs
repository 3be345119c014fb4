//! A throw-away PgBouncer.

use crate::certificates::Credentials;
use crate::port::free_port;
use crate::process::{await_until, signal, stop_process, wait_for_exit};
use crate::{Postgres, cont_process, scene};
use parking_lot::Mutex;
use postgres::{Client, NoTls, SimpleQueryMessage};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(20);

/// What differs from this crate's choice of settings for a pooler.
#[derive(Clone, Debug)]
pub struct PgBouncerBuilder {
    upstream: u16,
    credentials: Option<Credentials>,
    settings: BTreeMap<String, String>,
    users: Vec<String>,
}

impl PgBouncerBuilder {
    /// `default_pool_size`; 2 unless set.
    pub fn pool_size(self, size: u32) -> PgBouncerBuilder {
        self.setting("default_pool_size", &size.to_string())
    }

    /// `pool_mode`; `transaction` unless set.
    pub fn pool_mode(self, mode: &str) -> PgBouncerBuilder {
        self.setting("pool_mode", mode)
    }

    /// `server_login_retry` in seconds; 1 unless set (PgBouncer's own default is 15).
    pub fn server_login_retry(self, seconds: u32) -> PgBouncerBuilder {
        self.setting("server_login_retry", &seconds.to_string())
    }

    /// Any line of the section `[pgbouncer]`.
    pub fn setting(mut self, name: &str, value: &str) -> PgBouncerBuilder {
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Wants TLS of its clients, and has this certificate. Its console is out of reach then.
    pub fn tls(mut self, credentials: &Credentials) -> PgBouncerBuilder {
        self.credentials = Some(credentials.clone());
        self.setting("client_tls_sslmode", "require")
    }

    /// Lets a role of the server in, beside `postgres`.
    pub fn user(mut self, name: &str) -> PgBouncerBuilder {
        self.users.push(name.to_owned());
        self
    }

    /// Makes the pooler and waits until it listens.
    pub fn start(self) -> PgBouncer {
        let mut pooler = PgBouncer {
            child: Mutex::new(None),
            dir: scene::server_dir("pgbouncer", scene::Medium::Disk),
            port: 0,
            upstream: Mutex::new(self.upstream),
            settings: self.settings,
            users: Mutex::new(self.users),
        };
        pooler.write_users();
        if let Some(credentials) = self.credentials {
            let (certificate, key) = credentials.write_for_server(pooler.dir.path());
            let mut set = |name: &str, path: &Path| {
                pooler.settings.insert(name.to_owned(), path.display().to_string());
            };
            set("client_tls_cert_file", &certificate);
            set("client_tls_key_file", &key);
        }
        for _ in 0..20 {
            pooler.port = free_port();
            pooler.write_configuration();
            if pooler.try_start() {
                return pooler;
            }
        }
        panic!("20 ports in a row were taken by others");
    }
}

/// A PgBouncer of one's own, on a free port of 127.0.0.1, in transaction mode; it passes every database name on to
/// the server. Nobody needs a password, but users other than `postgres` have to be named. Stopped and removed like
/// [`Postgres`].
#[derive(Debug)]
pub struct PgBouncer {
    child: Mutex<Option<Child>>,
    dir: TempDir,
    port: u16,
    upstream: Mutex<u16>,
    settings: BTreeMap<String, String>,
    users: Mutex<Vec<String>>,
}

/// A row of the admin console's answer: column names and values.
pub type AdminRow = BTreeMap<String, String>;

impl PgBouncer {
    /// A pooler with this crate's choice of settings.
    pub fn in_front_of(server: &Postgres) -> PgBouncer {
        PgBouncer::builder(server.port()).start()
    }

    /// A pooler for whatever answers on this port of 127.0.0.1: a server, or a proxy in front of one.
    pub fn builder(upstream: u16) -> PgBouncerBuilder {
        PgBouncerBuilder {
            upstream,
            credentials: None,
            settings: BTreeMap::new(),
            users: vec!["postgres".to_owned()],
        }
    }

    /// The port on 127.0.0.1; the same across restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address it listens on.
    pub fn addr(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The process id. Panics when the pooler is down.
    pub fn pid(&self) -> u32 {
        self.child.lock().as_ref().map(Child::id).expect("the pooler is down")
    }

    /// A DSN for `user` in `database` through the pooler.
    pub fn dsn_for(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// A DSN for the superuser in the database `postgres` through the pooler.
    pub fn dsn(&self) -> String {
        self.dsn_for("postgres", "postgres")
    }

    /// What the pooler has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("pgbouncer.log")).unwrap_or_default()
    }

    /// Runs a command of the admin console: `PAUSE`, `RESUME`, `RECONNECT`, `SHOW POOLS`, …
    #[track_caller]
    pub fn admin(&self, command: &str) -> Vec<AdminRow> {
        match self.try_admin(command) {
            Ok(rows) => rows,
            Err(error) => panic!("{command} on PgBouncer's console: {error:?}"),
        }
    }

    fn try_admin(&self, command: &str) -> Result<Vec<AdminRow>, postgres::Error> {
        let mut console = Client::connect(&self.dsn_for("postgres", "pgbouncer"), NoTls)?;
        let messages = console.simple_query(command)?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let to_map = |row: &postgres::SimpleQueryRow| {
            let columns = row.columns().iter().enumerate();
            columns
                .map(|(i, column)| (column.name().to_owned(), row.get(i).unwrap_or("").to_owned()))
                .collect()
        };
        Ok(rows.map(to_map).collect())
    }

    /// Lets a role of the server in.
    pub fn add_user(&self, name: &str) {
        self.users.lock().push(name.to_owned());
        self.write_users();
        self.admin("RELOAD");
    }

    /// Points the pooler at another server, as an operator does after a fail-over: new configuration, `RELOAD`.
    pub fn retarget(&self, upstream: u16) {
        *self.upstream.lock() = upstream;
        self.write_configuration();
        self.admin("RELOAD");
    }

    /// SIGSTOP: sockets stay open, nothing answers.
    pub fn pause_process(&self) {
        stop_process(self.pid());
    }

    /// Ends [`PgBouncer::pause_process`].
    pub fn resume_process(&self) {
        cont_process(self.pid());
    }

    /// Ends the pooler at once, as `systemctl stop` does; all connections are closed.
    pub fn stop(&self) {
        self.end(Signal::TERM);
    }

    /// SIGKILL.
    pub fn kill9(&self) {
        self.end(Signal::KILL);
    }

    fn end(&self, how: Signal) {
        if let Some(mut child) = self.child.lock().take() {
            let pid = child.id();
            signal(pid, how);
            signal(pid, Signal::CONT);
            if wait_for_exit(&mut child, LIMIT).is_none() {
                signal(pid, Signal::KILL);
                let _ = wait_for_exit(&mut child, LIMIT);
                panic!("PgBouncer did not end within {LIMIT:?} after {how:?}:\n{}", self.log());
            }
        }
    }

    /// Starts it again, on the same port, and waits until it listens.
    pub fn start(&self) {
        await_until(LIMIT, format_args!("the pooler's port {} is free again", self.port), || {
            self.try_start()
        });
    }

    /// Stop and start.
    pub fn restart(&self) {
        self.stop();
        self.start();
    }

    /// False: somebody else has the port.
    fn try_start(&self) -> bool {
        let mut running = self.child.lock();
        assert!(running.is_none(), "the pooler runs already");
        // A log of its own, since what it says there is the only proof that the port is this pooler's.
        let log_path = self.dir.path().join("pgbouncer.log");
        let log = File::create(&log_path).unwrap_or_else(|error| panic!("no log for PgBouncer: {error}"));
        let program = scene::find_program("pgbouncer", &[PathBuf::from("/usr/sbin")])
            .unwrap_or_else(|| panic!("no pgbouncer found: install it"));
        let mut command = scene::server_command(&program, self.dir.path());
        command.arg(self.dir.path().join("pgbouncer.ini")).stderr(log);
        command.stdout(std::process::Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("can't start {command:?}: {error}"));
        let child = running.insert(child);
        let begun = Instant::now();
        let listens = format!("listening on 127.0.0.1:{}", self.port);
        let ready = loop {
            let said = self.log();
            let refused = said.contains("Address already in use");
            if refused || (said.contains(&listens) && said.contains("process up")) {
                break !refused;
            }
            if let Some(status) = wait_for_exit(child, Duration::ZERO) {
                *running = None;
                panic!("PgBouncer ended with {status} instead of starting:\n{}", self.log());
            }
            assert!(begun.elapsed() < LIMIT, "PgBouncer is not up within {LIMIT:?}:\n{said}");
            std::thread::sleep(Duration::from_millis(2));
        };
        drop(running);
        if !ready {
            self.kill9();
        }
        ready
    }

    fn write_users(&self) {
        let quoted = |name: &String| format!("\"{}\" \"\"\n", name.replace('"', "\"\""));
        let lines: String = self.users.lock().iter().map(quoted).collect();
        write(&self.dir.path().join("users.txt"), &lines);
    }

    fn write_configuration(&self) {
        let port = self.port.to_string();
        let users = self.dir.path().join("users.txt").display().to_string();
        let ours = [
            ("listen_addr", "127.0.0.1"),
            ("listen_port", &port),
            ("unix_socket_dir", ""),
            ("auth_type", "trust"),
            ("auth_file", &users),
            ("admin_users", "postgres"),
            ("pool_mode", "transaction"),
            ("default_pool_size", "2"),
            ("max_client_conn", "1000"),
            ("server_login_retry", "1"),
        ];
        let mut settings: BTreeMap<&str, &str> = ours.into_iter().collect();
        settings.extend(self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let lines: String = settings.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
        let databases = format!("[databases]\n* = host=127.0.0.1 port={}\n", self.upstream.lock());
        write(&self.dir.path().join("pgbouncer.ini"), &format!("{databases}\n[pgbouncer]\n{lines}"));
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        if let Some(child) = self.child.get_mut() {
            let _ = child.kill();
            let _ = wait_for_exit(child, LIMIT);
        }
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("can't write {}: {error}", path.display()));
    scene::give_away(path);
}
