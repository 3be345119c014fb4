//! Nothing of the command lives at the term's deadline, whoever is cut off or stands still.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::{AnyStore, Time};
use tenure_testground::{
    Mode, Postgres, Process, Proxy, await_until, cont_process, is_running, stop_process,
};

use crate::figures::figure;
use crate::fleet::LIMIT;
use crate::place::{LEASE, MARGIN, Place, await_child, children, expiry, ms, now, start, stop_at_once};
use crate::stillness::promised;
use crate::worker::{Kind, Life, survivors, words};

const RUNS: usize = 50;
/// More at once, and they keep each other waiting instead of working.
const AT_ONCE: usize = 10;

/// How long before the end of the term the last sign of life was; `None` where it was not.
///
/// A term ends a margin before its lease, or a little earlier: the lease counts from when the database answered, the term
/// from when it was asked.
fn before_the_end(last: Time, expiry: Time) -> Option<Duration> {
    let deadline = expiry.saturating_before(MARGIN);
    (last < deadline).then(|| deadline.saturating_since(last))
}

fn distance(last: Time, expiry: Time) -> Duration {
    let distance = before_the_end(last, expiry);
    promised!(distance.is_some(), "alive at {last:?}, the lease expires at {expiry:?}");
    distance.unwrap()
}

fn random(below: Duration) -> Duration {
    below.mul_f64(fastrand::f64())
}

/// Runs one of fifty elections on one server.
struct Run {
    place: Place,
    proxy: Proxy,
    tenure: Process,
    direct: AnyStore,
}

impl Run {
    fn start(dsn: &str, through: impl Fn(u16) -> String, number: usize) -> Run {
        let proxy = Proxy::to(Postgres::shared().addr());
        let place = Place::on(through(proxy.port()), format!("run-{number}"));
        let command = place.work(&[], Kind::Tree, number % 2 == 1);
        let tenure = start(command, &place.path("errors"));
        place.await_life(1, 3);
        std::thread::sleep(random(ms(900)));
        Run { place, proxy, tenure, direct: AnyStore::open(dsn).unwrap() }
    }

    /// After the last of the command: when it lived, and how far from the deadline that ended.
    fn judge(&self) -> Duration {
        promised!(survivors(&self.place.stamps()).is_empty(), "some are left");
        let lives = self.place.judge();
        assert_eq!((lives.len(), lives[0].processes), (1, 3), "{lives:?}");
        distance(lives[0].last, expiry(&self.direct, &self.place.election))
    }
}

fn fifty(what: &str, body: impl Fn(Run) -> Duration + Sync) {
    let database = Postgres::shared().database();
    AnyStore::open(&database.dsn()).unwrap().ensure_schema().unwrap();
    let mut distances: Vec<Duration> = Vec::new();
    for batch in 0..RUNS / AT_ONCE {
        std::thread::scope(|scope| {
            let run = |number| {
                let (body, database) = (&body, &database);
                scope.spawn(move || {
                    body(Run::start(&database.dsn(), |port| database.dsn_through(port), number))
                })
            };
            let runs: Vec<_> = (0..AT_ONCE).map(|n| run(batch * AT_ONCE + n)).collect();
            for run in runs {
                match run.join() {
                    Ok(distance) => distances.push(distance),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
    }
    distances.sort();
    let (least, most) = (distances[0], distances[RUNS - 1]);
    let median = distances[RUNS / 2];
    figure(format_args!(
        "{what}, {RUNS} runs: dead {median:.1?} before the deadline ({least:.1?} to {most:.1?})"
    ));
}

pub(crate) fn a_black_holed_database_fifty_times() {
    fifty("black-holed database", |mut run| {
        run.proxy.set(Mode::BlackHole);
        let status = run.tenure.wait(LIMIT);
        assert_eq!(
            status.code(),
            Some(123),
            "{}",
            std::fs::read_to_string(run.place.path("errors")).unwrap()
        );
        run.judge()
    });
}

pub(crate) fn a_stopped_tenure_fifty_times() {
    fifty("tenure stopped", |mut run| {
        let guardian = await_child(run.tenure.pid(), "guardian");
        run.tenure.stop();
        await_until(LIMIT, "the guardian has done its work", || !is_running(guardian));
        let distance = run.judge();
        run.tenure.cont();
        assert_eq!(run.tenure.wait(LIMIT).code(), Some(123));
        assert_eq!(run.place.lives().len(), 1, "whoever wakes up starts nothing");
        distance
    });
}

/// `tenure`, its guardian, and the life of its command so far.
fn at_work(place: &Place, deaf: bool) -> (Process, u32, Life) {
    let tenure = start(place.work(&[], Kind::Tree, deaf), &place.path("errors"));
    let life = place.await_life(1, 3);
    let guardian = await_child(tenure.pid(), "guardian");
    (tenure, guardian, life)
}

/// Sets it in the end, after a panic too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// While `tenure` renews nothing is wrong; when it can't, the stopped guardian is killed in time. It is stopped again and
/// again, since each renewal continues it.
pub(crate) fn a_stopped_guardian_does_not_save_the_command() {
    let database = Postgres::shared().database();
    let proxy = Proxy::to(Postgres::shared().addr());
    let place = Place::on(database.dsn_through(proxy.port()), "e".to_owned());
    let (mut tenure, guardian, _) = at_work(&place, true);
    let (stopped, over) = (now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                stop_at_once(guardian);
            }
        });
        let over = Over(&over);
        // Longer than a term: what is told to a guardian that stands still does not hold `tenure` up.
        await_until(LIMIT, "the lease is renewed", || place.lives()[0].last > stopped + LEASE);
        assert!(tenure.has_ended().is_none());
        proxy.set(Mode::BlackHole);
        let status = tenure.wait(LIMIT);
        drop(over);
        assert_eq!(status.code(), Some(125));
    });
    promised!(survivors(&place.stamps()).is_empty(), "some are left");
    assert!(!is_running(guardian));
    let direct = AnyStore::open(&database.dsn()).unwrap();
    let distance = distance(place.judge()[0].last, expiry(&direct, "e"));
    figure(format_args!("guardian stopped, black-holed database: dead {distance:.1?} before the deadline"));
}

/// With both of them stopped nobody is there to kill, and the command lives on: a limit. What is promised is that
/// whichever is continued first kills, and starts nothing.
pub(crate) fn both_stopped_and_continued_kill_first() {
    for guardian_first in [true, false] {
        let place = Place::new();
        let (mut tenure, guardian, _) = at_work(&place, false);
        stop_process(guardian);
        tenure.stop();
        let stopped = now();
        await_until(LIMIT, "the lease is over", || now() > stopped + LEASE + ms(100));
        let woken = now();
        if guardian_first {
            cont_process(guardian);
        } else {
            tenure.cont();
        }
        await_until(LIMIT, "all are dead", || survivors(&place.stamps()).is_empty());
        let lived = place.judge()[0].last.saturating_since(woken);
        // Less than a slice of waiting: the time-out of an interrupted wait would go on from where it was.
        assert!(lived < ms(150), "{lived:?}");
        let who = if guardian_first { "guardian" } else { "tenure" };
        figure(format_args!("both stopped, {who} continued: dead {lived:.1?} later"));
        tenure.cont();
        let code = tenure.wait(LIMIT).code();
        assert_eq!(code, Some(if guardian_first { 123 } else { 125 }));
        assert_eq!(place.lives().len(), 1);
        assert!(!is_running(guardian));
    }
}

/// The guardian stands still and nobody is there to do its work: the kernel wakes it up.
pub(crate) fn a_stopped_guardian_whose_tenure_is_killed_does_its_work() {
    let place = Place::new();
    let (mut tenure, guardian, _) = at_work(&place, true);
    stop_process(guardian);
    tenure.kill();
    await_until(LIMIT, "the guardian has done its work", || !is_running(guardian));
    promised!(survivors(&place.stamps()).is_empty(), "some are left");
    place.judge();
    assert!(place.lease().is_released());
}

/// A control: the same stop, the same command, and nobody who guards it.
pub(crate) fn the_judge_sees_a_command_that_nobody_guards() {
    let place = Place::new();
    let leader = start(place.exec(&[], &["sleep", "60"]), &place.path("errors"));
    await_until(LIMIT, "it leads", || !children(leader.pid()).is_empty());
    let guardian = await_child(leader.pid(), "guardian");
    let words = words(&place.stamps(), Kind::Single, false);
    let mut unguarded = Command::new(&words[0]);
    unguarded.args(&words[1..]).env("TENURE_FENCE", "1").env("TENURE_ELECTION", "e");
    let mut unguarded = Process::spawn(unguarded);
    place.await_life(1, 1);
    leader.stop();
    await_until(LIMIT, "the guardian has done its work", || !is_running(guardian));
    let end = expiry(&AnyStore::open(&place.store).unwrap(), "e");
    await_until(LIMIT, "the lease is over", || now() > end);
    unguarded.kill();
    assert_eq!(before_the_end(place.lives()[0].last, end), None, "nobody was there to kill it");
}
