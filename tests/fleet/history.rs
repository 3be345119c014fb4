//! The history checker: what must hold of the lines of all nodes together, whatever was done to them.

use super::line::{Line, Stamp};

/// What one run of a node has said.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) label: String,
    pub(crate) lines: Vec<Line>,
    /// Cut off in the middle: killed, or left through an exit that runs no destructor.
    pub(crate) cut_off: bool,
}

impl Story {
    /// Adds a line. Of the lines that say how long a term has been held, which grow, the last one says it all.
    pub(crate) fn tell(&mut self, line: Line) {
        if let (Line::Held { fence, from, to }, Some(Line::Held { fence: same, from: since, to: until })) =
            (&line, self.lines.last_mut())
        {
            if fence == same && from == since && to >= until {
                *until = *to;
                return;
            }
        }
        self.lines.push(line);
    }
}

/// How much has to have happened for a history to prove anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtLeast {
    pub(crate) terms: usize,
    pub(crate) held: Stamp,
}

/// A term as its holder saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) node: usize,
    pub(crate) fence: i64,
    pub(crate) led_at: Stamp,
    /// When it was certainly live.
    pub(crate) certain: Option<(Stamp, Stamp)>,
    pub(crate) lost: Option<Stamp>,
    /// No more lines about it will come.
    pub(crate) closed: bool,
}

/// Everything that is wrong with a history; empty where it is as promised.
pub(crate) fn faults(stories: &[Story], at_least: AtLeast) -> Vec<String> {
    let mut faults = Vec::new();
    let mut terms = Vec::new();
    for (node, story) in stories.iter().enumerate() {
        terms.extend(read(node, story, &mut faults));
    }
    terms.sort_by_key(|term| (term.led_at, term.fence));
    let label = |term: &Term| format!("{} (fence {})", stories[term.node].label, term.fence);
    for (i, one) in terms.iter().enumerate() {
        for other in &terms[i + 1..] {
            if one.fence == other.fence {
                faults.push(format!("{} and {} share a fence", label(one), label(other)));
            }
            let (Some(a), Some(b)) = (one.certain, other.certain) else { continue };
            if let Some(both) = overlap(a, b) {
                faults.push(format!("two leaders from {both:?}: {} and {}", label(one), label(other)));
            }
            let (first, second) = if a.0 < b.0 { (one, other) } else { (other, one) };
            if first.fence > second.fence {
                faults.push(format!("fences fall: {} came before {}", label(first), label(second)));
            }
        }
    }
    let held = terms.iter().filter_map(|term| term.certain).map(|(from, to)| to - from).sum::<Stamp>();
    if terms.len() < at_least.terms || held < at_least.held {
        let wanted = (at_least.terms, at_least.held);
        faults.push(format!("too little happened: {} terms, {held:?} led, not {wanted:?}", terms.len()));
    }
    faults
}

/// When both were certainly live.
fn overlap(a: (Stamp, Stamp), b: (Stamp, Stamp)) -> Option<(Stamp, Stamp)> {
    (a.0 < b.1 && b.0 < a.1).then(|| (a.0.max(b.0), a.1.min(b.1)))
}

/// The terms of all, each with the number of the story that tells of it, whatever is wrong with them.
pub(crate) fn terms<'a>(stories: impl IntoIterator<Item = &'a Story>) -> Vec<Term> {
    stories.into_iter().enumerate().flat_map(|(node, story)| read(node, story, &mut Vec::new())).collect()
}

/// How many pairs of terms were live at one instant.
pub(crate) fn overlaps(terms: &[Term]) -> usize {
    let certain: Vec<_> = terms.iter().filter_map(|term| term.certain).collect();
    let pairs = certain.iter().enumerate().flat_map(|(i, a)| certain[i + 1..].iter().map(move |b| (a, b)));
    pairs.filter(|(a, b)| overlap(**a, **b).is_some()).count()
}

/// How many terms have a fence that was there before, or a lower one than the one before.
pub(crate) fn falls(terms: &[Term]) -> usize {
    let mut fences: Vec<i64> = terms.iter().map(|term| term.fence).collect();
    fences.sort_unstable();
    let repeats = fences.windows(2).filter(|pair| pair[0] == pair[1]).count();
    // Of a term that was never certainly live nobody knows when it was.
    let mut live: Vec<(Stamp, i64)> =
        terms.iter().filter_map(|term| Some((term.certain?.0, term.fence))).collect();
    live.sort_unstable();
    repeats + live.windows(2).filter(|pair| pair[1].1 < pair[0].1).count()
}

/// The terms of one node, and what is wrong with its own story.
fn read(node: usize, story: &Story, faults: &mut Vec<String>) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    // What is still owed for the last term: the news of its end, and the word that the work has stopped.
    let (mut live, mut working) = (false, false);
    let mut fault = |what: String| faults.push(format!("{}: {what}", story.label));
    for line in &story.lines {
        let current = terms.last().map(|term| term.fence);
        match line {
            Line::Lead { at, fence } => {
                if live || working {
                    fault(format!("leads with fence {fence} before the term before has ended"));
                }
                if current.is_some_and(|before| before >= *fence) {
                    fault(format!("leads with fence {fence} after {current:?}"));
                }
                (live, working) = (true, true);
                let (fence, led_at) = (*fence, *at);
                terms.push(Term { node, fence, led_at, certain: None, lost: None, closed: false });
            }
            Line::Held { fence, from, to } => match terms.last_mut() {
                Some(term) if live && term.fence == *fence => {
                    let (since, until) = term.certain.unwrap_or((*from, *from));
                    if since != *from || *to < until || *from < term.led_at {
                        fault(format!("has held fence {fence} from {from:?} to {to:?}"));
                    }
                    term.certain = Some((since, *to));
                }
                _ => fault(format!("holds fence {fence} in the wrong place")),
            },
            Line::Lost { at, fence, .. } => {
                if !live || current != Some(*fence) {
                    fault(format!("lost fence {fence} without leading"));
                } else if let Some(term) = terms.last_mut() {
                    term.lost = Some(*at);
                }
                live = false;
            }
            Line::Stopped { fence, .. } => {
                if live || !working || current != Some(*fence) {
                    fault(format!("stopped with fence {fence} in the wrong place"));
                } else if let Some(term) = terms.last_mut() {
                    term.closed = true;
                }
                working = false;
            }
            Line::Exit { .. } if (live || working) && !story.cut_off => {
                fault(format!("exits with fence {current:?} still open"));
            }
            _ => {}
        }
    }
    let ended = story.lines.iter().any(|line| matches!(line, Line::Exit { .. }));
    if !ended && !story.cut_off {
        fault("has not ended".to_owned());
    }
    terms
}
