//! Killed processes: the next leader starts soon, and never before the last of the old one.

use std::process::Command;
use std::time::Duration;

use tenure::{AnyStore, Time};
use tenure_testground::{Mode, Postgres, Proxy, await_until, is_running, kill_process, threads};

use crate::figures::figure;
use crate::fleet::LIMIT;
use crate::place::{LEASE, Place, await_child, children, ms, now, run, start};
use crate::stillness::promised;
use crate::worker::{Kind, survivors};

/// What the README has a newcomer type on two terminals, word for word but for the program's and the file's place: the
/// one that leads is killed, the other one takes over, and nothing of the first is left.
pub(crate) fn the_first_demonstration_of_the_readme() {
    let place = Place::new();
    let readme = include_str!("../../README.md");
    let line = readme.lines().find(|line| line.starts_with("cargo run --features cli -- exec ")).unwrap();
    let own =
        line.replace("cargo run --features cli --", &format!("exec '{}'", env!("CARGO_BIN_EXE_tenure")));
    let own = own.replace("sqlite:/tmp/lease.db", &place.store);
    assert!(own.contains(&place.store), "{own}");
    let terminal = |name: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &own]);
        start(command, &place.path(name))
    };
    let mut first = terminal("first");
    assert_eq!(first.line(LIMIT).unwrap(), "leads, fence 1");
    let guardian = await_child(first.pid(), "guardian");
    let work = children(guardian)[0];
    let mut second = terminal("second");
    let second_pid = second.pid();
    await_until(LIMIT, "the second one waits", || threads(second_pid) > 1);
    assert_eq!(second.try_line(), None);
    first.kill();
    let killed = now();
    // The lease of 15 s has hardly begun: this is not its expiry.
    assert_eq!(second.line(ms(10_000)).unwrap(), "leads, fence 2");
    promised!(!is_running(work), "two at once");
    figure(format_args!(
        "defaults, tenure killed: the next command runs {:.1?} later",
        now().saturating_since(killed)
    ));
    second.terminate();
    assert_eq!(second.wait(LIMIT).code(), Some(128 + 15));
}

pub(crate) fn a_killed_tenure_hands_over_twenty_times() {
    let place = Place::new();
    let start_one =
        |n: usize| start(place.work(&[], Kind::Tree, n % 2 == 1), &place.path(&format!("errors-{n}")));
    let mut leader = start_one(0);
    let (mut hand_overs, mut ends) = (Vec::new(), Vec::new());
    for n in 1..=20 {
        let life = place.await_life(n, 3);
        let next = start_one(n);
        // Some live longer than the deadline that they were started with.
        let longer = if n % 5 == 0 { LEASE } else { ms(0) };
        std::thread::sleep(ms(200) + longer + ms(600).mul_f64(fastrand::f64()));
        let killed = now();
        leader.kill();
        let successor = place.await_life(n + 1, 1);
        let gone = place.judge()[n - 1];
        promised!(gone.fence < successor.fence && gone.fence == life.fence, "{gone:?} {successor:?}");
        ends.push(gone.last.saturating_since(killed));
        hand_overs.push(successor.first.saturating_since(gone.last));
        leader = next;
    }
    assert_eq!(place.judge().len(), 21);
    leader.terminate();
    leader.wait(LIMIT);
    promised!(survivors(&place.stamps()).is_empty(), "some are left");
    let shown = |mut all: Vec<Duration>| {
        all.sort();
        format!("{:.1?} ({:.1?} to {:.1?})", all[all.len() / 2], all[0], all[all.len() - 1])
    };
    figure(format_args!("tenure killed 20 times: last sign of life {} later", shown(ends)));
    let longest = hand_overs.iter().max().copied().unwrap();
    figure(format_args!(
        "and from there to the next command, which looks every 100 ms: {}",
        shown(hand_overs)
    ));
    // It was renewed 400 ms before the kill at the earliest, and all were dead 360 ms after it at the latest.
    assert!(longest < LEASE / 2, "{longest:?}: that was no release but the expiry");
}

/// The guardian gives back the lease that `tenure` had, and not one of that name elsewhere.
pub(crate) fn a_lease_in_another_table_is_handed_over_too() {
    let database = Postgres::shared().database();
    database.client().batch_execute("CREATE SCHEMA \"my.ops\"").unwrap();
    let directory = Place::new();
    let file = (directory.store.clone(), "elections");
    for (store, table) in [(database.dsn(), "\"my.ops\".elections"), file] {
        let place = Place::on(store, "e".to_owned());
        let mut tenure = start(place.work(&["--table", table], Kind::Tree, false), &place.path("errors"));
        place.await_life(1, 3);
        let guardian = await_child(tenure.pid(), "guardian");
        let killed = now();
        tenure.kill();
        await_until(LIMIT, "the guardian has done its work", || !is_running(guardian));
        place.judge();
        let next = start(place.work(&["--table", table], Kind::Tree, false), &place.path("errors"));
        let life = place.await_life(2, 3);
        assert!(life.first.saturating_since(killed) < LEASE, "that was the expiry");
        next.terminate();
    }
}

/// What it guarded becomes `tenure`'s, which kills it and gives the lease back.
pub(crate) fn a_killed_guardian_takes_the_command_with_it() {
    for deaf in [false, true] {
        let place = Place::new();
        let mut tenure = start(place.work(&[], Kind::Tree, deaf), &place.path("errors"));
        place.await_life(1, 3);
        let killed = now();
        kill_process(await_child(tenure.pid(), "guardian"));
        assert_eq!(tenure.wait(LIMIT).code(), Some(125));
        promised!(survivors(&place.stamps()).is_empty(), "some are left");
        let said = std::fs::read_to_string(place.path("errors")).unwrap();
        assert!(said.contains("guardian"), "{said}");
        assert!(place.lease().is_released());
        let lived = place.judge()[0].last.saturating_since(killed);
        figure(format_args!("guardian killed: last sign of life {lived:.1?} later"));
    }
}

/// The terminal's hang-up and its keys, and what a supervisor sends to everybody.
pub(crate) fn a_guardian_heeds_no_signal_that_can_be_caught() {
    let place = Place::new();
    let mut tenure = start(place.work(&[], Kind::Single, false), &place.path("errors"));
    place.await_life(1, 1);
    let guardian = await_child(tenure.pid(), "guardian").to_string();
    for name in
        "HUP INT QUIT TERM USR1 USR2 ALRM VTALRM PROF TSTP TTIN TTOU CONT PIPE IO XCPU XFSZ WINCH".split(' ')
    {
        let killed = Command::new("kill").args([&format!("-{name}"), &guardian]).status().unwrap();
        assert!(killed.success(), "{name}");
    }
    let later = now() + LEASE;
    // Also longer than the deadline that it was started with.
    await_until(LIMIT, "it is still at work", || place.lives()[0].last > later);
    assert_eq!(await_child(tenure.pid(), "guardian").to_string(), guardian);
    tenure.kill();
    await_until(LIMIT, "it has done its work", || !is_running(guardian.parse().unwrap()));
    assert!(place.lease().is_released());
    promised!(survivors(&place.stamps()).is_empty(), "some are left");
}

/// A service has no terminal, and its log is where somebody looks for why nothing happens.
pub(crate) fn a_service_that_cannot_be_elected_says_why_and_when_that_is_over() {
    let database = Postgres::shared().database();
    let proxy = Proxy::to(Postgres::shared().addr());
    proxy.set(Mode::Refuse);
    let place = Place::on(database.dsn_through(proxy.port()), "e".to_owned());
    let mut tenure = start(place.work(&[], Kind::Single, false), &place.path("errors"));
    let said = || std::fs::read_to_string(place.path("errors")).unwrap();
    await_until(LIMIT, "it says why", || {
        said().contains("tenure: e: waiting to lead, and the store fails: ")
    });
    proxy.set(Mode::Pass);
    place.await_life(1, 1);
    assert_eq!(said().matches("the store fails").count(), 1, "{}", said());
    proxy.set(Mode::BlackHole);
    assert_eq!(tenure.wait(LIMIT).code(), Some(123));
    assert!(said().contains("tenure: e: ") && said().contains("; the last call failed: "), "{}", said());
}

/// Both at once: the kernel still kills the command itself. What that has started may live on, a limit.
pub(crate) fn the_command_dies_with_its_guardian_though_nobody_kills_it() {
    let place = Place::new();
    let mut tenure = start(place.work(&[], Kind::Tree, true), &place.path("errors"));
    place.await_life(1, 3);
    let guardian = await_child(tenure.pid(), "guardian");
    // The oldest of its children; the other one is an orphan.
    let first = children(guardian)[0];
    tenure.stop();
    kill_process(guardian);
    await_until(LIMIT, "the command is dead", || !is_running(first));
    tenure.kill();
    for left in survivors(&place.stamps()) {
        kill_process(left);
    }
    assert!(!place.lease().is_released(), "nobody has proved that nothing is left");
}

/// Nobody can give the lease back, so it is waited out; the command is gone long before.
pub(crate) fn a_killed_tenure_whose_guardian_cannot_reach_the_store() {
    let database = Postgres::shared().database();
    let proxy = Proxy::to(Postgres::shared().addr());
    let place = Place::on(database.dsn_through(proxy.port()), "e".to_owned());
    let mut tenure = start(place.work(&[], Kind::Tree, false), &place.path("errors"));
    let life = place.await_life(1, 3);
    let guardian = await_child(tenure.pid(), "guardian");
    proxy.set(Mode::BlackHole);
    tenure.kill();
    await_until(LIMIT, "the guardian has done what it can", || !is_running(guardian));
    promised!(survivors(&place.stamps()).is_empty(), "some are left");
    let direct = AnyStore::open(&database.dsn()).unwrap();
    let lease = crate::place::lease(&direct, "e");
    assert!(!lease.is_released() && lease.fence().get() == life.fence, "{lease:?}");
    let place = Place { store: database.dsn(), ..place };
    let (code, _, said) = run(place.exec(&["--wait=10s"], &["true"]));
    assert_eq!(code, 0, "{said}");
}

pub(crate) fn a_command_that_forks_without_end_is_gone_all_the_same() {
    let place = Place::new();
    let mut tenure = start(place.work(&[], Kind::Fountain, true), &place.path("errors"));
    place.await_life(1, 50);
    tenure.kill();
    let killed = now();
    let mut next = start(place.exec(&[], &["true"]), &place.path("next"));
    assert_eq!(next.wait(LIMIT).code(), Some(0));
    let passed = now().saturating_since(killed);
    promised!(survivors(&place.stamps()).is_empty(), "some are left");
    // Each of them may just be between two lives; none may ever come back.
    let count = place.lives()[0].processes;
    let later: Time = now() + ms(300);
    await_until(LIMIT, "a while", || now() > later);
    promised!(place.lives()[0].processes == count, "they go on");
    figure(format_args!(
        "three that get away all the time, {count} processes: the next command was done {passed:.1?} after the kill"
    ));
}

/// Somebody else's hand in the row: `tenure` learns of it at its next renewal.
pub(crate) fn a_superseded_term_ends_the_command_at_once() {
    let database = Postgres::shared().database();
    let place = Place::on(database.dsn(), "e".to_owned());
    let mut tenure = start(place.work(&[], Kind::Tree, false), &place.path("errors"));
    let life = place.await_life(1, 3);
    let begun = now();
    database.execute("UPDATE leader_election SET holder = 'operator', fence = fence + 1");
    assert_eq!(tenure.wait(LIMIT).code(), Some(123));
    let ended = place.judge()[0].last.saturating_since(begun);
    assert!(ended < LEASE, "{ended:?}");
    promised!(survivors(&place.stamps()).is_empty(), "some are left");
    let said = std::fs::read_to_string(place.path("errors")).unwrap();
    assert!(said.contains(&format!("fence {} is over", life.fence)), "{said}");
    let lease = place.lease();
    assert_eq!(
        (lease.holder(), lease.fence().get()),
        ("operator", life.fence + 1),
        "what is not ours is not released"
    );
}
