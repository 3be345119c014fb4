//! B25: two hundred followers of one leader, ten processes of twenty electors each, behind a pooler with four
//! connections: what they cost while nothing happens, and when the leader dies.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use tenure::{CampaignError, Elector, Event, PostgresStore};
use tenure_testground::{PgBouncer, Postgres, Process, await_until};

use crate::figures::figure;
use crate::fleet::{Fleet, Ground, LIMIT, Way};
use crate::leaks::child;
use crate::line::{Line, Stamp, now, say};
use crate::node::Options;
use crate::profile::CROWD;
use crate::rows;
use crate::stillness::promised;

const PROCESSES: usize = 10;
const ELECTORS: usize = 20;
const FOLLOWERS: usize = PROCESSES * ELECTORS;
/// After that long the followers are to be spread.
const SETTLE: Duration = Duration::from_secs(20);
const WATCH: Duration = Duration::from_secs(10);
const BUCKET: i64 = 100_000;

/// Twenty electors of one process, on one store. Ends when it is killed.
pub(crate) fn child_crowd(dsn: &str) {
    let store = PostgresStore::connect(dsn).expect("a usable DSN");
    let started = Barrier::new(ELECTORS + 1);
    thread::scope(|scope| {
        for _ in 0..ELECTORS {
            let config = CROWD.config("e").label("crowd").build().expect("a usable profile");
            let elector = Elector::start(store.clone(), config).expect("two threads");
            let started = &started;
            scope.spawn(move || follow(&elector, started));
        }
        started.wait();
        say(&Line::Started { at: now(), identity: format!("crowd-{}", std::process::id()) });
    });
}

fn follow(elector: &Elector, started: &Barrier) {
    let events = elector.events();
    thread::spawn(move || {
        for event in events {
            if let Event::Failed { error, .. } = event {
                let sqlstate = error.sqlstate().unwrap_or("-").to_owned();
                say(&Line::Err { at: now(), sqlstate, fatal: error.is_fatal(), text: error.to_string() });
            }
        }
    });
    started.wait();
    match elector.wait_for_leadership() {
        Ok(guard) => {
            say(&Line::Lead { at: now(), fence: guard.fence().get() });
            let lost = guard.lost().recv().expect("a term that ends");
            say(&Line::Lost { at: now(), fence: lost.fence.get(), cause: lost.cause.to_string() });
        }
        Err(CampaignError::Stopped) => {}
        Err(error) => panic!("waiting for leadership: {error}"),
    }
}

/// What the server was asked, by its log: when, in microseconds of its clock, and the statement.
struct Asked {
    at: i64,
    writes: bool,
}

/// The statements on the table in the log from byte `from` on.
fn asked(server: &Postgres, from: usize) -> Vec<Asked> {
    let log = server.log();
    let mut client = server.client();
    let mut seen = Vec::new();
    let mut heads: Vec<String> = Vec::new();
    // A statement of several lines goes on in lines that begin with a tab.
    let text = log[from..].replace("\n\t", " ");
    for line in text.lines().filter(|line| line.contains("execute ") && line.contains("leader_election")) {
        // 2024-05-01 10:20:30.123 UTC [pid] ...
        heads.push(line[..23].to_owned());
        seen.push(line.contains("INSERT INTO ") || line.contains("UPDATE \"public\""));
    }
    let sql =
        "SELECT (extract(epoch FROM t::timestamp) * 1000000)::bigint FROM unnest($1::text[]) WITH ORDINALITY
               AS log (t, n) ORDER BY n";
    let times = client.query(sql, &[&heads]).expect("the times of the log");
    let at = times.iter().map(|row| row.get::<_, i64>(0));
    at.zip(seen).map(|(at, writes)| Asked { at, writes }).collect()
}

struct Crowd {
    processes: Vec<Process>,
    lines: Vec<Line>,
}

impl Crowd {
    fn start(dsn: &str) -> Crowd {
        let processes = (0..PROCESSES).map(|_| child("crowd", dsn)).collect();
        let mut crowd = Crowd { processes, lines: Vec::new() };
        await_until(LIMIT, "all followers have started", || {
            let lines = crowd.read();
            lines.iter().filter(|line| matches!(line, Line::Started { .. })).count() == PROCESSES
        });
        crowd
    }

    fn read(&mut self) -> &[Line] {
        for process in &mut self.processes {
            while let Some(line) = process.try_line() {
                self.lines.push(line.parse().unwrap_or_else(|fault| panic!("{fault}")));
            }
        }
        &self.lines
    }

    fn leads(&mut self) -> Vec<(Stamp, i64)> {
        let leads = self.read().iter().filter_map(|line| match line {
            Line::Lead { at, fence } => Some((*at, *fence)),
            _ => None,
        });
        leads.collect()
    }

    #[track_caller]
    fn no_complaint(&mut self) {
        let said = self.read().iter().find(|line| matches!(line, Line::Err { .. } | Line::Lost { .. }));
        assert_eq!(said, None, "a follower complains");
    }
}

pub(crate) fn b25_two_hundred_followers() {
    let server = Postgres::builder().setting("log_statement", "all").start();
    let ground = Ground::on(&server, Way::Direct);
    let pooler = PgBouncer::builder(server.port()).pool_size(4).start();
    let dsn = ground.database.dsn_through(pooler.port());
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&Options { dsn: dsn.clone(), profile: CROWD, ..ground.options("a") });
    let mut crowd = Crowd::start(&dsn);
    thread::sleep(SETTLE);
    let (from, writes) = (server.log().len(), ground.rows().len());
    thread::sleep(WATCH);
    let steady = asked(&server, from);
    let renewals = ground.rows().len() - writes;
    crowd.no_complaint();
    assert_eq!(crowd.leads(), [], "{}", fleet.told());
    quiet(&steady, renewals);

    // The leader dies.
    let from = server.log().len();
    fleet.kill(first.node);
    let row = ground.rows().pop().expect("it has led");
    let renewed = rows::stamp(row.renewed);
    await_until(CROWD.take() + Duration::from_secs(1), "a follower takes over", || !crowd.leads().is_empty());
    // Long enough for a second one, and for the others to have seen the new term.
    thread::sleep(CROWD.retry * 2);
    let leads = crowd.leads();
    promised!(leads.len() == 1, "{leads:?}");
    let (at, fence) = leads[0];
    assert_eq!(fence, first.fence + 1);
    let took = at.saturating_sub(renewed);
    assert!(took <= CROWD.take() + Duration::from_secs(1), "{took:?}");
    crowd.no_complaint();
    let granted = ground.rows().iter().find(|row| row.fence == fence).expect("a grant").acquired;
    let second = asked(&server, from);
    let near = |asked: &&Asked| asked.writes && (asked.at - granted).abs() <= 500_000;
    let bids = second.iter().filter(near).count();
    assert!((1..=400).contains(&bids), "{bids} writes in the second of the take-over");
    figure(format_args!("B25: took over {took:.1?} after the last renewal, {bids} writes in that second"));
    drop(crowd);
    let faults = rows::faults(&ground.rows(), CROWD.lease);
    promised!(faults.is_empty(), "{faults:#?}");
}

/// Nobody but the leader writes, nobody asks more often than promised, and they do not ask all at once.
fn quiet(steady: &[Asked], renewals: usize) {
    let writes = steady.iter().filter(|asked| asked.writes).count();
    let reads: Vec<i64> = steady.iter().filter(|asked| !asked.writes).map(|asked| asked.at).collect();
    assert!(writes.abs_diff(renewals) <= 1, "{writes} writes, of which {renewals} are the leader's");
    let mut buckets: BTreeMap<i64, usize> = BTreeMap::new();
    for at in &reads {
        *buckets.entry(at / BUCKET).or_default() += 1;
    }
    let most = buckets.values().max().copied().unwrap_or_default();
    let mean = reads.len() as f64 / (WATCH.as_secs_f64() * 10.0);
    let rate = reads.len() as f64 / WATCH.as_secs_f64();
    figure(format_args!(
        "B25: {FOLLOWERS} followers ask {rate:.0} times a second; {mean:.1} in 100 ms on average, {most} at most"
    ));
    assert!(rate > 0.5 * FOLLOWERS as f64 / CROWD.retry.as_secs_f64(), "{rate}: the log misses them");
    assert!(rate <= 1.3 * FOLLOWERS as f64 / CROWD.retry.as_secs_f64(), "{rate} reads a second");
    // Close behind the leader's renewal they all come, so that no time is lost when it dies (rule 10), but spread over
    // four fifths of a fortieth of the lease: half of them in 100 ms, and not all at once.
    let spread = CROWD.lease / 40 * 4 / 5;
    let share = FOLLOWERS as f64 * 0.1 / spread.as_secs_f64();
    assert!(most as f64 <= 1.7 * share, "{most} reads in 100 ms, {share:.0} where they are spread evenly");
}
