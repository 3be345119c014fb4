//! Signals that stop, continue and kill, to whichever process at whichever moment: the stamps of the workers say whether
//! two commands were ever alive at once.
//!
//! `TENURE_STORM=3000` for as many trials.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::AnyStore;
use tenure_testground::{Postgres, Process, await_until, cont_process, kill_process};

use crate::figures::figure;
use crate::fleet::LIMIT;
use crate::place::{Place, children, ms, now, start, stop_at_once};
use crate::stillness::promised;
use crate::worker::{Kind, lives, survivors, words};

const TRIALS: usize = 40;
const AT_ONCE: usize = 8;

/// Whom it hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Tenure,
    Guardian,
    /// The first process of the command.
    Command,
    /// Any process of the command.
    Descendant,
}

/// What is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Kill,
    Stop,
    StopAndContinue,
    StopAndKill,
    /// The guardian is stopped, then `tenure` is killed, whose death continues it.
    StopAndKillTenure,
}

const VICTIMS: [Victim; 4] = [Victim::Tenure, Victim::Guardian, Victim::Command, Victim::Descendant];
const BLOWS: [Blow; 5] =
    [Blow::Kill, Blow::Stop, Blow::StopAndContinue, Blow::StopAndKill, Blow::StopAndKillTenure];

fn random<T: Copy>(of: &[T]) -> T {
    of[fastrand::usize(..of.len())]
}

fn moment(longest: Duration) {
    std::thread::sleep(longest.mul_f64(fastrand::f64()));
}

fn find(victim: Victim, tenure: u32, place: &Place) -> Option<u32> {
    let guardian = || children(tenure).first().copied();
    match victim {
        Victim::Tenure => Some(tenure),
        Victim::Guardian => guardian(),
        Victim::Command => children(guardian()?).first().copied(),
        Victim::Descendant => {
            let all = survivors(&place.stamps());
            (!all.is_empty()).then(|| random(&all))
        }
    }
}

fn strike(blow: Blow, pid: u32, tenure: &mut Process) {
    match blow {
        Blow::Kill => kill_process(pid),
        Blow::Stop => stop_at_once(pid),
        Blow::StopAndContinue => {
            stop_at_once(pid);
            moment(ms(2_500));
            cont_process(pid);
        }
        Blow::StopAndKill => {
            stop_at_once(pid);
            moment(ms(2_500));
            kill_process(pid);
        }
        Blow::StopAndKillTenure => {
            stop_at_once(pid);
            moment(ms(1_000));
            tenure.kill();
        }
    }
}

/// One leader that is struck, and its successor; whether the blow hit anybody.
fn trial(number: usize, dsn: &str) -> bool {
    let (victim, blow) = (random(&VICTIMS), random(&BLOWS));
    let kind = random(&[Kind::Single, Kind::Tree, Kind::Tree, Kind::Fountain]);
    let (deaf, early) = (fastrand::bool(), fastrand::bool());
    let name = format!("storm-{number}");
    let place = if number % 4 == 0 { Place::on(dsn.to_owned(), name) } else { Place::new() };
    let what = format!("{number}: {blow:?} {victim:?}, {kind:?}, deaf {deaf}, early {early}");
    let mut first = start(place.work(&[], kind, deaf), &place.path("first"));
    let directory = place.path("second-stamps");
    std::fs::create_dir(&directory).unwrap();
    let start_second = || {
        let words = words(&directory, Kind::Tree, deaf);
        start(place.exec(&["--restart"], &words), &place.path("second"))
    };
    // Also while it is being elected and while its parts are being started.
    let second = (!early).then(|| {
        place.await_life(1, 1);
        start_second()
    });
    moment(ms(if early { 150 } else { 1_200 }));
    let hit = find(victim, first.pid(), &place);
    if let Some(pid) = hit {
        strike(blow, pid, &mut first);
    }
    let mut second = second.unwrap_or_else(start_second);
    moment(ms(1_000));
    // Its end, if it has not come to that by itself. Both of them killed at the same instant is a limit.
    if victim == Victim::Guardian && matches!(blow, Blow::Kill | Blow::StopAndKill) && hit.is_some() {
        first.wait(LIMIT);
    }
    first.kill();
    let ours = || lives(&directory, &place.election);
    await_until(LIMIT, format_args!("{what}: the next one works"), || {
        ours().last().is_some_and(|life| life.processes >= 3)
    });
    second.kill();
    await_until(LIMIT, format_args!("{what}: all parts are gone"), || {
        // A guardian that was stopped before its first line has nothing to guard, and nobody to continue it.
        if victim == Victim::Guardian && blow == Blow::Stop && early {
            hit.iter().for_each(|pid| cont_process(*pid));
        }
        parts(&place) == 0
    });
    let left = [survivors(&place.stamps()), survivors(&directory)].concat();
    promised!(left.is_empty(), "{what}: {left:?} are left");
    let mut all = [place.lives(), ours()].concat();
    all.sort_by_key(|life| life.fence);
    for pair in all.windows(2) {
        promised!(pair[0].last < pair[1].first, "{what}: two at once: {all:?}");
    }
    hit.is_some()
}

/// How many processes of `tenure` there are in this place.
fn parts(place: &Place) -> usize {
    let mark = place.directory.path().display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap();
    let line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    let lines = processes.filter_map(|entry| line(entry.ok()?));
    lines.filter(|line| String::from_utf8_lossy(line).contains(&mark)).count()
}

pub(crate) fn whoever_is_struck_at_whatever_moment() {
    let trials = std::env::var("TENURE_STORM").map_or(TRIALS, |trials| trials.parse().unwrap());
    let database = Postgres::shared().database();
    AnyStore::open(&database.dsn()).unwrap().ensure_schema().unwrap();
    let (dsn, begun) = (database.dsn(), now());
    let (next, hits) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let some = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let hit = numbers.take_while(|number| *number < trials).filter(|number| trial(*number, &dsn)).count();
        hits.fetch_add(hit, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(some)).collect();
        threads.into_iter().for_each(|thread| {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        });
    });
    let (hits, took) = (hits.into_inner(), now().saturating_since(begun));
    assert!(hits > trials / 2, "{hits} of {trials}: this storm is none");
    figure(format_args!("storm: {hits} of {trials} blows hit, in {took:.0?}, and never two at once"));
}
