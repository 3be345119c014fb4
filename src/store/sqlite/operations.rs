//! What the operations of a store do to a row, inside a transaction.
//!
//! A write holds the lock of the whole file from its beginning, so it reads the row, decides, and writes, and nobody
//! comes in between.
//!
//! No timeline (rule 15). A fence can be lost only where an acknowledged write is, and here that is a commit on this
//! host's disk; there is no server that another one could be promoted for. The boot is not a timeline either: a
//! changed timeline means that a leader of the old one may still be there, and of an earlier boot nobody is.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::boot::Boot;
use super::error::Failure;
use super::row::{COLUMNS, Stored};
use super::schema::{self, Table};
use crate::lease::{Bid, Fence, Lease, Renewal, Timestamp, Version};

/// The rows in a transaction.
pub(super) struct Rows<'a> {
    connection: &'a Connection,
    table: &'a Table,
    boot: &'a Boot,
}

impl<'a> Rows<'a> {
    pub(super) fn new(connection: &'a Connection, table: &'a Table, boot: &'a Boot) -> Rows<'a> {
        Rows { connection, table, boot }
    }

    pub(super) fn create_table(&self) -> Result<(), Failure> {
        self.connection.execute_batch(&self.table.ddl())?;
        // Somebody else may have been faster.
        schema::is_there(self.connection, self.table).map(drop)
    }

    /// What this connection says of itself.
    pub(super) fn setting(&self, pragma: &str) -> Result<String, Failure> {
        let number = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0).map(|number| number.to_string());
        let text = |row: &rusqlite::Row<'_>| row.get(0).or_else(|_| number(row));
        Ok(self.connection.pragma_query_value(None, pragma, text)?)
    }

    /// Whether there is a table that can carry elections; an error where there is one that can't.
    pub(super) fn has_table(&self) -> Result<bool, Failure> {
        schema::is_there(self.connection, self.table)
    }

    /// The lease, with the time after it was read.
    pub(super) fn find(&self, name: &str) -> Result<Option<Lease>, Failure> {
        let stored = self.stored(name)?;
        Ok(stored.map(|stored| stored.lease(name, self.boot, self.boot.now())))
    }

    /// All leases by name, with the time after they were read.
    pub(super) fn all(&self) -> Result<Vec<Lease>, Failure> {
        // The name is not the first column, so that the others are where they always are.
        let sql = format!(
            "SELECT {COLUMNS}, name FROM {} ORDER BY name COLLATE BINARY LIMIT {}",
            self.table,
            Lease::MAX_LISTED
        );
        let mut statement = self.connection.prepare(&sql)?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>("name")?, Stored::of(row)?)))?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        let now = self.boot.now();
        Ok(rows.into_iter().map(|(name, stored)| stored.lease(&name, self.boot, now)).collect())
    }

    /// The lease at the time of a write.
    fn find_at(&self, name: &str, now: Timestamp) -> Result<Option<Lease>, Failure> {
        let stored = self.stored(name)?;
        Ok(stored.map(|stored| stored.lease(name, self.boot, now)))
    }

    fn stored(&self, name: &str) -> rusqlite::Result<Option<Stored>> {
        let sql = format!("SELECT {COLUMNS} FROM {} WHERE name = ?1", self.table);
        self.connection.query_row(&sql, [name], Stored::of).optional()
    }
}

/// A [`Bid`] that a thread of the store's can keep.
pub(super) struct Acquire {
    name: String,
    holder: String,
    lease_duration: Duration,
    payload: Option<Vec<u8>>,
    above: i64,
    over: Option<Version>,
    timeline: Option<u32>,
}

impl Acquire {
    pub(super) fn of(bid: &Bid<'_>) -> Acquire {
        Acquire {
            name: bid.name.to_owned(),
            holder: bid.holder.to_owned(),
            lease_duration: bid.lease_duration,
            payload: bid.payload.map(<[u8]>::to_vec),
            above: bid.above,
            over: bid.over.clone(),
            timeline: bid.timeline,
        }
    }

    pub(super) fn run(&self, rows: &Rows<'_>) -> Result<Option<Lease>, Failure> {
        let now = rows.boot.now();
        let found = rows.find_at(&self.name, now)?;
        let stored = match (&found, &self.over) {
            _ if self.timeline.is_some() => return Ok(None),
            (None, None) => 0,
            (Some(lease), Some(over)) if lease.version() == *over => lease.fence().get(),
            _ => return Ok(None),
        };
        let fence = Fence::after(stored.max(self.above), None)
            .ok_or_else(|| Failure::fatal("has no fences left for this election"))?;
        let sql = format!(
            "INSERT INTO {} (name, holder, fence, boot, acquired_at, renewed_at, expires_at, mark, payload)
             VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, 1, ?7)
             ON CONFLICT (name) DO UPDATE SET
               holder = excluded.holder, fence = excluded.fence, boot = excluded.boot,
               acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at,
               expires_at = excluded.expires_at, mark = mark + 1, payload = excluded.payload",
            rows.table
        );
        let expires_at = now + self.lease_duration;
        rows.connection.execute(
            &sql,
            params![
                self.name,
                self.holder,
                fence.get(),
                rows.boot.id(),
                now.as_micros(),
                expires_at.as_micros(),
                self.payload
            ],
        )?;
        rows.find_at(&self.name, now)
    }
}

/// A [`Renewal`] that a thread of the store's can keep.
pub(super) struct Renew {
    name: String,
    holder: String,
    fence: Fence,
    lease_duration: Duration,
    payload: Option<Vec<u8>>,
}

impl Renew {
    pub(super) fn of(renewal: &Renewal<'_>) -> Renew {
        Renew {
            name: renewal.name.to_owned(),
            holder: renewal.holder.to_owned(),
            fence: renewal.fence,
            lease_duration: renewal.lease_duration,
            payload: renewal.payload.map(<[u8]>::to_vec),
        }
    }

    pub(super) fn run(&self, rows: &Rows<'_>) -> Result<Option<Lease>, Failure> {
        let now = rows.boot.now();
        match rows.find_at(&self.name, now)? {
            Some(lease) if is_of(&lease, &self.holder, self.fence) && !lease.is_expired() => {}
            _ => return Ok(None),
        }
        let sql = format!(
            "UPDATE {} SET renewed_at = ?2, expires_at = ?3, mark = mark + 1, payload = ?4 WHERE name = ?1",
            rows.table
        );
        let expires_at = now + self.lease_duration;
        rows.connection
            .execute(&sql, params![self.name, now.as_micros(), expires_at.as_micros(), self.payload])?;
        rows.find_at(&self.name, now)
    }
}

pub(super) struct Release {
    pub(super) name: String,
    pub(super) holder: String,
    pub(super) fence: Fence,
}

impl Release {
    pub(super) fn run(&self, rows: &Rows<'_>) -> Result<(), Failure> {
        match rows.find(&self.name)? {
            Some(lease) if is_of(&lease, &self.holder, self.fence) && !lease.is_released() => {}
            _ => return Ok(()),
        }
        let sql = format!("UPDATE {} SET expires_at = 0, mark = mark + 1 WHERE name = ?1", rows.table);
        rows.connection.execute(&sql, params![self.name])?;
        Ok(())
    }
}

fn is_of(lease: &Lease, holder: &str, fence: Fence) -> bool {
    lease.held_by(holder) && lease.fence() == fence
}
