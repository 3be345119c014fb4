//! The parent's side: a database for each test, a way to it, and the nodes of one election.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tenure::PostgresStore;
use tenure_testground::{Database, PgBouncer, Postgres, Process, await_until};

use crate::history::{self, AtLeast, Story};
use crate::line::{Line, Stamp, now};
use crate::node::{End, Form, Options};
use crate::profile::{P3, Profile};
use crate::rows::{self, Row};
use crate::stillness::BROKEN;

/// Long enough for whatever has no bound of its own, on any machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// How nodes reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    /// PgBouncer, transaction mode, two server connections.
    Pooled,
}

/// A database with the table in it, whose row's history is written down.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) database: Database<'a>,
    pub(crate) pooler: Option<PgBouncer>,
}

impl Ground<'static> {
    pub(crate) fn shared(way: Way) -> Ground<'static> {
        Ground::on(Postgres::shared(), way)
    }
}

impl<'a> Ground<'a> {
    pub(crate) fn on(server: &'a Postgres, way: Way) -> Ground<'a> {
        let ground = Ground::empty(server, way);
        let store = PostgresStore::connect(&ground.database.dsn()).expect("a usable DSN");
        store.ensure_schema().expect("a new database");
        rows::audit(&ground.database);
        ground
    }

    /// Without the table.
    pub(crate) fn empty(server: &'a Postgres, way: Way) -> Ground<'a> {
        let database = server.database();
        let pooler = (way == Way::Pooled).then(|| PgBouncer::in_front_of(server));
        Ground { database, pooler }
    }

    pub(crate) fn dsn(&self) -> String {
        self.database.dsn_through(self.addr().port())
    }

    /// What nodes connect to: the target of a proxy.
    pub(crate) fn addr(&self) -> std::net::SocketAddr {
        self.pooler.as_ref().map_or(self.database.server().addr(), PgBouncer::addr)
    }

    /// What a node here is started with, unless a test wants something else.
    pub(crate) fn options(&self, label: &str) -> Options {
        Options {
            dsn: self.dsn(),
            election: "e".to_owned(),
            label: label.to_owned(),
            profile: P3,
            form: Form::Guard,
            end: End::Shutdown,
            schema: false,
        }
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        rows::history(&self.database, "e")
    }

    /// The row as it is, to the byte, with the mark of its last write.
    pub(crate) fn bytes_of_the_row(&self) -> String {
        let sql = "SELECT lease::text || ' ' || xmin::text FROM leader_election AS lease WHERE name = 'e'";
        self.database.client().query_one(sql, &[]).expect("a row").get(0)
    }
}

/// A node as its parent sees it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) process: Process,
    pub(crate) story: Story,
    /// Not waited for yet: its process id is still its own.
    running: bool,
}

/// The nodes of one election. A node that has ended stays in the list, since its story does.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Node>,
}

/// A term as its `LEAD` line shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Led {
    pub(crate) node: usize,
    pub(crate) at: Stamp,
    pub(crate) fence: i64,
}

impl Fleet {
    pub(crate) fn new() -> Fleet {
        Fleet::default()
    }

    /// Starts a node and returns its number.
    pub(crate) fn start(&mut self, options: &Options) -> usize {
        let process = Process::spawn_self(|command| options.put(command));
        let story = Story { label: options.label.clone(), lines: Vec::new(), cut_off: false };
        self.nodes.push(Node { process, story, running: true });
        self.nodes.len() - 1
    }

    /// Starts a node that leads before anybody else is there.
    #[track_caller]
    pub(crate) fn start_leader(&mut self, options: &Options) -> Led {
        let node = self.start(options);
        self.await_lead(LIMIT, "the first node leads", |led| led.node == node)
    }

    /// Takes in what the nodes have said by now.
    pub(crate) fn read(&mut self) {
        for node in &mut self.nodes {
            while let Some(line) = node.process.try_line() {
                node.story.lines.push(line.parse().unwrap_or_else(|fault| panic!("{fault}")));
            }
        }
    }

    /// Waits for something in the stories.
    #[track_caller]
    pub(crate) fn await_story<T>(
        &mut self,
        within: Duration,
        what: &str,
        mut find: impl FnMut(&Fleet) -> Option<T>,
    ) -> T {
        let begun = Instant::now();
        loop {
            self.read();
            if let Some(found) = find(self) {
                return found;
            }
            assert!(begun.elapsed() < within, "not within {within:?}: {what}\n{}", self.told());
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    #[track_caller]
    pub(crate) fn await_lead(&mut self, within: Duration, what: &str, wanted: impl Fn(&Led) -> bool) -> Led {
        self.await_story(within, what, |fleet| fleet.leads().into_iter().find(|led| wanted(led)))
    }

    /// When the term with this fence was lost, as its holder says.
    #[track_caller]
    pub(crate) fn await_lost(&mut self, within: Duration, fence: i64) -> Stamp {
        self.await_story(within, &format!("fence {fence} is lost"), |fleet| {
            fleet.lines().find_map(|(_, line)| match line {
                Line::Lost { at, fence: lost, .. } if *lost == fence => Some(*at),
                _ => None,
            })
        })
    }

    /// Waits until the node has led for so long, and renewed meanwhile.
    #[track_caller]
    pub(crate) fn await_held(&mut self, led: &Led, time: Duration) {
        let what = format!("fence {} is held for {time:?}", led.fence);
        self.await_story(LIMIT, &what, |fleet| {
            let held = fleet.certain(led.fence)?;
            (held.1 - held.0 >= time).then_some(())
        });
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.nodes.iter().enumerate().flat_map(|(i, node)| node.story.lines.iter().map(move |line| (i, line)))
    }

    pub(crate) fn leads(&self) -> Vec<Led> {
        let leads = self.lines().filter_map(|(node, line)| match line {
            Line::Lead { at, fence } => Some(Led { node, at: *at, fence: *fence }),
            _ => None,
        });
        leads.collect()
    }

    /// From when to when the term with this fence was certainly live, as far as is known.
    pub(crate) fn certain(&self, fence: i64) -> Option<(Stamp, Stamp)> {
        let held = self.lines().filter_map(|(_, line)| match line {
            Line::Held { fence: held, from, to } if *held == fence => Some((*from, *to)),
            _ => None,
        });
        held.last()
    }

    pub(crate) fn identity(&self, node: usize) -> Option<&str> {
        self.nodes[node].story.lines.iter().find_map(|line| match line {
            Line::Started { identity, .. } => Some(identity.as_str()),
            _ => None,
        })
    }

    #[track_caller]
    pub(crate) fn no_lost(&self) {
        let lost: Vec<_> = self.lines().filter(|(_, line)| matches!(line, Line::Lost { .. })).collect();
        assert!(lost.is_empty(), "{lost:?}\n{}", self.told());
    }

    /// SIGKILL. Returns a stamp at which it was gone.
    pub(crate) fn kill(&mut self, node: usize) -> Stamp {
        self.nodes[node].process.kill();
        self.nodes[node].running = false;
        self.nodes[node].story.cut_off = true;
        now()
    }

    pub(crate) fn terminate(&self, node: usize) -> Stamp {
        let asked = now();
        self.nodes[node].process.terminate();
        asked
    }

    /// Waits for the end of a node, and returns its status and when that was.
    #[track_caller]
    pub(crate) fn await_exit(&mut self, node: usize, within: Duration) -> (ExitStatus, Stamp) {
        let status = self.nodes[node].process.wait(within);
        self.nodes[node].running = false;
        (status, now())
    }

    /// Ends all nodes that still run, and holds their stories and the row's own history against the promise.
    #[track_caller]
    pub(crate) fn verify(&mut self, ground: &Ground<'_>, profile: Profile, terms: usize) {
        self.finish();
        self.judge(terms);
        let rows = ground.rows();
        let faults = rows::faults(&rows, profile.lease);
        assert!(faults.is_empty(), "{BROKEN}: {faults:#?}\n{rows:#?}\n{}", self.told());
        for led in self.leads() {
            let holder = self.identity(led.node).expect("it said who it is");
            let known = rows.iter().any(|row| row.fence == led.fence && row.holder == holder);
            assert!(known, "{led:?} by {holder} is nowhere in {rows:#?}");
        }
        self.lay_over(&rows, profile);
    }

    /// What the nodes were told, laid over what the row says: nobody led for longer than the last renewal gave it,
    /// or when somebody else had the lease already.
    #[track_caller]
    fn lay_over(&self, rows: &[Row], profile: Profile) {
        // The two clocks are read one after the other, and the wall clock is nudged now and then.
        let tolerance = Duration::from_millis(5);
        for led in self.leads() {
            let Some((from, to)) = self.certain(led.fence) else { continue };
            let mut own = rows.iter().filter(|row| row.fence == led.fence && !row.is_released());
            let (first, last) = (own.next().expect("it was granted"), own.next_back());
            let granted = rows::stamp(first.acquired);
            assert!(from + tolerance > granted, "{BROKEN}: led {led:?} {:?} too early", granted - from);
            let until = rows::stamp(last.unwrap_or(first).renewed) + profile.term() + tolerance;
            assert!(to < until, "{BROKEN}: led {led:?} {:?} too long\n{}", to - until, self.told());
            let next = rows.iter().find(|row| row.fence > led.fence);
            if let Some(next) = next.map(|row| rows::stamp(row.acquired) + tolerance) {
                assert!(
                    to < next,
                    "{BROKEN}: led {led:?} {:?} into the next term\n{}",
                    to - next,
                    self.told()
                );
            }
        }
    }

    /// SIGTERM to whoever runs, and waits for all.
    #[track_caller]
    pub(crate) fn finish(&mut self) {
        self.nodes.iter().filter(|node| node.running).for_each(|node| node.process.terminate());
        for node in self.nodes.iter_mut().filter(|node| node.running) {
            let status = node.process.wait(LIMIT);
            node.running = false;
            assert!(status.success(), "{} ended with {status}: {:?}", node.story.label, node.story.lines);
        }
        // The reading threads get to the ends of the pipes.
        for node in &mut self.nodes {
            while let Some(line) = node.process.line(LIMIT) {
                if let Ok(line) = line.parse() {
                    node.story.lines.push(line);
                }
            }
        }
    }

    /// Holds the stories against the promise. Everybody has to have ended.
    #[track_caller]
    pub(crate) fn judge(&self, terms: usize) {
        let stories: Vec<Story> = self.nodes.iter().map(|node| node.story.clone()).collect();
        let held = Duration::from_millis(100);
        let faults = history::faults(&stories, AtLeast { terms, held });
        assert!(faults.is_empty(), "{BROKEN}: {faults:#?}\n{}", self.told());
    }

    /// All that was said, without the bulk of it.
    pub(crate) fn told(&self) -> String {
        let mut lines: Vec<(Stamp, String)> = Vec::new();
        for (node, line) in self.lines() {
            let at = match line {
                Line::Started { at, .. }
                | Line::Lead { at, .. }
                | Line::Lost { at, .. }
                | Line::Stopped { at, .. }
                | Line::Err { at, .. }
                | Line::Ended { at, .. }
                | Line::Exit { at } => *at,
                Line::Check { from, .. } => *from,
                Line::Held { .. } => continue,
            };
            lines.push((at, format!("{at:.3?} {}#{node} {line}", self.nodes[node].story.label)));
        }
        lines.sort();
        lines.into_iter().map(|(_, line)| line + "\n").collect()
    }
}

/// A transaction that holds the row of the tests' election, on a connection of its own direct to the server.
pub(crate) struct RowLock(tenure_testground::postgres::Client);

impl RowLock {
    pub(crate) fn take(ground: &Ground<'_>) -> RowLock {
        let mut client = ground.database.client();
        client.batch_execute("BEGIN").expect("a transaction");
        let sql = "SELECT 1 FROM leader_election WHERE name = 'e' FOR UPDATE";
        assert_eq!(client.query(sql, &[]).expect("the row's lock").len(), 1, "there is no row");
        RowLock(client)
    }

    /// Waits until somebody else waits for the row.
    #[track_caller]
    pub(crate) fn await_waiter(&mut self) {
        let sql = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))";
        await_until(LIMIT, "somebody waits for the row", || {
            self.0.query_one(sql, &[]).expect("the server's locks").get::<_, i64>(0) > 0
        });
    }

    /// Ends the transaction, which has changed nothing. Over when this returns.
    pub(crate) fn release(mut self) {
        self.0.batch_execute("COMMIT").expect("a commit");
    }
}
