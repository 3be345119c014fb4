//! The protocol apart from the code: every state of small worlds under the final rules, and the drafts that the
//! design rejects, each of which must be seen to fail.
//!
//! Worlds have no end of time. They are bounded by the number of terms and of faults, which every test states.

mod drafts;
mod exhaustive;
mod schedules;

use tenure_protocol::{Bounds, Found, Rules, explore};

/// The promise holds in every state, and the worlds are not empty.
fn must_hold(name: &str, rules: Rules, bounds: Bounds) -> Found {
    let found = explore(rules, bounds);
    println!("{name}: {} states, depth {}, {:.1?}", found.states, found.depth, found.took);
    assert!(found.broken.is_none(), "{name}: {:#?}", found.broken);
    assert!(found.somebody_leads, "{name}: nobody ever leads");
    found
}

/// The property breaks; the search says how.
fn must_break(name: &str, property: &str, rules: Rules, bounds: Bounds) {
    let found = explore(rules, bounds);
    let Some((broken, path)) = found.broken else {
        panic!("{name}: nothing found in {} states", found.states);
    };
    println!("{name}: {broken:?} breaks in {} steps, after {} states: {path:?}", path.len(), found.states);
    assert_eq!(broken, property, "{name}: {path:#?}");
}
