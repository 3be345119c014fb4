//! Rule 15: the primary goes, its standby is promoted, and the row there is the last one or an older one.

use std::time::Duration;

use tenure_testground::postgres::Client;
use tenure_testground::{Mode, Postgres, Proxy, await_until};

use crate::fleet::figures::figure;
use crate::fleet::line::{Stamp, now};
use crate::fleet::profile::{P3, SLACK};
use crate::fleet::stillness::promised;
use crate::fleet::{Ground, LIMIT, Led, Way, rows};
use crate::report::Report;
use crate::stage::{LOOKED, Stage, taken_after_the_expiry};

/// A fleet on a primary that has a standby. Direct, each node has a path to both servers and a connection string
/// that names both; through PgBouncer it is for an operator to point that at the other server.
struct Pair<'a> {
    stage: Stage<'a>,
    standby: &'a Postgres,
    way: Way,
    /// The path to the standby of the node with the same number.
    second: Vec<Proxy>,
    /// When the promotion began.
    asked: Stamp,
}

/// A connection string that goes on to `port` where the one server there is does not take writes.
fn or_else(dsn: &str, port: u16) -> String {
    let (first, database) = dsn.rsplit_once('/').expect("a URL with parameters");
    format!("{first},127.0.0.1:{port}/{database}&target_session_attrs=read-write")
}

impl<'a> Pair<'a> {
    fn set(ground: Ground<'a>, standby: &'a Postgres, way: Way, nodes: usize) -> Pair<'a> {
        let second: Vec<Proxy> = (0..nodes).map(|_| Proxy::to(standby.addr())).collect();
        let stage = Stage::set_with(ground, P3, nodes, |n, options| {
            if way == Way::Direct {
                options.dsn = or_else(&options.dsn, second[n].port());
            }
        });
        Pair { stage, standby, way, second, asked: Stamp::MAX }
    }

    fn join(&mut self, label: &str) -> usize {
        let second = Proxy::to(self.standby.addr());
        let (way, port) = (self.way, second.port());
        self.second.push(second);
        self.stage.join_with(label, |options| {
            if way == Way::Direct {
                options.dsn = or_else(&options.dsn, port);
            }
        })
    }

    /// Whether a node has had an answer on its path to the server that there is now.
    fn has_looked(&self, node: usize) -> bool {
        let path = if self.way == Way::Direct { &self.second[node] } else { &self.stage.proxies[node] };
        path.snapshot().round_trips >= LOOKED
    }

    /// All paths of a node.
    fn set_paths(&self, node: usize, mode: Mode) {
        self.stage.proxies[node].set(mode);
        self.second[node].set(mode);
    }

    /// The standby takes writes from now on, and the pooler leads there.
    fn promote(&mut self) -> Stamp {
        self.asked = now();
        self.standby.promote();
        if let Some(pooler) = &self.stage.ground.pooler {
            pooler.retarget(self.standby.port());
        }
        now()
    }

    /// To the election's database on the standby.
    fn client(&self) -> Client {
        self.standby.existing_database(self.stage.ground.database.name()).client()
    }

    /// Holder and fence by the standby.
    fn row(&self) -> (String, i64) {
        let mut client = self.client();
        let row = client.query_one("SELECT holder, fence FROM leader_election WHERE name = 'e'", &[]);
        let row = row.expect("the row was there before the standby");
        (row.get(0), row.get(1))
    }

    fn is_expired(&self) -> bool {
        let mut client = self.client();
        let sql = "SELECT expires_at < clock_timestamp() FROM leader_election WHERE name = 'e'";
        client.query_one(sql, &[]).expect("the row").get(0)
    }

    /// From the promotion to the next leader: whatever was known before is waited out, as if the lease had been
    /// renewed just then.
    fn bound(&self) -> Duration {
        // A pooler tries a server again only once in a second.
        let pooler = if self.way == Way::Pooled { Duration::from_secs(1) } else { Duration::ZERO };
        P3.take() - SLACK + pooler
    }

    /// Whoever leads first after the promotion has waited for a lease and has a fence above all that were issued, and
    /// goes on.
    #[track_caller]
    fn goes_on_above(&mut self, old: &Led, promoted: Stamp) -> Led {
        let (bound, asked) = (self.bound(), self.asked);
        let fleet = &mut self.stage.fleet;
        let next = fleet.await_lead(bound + SLACK, "somebody leads again", |led| led.at > asked);
        promised!(next.fence > old.fence, "{next:?} after {old:?}\n{}", fleet.told());
        let between = fleet.leads().into_iter().find(|led| led.at > old.at && led.at <= asked);
        promised!(between.is_none(), "{between:?} before the promotion\n{}", fleet.told());
        // Rule 15: what was known of the other timeline is waited out, from the first answer on this one on.
        self.stage.is_waited_for(&next, asked);
        self.stage.took_over(next.at.saturating_sub(promoted), bound);
        self.stage.goes_on(&next);
        next
    }

    #[track_caller]
    fn another_leads(&mut self, led: &Led) {
        let killed = self.stage.fleet.kill(led.node);
        let next = self.stage.leads_again(led, killed, P3.take() - SLACK);
        let history = rows::history(&self.standby.existing_database(self.stage.ground.database.name()), "e");
        taken_after_the_expiry(&history, &next, P3.retry);
        self.stage.goes_on(&next);
        self.stage.calms(next.at);
    }
}

impl Pair<'_> {
    /// Ends the fleet; its stories, and what the promoted server's row went through from the beginning, have to be as
    /// promised.
    #[track_caller]
    fn finish(self, terms: usize) -> Report {
        let (standby, database) = (self.standby, self.stage.ground.database.name().to_owned());
        let report = self.stage.finish_by_stories(terms);
        nothing_wrong_on(standby, &database);
        report
    }
}

/// A primary that acknowledges nothing before its standby has it.
fn follow_synchronously(primary: &Postgres, standby: &Postgres) {
    primary
        .execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '\"{}\"'", standby.cluster_name()));
    primary.reload();
    let mut client = primary.client();
    await_until(LIMIT, "the standby is synchronous", || {
        let state = client.query_opt("SELECT sync_state FROM pg_stat_replication", &[]);
        state.expect("the primary answers").is_some_and(|row| row.get::<_, &str>(0) == "sync")
    });
}

/// What the promoted server's row went through, from the beginning.
fn nothing_wrong_on(standby: &Postgres, database: &str) {
    let history = rows::history(&standby.existing_database(database), "e");
    let faults = rows::faults(&history, P3.lease);
    promised!(faults.is_empty(), "{faults:#?}\n{history:#?}");
}

/// The standby is promoted when the leader has given up.
pub(crate) fn synchronous_failover(way: Way) -> Report {
    let primary = Postgres::start_new();
    let ground = Ground::on(&primary, way);
    let standby = Postgres::standby_of(&primary);
    follow_synchronously(&primary, &standby);
    let mut pair = Pair::set(ground, &standby, way, 4);
    let first = pair.stage.first;
    let leader = pair.stage.hands_over(&first);
    pair.stage.ground.await_renewal();
    let gone = now();
    primary.kill9();
    pair.stage.steps_down(&leader, gone);
    let promoted = pair.promote();
    let holder = pair.stage.fleet.identity(leader.node).expect("it has started").to_owned();
    assert_eq!(pair.row(), (holder, leader.fence), "an acknowledged term is lost");
    let next = pair.goes_on_above(&leader, promoted);
    pair.another_leads(&next);
    pair.finish(4)
}

/// The standby is promoted at once: the leader finds its row there, and its term goes on if there is time.
pub(crate) fn synchronous_failover_in_time(way: Way) -> Report {
    let primary = Postgres::start_new();
    let ground = Ground::on(&primary, way);
    let standby = Postgres::standby_of(&primary);
    follow_synchronously(&primary, &standby);
    let mut pair = Pair::set(ground, &standby, way, 4);
    let first = pair.stage.first;
    pair.stage.ground.await_renewal();
    primary.kill9();
    let promoted = pair.promote();
    let leader = pair.stage.calms(promoted);
    if let Some(next) = pair.stage.fleet.leads().into_iter().find(|led| led.at > first.at) {
        pair.stage.is_waited_for(&next, pair.asked);
    }
    let kept = if leader == first { "goes on" } else { "is followed by another" };
    figure(format_args!(
        "{}: primary killed, synchronous standby promoted at once: the term {kept}",
        way.name()
    ));
    pair.another_leads(&leader);
    pair.finish(2)
}

/// Three terms were acknowledged that the standby never hears of. The leader of the last one is cut off from
/// everything and lives on while the standby is promoted, whose row says that the first term has expired long ago.
pub(crate) fn asynchronous_failover_that_loses_terms(way: Way) -> Report {
    loses_terms(way, Mode::BlackHole, true)
}

/// The same, and the leader of the lost term gets to the promoted server with everybody else.
pub(crate) fn asynchronous_failover_whose_leader_follows(way: Way) -> Report {
    loses_terms(way, Mode::Reset, false)
}

fn loses_terms(way: Way, feed_cut: Mode, leader_cut: bool) -> Report {
    let primary = Postgres::start_new();
    let ground = Ground::on(&primary, way);
    let feed = Proxy::to(primary.addr());
    let standby = Postgres::builder().standby_through(feed.port());
    let mut pair = Pair::set(ground, &standby, way, 5);
    let first = pair.stage.first;
    primary.await_replay(&standby);
    feed.set(feed_cut);
    let second = pair.stage.hands_over(&first);
    // By the standby's row nobody leads any more.
    pair.stage.goes_on(&second);
    let third = pair.stage.hands_over(&second);
    let lost = pair.stage.hands_over(&third);
    fails_over_to(&first, pair, &primary, &lost, leader_cut, 6)
}

/// The row that the promoted server has is that of a participant which lives and campaigns. It led before the leader
/// whose term is lost.
pub(crate) fn asynchronous_failover_to_ones_own_old_row(way: Way) -> Report {
    let primary = Postgres::start_new();
    let ground = Ground::on(&primary, way);
    let feed = Proxy::to(primary.addr());
    let standby = Postgres::builder().standby_through(feed.port());
    let mut pair = Pair::set(ground, &standby, way, 3);
    let first = pair.stage.first;
    primary.await_replay(&standby);
    feed.set(Mode::BlackHole);
    pair.set_paths(first.node, Mode::Reset);
    pair.stage.steps_down(&first, now());
    let lost = pair.stage.takes_over(&first);
    pair.set_paths(first.node, Mode::Pass);
    pair.stage.candidates_look(lost.node);
    fails_over_to(&first, pair, &primary, &lost, true, 4)
}

/// The primary dies, and the standby that knows of no later term than `known` is promoted. The leader of the last
/// term is cut off from everything at the same moment, or follows to the promoted server. `terms`: in the end.
fn fails_over_to(
    known: &Led,
    mut pair: Pair<'_>,
    primary: &Postgres,
    lost: &Led,
    leader_cut: bool,
    terms: usize,
) -> Report {
    // It has nearly a whole term before it.
    pair.stage.ground.await_renewal();
    if leader_cut {
        pair.set_paths(lost.node, Mode::BlackHole);
    }
    let cut = now();
    primary.kill9();
    let promoted = pair.promote();
    assert_eq!(pair.row().1, known.fence, "the terms are not lost");
    assert!(pair.is_expired(), "the standby's row says that somebody leads");
    let fresh = pair.join("fresh");
    await_until(LIMIT, "the newcomer has looked", || pair.has_looked(fresh));
    let looked = now();
    pair.stage.steps_down(lost, cut);
    let next = pair.goes_on_above(lost, promoted);
    assert!(next.at > looked, "the newcomer came too late\n{}", pair.stage.fleet.told());
    if leader_cut {
        let until = pair.stage.fleet.certain(lost.fence).expect("it has led").1;
        figure(format_args!(
            "{}: a lost term lives on for {:.2?} after the promotion, the next begins {:.2?} after its end",
            pair.way.name(),
            until.saturating_sub(promoted),
            next.at.saturating_sub(until)
        ));
        pair.set_paths(lost.node, Mode::Pass);
    }
    pair.another_leads(&next);
    pair.finish(terms)
}

/// B17 (a), with somebody to take over: the primary turns into a reader under its open connections. Nobody can lead
/// until the standby takes writes.
pub(crate) fn demoted_primary_read_only(way: Way) -> Report {
    let primary = Postgres::start_new();
    let ground = Ground::on(&primary, way);
    let standby = Postgres::standby_of(&primary);
    let mut pair = Pair::set(ground, &standby, way, 3);
    let first = pair.stage.first;
    let mut session = primary.client();
    // The next renewal finds a reader in every session.
    pair.stage.ground.await_renewal();
    primary.execute("ALTER SYSTEM SET default_transaction_read_only = on");
    primary.reload();
    await_until(LIMIT, "open sessions can only read", || {
        let setting = session.query_one("SHOW default_transaction_read_only", &[]);
        setting.expect("the primary answers").get::<_, &str>(0) == "on"
    });
    pair.stage.steps_down(&first, now());
    // The lease has expired, and candidates have been refused.
    pair.stage.nobody_leads_for(&first, P3.take() - P3.term());
    let refusals = pair.stage.failures();
    assert!(refusals.iter().any(|text| text.starts_with("25006")), "{refusals:?}");
    primary.await_replay(&standby);
    let promoted = pair.promote();
    let next = pair.goes_on_above(&first, promoted);
    // The old primary still answers, and is nobody's any more.
    pair.another_leads(&next);
    pair.finish(3)
}

/// A planned switch: the primary is shut down, the standby promoted, and the old primary follows it on its old port,
/// which every connection string names first.
pub(crate) fn demoted_primary_becomes_the_standby(way: Way) -> Report {
    let primary = Postgres::start_new();
    let ground = Ground::on(&primary, way);
    let database = ground.database.name().to_owned();
    let standby = Postgres::standby_of(&primary);
    let mut pair = Pair::set(ground, &standby, way, 3);
    primary.stop_fast();
    let promoted = pair.promote();
    let data = primary.data_dir();
    std::fs::write(data.join("standby.signal"), "").expect("its directory can be written");
    let source = format!("primary_conninfo = 'host=127.0.0.1 port={} user=postgres'\n", standby.port());
    std::fs::write(data.join("postgresql.auto.conf"), source).expect("its directory can be written");
    primary.start();
    assert!(primary.is_in_recovery());
    let leader = pair.stage.calms(promoted);
    pair.join("late");
    pair.another_leads(&leader);
    standby.await_replay(&primary);
    let report = pair.finish(2);
    nothing_wrong_on(&primary, &database);
    report
}

/// B17 (b): the standby is named first, in a connection string that asks for a server that takes writes and in one
/// that does not.
pub(crate) fn b17_b_standby_listed_first(way: Way) -> Report {
    let primary = Postgres::start_new();
    let ground = Ground::on(&primary, way);
    let standby = Postgres::standby_of(&primary);
    primary.await_replay(&standby);
    let mut stage = Stage::set_with(ground, P3, 2, |n, options| {
        let (user, rest) = options.dsn.split_once('@').expect("a URL");
        let asks = if n == 0 { "&target_session_attrs=read-write" } else { "" };
        options.dsn = format!("{user}@127.0.0.1:{},{rest}{asks}", standby.port());
    });
    let first = stage.first;
    let started = stage.fleet.started(first.node).expect("it leads");
    stage.took_over(first.at - started, P3.take() - SLACK);
    stage.fleet.kill(first.node);
    let next = stage.takes_over(&first);
    stage.goes_on(&next);
    stage.finish(2)
}
