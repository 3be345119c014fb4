//! Random schedules: a seed draws everything, the faults' probabilities included.

use super::world::{Link, NAME, World, usual};
use crate::election::Settings;

/// Which faults a schedule may have. Some combinations lie outside any lease's guarantee (a participant that
/// has only just started, together with a step or a restore); those are not drawn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// Nodes and links misbehave, clocks step, nodes restart with `Strict`.
    ClocksAndRestarts,
    /// The record is deleted, rolled back or lost in a fail-over under nodes that have watched it.
    Records,
}

/// One schedule of ten virtual minutes. Says how many terms there were.
fn schedule(seed: u64) -> (World, u64) {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
    let family = if rng.bool() { Family::ClocksAndRestarts } else { Family::Records };
    let mut world = World::new(seed);
    if rng.bool() || family == Family::Records {
        world.store.set_timeline(Some(1));
    }
    let settings = |identity: &str, strict: bool| Settings { strict, ..usual(identity) };
    let strict = family == Family::ClocksAndRestarts;
    for n in 0..rng.usize(2..=3) {
        let node = world.add(settings(&format!("n{n}"), strict));
        world.nodes[node].drift_ppm = rng.i64(-10_000..=10_000);
        world.campaign(node);
    }
    // Everybody has seen the election before anything happens to its record.
    world.run_for(40_000);
    let mut timeline = 1;
    let mut old = world.store.snapshot(NAME);
    let busy = rng.u64(1..=4);
    while world.now_ms() < 500_000 {
        world.run_for(rng.u64(10..=8_000 / busy));
        let node = rng.usize(0..world.nodes.len());
        match rng.u32(0..16) {
            0 => world.freeze(node),
            1 | 2 => thaw_all(&mut world),
            3 => world.link(node, Link::Cut),
            4 => world.link(node, Link::RepliesLost),
            5 => world.link(node, Link::Late(rng.u64(1_000..30_000))),
            6..=8 => (0..world.nodes.len()).for_each(|n| world.link(n, Link::Up)),
            9 if family == Family::ClocksAndRestarts => {
                let step = rng.i64(-20_000..=20_000);
                world.step_clock(step);
            }
            10 if family == Family::ClocksAndRestarts => {
                world.crash(node);
                let identity = format!("n{}", world.nodes.len());
                let fresh = world.add(settings(&identity, true));
                world.campaign(fresh);
            }
            14 | 15 => world.link(node, Link::Slow(rng.u64(100..2_990))),
            11 => world.resign(node),
            12 if family == Family::Records => old = world.store.snapshot(NAME),
            13 if family == Family::Records => {
                // Only where everybody who could take over has watched and can see what happens to the record.
                timeline += 1;
                world.say(format!("fail-over to timeline {timeline}"));
                world.store.promote(timeline, std::slice::from_ref(&old));
            }
            _ => {}
        }
    }
    thaw_all(&mut world);
    (0..world.nodes.len()).for_each(|n| world.link(n, Link::Up));
    let mut waited = 0;
    while world.leader().is_none() && waited < 60_000 {
        world.run_for(100);
        waited += 100;
    }
    if world.leader().is_none() {
        world.violations.push("nobody leads a minute after the last fault".to_owned());
    }
    let terms = world.terms;
    (world, terms)
}

fn thaw_all(world: &mut World) {
    for n in 0..world.nodes.len() {
        if world.nodes[n].frozen {
            world.thaw(n);
        }
    }
}

#[test]
fn random_schedules_never_make_two_leaders() {
    let from: u64 = std::env::var("TENURE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let count: u64 = std::env::var("TENURE_SCHEDULES").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
    let mut terms = 0;
    let mut bad = Vec::new();
    for seed in from..from + count {
        let (world, elected) = schedule(seed);
        terms += elected;
        if !world.violations.is_empty() || world.fences_fell > 0 {
            bad.push((seed, world));
        }
    }
    if let Some((seed, world)) = bad.first() {
        panic!(
            "{} of {count} schedules; seed {seed}: {:?}\n{}",
            bad.len(),
            world.violations,
            world.transcript.join("\n")
        );
    }
    // A generator that elects nobody proves nothing.
    assert!(terms > 5 * count, "only {terms} terms in {count} schedules");
}
