//! Connections from a pool that the application already has.
//!
//! They are plain clients without a deadline: a call that hangs in one of them keeps a thread of ours, and
//! the pool's slot, until the server or the system lets go. The caller is back in time all the same; see
//! `worker`.

use std::time::Instant;

use postgres::tls::{MakeTlsConnect, TlsConnect};
use postgres::{Error, Row, Socket};
use r2d2::{Pool, PooledConnection};
use r2d2_postgres::PostgresConnectionManager;

use super::session::{Session, Source, Typed};
use crate::store::StoreError;

pub(super) struct BorrowedPool<T>(pub(super) Pool<PostgresConnectionManager<T>>)
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send;

impl<T> Source for BorrowedPool<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    /// A pool does not say how old a connection is, and has no way to ask for a new one.
    fn session(&self, until: Instant, _fresh: bool) -> Result<Box<dyn Session>, StoreError> {
        match self.0.get_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(client) => Ok(Box::new(Borrowed(client))),
            Err(error) => {
                Err(StoreError::timeout("the application's pool gave no connection in time")
                    .with_source(error))
            }
        }
    }

    fn describe(&self) -> String {
        "the application's pool".to_owned()
    }
}

struct Borrowed<T>(PooledConnection<PostgresConnectionManager<T>>)
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send;

impl<T> Session for Borrowed<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn is_reused(&self) -> bool {
        true
    }

    fn query(&mut self, sql: &str, parameters: &[Typed<'_>], _until: Instant) -> Result<Vec<Row>, Error> {
        self.0.query_typed(sql, parameters)
    }

    /// The pool drops what is closed, and offers no way to drop anything else.
    fn discard(self: Box<Self>, _wrong_server: bool) {}
}
