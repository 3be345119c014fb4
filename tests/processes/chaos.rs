//! Four nodes, each on a path of its own, and random things that happen to them. Whatever they are, the history
//! and the row have to be as promised, and once they stop one node leads.

use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;
use tenure_testground::{Mode, Proxy, cont_process, stop_process};

use crate::figures::figure;
use crate::fleet::{Fleet, Ground, RowLock, Way};
use crate::line::now;
use crate::node::Options;
use crate::profile::{P3, SLACK};

const SEED: &str = "TENURE_SEED";
const SECONDS: &str = "TENURE_CHAOS_SECONDS";
const NODES: usize = 4;

/// A place in the fleet: its path stays, the node that lives there may be killed and another one started.
struct Seat {
    proxy: Proxy,
    node: usize,
    frozen: bool,
}

fn var(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

pub(crate) fn random_faults_double_nobody(way: Way) {
    let seed = var(SEED).unwrap_or_else(|| fastrand::u64(..));
    let length = Duration::from_secs(var(SECONDS).unwrap_or(25));
    figure(format_args!("{way:?}: chaos with {SEED}={seed}"));
    let mut dice = Rng::with_seed(seed);
    let ground = Ground::shared(way);
    let mut fleet = Fleet::new();
    let mut seats: Vec<Seat> = Vec::new();
    for n in 0..NODES {
        let proxy = Proxy::to(ground.addr());
        let node = fleet.start(&options(&ground, &proxy, n));
        seats.push(Seat { proxy, node, frozen: false });
    }
    fleet.await_lead(crate::fleet::LIMIT, "somebody leads", |_| true);
    let begun = now();
    while now() - begun < length {
        disturb(&mut dice, &ground, &mut fleet, &mut seats);
        sleep(Duration::from_millis(dice.u64(20..900)));
        fleet.read();
    }
    for seat in &mut seats {
        thaw(&fleet, seat);
        seat.proxy.set(Mode::Pass);
    }
    let quiet = now();
    let within = P3.take() + P3.lease + SLACK * 2;
    let steady = fleet.await_story(within, &format!("one leads steadily, {SEED}={seed}"), |fleet| {
        let last = fleet.leads().into_iter().max_by_key(|led| led.fence)?;
        let held = fleet.certain(last.fence)?;
        (held.1 > held.0.max(quiet) + P3.renew).then_some(held)
    });
    figure(format_args!(
        "{way:?}: chaos: {} terms of {} processes in {length:?}, quiet again after {:.1?}",
        fleet.leads().len(),
        fleet.nodes.len(),
        steady.0.saturating_sub(quiet)
    ));
    fleet.verify(&ground, P3, 2);
}

fn options(ground: &Ground<'_>, proxy: &Proxy, n: usize) -> Options {
    // Two of them share a label.
    Options { dsn: ground.database.dsn_through(proxy.port()), ..ground.options(&format!("n{}", n / 2)) }
}

fn thaw(fleet: &Fleet, seat: &mut Seat) {
    if seat.frozen {
        cont_process(fleet.nodes[seat.node].process.pid());
        seat.frozen = false;
    }
}

fn disturb(dice: &mut Rng, ground: &Ground<'_>, fleet: &mut Fleet, seats: &mut [Seat]) {
    // Mostly whoever leads: there it hurts.
    let leader = fleet.leads().into_iter().max_by_key(|led| led.fence).map(|led| led.node);
    let seat = match seats.iter().position(|seat| Some(seat.node) == leader) {
        Some(seat) if dice.u8(..3) > 0 => seat,
        _ => dice.usize(..seats.len()),
    };
    let modes = [
        Mode::BlackHole,
        Mode::SwallowReplies,
        Mode::HoldRequests,
        Mode::Reset,
        Mode::Refuse,
        Mode::Delay { by: Duration::from_millis(60), jitter: Duration::from_millis(80) },
    ];
    match dice.u8(..12) {
        0..=3 => seats[seat].proxy.set(modes[dice.usize(..modes.len())]),
        4..=6 => seats.iter().for_each(|seat| seat.proxy.set(Mode::Pass)),
        7 => seats[seat].proxy.reset_all(),
        8 if !seats[seat].frozen => {
            stop_process(fleet.nodes[seats[seat].node].process.pid());
            seats[seat].frozen = true;
        }
        8 | 9 => seats.iter_mut().for_each(|seat| thaw(fleet, seat)),
        10 => {
            thaw(fleet, &mut seats[seat]);
            fleet.kill(seats[seat].node);
            seats[seat].node = fleet.start(&options(ground, &seats[seat].proxy, seat));
        }
        _ => {
            let lock = RowLock::take(ground);
            sleep(Duration::from_millis(dice.u64(100..1_500)));
            lock.release();
        }
    }
}
