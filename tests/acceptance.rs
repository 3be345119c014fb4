//! The acceptance suite on every store that the crate brings: one test per store and check.
//!
//! A further store is one line in [`SUBJECTS`].

use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};
use tenure::MemoryStore;
use tenure::acceptance::{self, Check, Subject};

type Start = fn() -> Box<dyn Subject>;

/// A name, and how to start what it takes. Started by the first test that needs it, dropped after the last.
const SUBJECTS: &[(&str, Start)] =
    &[("memory", || Box::new(MemoryStore::new())), ("memory_promoted", || Box::new(promoted_memory()))];

fn promoted_memory() -> MemoryStore {
    let store = MemoryStore::new();
    store.set_timeline(Some(7));
    store
}

type Shared = Arc<OnceLock<Box<dyn Subject>>>;

fn run(check: &Check, subject: &dyn Subject) -> Result<(), Failed> {
    check.run(subject).map_err(|failure| Failed::from(format!("{}: {failure}", check.rule())))
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (name, start) in SUBJECTS {
        let shared = Shared::default();
        for check in acceptance::checks() {
            let shared = Arc::clone(&shared);
            let trial = format!("{name}::{}", check.name());
            trials.push(Trial::test(trial, move || run(check, shared.get_or_init(start).as_ref())));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
