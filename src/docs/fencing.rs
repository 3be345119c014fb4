//! How to keep the writes of a leader that has been superseded out of the data.
//!
//! [`check`](crate::LeaderGuard::check) says that the term is live *now*. Between that and the write that follows, the
//! process can be frozen for longer than its lease; when it goes on, it writes into the term of its successor. No lease
//! can prevent that. Whatever is written to can: every term has a [`Fence`](crate::Fence), and each is higher than all
//! before it.
//!
//! | the data is in | use |
//! | --- | --- |
//! | the PostgreSQL database that holds the lease | the fenced commit |
//! | another PostgreSQL, or another database with transactions | the fence in a column |
//! | a process of yours: a service, a file, a device | [`FenceGate`](crate::FenceGate) |
//!
//! # The fenced commit
//!
//! `guard.commit(transaction)`, of `LeaderGuard` and `Term` (feature `postgres`), takes a transaction of the
//! application's own. As its last statement before the commit it locks the lease's row and compares name, holder, fence
//! and expiry with the database's clock. Then it commits; or it rolls back, with `CommitError::Stale`. A take-over waits
//! for the row, so nobody's term begins in between. The tables of the application need no column for this.
//!
//! `guard.verify(&mut transaction)` is the check alone, for those who commit by themselves.
//!
//! # The fence in a column
//!
//! With the fence in the row, an update compares it. A statement that waited for the row judges by what it finds then.
//!
//! ```sql
//! -- 0 rows: a stale leader; roll back
//! UPDATE account SET balance = $2, fence = $1 WHERE id = 7 AND fence <= $1;
//! ```
//!
//! That guards rows which are updated. For work that also inserts and deletes, let one row stand for all of it, and make
//! this the first statement of each transaction. A newer leader's transaction waits for it to end, an older one's
//! changes nothing:
//!
//! ```sql
//! -- once
//! CREATE TABLE ledger_fence (fence bigint NOT NULL);
//! INSERT INTO ledger_fence VALUES (0);
//! ```
//!
//! ```sql
//! -- 0 rows: a stale leader; roll back
//! UPDATE ledger_fence SET fence = $1 WHERE fence <= $1;
//! ```
//!
//! # A trigger that refuses a falling fence
//!
//! So that a statement which forgets the condition fails, and does not overwrite. One that sets no fence passes: the
//! trigger cannot know whose it is.
//!
//! ```sql
//! CREATE FUNCTION refuse_a_falling_fence() RETURNS trigger LANGUAGE plpgsql AS $$
//! BEGIN
//!     RAISE EXCEPTION 'fence % is stale: % has been here', NEW.fence, OLD.fence USING ERRCODE = 'TF001';
//! END $$;
//! CREATE TRIGGER refuse_a_falling_fence BEFORE UPDATE ON account
//!     FOR EACH ROW WHEN (NEW.fence < OLD.fence) EXECUTE FUNCTION refuse_a_falling_fence();
//! ```
//!
//! # Elsewhere
//!
//! Send the fence along with each request, and let the receiver put a [`FenceGate`](crate::FenceGate) in front of what
//! it owns. An interface that offers a conditional write on a version or generation (object stores do) can keep the fence
//! there.
//!
//! Fences of one election only can be compared. One that was given a new name, or a new table, begins again; see
//! [`min_fence`](crate::ConfigBuilder::min_fence).
