//! What a scenario has measured, and the table of all.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;

use crate::fleet::Way;

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
    pub(crate) overlaps: usize,
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
    ended: Vec<Report>,
}

static RUNS: Mutex<BTreeMap<(&'static str, &'static str), Runs>> = Mutex::new(BTreeMap::new());

pub(crate) fn begun(scenario: &'static str, way: Way) {
    RUNS.lock().entry((scenario, way.name())).or_default().begun += 1;
}

pub(crate) fn ended(scenario: &'static str, way: Way, report: Report) {
    RUNS.lock().entry((scenario, way.name())).or_default().ended.push(report);
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
        "| scenario | path | runs | failed | terms | overlaps | step-down, worst | take-over, worst | threads | descriptors |\n\
         | --- | --- | --: | --: | --: | --: | --: | --: | --: | --: |\n",
    );
    for ((scenario, way), runs) in runs {
        let ended = &runs.ended;
        let line = writeln!(
            table,
            "| {} | {way} | {} | {} | {} | {} | {} | {} | {} | {} |",
            scenario.replace("::", ": ").replace('_', " "),
            runs.begun,
            runs.begun - ended.len(),
            ended.iter().map(|report| report.terms).sum::<usize>(),
            ended.iter().map(|report| report.overlaps).sum::<usize>(),
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
