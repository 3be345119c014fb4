//! The index of the bugs from the field: complete, and true to the files that it names.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

const INDEX: &str = include_str!("FIELD-BUGS.md");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The cases that are in scope, by number.
fn cases() -> impl Iterator<Item = String> {
    (1..=29).chain([31]).map(|n| format!("B{n:02}"))
}

fn rows() -> Vec<(&'static str, Vec<&'static str>)> {
    let rows = INDEX.lines().filter_map(|line| line.strip_prefix("| B"));
    rows.map(|row| {
        let columns: Vec<&str> = row.split(" | ").collect();
        let [number, what, tests] = columns[..] else { panic!("three columns: {row}") };
        assert!(what.ends_with('.') && what.len() > 20, "B{number} has no sentence");
        // Every second piece stands between back quotes.
        let named = tests.split('`').skip(1).step_by(2).filter(|name| name.contains("::"));
        (number, named.collect())
    })
    .collect()
}

/// The files that a test may be in: one, or all of those of the scenarios.
fn files(file: &str) -> Vec<PathBuf> {
    if file != "chaos" {
        return vec![Path::new(ROOT).join(file)];
    }
    let files = std::fs::read_dir(Path::new(ROOT).join("tests/chaos")).unwrap();
    files
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect()
}

/// The tests of a file, by name: what its program registers where it does that by hand, the checks of the suite for
/// stores, and everywhere else what is marked as a test.
fn tests(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let registry = std::fs::read_to_string(file.parent().unwrap().join("main.rs")).unwrap_or_default();
    let by_hand = registry.contains("libtest_mimic");
    let module = file.file_stem().unwrap().to_str().unwrap();
    let registered = |function: &str| {
        let name = format!("{module}::{function}");
        registry.match_indices(&name).any(|(at, _)| !registry[at + name.len()..].starts_with(is_of_a_name))
    };
    let of_the_suite = file.parent().is_some_and(|directory| directory.ends_with("src/store/acceptance"));
    let mut found = Vec::new();
    let mut marked = false;
    for line in text.lines().map(str::trim_start) {
        let check = of_the_suite && line.starts_with("pub(super) fn ");
        let counts = |function: &str| if by_hand { registered(function) } else { marked || check };
        if let Some((_, function)) = line.split_once("fn ").filter(|(before, _)| !before.contains("//")) {
            let function = function.split(['(', '<']).next().unwrap();
            if counts(function) {
                found.push(function.to_owned());
            }
        }
        marked = line == "#[test]";
    }
    found
}

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn exists(test: &str) -> bool {
    let (file, wanted) = test.rsplit_once("::").unwrap();
    let fits = |function: &String| match wanted.strip_suffix('*') {
        Some(start) => function.starts_with(start),
        None => function == wanted,
    };
    files(file).iter().any(|file| tests(file).iter().any(fits))
}

#[test]
fn every_case_has_its_row() {
    let found: Vec<String> = rows().iter().map(|(number, _)| format!("B{number}")).collect();
    assert_eq!(found, cases().collect::<Vec<_>>());
}

#[test]
fn every_test_that_the_index_names_exists() {
    let missing: Vec<&str> =
        rows().into_iter().flat_map(|(_, tests)| tests).filter(|test| !exists(test)).collect();
    assert_eq!(missing, Vec::<&str>::new());
    assert!(rows().iter().all(|(_, tests)| !tests.is_empty()), "a case without a test");
}

#[test]
fn what_does_not_exist_is_found_missing() {
    assert!(exists("tests/field_bugs.rs::every_case_has_its_row") && exists("tests/field_bugs.rs::every_*"));
    let absent =
        ["every_case_has_its", "b99_*", "exists", "rows"].map(|name| format!("tests/field_bugs.rs::{name}"));
    for missing in absent.iter().map(String::as_str).chain(["chaos::b99_*"]) {
        assert!(!exists(missing), "{missing}");
    }
    // There, and not registered.
    assert!(!exists("tests/processes/pooler.rs::leave_behind"));
    assert!(exists("tests/processes/takeover.rs::b02_a_short_freeze_changes_nothing"));
}

/// That it is refused is shown by the example in the guard's own documentation; here, with which words.
#[test]
fn b14_the_compiler_says_what_dropping_a_guard_does() {
    let guard = std::fs::read_to_string(Path::new(ROOT).join("src/guard.rs")).unwrap();
    let (before, _) = guard.split_once("pub struct LeaderGuard").unwrap();
    let attribute = before.trim_end().lines().last().unwrap();
    assert!(attribute.starts_with("#[must_use = \"dropping the guard ends the term"), "{attribute}");
    assert!(before.contains("```compile_fail\n/// #![deny(unused_must_use)]"), "the example is gone");
}
