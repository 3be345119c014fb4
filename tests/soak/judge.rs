//! Holds what the nodes have said against the promise, again and again, and puts away what is settled, so that an
//! hour costs no more than a minute.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::arena::Cut;
use crate::fleet::Fleet;
use crate::fleet::history::{self, AtLeast, Story, Term};
use crate::fleet::line::{Line, Stamp};
use crate::fleet::profile::P3;

/// What a node has said and was not put away yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Teller<'a> {
    pub(crate) story: &'a Story,
    pub(crate) runs: bool,
}

pub(crate) fn tellers(fleet: &Fleet) -> Vec<Teller<'_>> {
    let running: BTreeSet<usize> = fleet.running().into_iter().collect();
    let nodes = fleet.nodes.iter().enumerate();
    nodes.map(|(node, n)| Teller { story: &n.story, runs: running.contains(&node) }).collect()
}

/// The terms of which there still are lines, by fence.
pub(crate) fn terms(tellers: &[Teller<'_>]) -> Vec<Term> {
    let mut terms = history::terms(tellers.iter().map(|teller| teller.story));
    for term in &mut terms {
        term.closed |= !tellers[term.node].runs;
    }
    terms.sort_by_key(|term| term.fence);
    terms
}

/// What is put away: all terms of these fences have ended by then.
#[derive(Debug, Default)]
struct Archive {
    fences: BTreeSet<i64>,
    end: Stamp,
    terms: Vec<Term>,
}

#[derive(Debug, Default)]
pub(crate) struct Judge {
    archive: Archive,
    /// From the moment when the leader was cut off to its own word that its term is over.
    pub(crate) worst_step_down: Duration,
    pub(crate) step_downs: usize,
}

impl Judge {
    /// All terms that there were.
    pub(crate) fn terms(&self, fleet: &Fleet) -> Vec<Term> {
        self.archive.terms.iter().copied().chain(terms(&tellers(fleet))).collect()
    }

    /// Everything that is wrong, in what has not been put away and where that meets what has been.
    pub(crate) fn faults(&self, tellers: &[Teller<'_>], cuts: &[Cut]) -> Vec<String> {
        // Whoever still runs owes no end.
        let open = |teller: &Teller<'_>| Story {
            cut_off: teller.story.cut_off || teller.runs,
            ..teller.story.clone()
        };
        let stories: Vec<Story> = tellers.iter().map(open).collect();
        let mut faults = history::faults(&stories, AtLeast { terms: 0, held: Duration::ZERO });
        let terms = terms(tellers);
        for term in &terms {
            if self.archive.fences.contains(&term.fence) {
                faults.push(format!("a fence was used before: {term:?}"));
            }
            let (end, highest) = (self.archive.end, self.archive.fences.last());
            if let Some((from, _)) = term.certain {
                if from < end {
                    faults.push(format!("two leaders until {end:?}: an earlier one and {term:?}"));
                }
                if highest.is_some_and(|highest| *highest > term.fence) {
                    faults.push(format!("fences fall: {highest:?} came before {term:?}"));
                }
            }
        }
        faults.extend(cuts.iter().filter_map(|cut| too_long(cut, &terms)));
        faults
    }

    /// Puts away what was over before `horizon`, and the cuts. Returns how long it took a leader at worst to step
    /// down by itself.
    pub(crate) fn archive(&mut self, fleet: &mut Fleet, cuts: &mut Vec<Cut>, horizon: Stamp) -> Duration {
        let terms = terms(&tellers(fleet));
        let took: Vec<Duration> = cuts.iter().filter_map(|cut| stepped_down(cut, cuts, &terms)).collect();
        let worst = took.iter().copied().max().unwrap_or_default();
        self.step_downs += took.len();
        self.worst_step_down = self.worst_step_down.max(worst);
        cuts.clear();
        self.put_away(&terms, horizon);
        for node in &mut fleet.nodes {
            node.process.forget();
            node.story.lines.retain(|line| self.is_needed(line, horizon));
        }
        worst
    }

    fn put_away(&mut self, terms: &[Term], horizon: Stamp) {
        let ended = |term: &Term| {
            let end = term.certain.map_or(term.led_at, |(_, to)| to);
            term.closed && end < horizon && term.lost.unwrap_or(end) < horizon
        };
        for term in terms.iter().take_while(|term| ended(term)) {
            self.archive.fences.insert(term.fence);
            self.archive.terms.push(*term);
            self.archive.end = self.archive.end.max(term.certain.map_or(Stamp::ZERO, |(_, to)| to));
        }
    }

    fn is_needed(&self, line: &Line, horizon: Stamp) -> bool {
        match line {
            Line::Started { .. } | Line::Exit { .. } => true,
            Line::Lead { fence, .. }
            | Line::Held { fence, .. }
            | Line::Lost { fence, .. }
            | Line::Stopped { fence, .. } => !self.archive.fences.contains(fence),
            // The highest term that a node has seen may be an old one.
            Line::Seen { fence, .. } => !self.archive.fences.contains(fence) || line.at() >= horizon,
            Line::Check { .. } | Line::Err { .. } | Line::Ended { .. } => line.at() >= horizon,
        }
    }
}

/// The leader was cut off, and was told that it leads later than the last answer before can have allowed.
fn too_long(cut: &Cut, terms: &[Term]) -> Option<String> {
    let latest = cut.from + P3.term();
    let term = terms.iter().find(|term| term.fence == cut.fence && term.node == cut.node)?;
    let (_, until) = term.certain?;
    let still_cut = cut.to.is_none_or(|to| to > latest);
    (still_cut && until > latest).then(|| format!("led {:?} too long: {term:?} {cut:?}", until - latest))
}

/// How long after the cut the leader itself knew, where it was cut off and awake until then.
fn stepped_down(cut: &Cut, cuts: &[Cut], terms: &[Term]) -> Option<Duration> {
    let lost = terms.iter().find(|term| term.fence == cut.fence)?.lost?;
    let asleep = |other: &Cut| {
        other.frozen
            && other.fence == cut.fence
            && other.from < lost
            && other.to.is_none_or(|to| to > cut.from)
    };
    let by_itself = lost > cut.from && Some(lost) < cut.to && !cuts.iter().any(asleep);
    by_itself.then(|| lost - cut.from)
}

/// A control: what was put away still counts.
pub(crate) fn what_is_put_away_still_counts() {
    let s = Stamp::from_secs;
    let story = |fence: i64, from: u64, to: u64| Story {
        label: format!("n{fence}"),
        lines: vec![
            Line::Lead { at: s(from), fence },
            Line::Held { fence, from: s(from), to: s(to) },
            Line::Lost { at: s(to), fence, cause: String::new() },
            Line::Stopped { at: s(to), fence },
        ],
        cut_off: true,
    };
    let told = |story: &Story, cuts: &[Cut], judge: &Judge| {
        judge.faults(&[Teller { story, runs: true }], cuts).len()
    };
    let mut judge = Judge::default();
    let (early, late) = (story(5, 10, 20), story(6, 25, 30));
    let both = [Teller { story: &early, runs: true }, Teller { story: &late, runs: true }];
    judge.put_away(&terms(&both), s(22));
    assert_eq!(judge.archive.fences.len(), 1, "only what was over by then");
    assert_eq!(told(&late, &[], &judge), 0);
    assert_eq!(told(&story(6, 19, 30), &[], &judge), 1, "two leaders");
    assert_eq!(told(&story(4, 25, 30), &[], &judge), 1, "a lower fence");
    let with =
        |late: &Story| [judge.archive.terms.clone(), terms(&[Teller { story: late, runs: true }])].concat();
    assert_eq!(history::overlaps(&with(&story(6, 19, 30))), 1, "it is counted, too");
    assert_eq!(history::falls(&with(&story(4, 25, 30))), 1);
    assert_eq!(told(&story(5, 25, 30), &[], &judge), 1, "the same fence");
    let cut = |to| Cut { by: 1, node: 0, fence: 6, from: s(26), to, frozen: false };
    assert_eq!(told(&late, &[cut(None)], &judge), 1, "led on without an answer");
    assert_eq!(told(&late, &[cut(Some(s(29)))], &judge), 1);
    assert_eq!(told(&late, &[cut(Some(s(27)))], &judge), 0, "the cut was over in time");
}
