//! The store's own small pool.
//!
//! A slot of the pool is opened by the thread that needs it, within that call's deadline, and not by the
//! pool: a pool that connects on a thread of its own reports no typed error, waits between its attempts
//! without knowing who is in a hurry, and goes on trying after everybody has left. The pool keeps what it is
//! good at: how many there are, which is free, and when one has got too old.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use postgres::{Client, Error, Row};
use r2d2::{ManageConnection, NopErrorHandler, Pool, PooledConnection};
use scheduled_thread_pool::{OnPoolDropBehavior, ScheduledThreadPool};

use super::connect::Opener;
use super::connection::Deadline;
use super::error;
use super::session::{Session, Source, Typed};
use crate::store::StoreError;

/// Closing says good-bye to the server, and waits no longer for that to be sent.
const CLOSE_BOUND: Duration = Duration::from_millis(50);
const MAX_LIFETIME: Duration = Duration::from_secs(600);
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// An open connection.
pub(super) struct Connection {
    client: Client,
    deadline: Deadline,
    /// Which of the connection string's servers it leads to.
    server: usize,
    /// False during a call, and after one that leaves the session in an unknown state.
    sound: bool,
}

impl Connection {
    pub(super) fn new(client: Client, deadline: Deadline, server: usize) -> Connection {
        Connection { client, deadline, server, sound: true }
    }

    fn query(&mut self, sql: &str, parameters: &[Typed<'_>], until: Instant) -> Result<Vec<Row>, Error> {
        self.sound = false;
        self.deadline.arm(until);
        let result = self.client.query_typed(sql, parameters);
        self.deadline.disarm();
        self.sound = result.as_ref().map_or_else(error::session_survives, |_| true);
        result
    }

    fn is_usable(&self) -> bool {
        self.sound && !self.deadline.has_passed() && !self.client.is_closed()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.deadline.arm(Instant::now() + CLOSE_BOUND);
    }
}

/// A place in the pool.
#[derive(Default)]
struct Slot(Option<Connection>);

struct Slots;

impl ManageConnection for Slots {
    type Connection = Slot;
    type Error = Infallible;

    fn connect(&self) -> Result<Slot, Infallible> {
        Ok(Slot::default())
    }

    /// Left to the first statement, which shows it without a round trip more.
    fn is_valid(&self, _: &mut Slot) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, slot: &mut Slot) -> bool {
        !slot.0.as_ref().is_some_and(Connection::is_usable)
    }
}

/// The pool; created, with its thread, when it is first used.
pub(super) struct OwnPool {
    opener: Arc<Opener>,
    size: u32,
    slots: Mutex<Option<Pool<Slots>>>,
}

impl OwnPool {
    pub(super) fn new(opener: Opener, size: u32) -> OwnPool {
        OwnPool { opener: Arc::new(opener), size, slots: Mutex::new(None) }
    }

    fn slots(&self) -> Result<Pool<Slots>, StoreError> {
        let mut slots = self.slots.lock();
        if let Some(pool) = &*slots {
            return Ok(pool.clone());
        }
        // The pool panics where it can't start its thread; see first whether one can be started.
        let attempt = thread::Builder::new().spawn(|| ()).map_err(|error| {
            StoreError::retryable("can't start a thread for the database").with_source(error)
        })?;
        // It makes room for the pool's.
        attempt.join().ok();
        let housekeeping = ScheduledThreadPool::builder()
            .num_threads(1)
            .thread_name_pattern("tenure-pg-pool")
            .on_drop_behavior(OnPoolDropBehavior::DiscardPendingScheduled)
            .build();
        let pool = Pool::builder()
            .max_size(self.size)
            .min_idle(Some(0))
            .max_lifetime(Some(MAX_LIFETIME))
            .idle_timeout(Some(IDLE_TIMEOUT))
            .thread_pool(Arc::new(housekeeping))
            .error_handler(Box::new(NopErrorHandler))
            .build_unchecked(Slots);
        *slots = Some(pool.clone());
        Ok(pool)
    }
}

impl Source for OwnPool {
    fn session(&self, until: Instant, fresh: bool) -> Result<Box<dyn Session>, StoreError> {
        let slots = self.slots()?;
        let mut slot = slots
            .get_timeout(until.saturating_duration_since(Instant::now()))
            .map_err(|error| StoreError::timeout("no connection became free in time").with_source(error))?;
        if fresh {
            slot.0 = None;
        }
        let is_reused = slot.0.is_some();
        if !is_reused {
            slot.0 = Some(self.opener.open(until)?);
        }
        Ok(Box::new(Lent { slot, is_reused, opener: Arc::clone(&self.opener) }))
    }

    fn describe(&self) -> String {
        self.opener.describe()
    }

    fn verifies(&self) -> Option<bool> {
        self.opener.verifies()
    }
}

/// A slot with an open connection, for one call.
struct Lent {
    slot: PooledConnection<Slots>,
    is_reused: bool,
    opener: Arc<Opener>,
}

impl Session for Lent {
    fn is_reused(&self) -> bool {
        self.is_reused
    }

    fn query(&mut self, sql: &str, parameters: &[Typed<'_>], until: Instant) -> Result<Vec<Row>, Error> {
        // There is one: a session is only made with an open connection.
        self.slot.0.as_mut().map_or(Ok(Vec::new()), |connection| connection.query(sql, parameters, until))
    }

    fn discard(mut self: Box<Self>, wrong_server: bool) {
        if let (Some(connection), true) = (self.slot.0.take(), wrong_server) {
            self.opener.avoid(connection.server);
        }
    }
}
