//! How others failed, and what keeps this crate from failing in the same way.
//!
//! These are reports by users of leader election, lock and lease libraries in many languages, each with its public
//! sources. Some were mended since; they are here for what can go wrong, not to blame. Each is a case with tests here:
//! the file `tests/FIELD-BUGS.md` of the repository names them by the numbers below. The rules are those of
//! [`rules`](super::rules). What remains a limit here too is in [`limits`](super::limits).
//!
//! The causes behind most of them are few:
//!
//! 1. **Somebody has to be scheduled, or answered, before a leader learns that it leads no more.** A read on a socket
//!    that nothing interrupts; a release that is tried, and tried again, before anyone is told; an `is_leader` that
//!    returns a flag and never looks at a deadline.
//! 2. **A clock is believed that is not one's own**, or one's own that stops while the machine sleeps.
//! 3. **A write names too little of what it overwrites**: a lock by its name alone, a lease by its expiry alone.
//! 4. **What is left in a database session** is somebody else's behind a pooler: locks, settings, prepared statements.
//! 5. **The end of the work and the end of the lease come in the wrong order.**
//!
//! # Leaders that are not told
//!
//! ### It can read and not write
//!
//! The lock object could be read but no longer updated. A second node took the lock; the first went on reporting itself
//! as leader, since its "stopped" callback never fired.
//!
//! Here: the deadline is a time on the leader's own clock, and every check compares with it (rule 4). Whatever kind of
//! error keeps renewals from succeeding, the term is over at the same moment.
//!
//! Case B01: [kubernetes/kubernetes #23731](https://github.com/kubernetes/kubernetes/issues/23731),
//! [fabric8io/kubernetes-client #2860](https://github.com/fabric8io/kubernetes-client/issues/2860).
//!
//! ### The frozen process that wakes up
//!
//! A holder stalled for longer than its lease, another took over, the first resumed and went on writing. In one lock
//! table the late unlock matched on the name only, so that it freed the new holder's lock.
//!
//! Here: the first check after the wake-up fails; a release names holder and fence (rule 9); and what was already past
//! its last check is stopped by the fence or the fenced commit (rule 12, [`fencing`](super::fencing)).
//!
//! Case B02: [denoland/celld #193](https://github.com/denoland/celld/issues/193), [kagkarlsson/db-scheduler
//! #402](https://github.com/kagkarlsson/db-scheduler/issues/402), [etcd-io/etcd
//! #11456](https://github.com/etcd-io/etcd/issues/11456), [etcd-io/etcd
//! #10811](https://github.com/etcd-io/etcd/issues/10811), [jepsen.io](https://jepsen.io/blog/2020-01-30-etcd-3.4.3),
//! [lukas-krecan/ShedLock #1986](https://github.com/lukas-krecan/ShedLock/issues/1986).
//!
//! ### The machine that slept
//!
//! Rust's `Instant` on Linux does not count the time asleep. A holder back from suspend computed seconds where minutes
//! had passed, and the database had given the lease away.
//!
//! Here: the boot clock, which counts them (rule 3), and waits in short slices, since the system's waits stop too (rule
//! 6).
//!
//! Case B03: [rust-lang/rust #87906](https://github.com/rust-lang/rust/issues/87906), [rust-lang/rust
//! #79462](https://github.com/rust-lang/rust/issues/79462), [stacklok/mecatl
//! #1333](https://github.com/stacklok/mecatl/issues/1333), [leapmux/leapmux
//! #403](https://github.com/leapmux/leapmux/pull/403), [nextlyhq/nextly
//! #777](https://github.com/nextlyhq/nextly/pull/777).
//!
//! ### The write landed, the answer did not
//!
//! A client timed out, though the server had applied the lock. Callers then took their own lock for a stranger's, or it
//! was held by nobody in particular.
//!
//! Here: an error means that the outcome is unknown, and nobody leads by it. A participant recognises what its own
//! unanswered write has left, and need not wait for it; but it becomes a new term with a new fence.
//!
//! Case B08: [cirello-io/pglock #175](https://github.com/cirello-io/pglock/issues/175), [ceph/ceph
//! #67012](https://github.com/ceph/ceph/pull/67012), [GreptimeTeam/greptimedb
//! #7670](https://github.com/GreptimeTeam/greptimedb/issues/7670).
//!
//! ### The work died, the lease lived on
//!
//! The leader's work raised an error in its own thread, and the renewals went on for ever, so that nothing ran
//! anywhere.
//!
//! Here: the guard or the callback *is* the leadership. A panic ends the term and releases the lease; if a thread of
//! the elector itself breaks, its term is over.
//!
//! Case B12: [kubernetes-client/python #2075](https://github.com/kubernetes-client/python/issues/2075),
//! [kubernetes-client/python #2670](https://github.com/kubernetes-client/python/pull/2670), [apache/shenyu
//! #6608](https://github.com/apache/shenyu/issues/6608), [lukas-krecan/ShedLock
//! #3145](https://github.com/lukas-krecan/ShedLock/issues/3145).
//!
//! ### The callback that blocks
//!
//! A callback ran on the thread that renews and blocked; or a call from inside a callback never returned.
//!
//! Here: callbacks run on threads of their own, no lock is held while they run, and every call of the interface may be
//! made from inside one.
//!
//! Case B13: [Project-HAMi/HAMi #1957](https://github.com/Project-HAMi/HAMi/pull/1957), [ray-project/ray
//! #63773](https://github.com/ray-project/ray/pull/63773), [spring-attic/spring-cloud-cluster
//! #20](https://github.com/spring-attic/spring-cloud-cluster/pull/20), [kubernetes/kubernetes
//! #83078](https://github.com/kubernetes/kubernetes/issues/83078), [kubernetes/client-go
//! #857](https://github.com/kubernetes/client-go/issues/857).
//!
//! ### The guard that was never held
//!
//! `let _ = lock()` drops the guard in the same line; several well-known programs ran unprotected for months.
//!
//! Here: the guard is `must_use`, with a message that says what dropping it does; a guard that is dropped gives the
//! lease back at once, so that nothing is half held.
//!
//! Case B14: [rust-lang/rust-clippy #8246](https://github.com/rust-lang/rust-clippy/issues/8246),
//! [risingwavelabs/risingwave #4313](https://github.com/risingwavelabs/risingwave/issues/4313),
//! [lightningdevkit/rust-lightning #731](https://github.com/lightningdevkit/rust-lightning/pull/731).
//!
//! # Clocks
//!
//! ### A row from the past, a row from the future
//!
//! A new candidate waited a whole lease for holders that had been dead for hours. And a clock that went back left
//! records dated in the future, which nobody could take.
//!
//! Here: a participant's first look believes the database's clock, so an old row is taken at once; after that, what is
//! waited for is the length of the lease, whatever the database's clock says (rule 10).
//!
//! Case B04: [kubernetes/client-go #448](https://github.com/kubernetes/client-go/issues/448),
//! [tristanls/dynamodb-lock-client #9](https://github.com/tristanls/dynamodb-lock-client/issues/9),
//! [awslabs/amazon-dynamodb-lock-client #34](https://github.com/awslabs/amazon-dynamodb-lock-client/issues/34),
//! [moxystudio/node-proper-lockfile #109](https://github.com/moxystudio/node-proper-lockfile/pull/109),
//! [palantir/atlasdb #3425](https://github.com/palantir/atlasdb/issues/3425).
//!
//! ### Time zones, and days of 23 hours
//!
//! Columns without a zone meant different instants to different nodes; for one hour at the change to summer time every
//! write failed.
//!
//! Here: only durations leave the database (rule 1), in microseconds; a table whose times have no zone is refused by
//! name.
//!
//! Case B05: [lukas-krecan/ShedLock #91](https://github.com/lukas-krecan/ShedLock/issues/91), [lukas-krecan/ShedLock
//! #231](https://github.com/lukas-krecan/ShedLock/issues/231), [lukas-krecan/ShedLock
//! #1876](https://github.com/lukas-krecan/ShedLock/issues/1876), [kagkarlsson/db-scheduler
//! #364](https://github.com/kagkarlsson/db-scheduler/issues/364).
//!
//! ### Expired when granted
//!
//! The end of the lock was computed from a clock read at the start of the statement. After a wait for the row, the
//! caller was handed a lock that was over.
//!
//! Here: the row is locked first and the clock read afterwards, once (rule 17); and the deadline counts from before the
//! request (rule 2), so that a wait only shortens it.
//!
//! Case B07: [lukas-krecan/ShedLock #3682](https://github.com/lukas-krecan/ShedLock/issues/3682),
//! [event-driven-io/emmett #339](https://github.com/event-driven-io/emmett/pull/339), [nextlyhq/nextly
//! #777](https://github.com/nextlyhq/nextly/pull/777), [mike-marcacci/node-redlock
//! #296](https://github.com/mike-marcacci/node-redlock/issues/296).
//!
//! # Statements that match too much
//!
//! ### The guard that always holds
//!
//! An upsert compared the proposed holder with itself, so that others extended the leader's lease and believed that
//! they led. Elsewhere a renewal silently created a deleted row again.
//!
//! Here: an acquire names the exact version that it takes over (rule 8), a renewal holder and fence (rule 9); neither
//! creates what it did not find missing. Every store has to pass the same acceptance suite.
//!
//! Case B06: [riverqueue/river #197](https://github.com/riverqueue/river/issues/197), [riverqueue/river
//! #199](https://github.com/riverqueue/river/pull/199), [openbao/openbao
//! #2097](https://github.com/openbao/openbao/issues/2097), [openbao/openbao
//! #2100](https://github.com/openbao/openbao/pull/2100).
//!
//! ### One identity, two processes
//!
//! A host name was the identity. Two processes shared it, both renewed the same lease, and both led.
//!
//! Here: 128 random bits of every identity are the crate's own, and not optional (rule 11).
//!
//! Case B15: [kubernetes/kubernetes #61151](https://github.com/kubernetes/kubernetes/issues/61151),
//! [kubernetes/kubernetes #22775](https://github.com/kubernetes/kubernetes/issues/22775),
//! [kubernetes-csi/external-provisioner #690](https://github.com/kubernetes-csi/external-provisioner/pull/690).
//!
//! ### Odd names
//!
//! A NUL byte made every request fail at run time; long keys failed for some values only; table names were cut off.
//!
//! Here: refused at construction with the field's name, and with the same limits for every store.
//!
//! Case B16: [elewa-git/opencrane #688](https://github.com/elewa-git/opencrane/pull/688), [icoretech/airbroke
//! #6](https://github.com/icoretech/airbroke/issues/6), [killbill/killbill
//! #309](https://github.com/killbill/killbill/issues/309).
//!
//! ### A fence given out twice
//!
//! A crash or a fail-over lost an acknowledged write, and what had been given out was given out again.
//!
//! Here: statements raise `synchronous_commit` where it is too low (rule 16), an `UNLOGGED` table is refused, and
//! fences follow the server's timeline over a promotion (rule 15).
//!
//! Case B18: [patroni/patroni #1894](https://github.com/patroni/patroni/issues/1894),
//! [postmortems.app](https://www.postmortems.app/postmortem/4da4ac8a-fb93-426e-9ae7-eb088f115959), [acaloiaro/neoq
//! #81](https://github.com/acaloiaro/neoq/issues/81), [pgfdwplus/postgres_fdw_plus
//! #7](https://github.com/pgfdwplus/postgres_fdw_plus/issues/7).
//!
//! # Hanging, and running out of things
//!
//! ### Shutdown waits for the database
//!
//! Dropping a client blocked until a stalled server answered, which may be never.
//!
//! Here: the driver runs on threads of the store's own, and every call has a hard bound (rule 7); so have dropping,
//! stopping and shutting down.
//!
//! Case B11: [rust-postgres/rust-postgres #755](https://github.com/rust-postgres/rust-postgres/issues/755),
//! [rust-postgres/rust-postgres #725](https://github.com/rust-postgres/rust-postgres/issues/725), [diesel-rs/diesel
//! #3016](https://github.com/diesel-rs/diesel/issues/3016).
//!
//! ### Accepted, then silence
//!
//! A connect time-out that covered TCP only; a dead first host that kept the second from being tried; connections that
//! NAT had forgotten.
//!
//! Here: `operation_timeout` covers the whole call, name look-up and log-in included, and each host gets its share.
//!
//! Case B19: [jackc/pgconn #92](https://github.com/jackc/pgconn/issues/92), [rust-postgres/rust-postgres
//! #246](https://github.com/rust-postgres/rust-postgres/issues/246), [rust-postgres/rust-postgres
//! #637](https://github.com/rust-postgres/rust-postgres/issues/637), [porsager/postgres
//! #815](https://github.com/porsager/postgres/issues/815), [breez/spark-sdk
//! #928](https://github.com/breez/spark-sdk/pull/928).
//!
//! ### Descriptors, sessions, threads
//!
//! Every failed connect leaked a descriptor; time-outs left sessions behind; a thread that could not be started was a
//! panic.
//!
//! Here: a call that runs out of time closes its connection; a thread that can't be had is an error.
//!
//! Case B27: [diesel-rs/diesel #2360](https://github.com/diesel-rs/diesel/issues/2360), [sfackler/r2d2
//! #100](https://github.com/sfackler/r2d2/issues/100), [hapostgres/pg_auto_failover
//! #1178](https://github.com/hapostgres/pg_auto_failover/issues/1178), [rwf2/Rocket
//! #2134](https://github.com/rwf2/Rocket/issues/2134), [rust-lang/rust
//! #78497](https://github.com/rust-lang/rust/issues/78497).
//!
//! ### A back-off that outlives the outage
//!
//! After an outage the next try was nine minutes away, or never came.
//!
//! Here: candidates look once in a `retry_period`, always; nothing doubles.
//!
//! Case B26: [riverqueue/river #695](https://github.com/riverqueue/river/issues/695), [docker-archive/classicswarm
//! #982](https://github.com/docker-archive/classicswarm/issues/982), [quartz-scheduler/quartz
//! #105](https://github.com/quartz-scheduler/quartz/issues/105), [madelson/DistributedLock
//! #133](https://github.com/madelson/DistributedLock/issues/133), [hashicorp/vault
//! #11319](https://github.com/hashicorp/vault/issues/11319), [hashicorp/vault
//! #17643](https://github.com/hashicorp/vault/issues/17643).
//!
//! ### Everybody in step
//!
//! Fixed delays made all waiters try at one moment, and turned a hiccup into an outage.
//!
//! Here: looks are spread, each at a place of its own behind the leader's renewals, and they only read (rule 14). A bid
//! is made when the lease is over, and not before.
//!
//! Case B25: [hashicorp/consul #9469](https://github.com/hashicorp/consul/issues/9469), [constructorfabric/gears-rust
//! #4098](https://github.com/constructorfabric/gears-rust/pull/4098), [openshift/origin
//! #7845](https://github.com/openshift/origin/issues/7845).
//!
//! ### A signal in a wait
//!
//! An interrupted wait was taken for a broken connection.
//!
//! Here: interrupted waits go on.
//!
//! Case B31: [psycopg/psycopg #667](https://github.com/psycopg/psycopg/issues/667), [libssh2/libssh2
//! #955](https://github.com/libssh2/libssh2/issues/955).
//!
//! # Poolers and servers that change
//!
//! ### Prepared statements behind a pooler
//!
//! "Already exists" and "does not exist" at random; old plans after a column was added.
//!
//! Here: parameter types travel with each statement, none is named (rule 13), and columns are listed.
//!
//! Case B21: [rust-postgres/rust-postgres #1054](https://github.com/rust-postgres/rust-postgres/issues/1054),
//! [rust-postgres/rust-postgres #646](https://github.com/rust-postgres/rust-postgres/issues/646),
//! [madelson/DistributedLock #168](https://github.com/madelson/DistributedLock/issues/168), [madelson/DistributedLock
//! #175](https://github.com/madelson/DistributedLock/issues/175), [doublewordai/control-layer
//! #1759](https://github.com/doublewordai/control-layer/pull/1759).
//!
//! ### Somebody else's settings
//!
//! Another client's `SET search_path` made tables vanish; start-up options were refused.
//!
//! Here: names are qualified, settings are made inside the statement (rule 16), and no option is sent that was not
//! asked for.
//!
//! Case B22: [pgbouncer/pgbouncer #425](https://github.com/pgbouncer/pgbouncer/issues/425), [pgbouncer/pgbouncer
//! #525](https://github.com/pgbouncer/pgbouncer/issues/525), [pgbouncer/pgbouncer
//! #907](https://github.com/pgbouncer/pgbouncer/issues/907), [vgarvardt/gue
//! #31](https://github.com/vgarvardt/gue/issues/31), [lukas-krecan/ShedLock
//! #458](https://github.com/lukas-krecan/ShedLock/issues/458).
//!
//! ### Stuck on a server that only reads
//!
//! After a role switch the leader's connection led to a reader, and every write failed until a restart.
//!
//! Here: such a connection is given up, and the next one begins with another server of the connection string.
//!
//! Case B17: [riverqueue/river #1225](https://github.com/riverqueue/river/issues/1225), [porsager/postgres
//! #815](https://github.com/porsager/postgres/issues/815).
//!
//! ### TLS that is ignored, passwords that are shown
//!
//! Options for TLS were refused or dropped; errors and `Debug` output showed the password.
//!
//! Here: with the feature `tls` the options mean what they mean to libpq or are stricter; what can't be done is refused by
//! name; passwords are in no output.
//!
//! Case B20: [rust-postgres/rust-postgres #988](https://github.com/rust-postgres/rust-postgres/pull/988),
//! [jbg/tokio-postgres-rustls #11](https://github.com/jbg/tokio-postgres-rustls/issues/11), [quinnjr/prax
//! #129](https://github.com/quinnjr/prax/pull/129), [maplibre/martin
//! #2895](https://github.com/maplibre/martin/issues/2895), [cycle-five/cracktunes
//! #473](https://github.com/cycle-five/cracktunes/issues/473), [risingwavelabs/risingwave
//! #19766](https://github.com/risingwavelabs/risingwave/issues/19766).
//!
//! ### Creating the table
//!
//! Replicas that created it at once failed for good; a role without the right to create failed though the table was
//! there.
//!
//! Here: a lost race is a success, and where the table exists nothing has to be created. A table of the wrong shape is
//! refused by name.
//!
//! Case B23: [psycopg/psycopg2 #1036](https://github.com/psycopg/psycopg2/issues/1036), [svix/svix-webhooks
//! #2633](https://github.com/svix/svix-webhooks/pull/2633), [MaterializeInc/materialize
//! #12560](https://github.com/MaterializeInc/materialize/issues/12560), [db-migrate/pg
//! #71](https://github.com/db-migrate/pg/issues/71).
//!
//! ### A hot row under an old snapshot
//!
//! Tables of a few rows grew by megabytes behind a forgotten transaction.
//!
//! Here: updates are HOT with the table's fill factor; the growth behind an old snapshot is bounded by a test, and gone
//! with the snapshot.
//!
//! Case B24: [mosona-labs/mosona-manager #6](https://github.com/mosona-labs/mosona-manager/issues/6), [NikolayS/PgQue
//! #61](https://github.com/NikolayS/PgQue/issues/61).
//!
//! # The end of the work, and settings
//!
//! ### A planned restart that costs a lease
//!
//! The release was cancelled with the renewal, or SIGTERM never reached it, or the program left through an exit that
//! runs no destructor.
//!
//! Here: a release waits for the renewal under way, and `shutdown` waits for it, bounded. Leaving through
//! `process::exit` costs as much as a crash, and the documentation says so.
//!
//! Case B09: [kubernetes/kubernetes #95939](https://github.com/kubernetes/kubernetes/pull/95939), [ybrs/single-beat
//! #35](https://github.com/ybrs/single-beat/issues/35), [hashicorp/vault
//! #308](https://github.com/hashicorp/vault/issues/308), [grafana/loki
//! #24042](https://github.com/grafana/loki/pull/24042), [lycheeverse/lychee
//! #134](https://github.com/lycheeverse/lychee/pull/134).
//!
//! ### Given up while the work still runs
//!
//! Renewals ended or the lease was released first, and the work wound down afterwards, beside its successor.
//!
//! Here: [`stop`](crate::Elector::stop) ends the term for everybody who checks, and the lease is kept and renewed until
//! the guard is gone. Past the grace it is left to expire, never released.
//!
//! Case B10: [kagkarlsson/db-scheduler #365](https://github.com/kagkarlsson/db-scheduler/issues/365),
//! [kagkarlsson/db-scheduler #368](https://github.com/kagkarlsson/db-scheduler/pull/368), [cilium/cilium
//! #42920](https://github.com/cilium/cilium/pull/42920), [kubernetes-sigs/controller-runtime
//! #1132](https://github.com/kubernetes-sigs/controller-runtime/issues/1132), [kubernetes/kubernetes
//! #139504](https://github.com/kubernetes/kubernetes/pull/139504).
//!
//! ### Sums that do not fit
//!
//! Renewals as far apart as the lease is long; durations that overflow.
//!
//! Here: refused before anything is sent, with both sums; all arithmetic saturates.
//!
//! Case B28: [riverqueue/river #217](https://github.com/riverqueue/river/pull/217), [apache/datafusion-ballista
//! #785](https://github.com/apache/datafusion-ballista/issues/785), [hashicorp/consul
//! #912](https://github.com/hashicorp/consul/pull/912), [CrunchyData/postgres-operator
//! #1631](https://github.com/CrunchyData/postgres-operator/issues/1631), [denoland/celld
//! #182](https://github.com/denoland/celld/issues/182), [rust-lang/rust
//! #54552](https://github.com/rust-lang/rust/issues/54552), [async-rs/async-std
//! #979](https://github.com/async-rs/async-std/issues/979), [graphprotocol/graph-node
//! #1805](https://github.com/graphprotocol/graph-node/issues/1805).
//!
//! ### SQLite
//!
//! Locked for minutes; clocks of whole seconds; a database on a network share; two files where one was meant.
//!
//! Here: bounded calls on threads of the store's own, microseconds of the boot clock, and paths that can't be shared
//! safely are refused.
//!
//! Case B29: [Soju06/codex-lb #1682](https://github.com/Soju06/codex-lb/issues/1682), [richlander/nightshift
//! #189](https://github.com/richlander/nightshift/issues/189), [getsentry/taskbroker
//! #106](https://github.com/getsentry/taskbroker/pull/106), [can1357/oh-my-pi
//! #9082](https://github.com/can1357/oh-my-pi/issues/9082).
//!
//! # Not covered
//!
//! Case B30 is about MySQL, for which there is no store here. Its sources, for whoever writes one: [transact-rs/sqlx
//! #1366](https://github.com/transact-rs/sqlx/issues/1366), [lukas-krecan/ShedLock
//! #1158](https://github.com/lukas-krecan/ShedLock/pull/1158), [hashicorp/vault
//! #18582](https://github.com/hashicorp/vault/issues/18582), [lukas-krecan/ShedLock
//! #1397](https://github.com/lukas-krecan/ShedLock/issues/1397).
