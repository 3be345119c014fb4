//! How a server is configured and made.

use super::{Postgres, Running, install};
use crate::certificates::{Authority, Credentials};
use crate::port::free_port;
use crate::scene::{self, Medium};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use tempfile::TempDir;

/// What differs from this crate's choice of settings.
#[derive(Clone, Debug, Default)]
pub struct PostgresBuilder {
    settings: BTreeMap<String, String>,
    env: Vec<(String, String)>,
    credentials: Option<Credentials>,
    client_authority: Option<String>,
    rules: Option<String>,
}

impl PostgresBuilder {
    /// A line of `postgresql.conf`, e.g. `setting("wal_level", "logical")`.
    pub fn setting(mut self, name: &str, value: &str) -> PostgresBuilder {
        let ours =
            ["port", "listen_addresses", "unix_socket_directories", "cluster_name", "logging_collector"];
        assert!(!ours.contains(&name), "{name} is for the test ground to set");
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    /// A server that writes nothing unasked: no vacuum, no archive, no records of running transactions, no checkpoint.
    pub fn writes_nothing_unasked(self) -> PostgresBuilder {
        self.setting("autovacuum", "off")
            .setting("wal_level", "minimal")
            .setting("max_wal_senders", "0")
            .setting("checkpoint_timeout", "1h")
    }

    /// Whether commits wait for the disk; off unless asked for. With it the files are on disk for sure; without,
    /// they may be in memory.
    pub fn fsync(self, on: bool) -> PostgresBuilder {
        self.setting("fsync", if on { "on" } else { "off" })
    }

    /// A variable in the server's environment.
    pub fn env(mut self, name: &str, value: &str) -> PostgresBuilder {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Several variables, as [`ClockShim::env`](crate::ClockShim::env) gives them.
    pub fn envs(mut self, variables: impl IntoIterator<Item = (String, String)>) -> PostgresBuilder {
        self.env.extend(variables);
        self
    }

    /// Speaks TLS, with this certificate.
    pub fn tls(mut self, credentials: &Credentials) -> PostgresBuilder {
        self.credentials = Some(credentials.clone());
        self
    }

    /// Asks clients for a certificate of this authority's; whether they need one is up to the rules.
    pub fn client_authority(mut self, authority: &Authority) -> PostgresBuilder {
        self.client_authority = Some(authority.certificate());
        self
    }

    /// Lines of `pg_hba.conf` for everybody but the superuser, whom this crate needs.
    pub fn rules(mut self, lines: &str) -> PostgresBuilder {
        self.rules = Some(format!("local all postgres trust\nhost all postgres all trust\n{lines}\n"));
        self
    }

    /// Makes the server and waits until it answers.
    pub fn start(self) -> Postgres {
        self.launch(|dir| install::create_data_directory(&dir.path().join("data")))
    }

    /// Makes the server as a streaming hot standby of `primary` and waits until it answers. It follows the primary
    /// by TCP on its present port.
    pub fn standby_of(self, primary: &Postgres) -> Postgres {
        self.standby_through(primary.port())
    }

    /// Like [`PostgresBuilder::standby_of`], following whatever primary answers on `port` of 127.0.0.1: a proxy's
    /// port lets a test cut the standby off.
    pub fn standby_through(self, port: u16) -> Postgres {
        self.launch(|dir| {
            let mut backup = scene::server_command(&install::program("pg_basebackup"), dir.path());
            backup.args([
                "-R",
                "-X",
                "stream",
                "-c",
                "fast",
                "--no-sync",
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "-p",
            ]);
            backup.arg(port.to_string()).arg("-D").arg(dir.path().join("data"));
            install::run(backup, dir.path());
        })
    }

    fn launch(mut self, fill: impl FnOnce(&TempDir)) -> Postgres {
        // What waits for the disk needs one.
        let durable = self.settings.get("fsync").is_some_and(|value| value != "off");
        let dir = scene::server_dir("pg", if durable { Medium::Disk } else { Medium::Fast });
        fill(&dir);
        self.write_files(dir.path());
        let mut server = Postgres {
            running: Mutex::new(Running::default()),
            dir,
            port: 0,
            settings: BTreeMap::new(),
            env: self.env,
            databases: AtomicUsize::new(0),
        };
        for _ in 0..20 {
            server.port = free_port();
            server.settings = all_settings(&self.settings, &server);
            write_configuration(&server);
            if server.try_start().is_ok() {
                return server;
            }
        }
        panic!("20 ports in a row were taken by others");
    }
}

impl PostgresBuilder {
    /// What the settings then name.
    fn write_files(&mut self, directory: &Path) {
        let text = |path: &Path| path.to_str().expect("a temporary directory in UTF-8").to_owned();
        if let Some(credentials) = &self.credentials {
            let (certificate, key) = credentials.write_for_server(directory);
            self.settings.insert("ssl".to_owned(), "on".to_owned());
            self.settings.insert("ssl_cert_file".to_owned(), text(&certificate));
            self.settings.insert("ssl_key_file".to_owned(), text(&key));
        }
        let authority = directory.join("clients.crt");
        let rules = directory.join("data/pg_hba.conf");
        if let Some(certificate) = &self.client_authority {
            self.settings.insert("ssl_ca_file".to_owned(), text(&authority));
            write(&authority, certificate);
        }
        if let Some(lines) = &self.rules {
            write(&rules, lines);
        }
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("can't write {}: {error}", path.display()));
}

fn all_settings(asked: &BTreeMap<String, String>, server: &Postgres) -> BTreeMap<String, String> {
    let own = server.dir.path().file_name().and_then(|name| name.to_str()).expect("made from ASCII");
    let cluster_name = format!("{}-{own}", scene::name());
    let socket_dir = server.dir.path().to_str().expect("a temporary directory in UTF-8");
    let ours = [
        ("listen_addresses", "127.0.0.1"),
        ("port", &server.port.to_string()),
        ("unix_socket_directories", socket_dir),
        // In the title of every process of the server: this is how the reaper finds them.
        ("cluster_name", &cluster_name),
        ("max_connections", "200"),
        ("shared_buffers", "16MB"),
        // Files in the data directory, which go with it, rather than shared memory that outlives a kill.
        ("dynamic_shared_memory_type", "mmap"),
        ("fsync", "off"),
        // The files may be in memory.
        ("max_wal_size", "256MB"),
        ("timezone", "UTC"),
        ("log_timezone", "UTC"),
        ("log_line_prefix", "%m [%p] %u@%d "),
    ];
    let mut settings: BTreeMap<String, String> =
        ours.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    settings.extend(asked.clone());
    settings
}

fn write_configuration(server: &Postgres) {
    let lines =
        server.settings.iter().map(|(name, value)| format!("{name} = '{}'\n", value.replace('\'', "''")));
    let path = server.data_dir().join("postgresql.conf");
    write(&path, &lines.collect::<String>());
}
