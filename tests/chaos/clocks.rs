//! Clocks that step: the database's wall clock, in both directions, and the boot clock of machines that slept.

use std::time::Duration;

use tenure_testground::{ClockShim, Mode, Postgres};

use crate::fleet::figures::figure;
use crate::fleet::line::{Stamp, now};
use crate::fleet::profile::{P3, SLACK};
use crate::fleet::stillness::promised;
use crate::fleet::{Ground, LIMIT, Led, Way, rows};
use crate::report::Report;
use crate::stage::Stage;

/// A server whose wall clock goes as the shim says.
fn server(clock: &ClockShim) -> Postgres {
    Postgres::builder().envs(clock.env()).start()
}

/// A step that is smaller than what is left of the lease costs nothing, a larger one costs the term and gives the
/// next at once.
pub(crate) fn database_clock_steps_forward(way: Way) -> Report {
    let clock = ClockShim::new();
    let server = server(&clock);
    let mut stage = Stage::set(Ground::on(&server, way));
    let first = stage.first;
    clock.step(0.5);
    stage.goes_on(&first);
    stage.fleet.no_lost();
    clock.step(3_600.0);
    let stepped = now();
    stage.is_refused(&first, stepped);
    let next = stage.leads_again(&first, stepped, P3.renew + P3.op + P3.hand() - SLACK);
    stage.goes_on(&next);
    stage.calms(stepped);
    assert_eq!(stage.fleet.leads().len(), 2, "{}", stage.fleet.told());
    stage.finish_by_stories(2)
}

/// The leader is cut off and the clock leaps at the same moment: every candidate waits the lease out by its own
/// clock, also one that sees the last renewal only after the leap. Two seconds make an age that such a one might
/// believe, an hour none.
pub(crate) fn database_clock_leaps_as_the_leader_is_cut_off(way: Way) -> Report {
    let clock = ClockShim::new();
    let server = server(&clock);
    let mut stage = Stage::set(Ground::on(&server, way));
    let mut leader = stage.first;
    for by in [2.0, 3_600.0] {
        let blind = (leader.node + 1) % 3;
        stage.proxies[blind].set(Mode::BlackHole);
        // The next renewal is half a second away: none is under way when the path goes.
        stage.ground.await_renewal();
        stage.proxies[leader.node].set(Mode::BlackHole);
        let cut = now();
        let renewed = last_renewal(&stage, &leader, &clock);
        clock.step(by);
        stage.proxies[blind].set(Mode::Pass);
        stage.steps_down(&leader, cut);
        let next = stage.leads_again(&leader, renewed, P3.take() - SLACK);
        stage.is_waited_for(&next, renewed - rows::TOLERANCE);
        stage.proxies[leader.node].set(Mode::Pass);
        stage.goes_on(&next);
        leader = next;
    }
    stage.calms(now());
    stage.finish_by_stories(3)
}

/// When the term was renewed last, by the true clock.
fn last_renewal(stage: &Stage<'_>, led: &Led, clock: &ClockShim) -> Stamp {
    let rows = stage.ground.rows();
    let last = rows.iter().rev().find(|row| row.fence == led.fence).expect("it was granted");
    rows::stamp(last.renewed - (clock.offset() * 1e6) as i64)
}

/// B04 (b). That no term ever has more left than a lease allows is for every node to check, here as everywhere.
pub(crate) fn database_clock_steps_back(way: Way) -> Report {
    let clock = ClockShim::new();
    let server = server(&clock);
    let mut stage = Stage::set(Ground::on(&server, way));
    let first = stage.first;
    stage.ground.await_renewal();
    clock.step(-3_600.0);
    let stepped = now();
    let left = left_by_the_database(&stage);
    assert!(left > 3_000.0, "the clock did not step: {left} s left");
    stage.ground.await_renewal();
    let left = left_by_the_database(&stage);
    assert!(left <= P3.lease.as_secs_f64(), "{left} s left one renewal later");
    stage.goes_on(&first);
    stage.fleet.no_lost();
    stage.calms(stepped);
    // The lease is as long as ever for whoever waits for it, and no shorter.
    let killed = stage.fleet.kill(first.node);
    let renewed = last_renewal(&stage, &first, &clock);
    let next = stage.leads_again(&first, killed, P3.take() - SLACK);
    stage.is_waited_for(&next, renewed - rows::TOLERANCE);
    stage.goes_on(&next);
    stage.finish_by_stories(2)
}

/// `expires_at` less the database's now, in seconds.
fn left_by_the_database(stage: &Stage<'_>) -> f64 {
    let sql = "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8
               FROM leader_election WHERE name = 'e'";
    stage.ground.database.client().query_one(sql, &[]).expect("a row").get(0)
}

/// B04 (c): by the database's clock the lease of the dead leader lives for another hour.
pub(crate) fn b04_c_clock_back_and_leader_killed(way: Way) -> Report {
    let clock = ClockShim::new();
    let server = server(&clock);
    let mut stage = Stage::set(Ground::on(&server, way));
    let first = stage.first;
    // The candidates see the last renewal only when it has another hour before it.
    stage.set_all(Mode::BlackHole);
    stage.proxies[first.node].set(Mode::Pass);
    stage.ground.await_renewal();
    clock.step(-3_600.0);
    let killed = stage.fleet.kill(first.node);
    let left = left_by_the_database(&stage);
    assert!(left > 3_000.0, "the row is an ordinary one: {left} s left");
    let shown = now();
    stage.set_all(Mode::Pass);
    let next = stage.leads_again(&first, killed, P3.take() - SLACK);
    // What they see now they have never seen before.
    stage.is_waited_for(&next, shown);
    stage.goes_on(&next);
    stage.finish_by_stories(2)
}

/// B04 (a).
pub(crate) fn b04_a_a_row_from_the_past_is_taken_at_once(way: Way) -> Report {
    let ground = Ground::shared(way);
    ground.database.execute(
        "INSERT INTO leader_election VALUES ('e', 'ghost', 41, now() - interval '2 days',
             now() - interval '1 day 3 seconds', now() - interval '1 day')",
    );
    let mut stage = Stage::set(ground);
    let first = stage.first;
    assert!(first.fence >= 42, "{first:?}");
    let started = stage.fleet.started(first.node).expect("it leads");
    stage.took_over(first.at - started, Duration::from_secs(1));
    stage.goes_on(&first);
    stage.finish_by_stories(1)
}

/// B03: the leader's machine and the database's have slept for a minute, those of the others have not. What the
/// leader was told is over, for itself first of all.
pub(crate) fn b03_suspended_leader(way: Way) -> Report {
    let clock = ClockShim::new();
    let server = server(&clock);
    let mut stage = Stage::set_with(Ground::on(&server, way), P3, 3, |n, options| {
        if n == 0 {
            options.leap_with(&clock);
        }
    });
    let first = stage.first;
    let woken = suspend(&mut stage, &clock, &first);
    let next = stage.leads_again(&first, woken, P3.hand() - SLACK);
    stage.goes_on(&next);
    stage.calms(woken);
    stage.finish_by_stories(2)
}

/// B03: a minute has passed for everybody, which the leader slept through, and its network is not back yet.
pub(crate) fn b03_suspended_leader_without_network(way: Way) -> Report {
    let clock = ClockShim::new();
    let server = server(&clock);
    let ground = Ground::on(&server, way);
    let mut stage = Stage::set_with(ground, P3, 3, |_, options| options.leap_with(&clock));
    let first = stage.first;
    stage.proxies[first.node].set(Mode::BlackHole);
    // Before the minute has passed everybody has seen the last renewal.
    stage.candidates_look(first.node);
    let woken = suspend(&mut stage, &clock, &first);
    let next = stage.leads_again(&first, woken, P3.hand() - SLACK);
    assert_ne!(next.node, first.node, "{}", stage.fleet.told());
    stage.proxies[first.node].set(Mode::Pass);
    let healed = now();
    stage.goes_on(&next);
    stage.calms(healed);
    stage.finish_by_stories(2)
}

/// Returns when everything has woken up. The leader's next check says that its term is over.
fn suspend(stage: &mut Stage<'_>, clock: &ClockShim, led: &Led) -> Stamp {
    clock.suspend(60.0);
    let woken = now();
    stage.is_lost(led, woken, Duration::from_millis(250));
    let held = stage.fleet.certain(led.fence).expect("it has led").1;
    let after = held.saturating_sub(woken);
    promised!(held <= woken, "told that it leads {after:?} after the suspend\n{}", stage.fleet.told());
    woken
}

/// A candidate that has slept looks again before it does anything, and finds the lease renewed meanwhile.
pub(crate) fn suspended_follower(way: Way) -> Report {
    let clock = ClockShim::new();
    let mut stage = Stage::set_with(Ground::shared(way), P3, 3, |n, options| {
        if n == 1 {
            options.leap_with(&clock);
        }
    });
    let first = stage.first;
    for _ in 0..3 {
        stage.fleet.nodes[1].process.stop();
        // What it knows is older than what it will find.
        stage.ground.await_renewal();
        stage.ground.await_renewal();
        clock.suspend(60.0);
        stage.fleet.nodes[1].process.cont();
        let woken = now();
        stage.fleet.await_story(LIMIT, "the leader goes on", |fleet| {
            (fleet.certain(first.fence)?.1 > woken + P3.retry * 3).then_some(())
        });
    }
    stage.goes_on(&first);
    stage.fleet.no_lost();
    stage.fleet.kill(first.node);
    let next = stage.takes_over(&first);
    stage.goes_on(&next);
    stage.calms(next.at);
    stage.finish(2)
}

/// Says which series of steps it was, where the scenario fails.
struct Series(u64);

impl Drop for Series {
    #[allow(clippy::print_stdout, reason = "how it can be had again")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the steps of the clock were those of seed {}", self.0);
        }
    }
}

/// Between a tenth of a second and an hour, large and small ones alike, in both directions.
fn step(dice: &mut fastrand::Rng) -> f64 {
    let size = 0.1 * 36_000_f64.powf(dice.f64());
    if dice.bool() { size } else { -size }
}

/// Ten seconds of steps, in the middle of which the leader is killed and another participant comes in. That one
/// is strict: whoever believes the database's clock has to have had an answer from before the step.
pub(crate) fn many_random_clock_steps(way: Way) -> Report {
    let series = Series(fastrand::u64(..));
    let mut dice = fastrand::Rng::with_seed(series.0);
    let clock = ClockShim::new();
    let server = server(&clock);
    let mut stage = Stage::set_with(Ground::on(&server, way), P3, 4, |_, _| ());
    for half in 0..2 {
        let until = now() + Duration::from_secs(5);
        while now() < until {
            clock.step(step(&mut dice));
            std::thread::sleep(Duration::from_millis(dice.u64(100..600)));
        }
        if half == 0 {
            stage.fleet.read();
            let leader = stage.fleet.latest().expect("one has led");
            stage.fleet.kill(leader.node);
            stage.join_with("late", |options| options.strict = true);
        }
    }
    let quiet = now();
    stage.calms(quiet);
    figure(format_args!("random steps of the clock for 10 s: {} terms", stage.fleet.leads().len()));
    stage.finish_by_stories(3)
}
