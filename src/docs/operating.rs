//! Day-to-day operation: who leads, hand-overs, drills, PgBouncer, monitoring, changes, backups, and what each line of
//! the log means.
//!
//! The statements below are run by the tests as they stand here. They are for the table `leader_election` in the schema
//! of the session; use the names that your store has.
//!
//! # Who leads
//!
//! ```sql
//! SELECT name, holder, fence, expires_at > now() AS live, now() - renewed_at AS age FROM leader_election;
//! ```
//!
//! `holder` is the label (host name and process id, unless set) and a random part. `live` is the row's view: a leader
//! steps down a `safety_margin` before its lease expires. A row whose `expires_at` is the epoch was released.
//!
//! `tenure status` shows the same of all elections, and `tenure watch` follows them; both only read. From inside a
//! program, [`status`](crate::Elector::status) says it without asking the database,
//! [`Store::observe`](crate::Store::observe) asks it once, and an [`observer`](crate::ConfigBuilder::observer) goes on
//! looking, for programs that do not take part.
//!
//! # A forced hand-over
//!
//! The quick way is to end the leader's process in order (SIGTERM, where it handles that): the next one leads at its
//! next look. Where that can't be done:
//!
//! ```sql
//! -- make the leader step down, as `tenure resign` does with more care: its next renewal no longer matches, and
//! -- the others lead one lease later
//! UPDATE leader_election SET holder = 'operator', fence = fence + 1 WHERE name = 'invoice-reconciler';
//! ```
//!
//! The others wait for a whole lease, since the old leader may be inside its term until its next renewal tells it. The
//! old leader takes part again, and may win.
//!
//! **Do not delete rows, and do not set `expires_at` back** to hurry an election: the candidates wait in any case, and
//! a participant that starts just then believes what it finds. Do not set it far ahead either: what is waited for is
//! the length that the row shows, up to 31 days. To keep everybody from leading, stop the participants, or take the
//! right to update the table away from their role: the leader steps down by its own clock, and
//! [`run`](crate::Elector::run) goes on trying until the right is back.
//!
//! An election that nobody uses any more may be deleted once its participants are gone for longer than a lease.
//!
//! # Drills
//!
//! What to do to a fleet now and then, and what has to follow. Times count from the last renewal of the leader.
//!
//! | drill | what follows | within |
//! | --- | --- | --- |
//! | SIGTERM to the leader | its lease is released, another one leads | a `retry_period` after the release |
//! | SIGKILL to the leader | another one leads, not before the lease is over | `lease_duration + retry_period` |
//! | SIGSTOP to the leader for longer than a lease, then SIGCONT | another one leads; the first check of the old one fails, and it touches nothing | `lease_duration + retry_period`; at once |
//! | the leader's network is cut | it steps down; then another one leads | `lease_duration - safety_margin`; `lease_duration + retry_period` |
//! | the database is stopped, and started | nobody leads until it is back | a `retry_period` and a call, or what is left of a lease |
//! | PgBouncer is restarted | connections are rebuilt; as a rule the leader stays | |
//! | PgBouncer `PAUSE`, for longer than a lease | nobody leads until `RESUME` | |
//! | a standby is promoted | candidates wait for one lease; fences leap ahead | one lease after they see it |
//!
//! In every one of them: no fence twice, none that falls, and in what your work left behind nothing of a lower fence
//! after something of a higher one. Look there, not only at the lease.
//!
//! # PgBouncer
//!
//! Transaction mode works, which is what the tests use. What to set:
//!
//! | setting | value | why |
//! | --- | --- | --- |
//! | `server_login_retry` | `1` | with its default of 15 s it goes on refusing logins for that long after the database is back, and after a `RECONNECT` that met a log-in at the server |
//! | `default_pool_size` | room for these calls beside the application's transactions | a call waits for a server connection at most `operation_timeout`; when the pool is taken for longer, terms end |
//!
//! - It reports all failed log-ins alike (08P01), wrong passwords too. So behind it they are ridden out, and the log
//!   and the status tell.
//! - `options=` in a connection string is refused by it; the error says so. Nothing of the kind is sent unasked.
//! - What other clients leave in a session does not matter, except a `statement_timeout`: set it for roles, not in
//!   sessions.
//!
//! # PostgreSQL
//!
//! The role needs `USAGE` on the schema and `SELECT, INSERT, UPDATE` on the table.
//!
//! A statement that waits for the *row* gives up on the server before its caller does. One that waits for the whole
//! *table* (`ALTER TABLE`, `VACUUM FULL`) cannot, and keeps a session of the server until the lock ends. A
//! `lock_timeout` of the role bounds that:
//!
//! ```text
//! ALTER ROLE app SET lock_timeout = '2s';
//! ```
//!
//! `synchronous_commit` is raised to `on` for the crate's own statements where it is `off` or `local`. With
//! asynchronous standbys a fail-over can still lose acknowledged terms; that is safe, and costs one lease.
//!
//! Fences are `bigint`s, and large ones after a promotion: the first one on timeline 2 is above 2^40. Columns that keep
//! them need that room.
//!
//! # Monitoring
//!
//! ```sql
//! -- elections that nobody leads at the moment; alert when one stays here for longer than a lease and a look
//! SELECT name, fence, now() - renewed_at AS last_renewed, expires_at = 'epoch' AS released
//!   FROM leader_election WHERE expires_at <= now();
//! ```
//!
//! ```sql
//! -- leaders that renew late: with the default timings a row is at most 5 s old, and older after a failed call
//! SELECT name, holder, now() - renewed_at AS age, expires_at - now() AS left
//!   FROM leader_election WHERE expires_at > now() AND renewed_at < now() - interval '8 seconds';
//! ```
//!
//! ```sql
//! -- who keeps the others waiting
//! SELECT pid, pg_blocking_pids(pid) AS behind, now() - query_start AS for, wait_event, application_name
//!   FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0;
//! ```
//!
//! ```sql
//! -- the table itself: nearly all updates are HOT, and it stays small unless somebody holds an old snapshot
//! SELECT n_tup_upd, n_tup_hot_upd, n_dead_tup, pg_size_pretty(pg_table_size(relid)) AS size
//!   FROM pg_stat_user_tables WHERE relname = 'leader_election';
//! ```
//!
//! Of each participant, from [`status`](crate::Elector::status); the example `prometheus` serves all of it, with alert rules
//! for the default timings. Counters count from the start of the participant. What is worth an alert:
//!
//! | number | |
//! | --- | --- |
//! | `role` of all participants | nobody leads for longer than any hand-over takes |
//! | `headroom` | what was left of the term at its last renewal: healthy is `lease_duration - safety_margin - renew_interval`; below half of that, renewals come late |
//! | `failures_by_operation`, `failures_by_kind` | calls to the store that fail; `fatal` ones end only when a person mends something |
//! | `overrun` | work that goes on after its term: somebody else may lead |
//! | `losses` | terms that ended by anything but `resigned` and `stopped` |
//! | `clock_steps`, `disturbances` | the database's clock stepped; its record went back, vanished, or changed timelines |
//! | `events_dropped`, `log_lines_dropped` | readers and sinks that are too slow |
//! | `observed_age` | more than a few `retry_period`s: this participant is blind |
//! | `last_error` | fatal: somebody has to mend something |
//!
//! The same as values that can be matched are the [events](crate::Elector::events): which error a term was lost to, for how
//! long the process stood still, who took a lease away, how a release ended.
//!
//! # The log
//!
//! Lines come through the `log` crate under the target `tenure`, as `election: text`, a handful on a healthy day. They
//! are written by a thread of their own: a sink that blocks or panics costs lines, not leadership. (The PostgreSQL
//! driver has lines of its own below `info`, under its own targets, written on the threads that serve the store. A sink
//! that is given those and blocks holds up the store's calls, and the leader's term ends.)
//!
//! | line | level | meaning, and what to do |
//! | --- | --- | --- |
//! | `elected, fence N` | info | this participant leads |
//! | `HOLDER leads, fence N` | info | an observation showed another participant's term than the one before |
//! | `the term with fence N is over: resigned` | info | the guard was dropped, or the callback has returned |
//! | `the term with fence N is over: the elector was stopped` | info | `stop` or `shutdown` |
//! | `the lease with fence N was released` | info | the next one may lead at once |
//! | `the lease with fence N may not have been released, it expires by itself: ...` | warn | the others wait for up to a lease |
//! | `nobody leads; before, HOLDER did, fence N` | info | the lease was released or has run out, and nobody has taken it |
//! | `HOLDER publishes something else` | debug | the leader has changed its payload |
//! | `the term with fence N is over: the deadline passed without a renewal` | warn | no renewal was answered in time. Where that is known the line goes on: `the last renewal failed: ...`, or `this process stood still for T`: look at its processor time, and for suspends |
//! | `the term with fence N is over: the database refused the renewal` | warn | the row is another one's: a forced hand-over, a restore, a leap of the database's clock, or the fenced commit found it so |
//! | `the term with fence N is over: something in this process panicked` | warn | a callback, the work under a guard, or a store; the panic is in your own log |
//! | `OPERATION: the store failed: ...` | warn | `acquire`, `renew`, `release` or `observe`; once for a run of failures of one kind; see below |
//! | `the store answers again after N failures in T` | info | that is over |
//! | `the database's clock stepped WAY by T or more` | warn | forward or back; safe. Mend the server's time keeping. A step forward can end the leader's term |
//! | `the row went back from fence N to M; waiting out whoever may lead` | warn | a backup was restored, or a fail-over lost writes. If neither: who writes the table? |
//! | `the row is gone; waiting out whoever may lead` | warn | somebody deleted it, or truncated the table |
//! | `the server's timeline changed from A to B; waiting out whoever may lead` | warn | a promotion, a restore to a point in time, an upgrade |
//! | `the lease with fence N came too late to be used` | warn | the answer to an acquire took longer than a term; the database is too slow for the timings |
//! | `the database server does not show its timeline ...` | warn | once; grant the two functions that it names, or read [`limits`](super::limits) |
//!
//! Terms, leaders and hand-overs are `info`, what somebody should look at is `warn`, campaigns are `debug`, renewals and looks
//! are `trace`. The last line of the table is the store's and tells of no election; each other record has its values as
//! key-values too, for sinks that understand them:
//!
//! | key | |
//! | --- | --- |
//! | `election`, `identity` | of this participant, on each of these records |
//! | `event` | `elected`, `lost`, `released`, `release_failed`, `observed`, `published`, `vacant`, `failed`, `recovered`, `clock_stepped`, `fence_regressed`, `row_gone`, `timeline_changed`, `useless_grant`; `campaign_started`, `campaign_ended`; `renewed`, `answered` |
//! | `fence`, `holder` | of the term that is told of; `seen`: the highest fence before it went back |
//! | `cause` | of a `lost` term: `expired`, `superseded`, `resigned`, `stopped`, `failed` |
//! | `operation`, `error`, `error_kind`, `sqlstate` | what was asked of the store, and how that failed: `timeout`, `retryable`, `fatal` |
//! | `took_ms`, `headroom_ms`, `remaining_ms`, `stalled_ms`, `after_ms`, `by_ms` | durations, with decimals |
//! | `failures`, `forward`, `from`, `to` | how many calls had failed; which way the clock stepped; the timelines |
//!
//! What `the store failed` may be followed by, as SQLSTATE:
//!
//! | code | meaning | passes by itself |
//! | --- | --- | --- |
//! | 42P01 | there is no table: `ensure_schema`, or the migration | no |
//! | 42501 | the role lacks a right on it | no |
//! | other 42... | the table does not have the expected shape; the text names the column | no |
//! | 28..., 3D000 | password, `pg_hba.conf`, or no such database | no |
//! | 25006 | the server accepts no writes; the next connection tries another host of the connection string | yes |
//! | 55P03 | somebody else kept the row locked for too long | yes |
//! | 57P01, 57P02, 57P03 | the server was shut down, has crashed, or is starting | yes |
//! | 08P01 | from PgBouncer: the server behind it is away, or the log-in failed | yes |
//! | none | no connection, a lost one, or a time-out; the text says which | yes |
//!
//! What does not pass by itself is returned by [`wait_for_leadership`](crate::Elector::wait_for_leadership) at once.
//! [`run`](crate::Elector::run) goes on trying, and so does an observer: there the log, the events and the status are the
//! only ones that tell.
//!
//! # Upgrades and changes
//!
//! - **A new version of your program**: one instance after the other, each ended in order. Every hand-over costs one
//!   look.
//! - **Another `takeover_delay`**: likewise. It is this participant's own, and the others know nothing of it.
//! - **Other timings**: likewise. Each version of the row has its own length, and that is what the others wait for.
//! - **Another name for the election, another table or database**: that is another election. Two fleets would have a
//!   leader each, and its fences begin again. Stop all, wait for one lease, copy the row or set
//!   [`min_fence`](crate::ConfigBuilder::min_fence), start.
//! - **`pg_upgrade`, a new major version**: the timeline begins again at 1, and fences go on rising all the same. It is
//!   noticed and waited out.
//!
//! # Restoring a backup
//!
//! With the fleet running: candidates see that the row went back, wait for whoever may lead, and go on above the
//! highest fence that they have seen. Start no new participants until one of them leads.
//!
//! With the fleet stopped, nobody remembers. The restored row may have a lower fence than the data that was not
//! restored has seen:
//!
//! 1. Stop all participants, and let one lease pass.
//! 2. Restore.
//! 3. Find the highest fence that was ever used: in the columns in which you keep them, or in the log (`elected, fence
//!    N`).
//! 4. Start all with [`min_fence`](crate::ConfigBuilder::min_fence) at that number. It may stay in the configuration.
