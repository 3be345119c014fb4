//! What was measured.

use std::fmt::Write;
use std::time::Duration;

use tenure_testground::await_until;

use crate::arena::{Arena, VETERANS};
use crate::course::Soak;
use crate::fleet::history::{self, Term};
use crate::fleet::line::Stamp;
use crate::fleet::profile::{P3, SLACK};
use crate::fleet::{Fleet, LIMIT};
use crate::judge::Judge;

/// What a node's memory may grow by, in kB. An allocator takes its time to settle.
const GROWTH: u64 = 16_384;

/// What a node has that is there from the beginning to the end.
#[derive(Debug)]
pub(crate) struct Lasting {
    name: String,
    pub(crate) node: usize,
    /// Threads and descriptors, in the first calm.
    pub(crate) counts: (usize, usize),
    /// In kB.
    memory: u64,
    /// The same at the end.
    after: ((usize, usize), u64),
}

impl Lasting {
    pub(crate) fn of_veterans(arena: &Arena<'_>) -> Vec<Lasting> {
        let of = |seat: &usize| {
            let node = arena.seats[*seat].node;
            let (counts, memory) = (arena.fleet.counts(node), memory(&arena.fleet, node));
            Lasting { name: arena.who(*seat), node, counts, memory, after: (counts, memory) }
        };
        VETERANS.iter().map(of).collect()
    }

    pub(crate) fn ends(&mut self, fleet: &Fleet) {
        self.after = (fleet.counts(self.node), memory(fleet, self.node));
    }

    #[track_caller]
    pub(crate) fn check(&self) {
        assert!(self.after.1 < self.memory + GROWTH, "{self:?}");
    }
}

/// What a process has in memory, in kB.
fn memory(fleet: &Fleet, node: usize) -> u64 {
    let path = format!("/proc/{}/status", fleet.nodes[node].process.pid());
    let status = std::fs::read_to_string(&path).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) bursts: usize,
    /// Calms that were tried again, since the machine stood still.
    pub(crate) excused: usize,
    pub(crate) lasting: Vec<Lasting>,
    stretches: usize,
    /// Time without faults, of it with a leader, and from the first leader of each stretch on.
    calm: Duration,
    led: Duration,
    after_first: Duration,
    worst_first: Duration,
}

/// How many terms there were, and what must not be among them.
pub(crate) fn count(terms: &[Term]) -> String {
    let (all, overlaps, falls) = (terms.len(), history::overlaps(terms), history::falls(terms));
    format!("{all} terms; overlapping: {overlaps}; fences that repeat or fall: {falls}")
}

fn percent(part: Duration, whole: Duration) -> f64 {
    100.0 * part.as_secs_f64() / whole.as_secs_f64().max(f64::EPSILON)
}

impl Figures {
    /// Takes in a stretch without faults.
    pub(crate) fn stretch(&mut self, terms: &[Term], from: Stamp, to: Stamp) {
        let live = terms.iter().filter_map(|term| term.certain);
        let live = live.map(|(since, until)| (since.max(from), until.min(to))).filter(|(a, b)| a < b);
        let live: Vec<(Stamp, Stamp)> = live.collect();
        let first = live.iter().map(|(since, _)| *since).min().expect("somebody leads at the end of it");
        self.stretches += 1;
        self.calm += to - from;
        self.led += live.iter().map(|(since, until)| *until - *since).sum::<Duration>();
        self.after_first += to - first;
        self.worst_first = self.worst_first.max(first - from);
    }

    pub(crate) fn progress(&self, arena: &Arena<'_>, judge: &Judge) -> String {
        format!(
            "{} terms, {} faults, {} processes, led {:.1} % of {:.0?} without faults, first leader after {:.1?} at worst",
            judge.terms(&arena.fleet).len(),
            arena.counts.values().map(|(done, _)| done).sum::<u64>(),
            arena.fleet.nodes.len(),
            percent(self.led, self.calm),
            self.calm,
            self.worst_first,
        )
    }

    pub(crate) fn summary(&self, soak: &Soak<'_>, sessions: (i64, i64), length: Duration) -> String {
        let (arena, judge) = (&soak.arena, &soak.judge);
        let (done, not_done) =
            arena.counts.values().fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
        let mut text = format!("soak: seed {}, {:.1} minutes\n", soak.seed, length.as_secs_f64() / 60.0);
        let mut line = |name: &str, what: String| writeln!(text, "  {name:<14} {what}").expect("a string");
        line("terms", count(&judge.terms(&arena.fleet)));
        line("processes", arena.fleet.nodes.len().to_string());
        line(
            "without faults",
            format!(
                "{:.1?} in {} stretches; led {:.2} % of it, {:.2} % from the first leader of each on",
                self.calm,
                self.stretches,
                percent(self.led, self.calm),
                percent(self.led, self.after_first),
            ),
        );
        let (take, step) = (P3.take() - SLACK, P3.step() - SLACK);
        line("first leader", format!("{:.2?} after the lifting at worst, of {take:.2?}", self.worst_first));
        line(
            "step-down",
            format!(
                "{:.2?} after the cut at worst, of {step:.2?}; {} measured",
                judge.worst_step_down, judge.step_downs
            ),
        );
        for Lasting { name, counts, memory, after, .. } in &self.lasting {
            let (threads, descriptors) =
                (format!("{} → {}", counts.0, after.0.0), format!("{} → {}", counts.1, after.0.1));
            let memory = format!("{memory} → {} kB", after.1);
            line(
                "lasting node",
                format!("{name}: threads {threads}, descriptors {descriptors}, memory {memory}"),
            );
        }
        line("sessions", format!("{} of at most {}", sessions.0, sessions.1));
        line("excused", format!("{} stretches, in which the machine stood still", self.excused));
        line(
            "faults",
            format!("{done} in {} bursts; {not_done} more could not happen when planned", self.bursts),
        );
        for (name, (done, _)) in &arena.counts {
            line("", format!("{done:>5} {name}"));
        }
        text
    }
}

impl Arena<'_> {
    /// The sessions of the fleet at the server, and the most that it may have.
    #[track_caller]
    pub(crate) fn sessions(&self) -> (i64, i64) {
        let direct = self.seats.iter().filter(|seat| !seat.is_pooled()).count();
        // Two for each store, and two for the pooler.
        let most = i64::try_from(direct * 2 + 2).expect("a few");
        let mut client = self.ground.database.client();
        let sql = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
        let mut count = || client.query_one(sql, &[]).expect("the sessions").get::<_, i64>(0);
        await_until(LIMIT, format_args!("there are {most} sessions at most"), || count() <= most);
        (count(), most)
    }
}
