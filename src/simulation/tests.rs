//! Many schedules, and that a schedule is what its seed says.

use super::{Options, Outcome, Statistics, replay, replay_bytes, run, run_bytes};

#[test]
fn random_schedules_keep_the_promise() {
    let number = |name: &str, otherwise| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
    };
    let (from, count) = (number("TENURE_SEED", 1), number("TENURE_SCHEDULES", 300));
    let mut sum = Statistics::default();
    for seed in from..from + count {
        let outcome = run(seed);
        sum.add(&outcome.statistics);
        if !outcome.violations.is_empty() {
            let Outcome { options, violations, transcript, .. } = replay(seed);
            panic!("{violations:?}\n{options:#?}\n{}", transcript.join("\n"));
        }
    }
    assert!(sum.is_meaningful(), "too little happened:\n{sum}");
}

#[test]
fn a_seed_is_a_schedule() {
    let (one, other) = (replay(11), replay(11));
    assert_eq!(one.transcript, other.transcript);
    assert!(one.transcript.len() > 100);
    assert_eq!(format!("{:?}", Options::draw(11)), format!("{:?}", one.options));
    assert_ne!(one.transcript, replay(12).transcript);
}

#[test]
fn bytes_pick_the_faults() {
    let bytes: Vec<u8> = (0..=255).collect();
    let (some, more) = (run_bytes(3, &bytes[..40]), run_bytes(3, &bytes));
    let faults = |outcome: &Outcome| outcome.statistics.faults.iter().sum::<u64>();
    assert!(0 < faults(&some) && faults(&some) < faults(&more), "{} and {}", faults(&some), faults(&more));
    assert_eq!(faults(&run_bytes(3, &[])), 0);
    assert_eq!(replay_bytes(3, &bytes).transcript, replay_bytes(3, &bytes).transcript);
}
