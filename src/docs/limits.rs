//! What is outside any guarantee, and what is simply not done.
//!
//! The [promise](super::design) holds through what is listed there, except where this page says otherwise.
//!
//! # Where there may be two leaders, or a fence twice
//!
//! **A first look after a leap of the database's clock.** A participant that has just started has nothing to compare
//! with, and believes the database's clock once. If that clock leapt ahead since the leader's last renewal, the lease
//! looks expired while its leader is still inside its term. [`ClockTrust::Strict`](crate::ClockTrust::Strict) closes
//! this, at the price of one lease at every start of a participant.
//!
//! **A record that goes back while nobody remembers.** Participants that live through a restore, a deleted row or a
//! truncated table have seen what was there, and wait for whoever may still lead. Those that have only just started
//! have not. So these are outside:
//!
//! - a row that is set back on the same timeline, or deleted, together with participants that start afterwards, while
//!   the old leader still runs;
//! - a row that is deleted while the statement with which somebody else wants to create it is still on its way;
//! - a released row that is brought back while nobody has yet seen its successor.
//!
//! After such an event fences rise above what the new leader has seen, or was told with
//! [`min_fence`](crate::ConfigBuilder::min_fence), and not above what nobody remembers. How to restore safely:
//! [`operating`](super::operating#restoring-a-backup).
//!
//! **An old primary that still answers.** After a promotion the old leader may go on renewing on the old primary, if
//! that one still takes writes and the leader still reaches it. No lease in a database can close this; fencing the old
//! primary is the fail-over tool's task. The fences of the new side are higher all the same, by the timeline.
//!
//! **A server that hides its timeline** (`pg_walfile_name` and `pg_current_wal_lsn` may not be called): after a
//! fail-over that lost acknowledged writes, fences may repeat. It is said once, in a warning;
//! `PostgresStore::timeline_available` tells.
//!
//! **Clocks whose rates differ** by more than the margin allows: 2.5 % with the smallest margin, which is a twentieth
//! of the lease. Not their *time*, which does not matter at all.
//!
//! **Other programs that write the table**, save for the statements in [`operating`](super::operating).
//!
//! **Systems other than Linux and Android**: there the local clock is `CLOCK_MONOTONIC`, which on some of them stops
//! while the machine sleeps. A leader that slept may then believe in a lease that is over.
//!
//! # What no lease can do
//!
//! A write that is on its way when the term ends cannot be called back, and a process can be frozen between its last
//! check and its write. What receives the write can refuse it: [`fencing`](super::fencing).
//!
//! Leadership says who may act, not what has been done. A leader that ends in the middle leaves the middle behind; see
//! [the guide](super::guide#work-that-must-not-be-done-twice).
//!
//! # Availability
//!
//! - If the database is down, nobody leads. A leader whose path to it breaks steps down, also where its work would not
//!   need the database.
//! - After a crash nobody leads for what is left of the lease.
//! - A record that went back, a change of the timeline, and with `Strict` every start, cost one lease.
//! - A transaction that keeps the row locked keeps its leader from renewing. So does a lock on the whole table, or in
//!   SQLite another program's open transaction.
//! - A process that gets too little processor time to renew loses its term. That is safe, and may be a nuisance: choose
//!   [timings](super::guide#choosing-timings) that your machines can keep.
//!
//! # Not done
//!
//! - No queue: whoever waits longest has no precedence. A participant that has just resigned lets others go first.
//! - No precedence: a `takeover_delay` lets others go first, and takes nothing back from a leader that is there.
//! - Observers look, they are not told: a term that begins and ends between two looks is not seen, nor is one whose
//!   event a slow reader has missed.
//! - No several leaders (semaphores), no shared and exclusive locks. Several elections side by side are fine.
//! - No async interface: see [the guide](super::guide#in-an-async-program).
//! - A payload is at most 64 KiB, a name 255 bytes, a label 128 bytes, a lease 31 days; the shortest duration is 1 ms.
//! - The SQLite store is for the processes of one kernel, and for Linux and Android.
//! - No MySQL.
//! - TLS is for PostgreSQL, and leaves out certificate revocation lists, encrypted private keys and GSSAPI: they are refused
//!   by name.
//! - `tenure exec` is for Linux. What it cannot end is in its section of the README.
