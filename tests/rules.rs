//! The rules: each has a test that names it, and the one that no single test could hold is held here.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

/// All files of Rust below, with what is in them.
fn sources(directory: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut left = vec![root.join(directory)];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path.strip_prefix(root).unwrap().to_owned(), text));
        }
    }
    assert!(found.len() > 20, "{directory}: {found:?}");
    found
}

#[test]
fn each_rule_has_a_test_that_names_it() {
    let sources = [sources("src"), sources("tests")].concat();
    let nameless = |rule: &u8| {
        let name = format!("fn rule_{rule}_");
        !sources.iter().any(|(_, text)| text.contains(&name))
    };
    assert_eq!((1..=18).filter(nameless).collect::<Vec<_>>(), [0_u8; 0]);
    assert!(nameless(&19), "the search finds anything");
}

/// What is signed and dated by others is judged by rustls, which reads it for that.
#[test]
fn rule_1_the_library_reads_no_wall_clock() {
    let reads = ["SystemTime::now", "UnixTime::now", "ClockId::Realtime", "CLOCK_REALTIME", "Utc::now"];
    let of_the_library = |path: &Path| {
        let path = path.to_string_lossy().into_owned();
        !path.starts_with("src/bin/") && !path.ends_with("tests.rs") && !path.contains("/tests/")
    };
    for (path, text) in sources("src").iter().filter(|(path, _)| of_the_library(path)) {
        for read in reads {
            assert!(!text.contains(read), "{}: {read}", path.display());
        }
    }
    let program = sources("src/bin");
    assert!(program.iter().any(|(_, text)| text.contains(reads[0])), "the search finds nothing");
}
