//! What a scenario has measured, and the table of all.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;

use crate::fleet::Way;
use crate::fleet::stillness::take_tally;

/// A time that was taken, and the time that the contract gives it, without what a busy machine may add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) took: Duration,
    pub(crate) bound: Duration,
}

/// One run of a scenario that ended well.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) terms: usize,
    /// From the fault to the leader's own word that its term is over.
    pub(crate) step_downs: Vec<Timing>,
    /// From the last successful renewal, the release or the end of the fault to the next leader.
    pub(crate) take_overs: Vec<Timing>,
    /// Of all nodes that lived from the beginning to the end.
    pub(crate) threads: (usize, usize),
    pub(crate) descriptors: (usize, usize),
}

/// The runs of a scenario on one way.
#[derive(Debug, Default)]
struct Runs {
    begun: usize,
    /// Attempts that did not count, since the machine stood still.
    excused: usize,
    /// In all attempts, those that failed included.
    overlaps: usize,
    ended: Vec<Report>,
}

static RUNS: Mutex<BTreeMap<(&'static str, &'static str), Runs>> = Mutex::new(BTreeMap::new());

/// One run, on the thread on which it is. It counts however it ends.
#[derive(Debug)]
pub(crate) struct Run(&'static str, Way);

impl Run {
    pub(crate) fn begin(scenario: &'static str, way: Way) -> Run {
        take_tally();
        let run = Run(scenario, way);
        run.enter(|runs| runs.begun += 1);
        run
    }

    pub(crate) fn end(self, report: Report) {
        self.enter(|runs| runs.ended.push(report));
    }

    fn enter(&self, what: impl FnOnce(&mut Runs)) {
        what(RUNS.lock().entry((self.0, self.1.name())).or_default());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let tally = take_tally();
        self.enter(|runs| {
            runs.excused += tally.excused;
            runs.overlaps += tally.overlaps;
        });
    }
}

/// The run whose time came closest to its bound.
fn worst<'a>(timings: impl Iterator<Item = &'a Timing>) -> String {
    let share = |timing: &&Timing| timing.took.as_secs_f64() / timing.bound.as_secs_f64();
    let worst = timings.max_by(|a, b| share(a).total_cmp(&share(b)));
    worst.map_or_else(
        || "-".to_owned(),
        |worst| format!("{:.2} of {:.2} s", worst.took.as_secs_f64(), worst.bound.as_secs_f64()),
    )
}

/// The pair whose two numbers differ most.
fn change(pairs: impl Iterator<Item = (usize, usize)>) -> String {
    pairs
        .max_by_key(|(before, after)| before.abs_diff(*after))
        .map_or_else(|| "-".to_owned(), |(before, after)| format!("{before} → {after}"))
}

fn table(runs: &BTreeMap<(&'static str, &'static str), Runs>) -> String {
    let mut table = String::from(
        "| scenario | path | runs | failed | excused | terms | overlaps | step-down, worst | take-over, worst | threads | descriptors |\n\
         | --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n",
    );
    for ((scenario, way), runs) in runs {
        let ended = &runs.ended;
        let line = writeln!(
            table,
            "| {} | {way} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            scenario.replace("::", ": ").replace('_', " "),
            runs.begun,
            runs.begun - ended.len(),
            runs.excused,
            ended.iter().map(|report| report.terms).sum::<usize>(),
            runs.overlaps,
            worst(ended.iter().flat_map(|report| &report.step_downs)),
            worst(ended.iter().flat_map(|report| &report.take_overs)),
            change(ended.iter().map(|report| report.threads)),
            change(ended.iter().map(|report| report.descriptors)),
        );
        line.expect("a string takes everything");
    }
    table
}

#[allow(clippy::print_stdout, reason = "what a test program is for")]
pub(crate) fn print(file: Option<&Path>) {
    let runs = RUNS.lock();
    if runs.is_empty() {
        return;
    }
    let table = table(&runs);
    println!("{table}");
    if let Some(file) = file {
        std::fs::write(file, table).unwrap_or_else(|error| panic!("can't write {}: {error}", file.display()));
    }
}
