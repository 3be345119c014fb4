//! Processes that get no more of what they need, or are interrupted all the time.

use std::time::Duration;

use tenure_testground::{cpu_time, is_running, limit_descriptors, limit_threads, signal_storm, waits};

use crate::fleet::figures::figure;
use crate::fleet::line::now;
use crate::fleet::profile::P3;
use crate::fleet::trials::NOBODIES;
use crate::fleet::{Ground, Led, Way};
use crate::report::Report;
use crate::stage::Stage;

/// The first leader, which has lost its term, leads again when nobody else is left.
fn takes_part_again(mut stage: Stage<'_>, latest: &Led) -> Report {
    let first = stage.first;
    stage.goes_on(latest);
    let others: Vec<usize> = stage.fleet.running().into_iter().filter(|node| *node != first.node).collect();
    for node in others {
        stage.fleet.kill(node);
    }
    let again = stage.takes_over(latest);
    assert_eq!(again.node, first.node);
    stage.goes_on(&again);
    stage.calms(now());
    stage.finish(3)
}

/// The leader can have nothing new and goes on; then its connections are gone, and it steps down and says why. What it
/// lacks is given back by `lift`.
fn survives_scarcity(mut stage: Stage<'_>, reason: &str, lift: impl Fn(u32)) -> Report {
    let first = stage.first;
    let pid = stage.fleet.nodes[first.node].process.pid();
    stage.goes_on(&first);
    stage.nothing_failed();
    stage.proxies[0].reset_all();
    let cut = now();
    stage.steps_down(&first, cut);
    let next = stage.takes_over(&first);
    assert!(is_running(pid), "{}", stage.fleet.told());
    assert!(stage.failures().iter().any(|text| text.contains(reason)), "{:#?}", stage.failures());
    lift(pid);
    takes_part_again(stage, &next)
}

/// The leader gets no new descriptor, and its connections are gone.
pub(crate) fn descriptors_exhausted(way: Way) -> Report {
    let stage = Stage::set(Ground::shared(way));
    // Those that it has stay, but what it closes it can't have again.
    limit_descriptors(stage.fleet.nodes[stage.first.node].process.pid(), Some(3));
    survives_scarcity(stage, "run out of resources", |pid| limit_descriptors(pid, None))
}

/// The leader can start no thread, goes on, and then needs one to look up the database's address.
pub(crate) fn threads_exhausted(way: Way) -> Report {
    let stage = Stage::set_with(Ground::shared(way), P3, 3, |node, options| {
        if node == 0 {
            options.user = Some(NOBODIES[3]);
            options.dsn = options.dsn.replacen("@127.0.0.1:", "@localhost:", 1);
        }
    });
    limit_threads(stage.fleet.nodes[stage.first.node].process.pid(), Some(1));
    survives_scarcity(stage, "can't look up localhost", |pid| limit_threads(pid, None))
}

/// Every thread of leader and follower is interrupted every millisecond, without SA_RESTART; then the leader ends.
pub(crate) fn b31_signal_storm(way: Way) -> Report {
    const LENGTH: Duration = Duration::from_secs(15);
    let mut stage = Stage::set_with(Ground::shared(way), P3, 2, |_, options| {
        options.env = signal_storm(Duration::from_millis(1));
    });
    let first = stage.first;
    let pids: Vec<u32> = stage.fleet.nodes.iter().map(|node| node.process.pid()).collect();
    let (begun, before) = (now(), pids.iter().map(|pid| cpu_time(*pid)).collect::<Vec<_>>());
    let held = stage.fleet.certain(first.fence).map_or(Duration::ZERO, |held| held.1 - held.0);
    stage.fleet.await_held(&first, held + LENGTH);
    for (pid, before) in pids.iter().zip(before) {
        let share = (cpu_time(*pid) - before).as_secs_f64() / (now() - begun).as_secs_f64();
        let interrupted = waits(*pid).into_iter().min().expect("a thread") as f64 / LENGTH.as_secs_f64();
        figure(format_args!(
            "{way:?}: B31: {:.0} % of a core, every thread woken {interrupted:.0} times a second",
            share * 100.0
        ));
        assert!(share < 0.5, "{share}");
        assert!(interrupted > 100.0, "{interrupted}: that is no storm");
    }
    // What a signal breaks is an error of the connection. A machine that is busy with other things may be slow.
    let broken = |stage: &Stage<'_>| stage.failures().iter().any(|what| !what.contains("in time"));
    assert!(!broken(&stage), "{}", stage.fleet.told());
    assert_eq!(stage.fleet.leads().len(), 1, "{}", stage.fleet.told());
    let next = stage.hands_over(&first);
    stage.goes_on(&next);
    assert!(!broken(&stage), "{}", stage.fleet.told());
    stage.calms(now());
    stage.finish(2)
}
