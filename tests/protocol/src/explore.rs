//! Every state within the bounds, by breadth-first search.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model as _};

use crate::model::{Action, Bounds, Model};
use crate::rules::Rules;

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Distinct states that were visited.
    pub states: usize,
    /// The longest path.
    pub depth: usize,
    /// A property that must always hold and did not, and the shortest way there.
    pub broken: Option<(&'static str, Vec<Action>)>,
    /// Somebody led.
    pub somebody_leads: bool,
    /// Somebody led who was not the first.
    pub somebody_takes_over: bool,
    /// How long it took.
    pub took: Duration,
}

/// Visits every state within the bounds, or as many as it takes to see a broken property.
pub fn explore(rules: Rules, bounds: Bounds) -> Found {
    let begun = Instant::now();
    let model = Model { rules, bounds };
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut found = Found {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        broken: None,
        somebody_leads: false,
        somebody_takes_over: false,
        took: begun.elapsed(),
    };
    for (name, path) in checker.discoveries() {
        match name {
            "somebody leads" => found.somebody_leads = true,
            "somebody takes over" => found.somebody_takes_over = true,
            _ => found.broken = Some((name, path.into_actions())),
        }
    }
    found
}
