//! One database of a server: what a test that shares a server has for itself.

use super::{Postgres, connect};
use postgres::Client;

/// A database of a [`Postgres`]; it goes with its server.
#[derive(Clone, Debug)]
pub struct Database<'a> {
    server: &'a Postgres,
    name: String,
}

impl<'a> Database<'a> {
    pub(super) fn new(server: &'a Postgres, name: &str) -> Database<'a> {
        Database { server, name: name.to_owned() }
    }

    /// Its name, also in `PgBouncer::dsn_for`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server that it is in.
    pub fn server(&self) -> &'a Postgres {
        self.server
    }

    /// A DSN for the superuser, over TCP.
    pub fn dsn(&self) -> String {
        self.dsn_for("postgres")
    }

    /// A DSN for `user`, over TCP.
    pub fn dsn_for(&self, user: &str) -> String {
        self.server.dsn_for(user, &self.name)
    }

    /// A DSN for the superuser, over the Unix socket.
    pub fn socket_dsn(&self) -> String {
        self.server.socket_dsn_for("postgres", &self.name)
    }

    /// A DSN for the superuser through something else that leads to the server: a proxy, a pooler.
    pub fn dsn_through(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/{}", self.name)
    }

    /// A plain connection of the superuser, for set-up and assertions.
    #[track_caller]
    pub fn client(&self) -> Client {
        connect(&self.dsn())
    }

    /// Runs statements as superuser.
    #[track_caller]
    pub fn execute(&self, sql: &str) {
        if let Err(error) = self.client().batch_execute(sql) {
            panic!("{sql}: {error:?}");
        }
    }
}
