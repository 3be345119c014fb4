//! PgBouncer goes away, stands still, is told to wait, or loses its server.

use std::collections::HashSet;
use std::time::Duration;

use tenure_testground::{Mode, PgBouncer, Postgres, Proxy};

use crate::fleet::line::{Stamp, now};
use crate::fleet::{Ground, Way};
use crate::report::Report;
use crate::stage::Stage;

fn pooler<'a>(stage: &'a Stage<'_>) -> &'a PgBouncer {
    stage.ground.pooler.as_ref().expect("this is about one")
}

/// It is stopped and started, and killed and started, three times each.
pub(crate) fn pooler_restarts(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    for _ in 0..3 {
        stage.ground.await_renewal();
        pooler(&stage).restart();
        stage.ground.await_renewal();
        pooler(&stage).kill9();
        pooler(&stage).start();
    }
    let over = now();
    let first = stage.first;
    stage.goes_on(&first);
    stage.calms(over);
    stage.fleet.no_lost();
    stage.fleet.nothing_is_fatal();
    stage.finish(1)
}

/// `PAUSE` on its console, and `RESUME` after more than a lease.
pub(crate) fn pooler_paused_and_resumed(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    pooler(&stage).admin("PAUSE");
    let paused = now();
    stage.outage(&first, paused, |stage| {
        pooler(stage).admin("RESUME");
    });
    stage.fleet.nothing_is_fatal();
    stage.finish(2)
}

/// Its process is stopped for longer than a lease, with all connections open.
pub(crate) fn pooler_process_stopped(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    pooler(&stage).pause_process();
    let stopped = now();
    stage.outage(&first, stopped, |stage| pooler(stage).resume_process());
    stage.fleet.nothing_is_fatal();
    stage.finish(2)
}

/// `RECONNECT` every 200 ms for two leases. Returns when it was over.
fn storm(stage: &Stage<'_>) -> Stamp {
    let mut watcher = stage.ground.database.server().client();
    let sessions = "SELECT pid FROM pg_stat_activity WHERE datname = $1";
    let mut seen = HashSet::new();
    let end = now() + stage.profile.lease * 2;
    while now() < end {
        pooler(stage).admin("RECONNECT");
        std::thread::sleep(Duration::from_millis(200));
        let rows = watcher.query(sessions, &[&stage.ground.database.name()]).expect("the server's sessions");
        seen.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
    }
    // Two at a time.
    assert!(seen.len() > 2, "the connections have changed: {seen:?}");
    now()
}

/// `RECONNECT` every 200 ms for two leases. One that meets a log-in at the server counts as a failed log-in, after
/// which the pooler serves nobody for a second; the next one may meet the next log-in. So terms may end.
pub(crate) fn pooler_reconnect_storm(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let over = storm(&stage);
    let steady = stage.calms(over);
    stage.goes_on(&steady);
    stage.fleet.nothing_is_fatal();
    stage.finish(1)
}

/// The same where the pooler tries the server again at once: no term ends.
pub(crate) fn pooler_reconnect_storm_without_pauses(_: Way) -> Report {
    let server = Postgres::shared();
    let pooler = Some(PgBouncer::builder(server.port()).server_login_retry(0).start());
    let mut stage = Stage::set(Ground { pooler, ..Ground::on(server, Way::Direct) });
    let first = stage.first;
    let over = storm(&stage);
    stage.goes_on(&first);
    stage.calms(over);
    stage.fleet.no_lost();
    stage.fleet.nothing_is_fatal();
    stage.finish(1)
}

/// Nothing moves between it and its server for longer than a lease; clients can reach it all the time.
pub(crate) fn pooler_loses_its_server(_: Way) -> Report {
    let server = Postgres::shared();
    let path = Proxy::to(server.addr());
    let pooler = Some(PgBouncer::builder(path.port()).start());
    let mut stage = Stage::set(Ground { pooler, ..Ground::on(server, Way::Direct) });
    let first = stage.first;
    path.set(Mode::BlackHole);
    let cut = now();
    stage.outage(&first, cut, |_| path.set(Mode::Pass));
    stage.fleet.nothing_is_fatal();
    stage.finish(2)
}
