//! Where a call gets its connection from.

use std::time::Instant;

use postgres::types::{ToSql, Type};
use postgres::{Error, Row};

use crate::store::StoreError;

/// A parameter together with its type, so that the server need not be asked for it.
pub(super) type Typed<'a> = (&'a (dyn ToSql + Sync), Type);

/// Something that has connections.
pub(super) trait Source: Send + Sync {
    /// A session for one call. With `fresh` it is one that was opened just now.
    fn session(&self, until: Instant, fresh: bool) -> Result<Box<dyn Session>, StoreError>;

    /// For `Debug` output; no password.
    fn describe(&self) -> String;

    /// Whether a server has to prove who it is; `None` where that is somebody else's affair.
    fn verifies(&self) -> Option<bool> {
        None
    }
}

/// A connection lent for a call. Dropped, it is there for the next one.
pub(super) trait Session {
    /// Whether it was open already: the server may have closed it meanwhile.
    fn is_reused(&self) -> bool;

    /// One statement, one round trip.
    fn query(&mut self, sql: &str, parameters: &[Typed<'_>], until: Instant) -> Result<Vec<Row>, Error>;

    /// Closes it. `wrong_server`: and look for another server next time.
    fn discard(self: Box<Self>, wrong_server: bool);
}
