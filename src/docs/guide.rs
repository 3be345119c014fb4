//! From nothing to a service in production.
//!
//! # A first leader
//!
//! No server is needed to begin with. The store in memory behaves like the others, for the electors of one process:
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Config, Elector, MemoryStore};
//!
//! let store = MemoryStore::new();
//! let elector = Elector::start(store, Config::builder("invoice-reconciler").build()?)?;
//! let guard = elector.wait_for_leadership()?; // blocks until this process leads
//! println!("leading with fence {}", guard.check()?);
//! guard.resign()?; // the next one leads at its next look
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `invoice-reconciler` names the election. Whoever uses the same name in the same store takes part in it. With
//! PostgreSQL only the store is another one, and its table has to be there:
//!
//! ```no_run
//! # #[cfg(feature = "postgres")] {
//! # use tenure::{Config, Elector, PostgresStore};
//! let store = PostgresStore::connect("postgres://app@db/app")?;
//! store.ensure_schema()?; // or a migration with the text of `store.schema()`
//! let elector = Elector::start(store, Config::builder("invoice-reconciler").build()?)?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The work loop
//!
//! ```
//! # use std::time::Duration;
//! # use tenure::{Config, Elector, Fence, MemoryStore};
//! # fn reconcile_one_batch(_: Fence) -> Result<(), std::io::Error> { Ok(()) }
//! # let elector = Elector::start(MemoryStore::new(), Config::builder("invoice-reconciler").build()?)?;
//! # let guard = elector.wait_for_leadership()?;
//! # let mut batches = 0;
//! while let Ok(fence) = guard.check() {
//!     reconcile_one_batch(fence)?;
//! #   batches += 1;
//! #   if batches == 2 { break }
//!     guard.sleep(Duration::from_millis(10)).ok(); // wakes early when the term ends
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - **Check before each step that only a leader may take**, at the place where it is taken: before the request is
//!   sent, not at the beginning of the hour in which it will be. A check costs little more than reading the clock.
//! - **Keep no answer.** `check` speaks about now. A `bool` that was true a moment ago says nothing.
//! - **Keep steps short**, or put checks inside them. A step that takes longer than
//!   [`remaining`](crate::LeaderGuard::remaining) is not lost, since renewals go on; but only the check after it tells.
//! - **Sleep and wait with the guard**: [`sleep`](crate::LeaderGuard::sleep), or [`lost`](crate::LeaderGuard::lost) in
//!   a `select!`. Give everything else that waits a time-out.
//! - **Hand the fence to whatever you write to**, and let it refuse lower ones: [`fencing`](super::fencing). Without
//!   that a process that is frozen between check and write can still do harm.
//! - **Give workers a [`Term`](crate::Term)**, not the guard and not a flag. It is cheap to clone, and checks the same.
//! - **After the term has ended, return soon** and drop the guard. What is left to undo should need no leadership.
//!   [`Status::overrun`](crate::Status::overrun) shows how long it takes.
//! - **Stay in the process.** A participant that loses a term remembers what it has seen, and campaigns again; a fresh
//!   one has to believe the database's clock once.
//!
//! A step that needs some time to be worth beginning can ask for it:
//!
//! ```
//! # use std::time::Duration;
//! # use tenure::{Config, Elector, MemoryStore};
//! # let elector = Elector::start(MemoryStore::new(), Config::builder("payments").build()?)?;
//! # let guard = elector.wait_for_leadership()?;
//! if guard.remaining() > Duration::from_secs(2) {
//!     // A transfer with a time-out of 2 s, sent now, ends within the term even if no renewal comes.
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Work that must not be done twice
//!
//! Leadership makes two leaders impossible. It does not make work happen once: a leader that ends between doing
//! something and writing down that it did leaves the next one to guess. Decide for each piece of work:
//!
//! - *Once*: do it and write it down in one transaction. In the database of the lease, with the fenced commit.
//! - *At most once*: write down that it is begun, commit, do it. What was begun and never finished, a person looks at.
//! - *At least once*: do it, write it down. It may happen again, so make it bear that, by a key that the receiver
//!   knows.
//!
//! The example `cron_like` runs a job at every tick, on exactly one of several hosts, and at most once.
//!
//! # Guard, callbacks or polling
//!
//! | form | for | mind |
//! | --- | --- | --- |
//! | [`wait_for_leadership`](crate::Elector::wait_for_leadership) | a program that has nothing to do unless it leads | errors that a person must mend are returned at once |
//! | [`run`](crate::Elector::run) with [`Callbacks`](crate::Callbacks) | work to start and to stop; a server with other things to do | such errors are ridden out, and only the log, the events and the status tell |
//! | polling [`fence`](crate::Elector::fence) | a loop that exists already, and does a little more when it leads | some thread has to campaign |
//!
//! Callbacks: `started_leading` runs in a thread of its own, and the lease is released when it has returned.
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Callbacks, Config, Elector, Lost, MemoryStore, Term};
//!
//! struct Reconciler(Elector);
//!
//! impl Callbacks for Reconciler {
//!     fn started_leading(&self, term: Term) {
//!         while let Ok(fence) = term.check() {
//!             println!("one batch with fence {fence}");
//! #           self.0.stop();
//!             term.sleep(Duration::from_secs(1)).ok();
//!         }
//!     }
//!     fn stopped_leading(&self, lost: Lost) {
//!         println!("{lost}"); // called after started_leading has returned
//!     }
//! }
//!
//! let elector = Elector::start(MemoryStore::new(), Config::builder("invoice-reconciler").build()?)?;
//! elector.run(Reconciler(elector.clone()))?; // until elector.stop()
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Polling: one thread holds each term to its end, everybody else asks.
//!
//! ```
//! # use std::time::Duration;
//! use tenure::{Config, Elector, MemoryStore, Term};
//!
//! let elector = Elector::start(MemoryStore::new(), Config::builder("janitor").build()?)?;
//! let campaigner = elector.clone();
//! let campaigning = std::thread::spawn(move || {
//!     campaigner.run(|term: Term| while term.sleep(Duration::from_secs(3600)).is_ok() {})
//! });
//! // Wherever it matters, at the moment of use:
//! if let Some(fence) = elector.fence() {
//!     println!("tidying up with fence {fence}");
//! }
//! elector.stop();
//! campaigning.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To wait for several things at once, use [`lost`](crate::LeaderGuard::lost) in a `select!` of `crossbeam-channel`:
//! the example `select` waits for work, for the end of the term, for a tick and for a signal.
//!
//! # In an async program
//!
//! The elector blocks, so it lives on a thread of its own. [`Term::check`](crate::Term::check) does not: it takes no
//! lock and makes no request, so tasks may call it anywhere. A watch channel tells them when a term begins and ends,
//! and the check decides. `ensure_schema`, `resign`, `publish` and `shutdown` block; give them to a thread that may.
//! The example `embed_async` has all of it, with tokio.
//!
//! # Choosing timings
//!
//! The defaults suit a database in the same region. To choose others, answer in this order:
//!
//! 1. **How slow may one call be, and still be no sign of trouble?** That is `operation_timeout`: the whole call,
//!    waiting for a connection, connecting and logging in included. Take it from your slowest minutes (a fail-over of
//!    the pooler, a checkpoint), not from the median.
//! 2. **How often may the leader write?** That is `renew_interval`: one small update each time.
//! 3. **How long may nobody lead after a crash?** That is `lease_duration`, and a poll. It has to hold a renewal that
//!    fails for the whole of its time-out, and a second one:
//!
//!    ```text
//!    renew_interval + 2 * operation_timeout + retry_delay <= lease_duration - safety_margin
//!    retry_delay = max(renew_interval / 4, 50 ms)
//!    ```
//! 4. **How soon after a clean stop shall the next one lead?** That is `retry_period`. A look is a read that writes
//!    nothing.
//! 5. **What does the margin have to cover?** Clocks whose rates differ, for which a twentieth of the lease is enough
//!    and which is the least that is accepted; and, if you wish, the longest step of your work between a check and its
//!    effect.
//!
//! What you give up for a short lease is patience: a database that does not answer for
//! [`term_duration`](crate::Config::term_duration) costs the term, and so does a process that is not scheduled for as
//! long.
//!
//! ```
//! use std::time::Duration;
//! use tenure::Config;
//!
//! let seconds = Duration::from_secs_f64;
//! // The defaults: after a crash nobody leads for 15 s and a look.
//! let default = Config::builder("e").build()?;
//! assert_eq!(default.term_duration(), seconds(13.5));
//! // Quicker, for a database next door.
//! let quick = Config::builder("e").lease_duration(seconds(6.0)).renew_interval(seconds(1.5));
//! let quick = quick.retry_period(seconds(0.5)).operation_timeout(seconds(1.2)).build()?;
//! assert_eq!(quick.term_duration(), seconds(5.0));
//! // Patient: a leader survives outages of half a minute, and its successor waits for one.
//! let patient = Config::builder("e").lease_duration(seconds(60.0)).renew_interval(seconds(10.0));
//! let patient = patient.operation_timeout(seconds(10.0)).build()?;
//! assert_eq!(patient.term_duration(), seconds(54.0));
//! # Ok::<(), tenure::ConfigError>(())
//! ```
//!
//! All participants of an election should be configured alike. To change the lease of a running fleet, see
//! [`operating`](super::operating#upgrades-and-changes).
//!
//! # Preferred participants
//!
//! Where one region shall lead only if no other one does, give its participants a
//! [`takeover_delay`](crate::ConfigBuilder::takeover_delay): for so long they leave a lease that is free to others. Make
//! it longer than the others' `retry_period` and three calls to the database, so that these have had their look. It is
//! a preference, not a promise, and never shortens what rule 10 has them wait for. Where only they are left, nobody leads
//! for so much longer.
//!
//! ```
//! use std::time::Duration;
//! use tenure::Config;
//!
//! let spare = Config::builder("gateway").takeover_delay(Duration::from_secs(15)).build()?;
//! # assert_eq!(spare.takeover_delay(), Duration::from_secs(15));
//! # Ok::<(), tenure::ConfigError>(())
//! ```
//!
//! # Encrypted connections
//!
//! With the feature `tls` the connection string says it, as for every client of PostgreSQL:
//! `postgres://app@db/app?sslmode=verify-full&sslrootcert=/etc/app/db-ca.pem`. Only the `verify-` modes know whom they talk
//! to. Who may read and change what is on its way can make a candidate lead: to it a lease is what an answer says. So
//! across a network that you would not give the database's password, use `verify-full`. With another TLS library
//! `PostgresStore::connect_with_tls` takes its connector.
//!
//! Where neither the string nor the environment says anything, a build with `tls` asks the server, as libpq does, which takes
//! one more trip for each new connection. On a path that is long against `operation_timeout`, `sslmode=disable` or
//! `sslnegotiation=direct` (from PostgreSQL 17 on) saves it.
//!
//! # Telling others where the leader is
//!
//! A leader publishes some bytes with its lease; whoever can read the table can read them. Reading is no participation,
//! and writes nothing:
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Config, Elector, MemoryStore, Store};
//!
//! let store = MemoryStore::new();
//! let config = Config::builder("gateway").payload("10.0.0.7:8080").build()?;
//! let elector = Elector::start(store.clone(), config)?;
//! let guard = elector.wait_for_leadership()?;
//! guard.publish("10.0.0.7:9090")?; // it moved
//!
//! let seen = store.observe("gateway", Duration::from_secs(2))?;
//! let leader = seen.lease().filter(|lease| !lease.is_expired());
//! assert_eq!(leader.and_then(|lease| lease.payload()), Some(&b"10.0.0.7:9090"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A participant that only watches is an [`observer`](crate::ConfigBuilder::observer): it never campaigns, writes nothing,
//! and reports every new leader and payload in its [`events`](crate::Elector::events), as the example `discover` shows.
//!
//! What was read is a hint: by the time it is used, somebody else may lead. So whoever is called should check its own
//! term, and refuse where it does not lead. Put no secrets there.
//!
//! # Learning what happened
//!
//! [`status`](crate::Elector::status) is the state at this moment and what was counted so far, for health pages and
//! metrics. [`events`](crate::Elector::events) tells what happens, one thing after the other: which error a term was lost
//! to, who took over, how a release ended. The log has the same as text and as key-values.
//!
//! ```
//! use tenure::{Config, Elector, Event, MemoryStore};
//!
//! let elector = Elector::start(MemoryStore::new(), Config::builder("invoice-reconciler").build()?)?;
//! let events = elector.events(); // from now on
//! let reader = std::thread::spawn(move || {
//!     let mut told = Vec::new();
//!     // Ends when the elector has ended.
//!     for event in events {
//!         match event {
//!             Event::Elected { fence, .. } => told.push(format!("leads with {fence}")),
//!             Event::Lost { cause, error, .. } => told.push(format!("lost: {cause}, {error:?}")),
//!             Event::Failed { operation, error, .. } => told.push(format!("{operation}: {error}")),
//!             _ => {} // there will be more kinds
//!         }
//!     }
//!     told
//! });
//! elector.wait_for_leadership()?.resign()?;
//! elector.stop();
//! assert_eq!(reader.join().unwrap(), ["leads with 1", "lost: resigned, None"]);
//! assert_eq!(elector.status().losses.resigned, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A reader never holds the elector up: one that is 256 events behind misses the next ones, and
//! [`Status::events_dropped`](crate::Status::events_dropped) counts them. Decide nothing by an event or a status: by the
//! time it is read, things may have moved on.
//!
//! # Ending
//!
//! On SIGTERM call [`stop`](crate::Elector::stop), from any thread. Whoever waits for leadership is told so; a term
//! under way is over for everybody who checks, while its lease is kept until the work has let go of the guard. Then
//! [`shutdown`](crate::Elector::shutdown) waits for the work, up to a grace, and for the release:
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Config, Elector, MemoryStore, ShutdownError};
//!
//! # let elector = Elector::start(MemoryStore::new(), Config::builder("e").build()?)?;
//! match elector.shutdown(Duration::from_secs(10)) {
//!     Ok(()) => println!("released; the next one leads at its next look"),
//!     Err(ShutdownError::WorkStillRunning) => println!("left to expire, since our work is not done"),
//!     Err(error) => println!("{error}"), // the release failed; the lease expires by itself
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A program that drops its guard and returns from `main` hands over as quickly. One that leaves through
//! `std::process::exit`, dies of a signal, or keeps its guard in a `static`, hands over like one that has crashed. The
//! example `service` shows all of it.
//!
//! # A store from configuration
//!
//! [`AnyStore`](crate::AnyStore) takes a URL: `postgres://app@db/app`, `sqlite:/var/lib/app/lease.db`, `memory:`.
//!
//! ```
//! use tenure::{AnyStore, Config, Elector};
//!
//! let url = std::env::var("ELECTION_URL").unwrap_or("memory:".into());
//! let store = AnyStore::open(&url)?; // connects to nothing yet
//! store.ensure_schema()?;
//! let elector = Elector::start(store, Config::builder("nightly-report").build()?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Several elections in one process share a store: start an elector for each on a clone. A PostgreSQL store has two
//! connections, which serve a few dozen electors; give it one more for each election whose row other transactions may
//! hold locked for long.
//!
//! # One host: SQLite
//!
//! ```
//! # #[cfg(feature = "sqlite")] {
//! # use tenure::{Config, Elector, SqliteStore};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("lease.db"); /*
//! let path = "/var/lib/reports/lease.db"; // absolute, on a disk of this host
//! # */
//! let store = SqliteStore::open(path)?;
//! store.ensure_schema()?;
//! let elector = Elector::start(store, Config::builder("nightly-report").build()?)?;
//! # drop(elector);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Use it for the processes of one kernel. Its documentation says what the file must not be, and what must not be done
//! to it.
//!
//! # Testing your program
//!
//! Several electors on clones of one memory store are a fleet, and a short `retry_period` makes a hand-over quick:
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Config, Elector, MemoryStore};
//!
//! let store = MemoryStore::new();
//! let participant = |label: &str| -> Result<Elector, Box<dyn std::error::Error>> {
//!     let config = Config::builder("e").label(label).retry_period(Duration::from_millis(5)).build()?;
//!     Ok(Elector::start(store.clone(), config)?)
//! };
//! let (first, second) = (participant("first")?, participant("second")?);
//! let old = first.wait_for_leadership()?;
//! assert!(second.wait_for_leadership_timeout(Duration::from_millis(50)).is_err());
//! let before = old.fence();
//! old.resign()?;
//! assert!(second.wait_for_leadership()?.fence() > before);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With the feature `testing` there is a clock that is set by hand. What does your work do when its term ends in the
//! middle?
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use tenure::{Config, Elector, LossCause, ManualClock, MemoryStore, Time};
//!
//! let clock = ManualClock::new(Time::from_nanos(1));
//! let config = Config::builder("e").build()?;
//! let term_duration = config.term_duration();
//! let elector = Elector::start_with_clock(MemoryStore::new(), config, clock.clone())?;
//! let guard = elector.wait_for_leadership()?;
//! assert!(guard.check().is_ok());
//! clock.advance(term_duration); // the process was frozen, or the path to the database gone
//! assert_eq!(guard.check().unwrap_err().cause, LossCause::Expired);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A store that fails when you say so is a wrapper of a few lines around [`Store`](crate::Store): the example
//! `quickstart` has one. If you write a store of your own, the acceptance suite (`tenure::acceptance`) has to pass.
//!
//! And test the real thing: kill the leader, stop it with SIGSTOP for longer than a lease, take its network away.
//! [`operating`](super::operating#drills) says what to expect.
//!
//! # Before production
//!
//! - `tenure doctor`, run as the role that the service has, finds nothing unsafe and nothing broken.
//! - A sink for the `log` crate is installed, and somebody sees warnings of the target `tenure`.
//! - The role has the rights that it needs and no others: `USAGE` on the schema, `SELECT, INSERT, UPDATE` on the table.
//! - Writes carry the fence, or go through the fenced commit.
//! - SIGTERM leads to `stop`, and the grace fits into that of whatever sends it.
//! - PgBouncer has `server_login_retry = 1`: [`operating`](super::operating#pgbouncer).
//! - Standbys, if there are any, are in the connection string, with `target_session_attrs=read-write`.
//! - You have read [`limits`](super::limits).
