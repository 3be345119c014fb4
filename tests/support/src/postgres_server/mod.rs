//! A throw-away PostgreSQL server.

mod builder;
mod database;
mod install;

pub use builder::PostgresBuilder;
pub use database::Database;

use crate::process::{Stat, await_until, children, signal, stat, wait_for_exit};
use crate::scene;
use parking_lot::Mutex;
use postgres::{Client, NoTls};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Long enough for crash recovery on a machine that is busy with other tests.
const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A PostgreSQL server of one's own, on a free port of 127.0.0.1 and on a Unix socket; its superuser is `postgres`,
/// nobody needs a password.
///
/// It is stopped and removed when the value is dropped, also when a panic drops it, and when the test process ends
/// without dropping it. Durability is off (`fsync`) unless asked for: the data survives a kill of the processes
/// all the same, since the kernel has it.
#[derive(Debug)]
pub struct Postgres {
    running: Mutex<Running>,
    dir: TempDir,
    port: u16,
    settings: BTreeMap<String, String>,
    env: Vec<(String, String)>,
    databases: AtomicUsize,
}

#[derive(Debug, Default)]
struct Running {
    postmaster: Option<Child>,
    /// Stopped by [`Postgres::pause`].
    paused: Vec<Stat>,
}

/// Somebody else took the port between choosing and binding it.
struct PortTaken;

impl Postgres {
    /// A server with the settings of this crate's choice.
    pub fn start_new() -> Postgres {
        Postgres::builder().start()
    }

    /// Settings, environment, standby: see [`PostgresBuilder`].
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    /// The server that the tests of this process share; each makes itself a [`Postgres::database`]. Never pause,
    /// stop or kill this one.
    pub fn shared() -> &'static Postgres {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(Postgres::start_new)
    }

    /// A streaming hot standby of `primary`, with the settings of this crate's choice.
    pub fn standby_of(primary: &Postgres) -> Postgres {
        Postgres::builder().standby_of(primary)
    }

    /// The port on 127.0.0.1; the same across restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address it listens on.
    pub fn addr(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The directory of the Unix socket.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }

    /// The name in `cluster_name`, which is also the `application_name` of this server's WAL receiver.
    pub fn cluster_name(&self) -> &str {
        &self.settings["cluster_name"]
    }

    /// The postmaster's process id. Panics when the server is down.
    pub fn pid(&self) -> u32 {
        self.running.lock().postmaster.as_ref().map(Child::id).expect("the server is down")
    }

    /// The postmaster and all its children.
    pub fn pids(&self) -> Vec<u32> {
        let postmaster = self.pid();
        let children = children(postmaster).into_iter().filter(Stat::still_runs);
        std::iter::once(postmaster).chain(children.map(|child| child.pid)).collect()
    }

    /// A DSN for the superuser in the database `postgres`, over TCP.
    pub fn dsn(&self) -> String {
        self.dsn_for("postgres", "postgres")
    }

    /// A DSN for `user` in `database`, over TCP.
    pub fn dsn_for(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// A DSN for `user` in `database`, over the Unix socket.
    pub fn socket_dsn_for(&self, user: &str, database: &str) -> String {
        format!("host={} port={} user={user} dbname={database}", self.socket_dir().display(), self.port)
    }

    /// A plain connection of the superuser, for set-up and assertions. Not while the server is paused.
    #[track_caller]
    pub fn client(&self) -> Client {
        connect(&self.dsn())
    }

    /// Runs statements as superuser in the database `postgres`.
    #[track_caller]
    pub fn execute(&self, sql: &str) {
        if let Err(error) = self.client().batch_execute(sql) {
            panic!("{sql}: {error:?}");
        }
    }

    /// Creates a role that may log in; `options` as in `CREATE ROLE`, e.g. `"PASSWORD 'x'"` or `""`.
    #[track_caller]
    pub fn create_role(&self, name: &str, options: &str) {
        self.execute(&format!("CREATE ROLE \"{name}\" LOGIN {options}"));
    }

    /// Creates a database under a name of its own.
    #[track_caller]
    pub fn database(&self) -> Database<'_> {
        let number = self.databases.fetch_add(1, Ordering::Relaxed) + 1;
        self.create_database(&format!("test_{number}"))
    }

    /// Creates a database under the name given.
    #[track_caller]
    pub fn create_database(&self, name: &str) -> Database<'_> {
        // Unlike template1, nobody can ever be connected to template0.
        self.execute(&format!("CREATE DATABASE \"{name}\" TEMPLATE template0"));
        Database::new(self, name)
    }

    /// A database that is there already: what a standby has from its primary.
    pub fn existing_database(&self, name: &str) -> Database<'_> {
        Database::new(self, name)
    }

    /// SIGSTOP for the postmaster and all its children: sockets stay open, nothing answers, the kernel still
    /// accepts connections and acknowledges what is sent.
    pub fn pause(&self) {
        let mut running = self.running.lock();
        let postmaster = running.postmaster.as_ref().map(Child::id).expect("the server is down");
        // The postmaster first: from then on no children are added.
        let all = || stat(postmaster).into_iter().chain(children(postmaster));
        await_until(Duration::from_secs(10), "every process of the server stops", || {
            let moving: Vec<Stat> = all().filter(|process| !matches!(process.state, 'T' | 'Z')).collect();
            moving.iter().for_each(|process| signal(process.pid, Signal::STOP));
            moving.is_empty()
        });
        running.paused = all().collect();
    }

    /// Ends [`Postgres::pause`].
    pub fn resume(&self) {
        self.running.lock().resume();
    }

    /// A crash: SIGKILL for the postmaster and all its children.
    pub fn kill9(&self) {
        self.running.lock().kill9();
    }

    /// Fast shutdown: sessions are ended, a checkpoint is written.
    pub fn stop_fast(&self) {
        self.stop(Signal::INT);
    }

    /// Fast or immediate shutdown, and a crash where that takes too long: either waits for whoever connected while
    /// the server stopped or started, and says nothing, for up to `authentication_timeout`.
    pub fn stop_within(&self, patience: Duration, immediate: bool) {
        let mut running = self.running.lock();
        let Some(postmaster) = &mut running.postmaster else { return };
        signal(postmaster.id(), if immediate { Signal::QUIT } else { Signal::INT });
        if wait_for_exit(postmaster, patience).is_some() {
            running.postmaster = None;
        } else {
            running.kill9();
        }
    }

    /// Immediate shutdown: no checkpoint; the next start recovers as after a crash.
    pub fn stop_immediate(&self) {
        self.stop(Signal::QUIT);
    }

    fn stop(&self, how: Signal) {
        let mut running = self.running.lock();
        let Some(mut postmaster) = running.postmaster.take() else { return };
        signal(postmaster.id(), how);
        running.resume();
        if wait_for_exit(&mut postmaster, STOP_LIMIT).is_none() {
            running.postmaster = Some(postmaster);
            running.kill9();
            drop(running);
            panic!("the server did not stop within {STOP_LIMIT:?} after {how:?}:\n{}", self.log());
        }
    }

    /// Starts it again, on the same port, after a stop or a crash, and waits until it answers.
    pub fn start(&self) {
        let begun = Instant::now();
        while let Err(PortTaken) = self.try_start() {
            // Port and name are promised to be the same; whoever is on it is most likely another test's attempt.
            assert!(begun.elapsed() < START_LIMIT, "port {} was taken while the server was down", self.port);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Fast shutdown and start.
    pub fn restart(&self) {
        self.stop_fast();
        self.start();
    }

    /// Makes the server read its configuration files and `ALTER SYSTEM` settings again.
    pub fn reload(&self) {
        signal(self.pid(), Signal::HUP);
    }

    /// Promotes a standby and waits until it accepts writes.
    pub fn promote(&self) {
        let row = self.client().query_one("SELECT pg_promote(true, 60), pg_is_in_recovery()", &[]);
        let promoted = row.unwrap_or_else(|error| panic!("can't promote: {error:?}")).get::<_, bool>(0);
        assert!(promoted, "not promoted within a minute:\n{}", self.log());
        await_until(START_LIMIT, "the promoted server leaves recovery", || !self.is_in_recovery());
    }

    /// Whether it is a standby.
    pub fn is_in_recovery(&self) -> bool {
        let row = self.client().query_one("SELECT pg_is_in_recovery()", &[]);
        row.unwrap_or_else(|error| panic!("can't ask for recovery: {error:?}")).get(0)
    }

    /// Waits until the standby `standby` has replayed what this server has written up to now.
    pub fn await_replay(&self, standby: &Postgres) {
        let lsn: String = query_text(&mut self.client(), "SELECT pg_current_wal_lsn()::text");
        let mut client = standby.client();
        let replayed = format!("SELECT (pg_last_wal_replay_lsn() >= '{lsn}'::pg_lsn)::text");
        await_until(START_LIMIT, "the standby has replayed everything", || {
            query_text(&mut client, &replayed) == "true"
        });
    }

    fn try_start(&self) -> Result<(), PortTaken> {
        let mut running = self.running.lock();
        assert!(running.postmaster.is_none(), "the server runs already");
        let log_path = self.dir.path().join("server.log");
        let log = File::options().create(true).append(true).open(&log_path);
        let log = log.unwrap_or_else(|error| panic!("can't open {}: {error}", log_path.display()));
        let from = log.metadata().map_or(0, |metadata| metadata.len());
        let errors = log.try_clone().unwrap_or_else(|error| panic!("can't share the log: {error}"));
        let mut command = scene::server_command(&install::program("postgres"), self.dir.path());
        command.arg("-D").arg(self.data_dir()).stdout(log).stderr(errors);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let child = command.spawn().unwrap_or_else(|error| panic!("can't start {command:?}: {error}"));
        let pid = child.id();
        running.postmaster = Some(child);
        let begun = Instant::now();
        while !self.is_ready(pid) {
            let child = running.postmaster.as_mut().expect("just started");
            if let Some(status) = wait_for_exit(child, Duration::ZERO) {
                running.postmaster = None;
                let said = self.log();
                let said = said.get(usize::try_from(from).expect("a short log")..).unwrap_or(&said);
                if said.contains("could not create any TCP/IP sockets") || said.contains("lock file \"/tmp") {
                    return Err(PortTaken);
                }
                panic!("the server ended with {status} instead of starting:\n{said}");
            }
            assert!(begun.elapsed() < START_LIMIT, "the server is not ready:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(running);
        connect(&self.dsn());
        Ok(())
    }

    /// The server's own word, in the file that only it writes: nobody else on the port can be taken for it.
    fn is_ready(&self, pid: u32) -> bool {
        let file = std::fs::read_to_string(self.data_dir().join("postmaster.pid")).unwrap_or_default();
        let mut lines = file.lines();
        lines.next() == Some(&pid.to_string())
            && lines.nth(6).is_some_and(|status| status.starts_with("ready"))
    }
}

impl Running {
    fn resume(&mut self) {
        // Children first, so that none is waited for that can't move.
        for process in self.paused.drain(..).rev() {
            if process.still_runs() {
                signal(process.pid, Signal::CONT);
            }
        }
    }

    fn kill9(&mut self) {
        let Some(mut postmaster) = self.postmaster.take() else { return };
        let pid = postmaster.id();
        signal(pid, Signal::STOP);
        let stopped = || stat(pid).is_none_or(|stat| matches!(stat.state, 'T' | 'Z' | 'X'));
        await_until(Duration::from_secs(10), "the postmaster stops forking", stopped);
        let mut family = children(pid);
        family.append(&mut self.paused);
        for process in family.iter().filter(|process| process.still_runs()) {
            signal(process.pid, Signal::KILL);
        }
        signal(pid, Signal::KILL);
        let gone = wait_for_exit(&mut postmaster, Duration::from_secs(10));
        assert!(gone.is_some(), "the postmaster survives SIGKILL");
        await_until(Duration::from_secs(10), "every process of the server is gone", || {
            !family.iter().any(Stat::still_runs)
        });
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let running = self.running.get_mut();
        if let Some(postmaster) = &mut running.postmaster {
            // Immediate rather than killed, so that it removes its shared memory.
            let pid = postmaster.id();
            if wait_for_exit(postmaster, Duration::ZERO).is_none() {
                signal(pid, Signal::QUIT);
                running.resume();
                signal(pid, Signal::CONT);
            }
        }
        let ended =
            running.postmaster.as_mut().map(|child| wait_for_exit(child, Duration::from_secs(8)).is_some());
        if ended == Some(false) {
            running.kill9();
        }
        remove_shared_memory(&self.data_dir());
    }
}

/// A postmaster that was killed leaves a small segment behind, and its id in line 7 of the lock file.
fn remove_shared_memory(data: &Path) {
    let file = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    if let Some(segment) = file.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
        let mut ipcrm = std::process::Command::new("ipcrm");
        ipcrm.args(["-m", segment]).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let _ = ipcrm.status();
    }
}

#[track_caller]
fn connect(dsn: &str) -> Client {
    match Client::connect(dsn, NoTls) {
        Ok(client) => client,
        Err(error) => panic!("can't connect to {dsn}: {error:?}"),
    }
}

fn query_text(client: &mut Client, sql: &str) -> String {
    match client.query_one(sql, &[]) {
        Ok(row) => row.get(0),
        Err(error) => panic!("{sql}: {error:?}"),
    }
}
