//! `tenure doctor`: whether a database can carry elections, and what to mend.
//!
//! It is run as the role, and from the host, that will run elections, since rights, settings and round trips are theirs.
//! It only reads; of SQLite it takes the write lock for a moment. What is shown here was printed by it; numbers differ
//! from place to place.
//!
//! | level | meaning |
//! | --- | --- |
//! | `ok` | as it should be |
//! | `note` | elections are safe; somebody should know |
//! | `broken` | nobody can lead until it is mended |
//! | `unsafe` | two may lead, or a fence may be given out twice |
//!
//! It ends with 0 where all is `ok` or `note`, with 1 otherwise, and with 125 where nothing could be examined at all.
//! `--json` has the same for programs: a check before a deployment, say.
//!
//! # A healthy server
//!
//! ```text
//! $ tenure doctor --store postgres://app@db/app
//! 127.0.0.1:5432, database app, role app
//!
//! ok      version       PostgreSQL 15.18.
//! ok      primary       the server accepts writes.
//! ok      path          each of two connections kept a server process of its own:
//!                       direct, or a pooler in session mode.
//! note    encryption    plain text to the server.
//!                       -> fine on one host, or in a network that nobody else is
//!                       in; elsewhere whoever is on the way can read leases, and
//!                       write some of their own
//! ok      table         "public"."leader_election" has the right columns, key and
//!                       persistence.
//! ok      rights        the role app may do what it needs.
//! ok      bystanders    no triggers, rules or row-level security.
//! ok      upkeep        0 rows, 0 dead versions, 16 kB; 0 of 0 updates were HOT;
//!                       fillfactor 70.
//! ok      durability    acknowledged writes survive a crash (fsync,
//!                       full_page_writes).
//! ok      commits       synchronous_commit is on.
//! ok      fail-over     nobody replicates from this server at the moment.
//! ok      timeline      1; every promotion raises it, and fences follow.
//! ok      limits        lock_timeout 2s, statement_timeout none,
//!                       idle_in_transaction_session_timeout none.
//! ok      round trips   200 reads: half of them within 0.97 ms, 99 of 100 within
//!                       2.92 ms, the slowest 2.95 ms.
//! ok      clock         the database's is 3ms ahead of this machine's, give or
//!                       take 3.98 ms. No election depends on it.
//!
//! These timings suit it:
//!
//!     Config::builder("NAME")
//!         .lease_duration(Duration::from_secs(15))
//!         .renew_interval(Duration::from_secs(5))
//!         .retry_period(Duration::from_secs(3))
//!         .operation_timeout(Duration::from_secs(3))
//!         .safety_margin(Duration::from_millis(1500))
//!         .build()?
//!
//!     tenure exec --lease-duration=15s --renew-interval=5s \
//!         --operation-timeout=3s --safety-margin=1500ms
//!
//! Fit to carry elections; see the notes.
//! ```
//!
//! - `path`: two connections are asked several times which server process serves them. Only a pooler lends one process to
//!   both, or several to one. A pooler in session mode can't be told from none, and does not matter.
//! - `encryption` is the server's word about the session that answered. It does not know whether somebody else can listen.
//!   Encrypted to a server whose certificate nobody verified is a `note`: `sslmode=verify-full` is `ok`.
//! - `upkeep`: each renewal updates the row. In a page with room (`fillfactor`) that is a HOT update, which leaves nothing
//!   in the index. The counts are the server's statistics.
//! - `fail-over`: with standbys that no commit waits for, a fail-over can lose leases that were acknowledged. Then fences
//!   go on above the lost ones all the same, by the `timeline` ([rule 15](super::rules)). A server that hides its timeline
//!   is unsafe, unless commits wait for a standby. Where they do and none replicates, nothing is acknowledged: `broken`.
//! - `limits`: without a `lock_timeout` a statement whose caller has left may wait on the server for as long as somebody
//!   has the whole table locked.
//! - `round trips`: a call may take twenty times as long as 99 of 100 reads before its time is up, or longer timings are
//!   recommended.
//! - `clock`: for people who compare logs. Elections compare durations only.
//!
//! The timings at the end are accepted by [`build`](crate::ConfigBuilder::build) as they stand. Those that are given to the
//! command (`--lease-duration` and so on) are kept where they suit the round trips.
//!
//! # Behind PgBouncer
//!
//! In transaction mode; the rest is as above.
//!
//! ```text
//! $ tenure doctor --store postgres://app@pooler:6432/app
//! note    path          through a pooler that shares server processes between
//!                       connections (transaction or statement mode). Every
//!                       operation is one statement that leaves nothing behind, so
//!                       that is fine.
//!                       -> if it is PgBouncer, set server_login_retry = 1: with
//!                       its default it refuses logins for 15 s after the database
//!                       is back
//! note    encryption    plain text between the pooler and the server. What is
//!                       before the pooler does not show.
//!                       -> fine on one host, or in a network that nobody else is
//!                       in; elsewhere whoever is on the way can read leases, and
//!                       write some of their own
//! ok      table         "public"."leader_election" has the right columns, key and
//!                       persistence.
//! ```
//!
//! # What must be mended
//!
//! A table that somebody made faster, and a role that somebody made poorer:
//!
//! ```text
//! $ tenure doctor --store postgres://app@staging/app
//! unsafe  table         "public"."leader_election" can't carry elections: it is
//!                       UNLOGGED, so that a crash empties it and fences repeat.
//!                       -> compare it with what `tenure schema` prints; UNLOGGED
//!                       is mended by ALTER TABLE .. SET LOGGED
//! broken  rights        the role app lacks UPDATE: nobody can lead.
//!                       -> GRANT UPDATE ON "public"."leader_election" TO app
//! ...
//! note    commits       synchronous_commit is off for this role; the statements of
//!                       elections raise it to on.
//!                       -> nothing to do for elections; what the leader writes
//!                       otherwise may be lost in a crash
//! ...
//! NOT SAFE: do not run elections here before what is unsafe is mended.
//! ```
//!
//! `commits` is no more than a note, since the statements of elections raise `synchronous_commit` themselves.
//!
//! # No table yet
//!
//! ```text
//! $ tenure doctor --store postgres://app@new/app
//! broken  table         there is no table: nobody can lead.
//!                       -> this role may not create it: let one that may run
//!                       `tenure init`, or what `tenure schema` prints, and grant
//!                       SELECT, INSERT, UPDATE to this one
//! ...
//! note    round trips   not measured: nothing can be read, for a reason above.
//! ...
//! Nobody can lead here until what is broken is mended.
//! ```
//!
//! # Nothing can be written
//!
//! ```text
//! $ tenure doctor --store postgres://app@reports/app
//! broken  primary       transactions are read-only
//!                       (default_transaction_read_only): nobody can lead.
//!                       -> reset it for this role or this database
//! ...
//! Nobody can lead here until what is broken is mended.
//! ```
//!
//! A standby is told from that; behind several hosts `target_session_attrs=read-write` passes it over.
//!
//! # No way in
//!
//! Nothing can be said of a server that does not answer, or lets nobody in. The sentence is on stderr, the code is 125.
//!
//! ```text
//! $ tenure doctor --store postgres://app@typo/app
//! tenure: 127.0.0.1:5432 refused the connection: password authentication failed for user "app" (SQLSTATE 28P01)
//!   hint: check the user and the password in the URL, or PGPASSWORD
//! ```
//!
//! ```text
//! $ tenure doctor --store postgres://app@gone/app
//! tenure: can't connect to 127.0.0.1:5432: Connection refused (os error 111)
//!   hint: this may pass by itself
//! ```
//!
//! # A file
//!
//! ```text
//! $ tenure doctor --store sqlite:/var/lib/app/lease.db
//! /var/lib/app/lease.db
//!
//! ok      library       SQLite 3.51.3, in this program.
//! ok      place         /var/lib/app/lease.db on ext4.
//! ok      table         has the right columns and key.
//! ok      write lock    was there within 0ms.
//! ok      durability    journal mode wal, synchronous 3; 8 kB, and 0 kB that are
//!                       not in the file yet.
//! ok      users         no other process has it open, as far as this one may look.
//! ok      round trips   200 reads: half of them within 0.26 ms, 99 of 100 within
//!                       2.34 ms, the slowest 2.61 ms.
//!
//! These timings suit it:
//!
//!     Config::builder("NAME")
//!         .lease_duration(Duration::from_secs(15))
//!         .renew_interval(Duration::from_secs(5))
//!         .retry_period(Duration::from_secs(3))
//!         .operation_timeout(Duration::from_secs(3))
//!         .safety_margin(Duration::from_millis(1500))
//!         .build()?
//!
//!     tenure exec --lease-duration=15s --renew-interval=5s \
//!         --operation-timeout=3s --safety-margin=1500ms
//!
//! Fit to carry elections.
//! ```
//!
//! - `place`: in memory (tmpfs) a file is gone after a reboot, and fences begin at 1 again: unsafe. In a container's own
//!   layer (overlay) no other container sees it. Network file systems are refused before anything is examined.
//! - `write lock`: how long it took to get. Every renewal needs it, and it is the whole file's.
//! - `users`: processes that have it open, as far as the one that runs the doctor may look at them.
