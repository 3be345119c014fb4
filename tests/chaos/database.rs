//! The database stands still, is restarted, crashes, is locked, read-only, or has fewer connections than there are
//! participants.

use std::collections::HashSet;
use std::time::Duration;

use tenure_testground::postgres::Client;
use tenure_testground::{PgBouncer, Postgres, await_until};

use crate::fleet::figures::figure;
use crate::fleet::line::{Line, Stamp, now};
use crate::fleet::node::Options;
use crate::fleet::profile::{P3, P6, SLACK};
use crate::fleet::stillness::promised;
use crate::fleet::{Fleet, Ground, LIMIT, RowLock, Way, rows};
use crate::report::Report;
use crate::stage::Stage;

/// All its processes are stopped for longer than a lease, with all connections open.
pub(crate) fn database_paused(way: Way) -> Report {
    let server = Postgres::start_new();
    let mut stage = Stage::set(Ground::on(&server, way));
    let first = stage.first;
    server.pause();
    let paused = now();
    stage.outage(&first, paused, |_| server.resume());
    stage.fleet.nothing_is_fatal();
    stage.finish(2)
}

/// Fast shutdown, and a start after more than a lease.
pub(crate) fn database_restarts(way: Way) -> Report {
    let server = Postgres::start_new();
    let mut stage = Stage::set(Ground::on(&server, way));
    let first = stage.first;
    server.stop_fast();
    let down = now();
    stage.outage(&first, down, |_| server.start());
    stage.fleet.nothing_is_fatal();
    stage.finish(2)
}

/// All its processes are killed; a start, with crash recovery, after more than a lease.
pub(crate) fn database_killed(way: Way) -> Report {
    let server = Postgres::start_new();
    let mut stage = Stage::set(Ground::on(&server, way));
    let first = stage.first;
    server.kill9();
    let down = now();
    stage.outage(&first, down, |_| server.start());
    stage.fleet.nothing_is_fatal();
    stage.finish(2)
}

/// Fast shutdown and start at once; then killed and started at once. The term of a lease of six seconds survives.
pub(crate) fn database_restarts_at_once(way: Way) -> Report {
    let server = Postgres::start_new();
    let mut stage = Stage::set_with(Ground::on(&server, way), P6, 3, |_, _| ());
    let first = stage.first;
    let crash = || {
        server.kill9();
        server.start();
    };
    for again in [&|| server.restart(), &crash as &dyn Fn()] {
        stage.ground.await_renewal();
        again();
    }
    let up = now();
    stage.goes_on(&first);
    stage.calms(up);
    stage.fleet.no_lost();
    stage.fleet.nothing_is_fatal();
    stage.finish(1)
}

/// The sessions in the fleet's database, and those of them that wait for a lock. From another database.
struct Sessions {
    client: Client,
    database: String,
}

impl Sessions {
    fn of(ground: &Ground<'_>) -> Sessions {
        Sessions { client: ground.database.server().client(), database: ground.database.name().to_owned() }
    }

    fn count(&mut self) -> (usize, usize) {
        let sql = "SELECT count(*), count(*) FILTER (WHERE wait_event_type = 'Lock')
                     FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'";
        let row = self.client.query_one(sql, &[&self.database]).expect("the server's sessions");
        let number = |i| usize::try_from(row.get::<_, i64>(i)).expect("not below 0");
        (number(0), number(1))
    }

    /// The most that have waited for a lock at once until then.
    fn most_waiting(&mut self, until: Stamp) -> usize {
        let mut most = 0;
        while now() < until {
            most = most.max(self.count().1);
            std::thread::sleep(Duration::from_millis(20));
        }
        most
    }

    /// Ends all of them, and returns how many there were.
    fn terminate(&mut self) -> u64 {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = $1 AND backend_type = 'client backend'";
        self.client.execute(sql, &[&self.database]).expect("the right to do that")
    }

    #[track_caller]
    fn await_no_more_than(&mut self, most: usize) {
        await_until(LIMIT, format_args!("{most} sessions are left, and none waits"), || {
            let (all, waiting) = self.count();
            all <= most && waiting == 0
        });
    }
}

/// Connections to the server that the whole fleet keeps.
fn kept(way: Way, nodes: usize) -> usize {
    match way {
        // A store's pool has two, and so has the pooler.
        Way::Direct => 2 * nodes,
        Way::Pooled => 2,
    }
}

/// Another transaction locks the whole table for longer than a lease. Returns how many sessions have waited.
fn under_a_locked_table(stage: &mut Stage<'_>) -> usize {
    let way = if stage.ground.pooler.is_some() { Way::Pooled } else { Way::Direct };
    let first = stage.first;
    let mut sessions = Sessions::of(&stage.ground);
    let mut client = stage.ground.database.client();
    client.batch_execute("BEGIN; LOCK TABLE leader_election").expect("an exclusive lock");
    let locked = now();
    let most = sessions.most_waiting(locked + stage.profile.lease + stage.profile.retry * 2);
    stage.outage(&first, locked, |_| client.batch_execute("COMMIT").expect("a commit"));
    drop(client);
    sessions.await_no_more_than(kept(way, 3));
    stage.fleet.nothing_is_fatal();
    most
}

/// Another transaction locks the whole table: sessions pile up on the server, one for each call that is given up, and
/// are gone after the lock.
pub(crate) fn table_locked(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let most = under_a_locked_table(&mut stage);
    // Each node makes one call at a time, and gives it up after an operation timeout.
    let time = P3.lease + P3.retry * 2;
    let calls = 3 * (1 + time.as_millis().div_ceil(P3.op.as_millis()));
    assert!(most > 3 && most as u128 <= calls, "{most} sessions wait, of {calls} calls");
    figure(format_args!("table locked, {}: {most} sessions waited", way.name()));
    stage.finish(2)
}

/// The same where the database has a `lock_timeout`, as the documentation advises: nothing piles up.
pub(crate) fn table_locked_where_locks_time_out(way: Way) -> Report {
    let ground = Ground::shared(way);
    let limit = format!("ALTER DATABASE {} SET lock_timeout = '500ms'", ground.database.name());
    ground.database.execute(&limit);
    let mut stage = Stage::set(ground);
    let most = under_a_locked_table(&mut stage);
    // A call that was given up after 400 ms waits on while the next one does.
    assert!(most > 0 && most <= 2 * 3, "{most} sessions wait");
    figure(format_args!("table locked where locks time out, {}: {most} sessions waited", way.name()));
    stage.finish(2)
}

/// Another transaction locks the row for longer than a lease: what waits for it gives up before its caller does.
pub(crate) fn row_locked(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    let mut sessions = Sessions::of(&stage.ground);
    stage.ground.await_renewal();
    let lock = RowLock::take(&stage.ground);
    let locked = now();
    let most = sessions.most_waiting(locked + stage.profile.lease + stage.profile.retry * 2);
    assert!(most > 0 && most <= 3, "{most} sessions wait for the row, of three nodes");
    figure(format_args!("row locked, {}: {most} sessions waited", way.name()));
    stage.outage(&first, locked, |_| lock.release());
    sessions.await_no_more_than(kept(way, 3));
    stage.fleet.nothing_is_fatal();
    stage.finish(2)
}

/// All sessions of the nodes (and of the pooler) are terminated every 300 ms for two leases.
pub(crate) fn backends_terminated(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    let mut sessions = Sessions::of(&stage.ground);
    let end = now() + stage.profile.lease * 2;
    let mut terminated = 0;
    while now() < end {
        terminated += sessions.terminate();
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(terminated >= 20, "{terminated} sessions were there to be terminated");
    let over = now();
    stage.goes_on(&first);
    stage.calms(over);
    stage.fleet.no_lost();
    stage.fleet.nothing_is_fatal();
    stage.finish(1)
}

/// The processes of the server that have refused a write, one for each refusal.
fn refusals(server: &Postgres) -> Vec<String> {
    let log = server.log();
    let refused = log.lines().filter(|line| line.contains("in a read-only transaction"));
    let pid = |line: &str| line.split(['[', ']']).nth(1).map(str::to_owned);
    refused.map(|line| pid(line).expect("every line has one")).collect()
}

/// All transactions are read-only for two leases, those of sessions that live too; then no longer.
pub(crate) fn database_read_only(way: Way) -> Report {
    let server = Postgres::start_new();
    let mut stage = Stage::set(Ground::on(&server, way));
    let first = stage.first;
    let mut operator = server.client();
    operator.batch_execute("SET default_transaction_read_only = off").expect("the operator may write");
    operator.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").expect("a setting");
    server.reload();
    // The sessions get to know of it one by one; this one was the leader's.
    let soon = stage.profile.renew + stage.profile.op + SLACK;
    let refused = stage.fleet.await_story(soon, "a renewal is refused", |fleet| {
        fleet.nodes[first.node].story.lines.iter().find_map(|line| match line {
            Line::Err { at, sqlstate, .. } if sqlstate == "25006" => Some(*at),
            _ => None,
        })
    });
    let over = refused + stage.profile.lease * 2 + stage.profile.retry * 2;
    stage.outage_until(over, &first, refused, |_| {
        operator.batch_execute("ALTER SYSTEM RESET default_transaction_read_only").expect("a setting");
        server.reload();
    });
    stage.fleet.nothing_is_fatal();
    let refusals = refusals(&server);
    let sessions: HashSet<&String> = refusals.iter().collect();
    assert!(refusals.len() > 5, "they go on trying: {refusals:?}");
    if way == Way::Direct {
        assert_eq!(refusals.len(), sessions.len(), "a session that refused was used again: {refusals:?}");
    }
    stage.finish(2)
}

/// Eight nodes where the server has five connections for them; sixteen where the pooler has two. The leader hands
/// over, and the next one is killed.
pub(crate) fn more_participants_than_server_connections(way: Way) -> Report {
    // Twelve, less those for superusers: whoever is refused takes one for a moment.
    let limits = [("max_connections", "12"), ("superuser_reserved_connections", "7")];
    let limited =
        limits.iter().fold(Postgres::builder(), |builder, (name, value)| builder.setting(name, value));
    let server = limited.start();
    let ground = Ground::on(&server, way);
    server.create_role("app", "");
    ground.database.execute("GRANT SELECT, INSERT, UPDATE ON leader_election TO app");
    let nodes = if way == Way::Direct { 8 } else { 16 };
    if let Some(pooler) = &ground.pooler {
        pooler.add_user("app");
    }
    let as_app = |_, options: &mut Options| options.dsn = options.dsn.replace("//postgres@", "//app@");
    let mut stage = Stage::set_with(ground, P3, nodes, as_app);
    let first = stage.first;
    let connected = stage.fleet.counts(first.node);
    let most = if way == Way::Direct { 5 } else { 2 };
    let mut sessions = Sessions::of(&stage.ground);
    await_until(LIMIT, "all connections that there are are used", || sessions.count().0 == most);
    stage.fleet.terminate(first.node);
    let (status, ended) = stage.fleet.await_exit(first.node, LIMIT);
    assert!(status.success(), "{status}");
    let second = stage.leads_again(&first, ended, stage.profile.hand() - SLACK);
    stage.goes_on(&second);
    stage.fleet.kill(second.node);
    let third = stage.takes_over(&second);
    stage.goes_on(&third);
    // Some have got a connection only now, so that they have more descriptors than they began with.
    for node in stage.fleet.running() {
        await_until(LIMIT, format_args!("n{node} has no more than {connected:?}"), || {
            let (threads, descriptors) = stage.fleet.counts(node);
            threads <= connected.0 + 3 && descriptors <= connected.1 + 3
        });
    }
    let full = stage.failures().iter().filter(|failure| failure.starts_with("53300")).count();
    assert_eq!(full > 0, way == Way::Direct, "{:?}", stage.failures());
    stage.fleet.nothing_is_fatal();
    stage.finish(3)
}

/// Two elections in one table. The row of one is locked for longer than a lease, and then its holder is cut off; the
/// other one's leader leads all the time, and not one of its calls fails.
pub(crate) fn two_elections_one_broken(way: Way) -> Report {
    let mut ground = Ground::shared(way);
    // One for each statement that waits for the row, and for the others.
    let roomy = |_| PgBouncer::builder(ground.database.server().port()).pool_size(8).start();
    ground.pooler = ground.pooler.as_ref().map(roomy);
    let other = |label: &str| Options { election: "f".to_owned(), ..ground.options(label) };
    let mut others = Fleet::new();
    let steady = others.start_leader(&other("o0"));
    others.start(&other("o1"));
    let mut stage = Stage::set(ground);
    let first = stage.first;
    stage.ground.await_renewal();
    let lock = RowLock::take(&stage.ground);
    let locked = now();
    let second = stage.outage(&first, locked, |_| lock.release());
    stage.proxies[second.node].set(tenure_testground::Mode::Reset);
    let cut = now();
    stage.steps_down(&second, cut);
    let third = stage.takes_over(&second);
    stage.proxies[second.node].set(tenure_testground::Mode::Pass);
    let healed = now();
    stage.goes_on(&third);
    stage.calms(healed);
    others.await_held(&steady, P3.lease * 2);
    others.read();
    others.no_lost();
    let failed = others.lines().find(|(_, line)| matches!(line, Line::Err { .. }));
    assert_eq!(failed, None, "{}", others.told());
    others.finish();
    others.judge(1);
    let faults = rows::faults(&rows::history(&stage.ground.database, "f"), P3.lease);
    promised!(faults.is_empty(), "{faults:#?}");
    stage.finish(3)
}
