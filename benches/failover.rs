//! How long it takes until another one leads, and whether two do meanwhile: two participants on a throw-away
//! PostgreSQL, each a process of its own, with 3 s of lease. Direct and through PgBouncer in transaction mode.
//!
//!     cargo bench --bench failover
//!     cargo bench --bench failover -- --rounds 50
//!
//! This program is also the node that it starts. It fails where the promise is broken.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

#[path = "../tests/fleet/mod.rs"]
mod fleet;

use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use clap::Parser;
use tenure_testground::{Mode, Postgres, Proxy};

use fleet::line::{Line, Stamp, now};
use fleet::profile::P3;
use fleet::{Fleet, Ground, LIMIT, Led, Way, node};

#[derive(Parser)]
struct Options {
    /// How often each of the three is done on each path.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Two nodes, each on a path of its own.
struct Duel<'a> {
    ground: Ground<'a>,
    fleet: Fleet,
    /// The path of the node with the same number.
    paths: Vec<Proxy>,
    leader: Led,
    rounds: u32,
}

/// What all rounds of one path took.
#[derive(Default)]
struct Times {
    /// From the cut to the old leader's own word that its term is over.
    step_downs: Vec<Duration>,
    /// For how long a leader that was cut off and its successor led at one time.
    double: Vec<Duration>,
    /// For how long nobody led between the two.
    nobody: Vec<Duration>,
    /// From the cut to the next leader.
    cuts: Vec<Duration>,
    /// From SIGKILL to the next leader.
    crashes: Vec<Duration>,
    /// From SIGTERM to the next leader.
    stops: Vec<Duration>,
}

impl<'a> Duel<'a> {
    fn begin(server: &'a Postgres, way: Way, rounds: u32) -> Duel<'a> {
        let ground = Ground::on(server, way);
        let path = Proxy::to(ground.addr());
        let mut options = ground.options("n0");
        options.dsn = ground.database.dsn_through(path.port());
        let mut fleet = Fleet::new();
        let leader = fleet.start_leader(&options);
        let mut duel = Duel { ground, fleet, paths: vec![path], leader, rounds };
        duel.join();
        duel
    }

    /// One more node; it has seen the leader when this returns.
    fn join(&mut self) {
        let path = Proxy::to(self.ground.addr());
        let mut options = self.ground.options(&format!("n{}", self.paths.len()));
        options.dsn = self.ground.database.dsn_through(path.port());
        self.paths.push(path);
        let node = self.fleet.start(&options);
        self.await_seen(node);
    }

    fn await_seen(&mut self, node: usize) {
        let leader = self.leader.fence;
        self.fleet.await_story(LIMIT, "the other one has seen the leader", |fleet| {
            let seen = |line: &Line| matches!(line, Line::Seen { fence, .. } if *fence == leader);
            fleet.nodes[node].story.lines.iter().any(seen).then_some(())
        });
    }

    /// The leader has renewed, and so much of the time to its next renewal has passed. All of it gets its turn.
    fn at_the_moment_of(&mut self, round: u32) {
        self.fleet.await_held(&self.leader.clone(), P3.renew * 3);
        self.ground.await_renewal();
        sleep(P3.renew * (2 * round + 1) / (2 * self.rounds));
    }

    fn next_leader(&mut self) -> Led {
        let old = self.leader.fence;
        self.leader = self.fleet.await_lead(P3.take(), "another one leads", |led| led.fence > old);
        self.leader
    }

    fn black_hole(&mut self, round: u32, times: &mut Times) {
        self.at_the_moment_of(round);
        let old = self.leader;
        self.paths[old.node].set(Mode::BlackHole);
        let cut = now();
        times.step_downs.push(self.fleet.stepped_down(&old, cut, P3));
        let next = self.next_leader();
        times.cuts.push(next.at - cut);
        let until: Stamp = self.fleet.certain(old.fence).map_or(Stamp::ZERO, |held| held.1);
        times.double.push(until.saturating_sub(next.at));
        times.nobody.push(next.at.saturating_sub(until));
        self.paths[old.node].set(Mode::Pass);
        self.await_seen(old.node);
    }

    fn crash(&mut self, round: u32, times: &mut Times) {
        self.at_the_moment_of(round);
        let killed = now();
        self.fleet.kill(self.leader.node);
        times.crashes.push(self.next_leader().at - killed);
        self.join();
    }

    fn clean_stop(&mut self, round: u32, times: &mut Times) {
        self.at_the_moment_of(round);
        let old = self.leader.node;
        let asked = self.fleet.terminate(old);
        times.stops.push(self.next_leader().at - asked);
        self.fleet.await_exit(old, LIMIT);
        self.join();
    }
}

fn measure(server: &Postgres, way: Way, rounds: u32) -> Times {
    let mut duel = Duel::begin(server, way, rounds);
    let mut times = Times::default();
    for round in 0..rounds {
        duel.black_hole(round, &mut times);
        duel.crash(round, &mut times);
        duel.clean_stop(round, &mut times);
    }
    // No overlap, fences that only rise, by the nodes' stories and by the row's own history.
    duel.fleet.verify(&duel.ground, P3, 3 * rounds as usize);
    times
}

/// The middle one and the longest one, in seconds.
fn middle_and_longest(times: &[Duration]) -> String {
    let mut times = times.to_vec();
    times.sort();
    let middle = times[times.len() / 2].as_secs_f64();
    let longest = times[times.len() - 1].as_secs_f64();
    format!("{middle:.2} s ({longest:.2} s)")
}

fn main() -> ExitCode {
    if let Some(options) = node::Options::from_env() {
        return node::main(&options);
    }
    let Options { rounds, bench } = Options::parse();
    // Whoever runs all targets as tests wants to know that it works.
    let rounds = if bench { rounds.max(1) } else { 1 };
    // With durable commits, as in production.
    let server = Postgres::builder().fsync(true).start();
    println!("{rounds} rounds on each path; the median, and in brackets the longest");
    println!(
        "| path | black hole: old leader steps down after | two leaders for | black hole -> next leader \
         | crash -> next leader | clean stop -> next leader |\n| --- | --- | --- | --- | --- | --- |"
    );
    for way in [Way::Direct, Way::Pooled] {
        let times = measure(&server, way, rounds);
        println!(
            "| {} | {} | {:.2} s (at least {:.2} s to spare) | {} | {} | {} |",
            way.name(),
            middle_and_longest(&times.step_downs),
            times.double.iter().max().unwrap().as_secs_f64(),
            times.nobody.iter().min().unwrap().as_secs_f64(),
            middle_and_longest(&times.cuts),
            middle_and_longest(&times.crashes),
            middle_and_longest(&times.stops),
        );
    }
    ExitCode::SUCCESS
}
