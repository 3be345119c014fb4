//! The manual lists the lines of the log: with these levels, these keys and no others.

use super::*;
use crate::event::Leader;
use crate::lease::Fence;

const OPERATING: &str = include_str!("../../docs/operating.rs");

/// One of each, with all that it can have.
fn samples() -> Vec<Event> {
    let (fence, took) = (Fence::try_from(7).unwrap(), Duration::from_secs(3));
    let leader = || Leader { holder: "host-1".to_owned(), fence, payload: None };
    let error = || StoreError::fatal("no table").with_sqlstate("42P01");
    let lost = |cause, error| Event::Lost { fence, cause, error, stalled: took };
    vec![
        Event::CampaignStarted {},
        Event::CampaignEnded {},
        Event::Elected { fence },
        Event::Renewed { fence, took, headroom: took, remaining: took },
        lost(LossCause::Expired, Some(error())),
        lost(LossCause::Superseded, None),
        lost(LossCause::Resigned, None),
        lost(LossCause::Stopped, None),
        lost(LossCause::Failed, Some(error())),
        Event::Released { fence, took },
        Event::ReleaseFailed { fence, error: error() },
        Event::Observed { leader: leader() },
        Event::Published { leader: leader() },
        Event::Vacant { last: leader() },
        Event::Failed { operation: Operation::Renew, error: error(), took },
        Event::Recovered { failures: 2, after: took },
        Event::ClockStepped { forward: true, by: took },
        Event::FenceRegressed { seen: 9, found: 7 },
        Event::RowGone {},
        Event::TimelineChanged { from: Some(1), to: Some(2) },
        Event::UselessGrant { fence },
    ]
}

/// The rows of the manual's table of lines: what is fixed in the text, and the level.
fn rows() -> Vec<(Vec<&'static str>, &'static str)> {
    let varies = |word: &str| {
        let word = word.trim_end_matches([',', ';', ':']);
        word == "..." || word.chars().all(|c| c.is_ascii_uppercase())
    };
    let row = |line: &'static str| {
        let (text, rest) = line.strip_prefix("//! | `")?.split_once("` | ")?;
        let level = rest.split(" | ").next()?;
        let levels = ["info", "warn", "debug"].contains(&level);
        levels.then(|| (text.split(' ').filter(|word| !varies(word)).collect(), level))
    };
    OPERATING.lines().filter_map(row).collect()
}

fn fits(words: &[&str], text: &str) -> bool {
    let bare = |word: &str| word.trim_end_matches([',', ';', ':']).to_owned();
    let mut text = text.split(' ').map(bare);
    words.iter().all(|word| text.any(|of_text| of_text == bare(word)))
}

#[test]
fn the_levels_in_the_manual_are_those_of_the_crate() {
    let (rows, samples) = (rows(), samples());
    assert!(rows.len() >= 18, "{rows:#?}");
    for event in &samples {
        let found: Vec<&str> =
            rows.iter().filter(|row| fits(&row.0, &event.text())).map(|row| row.1).collect();
        let level = event.level().as_str().to_lowercase();
        if event.level() <= Level::Info || !found.is_empty() {
            assert!(!found.is_empty() && found.iter().all(|l| *l == level), "{}: {found:?}", event.text());
        }
    }
    let of_the_store = |words: &[&str]| words.starts_with(&["the", "database", "server"]);
    for (words, _) in rows.iter().filter(|row| !of_the_store(&row.0)) {
        assert!(samples.iter().any(|event| fits(words, &event.text())), "nobody says {words:?}");
    }
}

#[test]
fn the_keys_in_the_manual_are_those_of_the_crate() {
    let (_, table) = OPERATING.split_once("//! | key | |").unwrap();
    let (table, _) = table.split_once("//!\n").unwrap();
    let named: Vec<&str> = table.split('`').skip(1).step_by(2).collect();
    let mut used = vec!["election".to_owned(), "identity".to_owned()];
    let lines = samples().into_iter().map(|event| event.fields());
    for fields in lines.chain([answered(Operation::Observe, Duration::ZERO).1]) {
        for (key, value) in fields {
            used.push(key.to_owned());
            if ["event", "cause", "error_kind"].contains(&key) {
                used.push(value.to_value().to_string());
            }
        }
    }
    for word in &used {
        assert!(named.contains(&word.as_str()), "the manual does not name {word}");
    }
    for word in named {
        let kinds = ["timeout", "retryable"];
        assert!(used.iter().any(|used| used == word) || kinds.contains(&word), "nothing is called {word}");
    }
}
