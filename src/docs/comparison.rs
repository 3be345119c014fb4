//! How other ways to elect a leader do under the same faults, measured, and what to choose.
//!
//! # The measurement
//!
//! Two participants on PostgreSQL 15, each a process of its own, with a lease of 3 s. Three faults:
//!
//! - **Black hole.** The leader's path to the database is cut in the worst way: its sockets stay open, and nothing is
//!   forwarded. How long until the old leader says that it leads no more, and for how long are there two?
//! - **Crash.** SIGKILL to the leader. How long until the next one leads?
//! - **Clean stop.** SIGTERM to the leader, as in a deployment. How long until the next one leads?
//!
//! And: does it work behind PgBouncer 1.18 in transaction mode?
//!
//! | | old leader steps down after | two leaders for | crash → next leader, median | clean stop → next leader, median | behind PgBouncer |
//! | --- | --- | --- | --- | --- | --- |
//! | **this crate** | 1.8 s (2.0 s) | 0 s | 2.8 s (3.0 s) | 0.14 s (0.29 s) | works (next row) |
//! | **this crate**, through PgBouncer | 1.8 s (2.0 s) | 0 s | 2.8 s (3.0 s) | 0.14 s (0.31 s) | |
//! | pg_lease 0.1.3 (Rust) | never in 25 s | over 22 s | 2.7 s | 0.50 s | no leader at all (prepared statements) |
//! | pglock (Go) | never in 25 s | over 20 s | 4.1 s | 1.09 s | works |
//! | River's elector (Go; 15 s of lease, LISTEN) | 25 s | 11.1 s | 15.1 s | 0.077 s | only in poll mode |
//! | dislock (a command, Python) | the child still ran at 25 s | over 22 s | no figure | no figure | no figure |
//! | session advisory lock (sqlx) | never, and nobody takes over | 0 s | 0.45 s | 0.45 s | three leaders at once |
//! | autumn-web `LeaseLock` 0.9 (Rust, tokio) | 1.3 s | 0 s (1 s to spare) | 2.5 s | 0.45 s | works |
//!
//! *This crate*: 20 rounds of each fault on each path, 30 November 2026, two cores, Debian 12, PostgreSQL 15.18 with
//! `fsync` on, PgBouncer 1.18, everything on one machine. 0.5 s between renewals, 0.3 s between looks, 0.4 s for a
//! call, 1 s of margin. The faults are spread evenly over the time between two renewals. In brackets the longest. *Two
//! leaders*: for how long two processes were told by `check` that they lead; each asks every 3 ms. From the cut to the
//! next leader it took 2.8 s (3.0 s), through PgBouncer 2.8 s (3.0 s). Repeat it with
//!
//! ```text
//! cargo bench --bench failover
//! ```
//!
//! *The others*: measured under the same faults on PostgreSQL 15, with a lease of 3 s where nothing else is said. They
//! go on developing; measure what you mean to use.
//!
//! # Reading the table
//!
//! *Two leaders* is what an election is for; it must be 0. Of those with 0, the advisory lock pays for it: behind a
//! dead path it keeps the lock for as long as the server keeps the session, and nobody takes over; behind a transaction
//! pooler it is no lock.
//!
//! *Steps down after* is bounded by `lease_duration - safety_margin`, here 2 s after the last renewal. Less is better
//! only as long as a renewal that is late for a moment does not end a term.
//!
//! After a *crash* a lease has to run out: 3 s, less the time since the last renewal, is what there is. An advisory
//! lock is freed with the connection, which is quicker, as long as the machine lives to close it.
//!
//! After a *clean stop* the next one leads when it looks; a notification would be quicker. Here it polls.
//!
//! The causes of the failures, as read in the code: a read on a socket that nothing interrupts; a loop that tries to
//! release before anyone is told; an `is_leader` that never looks at a deadline. See [`failures`](super::failures).
//!
//! # What it costs
//!
//! On the same machine, with `cargo bench --bench check --bench postgres`:
//!
//! | | costs |
//! | --- | --- |
//! | [`check`](crate::LeaderGuard::check) | 1.1 times what reading the clock costs (24.9 and 22.5 ns, the quickest of 100 samples each, beside builds) |
//! | [`is_leader`](crate::Elector::is_leader) of the elector | 1.3 times what reading the clock costs (28.7 ns, likewise) |
//! | a candidate's look | no WAL and no transaction id, in a thousand of them; 4 times as long as the driver's `SELECT 1` over an open connection |
//! | a leader's renewal | about 180 bytes of WAL and one transaction id; 30 times as long as a look, since it is synced to the disk |
//!
//! So a fleet costs one small update in each `renew_interval`, however many candidates there are, and a read of each
//! candidate in each `retry_period`. A look that is written as an upsert costs a transaction id, 96 to 170 bytes of WAL
//! and a sync each time.
//!
//! # What to choose
//!
//! | you have | use |
//! | --- | --- |
//! | etcd, ZooKeeper, Consul | their elections, and a deadline of your own that is looked at before acting |
//! | Kubernetes, and all replicas in one cluster | its leases, likewise |
//! | work that fits into one transaction | `pg_advisory_xact_lock` in that transaction, and no leader: it ends with it, behind a pooler too |
//! | work that is rows in a table | `SELECT ... FOR UPDATE SKIP LOCKED`: no leader is needed |
//! | processes on one machine, and no other machine ever | a lock on a file, which the kernel frees with the process; or the SQLite store, if you want fences |
//! | an async program that wants an async interface | a library that has one; or [a thread](super::guide#in-an-async-program) |
//! | PostgreSQL, several machines or clusters, blocking programs | this crate |
