//! The checker is told fabricated histories, good ones and bad ones: it has to know them apart.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::time::Duration;

use tenure_testground::{Process, await_until};

use crate::fleet::{Fleet, LIMIT};
use crate::history::{AtLeast, Story, falls, faults, overlaps, terms};
use crate::line::{Line, Stamp};
use crate::stillness::{BROKEN, take_tally, what_was_given_up_is_no_excuse};

const SOME: AtLeast = AtLeast { terms: 1, held: Duration::from_millis(1) };

fn ms(ms: u64) -> Stamp {
    Duration::from_millis(ms)
}

fn lead(at: u64, fence: i64) -> Line {
    Line::Lead { at: ms(at), fence }
}

fn held(fence: i64, from: u64, to: u64) -> Line {
    Line::Held { fence, from: ms(from), to: ms(to) }
}

fn lost(at: u64, fence: i64) -> Line {
    Line::Lost { at: ms(at), fence, cause: "the deadline passed".to_owned() }
}

fn stopped(at: u64, fence: i64) -> Line {
    Line::Stopped { at: ms(at), fence }
}

fn exit(at: u64) -> Line {
    Line::Exit { at: ms(at) }
}

/// A whole term.
fn term(fence: i64, from: u64, to: u64) -> Vec<Line> {
    vec![lead(from, fence), held(fence, from, to), lost(to + 1, fence), stopped(to + 2, fence)]
}

fn story(label: &str, parts: impl IntoIterator<Item = Vec<Line>>) -> Story {
    let mut lines: Vec<Line> = parts.into_iter().flatten().collect();
    lines.push(exit(1_000_000));
    Story { label: label.to_owned(), lines, cut_off: false }
}

fn cut_off(label: &str, lines: Vec<Line>) -> Story {
    Story { label: label.to_owned(), lines, cut_off: true }
}

#[track_caller]
fn finds(what: &str, stories: &[Story]) {
    let faults = faults(stories, SOME);
    assert!(faults.iter().any(|fault| fault.contains(what)), "no {what:?} among {faults:#?}");
}

pub(crate) fn a_good_history_has_no_fault() {
    let killed = cut_off("c", vec![lead(500, 3), held(3, 500, 540), held(3, 500, 580)]);
    let stories = [
        story("a", [term(1, 0, 100), term(4, 900, 950)]),
        story("b", [term(2, 100, 200)]),
        killed,
        story("d", []),
    ];
    assert_eq!(faults(&stories, AtLeast { terms: 4, held: ms(330) }), Vec::<String>::new());
}

pub(crate) fn two_leaders_are_found() {
    finds("two leaders", &[story("a", [term(1, 0, 100)]), story("b", [term(2, 99, 200)])]);
    finds("two leaders", &[story("a", [term(1, 0, 1_000)]), story("b", [term(2, 300, 301)])]);
    // Also where the one that was frozen had not noticed when it was killed.
    let frozen = cut_off("a", vec![lead(0, 1), held(1, 0, 10), held(1, 0, 500)]);
    let stories = [frozen, story("b", [term(2, 400, 600)]), story("c", [term(3, 700, 800)])];
    finds("two leaders", &stories);
    assert_eq!((overlaps(&terms(&stories)), falls(&terms(&stories))), (1, 0));
}

pub(crate) fn fences_that_repeat_or_fall_are_found() {
    finds("share a fence", &[story("a", [term(1, 0, 100)]), story("b", [term(1, 200, 300)])]);
    let fallen = [story("a", [term(3, 0, 100)]), story("b", [term(2, 200, 300), term(4, 400, 500)])];
    finds("fences fall", &fallen);
    assert_eq!((overlaps(&terms(&fallen)), falls(&terms(&fallen))), (0, 1));
    let repeated = [story("a", [term(3, 0, 100), term(3, 200, 300)])];
    finds("after Some(3)", &repeated);
    assert_eq!(falls(&terms(&repeated)), 1);
    finds("after Some(3)", &[story("a", [term(3, 0, 100), term(2, 200, 300)])]);
}

pub(crate) fn terms_without_a_proper_end_are_found() {
    finds("still open", &[story("a", [vec![lead(0, 1), held(1, 0, 9)]])]);
    finds("still open", &[story("a", [vec![lead(0, 1), held(1, 0, 9), lost(10, 1)]])]);
    finds("before the term before", &[story("a", [vec![lead(0, 1), lost(10, 1)], term(2, 20, 30)])]);
    finds("without leading", &[story("a", [term(1, 0, 9), vec![lost(20, 1)]])]);
    finds("wrong place", &[story("a", [term(1, 0, 9), vec![stopped(20, 1)]])]);
    finds("wrong place", &[story("a", [term(1, 0, 9), vec![held(1, 0, 20)]])]);
    finds("wrong place", &[story("a", [vec![lead(0, 1), held(1, 0, 9), stopped(10, 1), lost(11, 1)]])]);
    finds(
        "has held",
        &[story("a", [vec![lead(0, 1), held(1, 0, 9), held(1, 0, 8), lost(10, 1), stopped(11, 1)]])],
    );
    let mut lazy = story("a", [term(1, 0, 9)]);
    lazy.lines.pop();
    finds("has not ended", &[lazy]);
}

pub(crate) fn a_history_in_which_nothing_happened_proves_nothing() {
    finds("too little", &[]);
    finds("too little", &[story("a", [])]);
    finds("too little", &[story("a", [vec![lead(0, 1), lost(1, 1), stopped(2, 1)]])]);
}

/// What a node says is understood as it was meant.
pub(crate) fn lines_survive_the_pipe() {
    let failure = Line::Err { at: ms(7), sqlstate: "-".into(), fatal: false, text: "a b".into() };
    let identity = Line::Started { at: ms(1), identity: "a-1".into() };
    let check = Line::Check { ok: true, from: ms(1), to: ms(2) };
    let ended = Line::Ended { at: ms(3), how: "work is still running".into() };
    for line in term(1, 0, 9).into_iter().chain([failure, identity, check, ended, exit(4)]) {
        assert_eq!(line.to_string().parse(), Ok(line));
    }
    assert!("HELLO 1".parse::<Line>().is_err());
}

/// A process that ends so, at once.
fn ends_with(code: i32) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exit {code}")]);
    Process::spawn(command)
}

pub(crate) fn a_fleet_that_is_given_up_is_judged_all_the_same() {
    what_was_given_up_is_no_excuse(|| {
        let mut fleet = Fleet::new();
        for (label, fence, until) in [("a", 1, 500), ("b", 2, 600)] {
            let lines = vec![lead(400, fence), held(fence, 400, until)];
            fleet.adopt(ends_with(0), Story { label: label.to_owned(), lines, cut_off: false });
        }
        resume_unwind(Box::new("not in time".to_owned()));
    });
}

pub(crate) fn a_killed_node_that_had_panicked_is_a_broken_promise() {
    let said = |code: i32, end: fn(&mut Fleet)| {
        let mut fleet = Fleet::new();
        let mut process = ends_with(code);
        await_until(LIMIT, "its end", || process.has_ended().is_some());
        fleet.adopt(process, cut_off("a", Vec::new()));
        let panic = catch_unwind(AssertUnwindSafe(|| end(&mut fleet))).expect_err("a bad end");
        panic.downcast_ref::<String>().expect("a text").clone()
    };
    let kill = |fleet: &mut Fleet| {
        fleet.kill(0);
    };
    assert!(said(101, kill).contains(BROKEN));
    assert!(said(101, Fleet::finish).contains(BROKEN));
    // Whatever else it ended with is wrong, and no more than that.
    assert!(!said(1, kill).contains(BROKEN));
    assert!(!said(1, Fleet::finish).contains(BROKEN));
    take_tally();
}
