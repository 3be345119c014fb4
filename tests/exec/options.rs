//! What can be asked of `tenure exec`, and what is refused.

use std::time::Instant;

use tenure_testground::{Mode, Postgres, Proxy, await_until, descriptors, free_port, threads};

use crate::fleet::LIMIT;
use crate::place::{LEASE, Place, arguments, await_child, children, ms, run, start, tenure};
use crate::worker::Kind;

/// Cron on many hosts: one runs, the others end at once and say nothing.
pub(crate) fn once_runs_on_one_host_and_is_quiet_on_the_others() {
    let place = Place::new();
    assert_eq!(run(place.exec(&["--once"], &["echo", "ran"])), (0, "ran\n".into(), String::new()));
    let mut leader = start(place.work(&[], Kind::Single, false), &place.path("errors"));
    let fence = place.await_life(1, 1).fence;
    for _ in 0..5 {
        assert_eq!(run(place.exec(&["--once"], &["echo", "ran"])), (0, String::new(), String::new()));
    }
    leader.terminate();
    leader.wait(LIMIT);
    assert_eq!(place.lease().fence().get(), fence, "nobody else led");
    // All at the same moment, on an election that nobody has led.
    let fresh = Place { election: "fresh".to_owned(), ..place };
    let hosts = [0; 6].map(|_| {
        let mut command = fresh.exec(&["--once", "--at-least=1s"], &["echo", "ran"]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    });
    let outputs = hosts.map(|host| host.wait_with_output().unwrap());
    let ran = outputs.iter().filter(|output| output.stdout == b"ran\n").count();
    let quiet = outputs.iter().filter(|output| output.stdout.is_empty()).count();
    assert_eq!((ran, quiet), (1, 5), "{outputs:?}");
    assert!(outputs.iter().all(|output| output.status.success() && output.stderr.is_empty()), "{outputs:?}");
}

pub(crate) fn once_is_not_quiet_about_a_store_that_fails() {
    let store = format!("postgres://app:S3cr3t@127.0.0.1:{}/app", free_port());
    let place = Place::on(store, "e".to_owned());
    let begun = Instant::now();
    let (code, out, said) = run(place.exec(&["--once"], &["echo", "ran"]));
    assert_eq!((code, out.as_str()), (125, ""), "{said}");
    assert!(said.contains("refused") && !said.contains("S3cr3t"), "{said}");
    assert!(begun.elapsed() < ms(5_000));
}

pub(crate) fn a_wait_has_an_end() {
    let place = Place::new();
    let leader = start(place.work(&[], Kind::Single, false), &place.path("errors"));
    place.await_life(1, 1);
    let begun = Instant::now();
    let (code, _, said) = run(place.exec(&["--wait=300ms"], &["true"]));
    assert_eq!(code, 124, "{said}");
    assert!(begun.elapsed() > ms(299) && said.contains("--wait"), "{said}");
    drop(leader);
}

/// Nor is it the database that says when: here the table is missing, and cannot be made as long as somebody writes.
pub(crate) fn a_wait_has_an_end_before_the_table_is_there_too() {
    let place = Place::new();
    let other = rusqlite::Connection::open(place.path("lease.db")).unwrap();
    other.execute_batch("PRAGMA journal_mode = wal; BEGIN IMMEDIATE; CREATE TABLE another (x)").unwrap();
    for (option, code) in [("--wait=300ms", 124), ("--once", 125)] {
        let begun = Instant::now();
        let (ended, _, said) = run(place.exec(&[option], &["true"]));
        assert_eq!(ended, code, "{said}");
        assert!(begun.elapsed() < ms(5_000), "{option}: {:?}", begun.elapsed());
    }
}

pub(crate) fn restart_leads_again_after_a_loss() {
    let database = Postgres::shared().database();
    let place = Place::on(database.dsn(), "e".to_owned());
    let mut process = start(place.work(&["--restart"], Kind::Single, false), &place.path("errors"));
    for term in 1..=3 {
        place.await_life(term, 1);
        database
            .execute("UPDATE leader_election SET holder = 'operator', fence = fence + 1, expires_at = now()");
    }
    place.await_life(4, 1);
    place.judge();
    process.terminate();
    assert_eq!(process.wait(LIMIT).code(), Some(143), "its own end is the end");
}

/// A hundred terms of one `tenure`, each ended by a guardian that is killed.
pub(crate) fn a_hundred_restarts_leave_nothing_behind() {
    let place = Place::new();
    let command = place.exec(&["--restart"], &["sh", "-c", "echo $TENURE_FENCE; exec sleep 60"]);
    let mut process = start(command, &place.path("errors"));
    let (mut before, mut fence) = ((0, 0), 0);
    for term in 1..=100 {
        // A grant whose answer is lost on a busy disk costs a fence.
        let next: i64 = process.line(LIMIT).unwrap().parse().unwrap();
        assert!(next > fence, "{next} after {fence}");
        fence = next;
        let guardian = await_child(process.pid(), "guardian");
        if term == 10 {
            before = (threads(process.pid()), descriptors(process.pid()));
        }
        assert_eq!(children(process.pid()), [guardian], "no zombies");
        tenure_testground::kill_process(guardian);
    }
    assert!(process.line(LIMIT).is_some());
    await_until(LIMIT, format_args!("as many threads and descriptors as before: {before:?}"), || {
        (threads(process.pid()), descriptors(process.pid())) == before
    });
    process.terminate();
    assert_eq!(process.wait(LIMIT).code(), Some(143));
}

/// A host whose cron fires a moment later must not run it again.
pub(crate) fn at_least_keeps_the_lease() {
    let place = Place::new();
    let begun = Instant::now();
    let mut process = start(place.exec(&["--at-least=2500ms"], &["echo", "done"]), &place.path("errors"));
    assert_eq!(process.line(LIMIT).as_deref(), Some("done"));
    std::thread::sleep(ms(200));
    assert_eq!(run(place.exec(&["--once"], &["echo", "ran"])).1, "");
    await_until(LIMIT, "longer than a lease", || begun.elapsed() > LEASE + ms(100));
    assert!(!place.lease().is_expired(), "it is renewed meanwhile");
    assert_eq!(process.wait(LIMIT).code(), Some(0));
    assert!(begun.elapsed() > ms(2_500) && place.lease().is_released());
    // A signal ends it, with the command's code.
    let mut process =
        start(place.exec(&["--at-least=1h"], &["sh", "-c", "echo done; exit 3"]), &place.path("errors"));
    assert_eq!(process.line(LIMIT).as_deref(), Some("done"));
    await_until(LIMIT, "it holds", || children(process.pid()).is_empty());
    process.terminate();
    assert_eq!(process.wait(LIMIT).code(), Some(3));
    assert!(place.lease().is_released());
}

pub(crate) fn what_cannot_be_used_is_refused_by_name() {
    let place = Place::new();
    let refused: [(&[&str], i32, &str); 8] = [
        (&["--grace=2s"], 125, "--grace: grace + kill lead = 2s + 300ms"),
        (&["--wait=0s"], 125, "--wait"),
        (&["--at-least=40days"], 125, "--at-least"),
        (&["--once", "--restart"], 2, "--restart"),
        (&["--once", "--wait=1s"], 2, "--wait"),
        (&["--grace=soon"], 2, "--grace"),
        (&["--store=memory:"], 125, "--store"),
        (&["--label="], 125, "label"),
    ];
    for (options, code, named) in refused {
        let (ended, _, said) = run(place.exec(options, &["true"]));
        assert_eq!(ended, code, "{options:?}: {said}");
        assert!(said.contains(named), "{options:?}: {said}");
    }
    let mut timings = tenure();
    timings.args(["exec", "--election=e", "--safety-margin=1ms", "--store", &place.store, "true"]);
    let (ended, _, said) = run(timings);
    assert!(ended == 125 && said.contains("safety_margin"), "{said}");
    assert!(!place.path("lease.db").exists(), "before any of it was touched");
    let nameless = Place { election: String::new(), ..place };
    assert!(run(nameless.exec(&[], &["true"])).2.contains("name"));
}

pub(crate) fn the_table_is_created_where_it_is_missing_and_may_be() {
    let database = Postgres::shared().database();
    let role = format!("may_not_create_{}", database.name());
    Postgres::shared().create_role(&role, "");
    database.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let limited = Place::on(database.dsn_for(&role), "e".to_owned());
    let (code, _, said) = run(limited.exec(&[], &["true"]));
    assert_eq!(code, 125);
    assert!(said.contains("CREATE") && said.contains("hint"), "{said}");
    let place = Place::on(database.dsn(), "e".to_owned());
    assert_eq!(run(place.exec(&[], &["true"])).0, 0, "created");
    let (code, _, said) = run(limited.exec(&[], &["true"]));
    assert_eq!(code, 125, "{said}");
    database.execute(&format!("GRANT SELECT, INSERT, UPDATE ON leader_election TO {role}"));
    let (code, _, said) = run(limited.exec(&[], &["true"]));
    assert_eq!((code, said.as_str()), (0, ""));
}

/// Also by whoever found nobody to ask at first.
pub(crate) fn the_table_is_created_after_an_outage_too() {
    let database = Postgres::shared().database();
    let proxy = Proxy::to(Postgres::shared().addr());
    proxy.set(Mode::BlackHole);
    let place = Place::on(database.dsn_through(proxy.port()), "e".to_owned());
    let mut process = start(place.exec(&["-v"], &["sh", "-c", "exit 9"]), &place.path("errors"));
    let said = || std::fs::read_to_string(place.path("errors")).unwrap();
    await_until(LIMIT, "it has failed to look", || said().contains("store failed"));
    proxy.set(Mode::Pass);
    assert_eq!(process.wait(LIMIT).code(), Some(9), "{}", said());
}

/// Neither in what is written, nor on any command line, nor in the command's environment.
pub(crate) fn no_password_is_anywhere() {
    let server = Postgres::shared();
    let database = server.database();
    server.create_role("keeper", "SUPERUSER PASSWORD 'S3cr3t'");
    let store = database.dsn_for("keeper").replace("keeper@", "keeper:S3cr3t@");
    assert!(store.contains("S3cr3t"), "{store}");
    let place = Place::on(store, "e".to_owned());
    let command = place.exec(&["-vv", "--restart"], &["sh", "-c", "env; echo up; exec sleep 60"]);
    let mut process = start(command, &place.path("errors"));
    process.expect_line(LIMIT, "up", |line| line == "up");
    assert!(process.seen().iter().all(|line| !line.contains("S3cr3t")), "{:?}", process.seen());
    let guardian = await_child(process.pid(), "guardian");
    let mut all = vec![process.pid(), guardian];
    all.extend(children(guardian));
    assert_eq!(all.len(), 3);
    for pid in all {
        assert!(!arguments(pid).concat().contains("S3cr3t"), "{:?}", arguments(pid));
    }
    // A loss and a table that is gone, with all that is logged of them.
    database.execute("UPDATE leader_election SET holder = 'operator', fence = fence + 1, expires_at = now()");
    process.expect_line(LIMIT, "again", |line| line == "up");
    database.execute("DROP TABLE leader_election");
    process.expect_line(LIMIT, "once more", |line| line == "up");
    process.terminate();
    assert_eq!(process.wait(LIMIT).code(), Some(143));
    let said = std::fs::read_to_string(place.path("errors")).unwrap();
    assert!(
        said.contains("elected") && said.contains("leader_election") && !said.contains("S3cr3t"),
        "{said}"
    );
}

pub(crate) fn the_parts_are_not_for_use_by_hand() {
    for words in [&["guardian"] as &[&str], &["guardian", "true"], &["stage"], &["stage", "1", "x", "true"]] {
        let mut command = tenure();
        command.args(words);
        let (code, out, said) = run(command);
        assert_eq!((code, out.as_str()), (125, ""), "{words:?}: {said}");
        assert!(said.contains("tenure exec"), "{words:?}: {said}");
    }
    let mut command = tenure();
    command.args(["stage", "1", "99999999999999999", "echo", "ran"]);
    let (code, out, said) = run(command);
    assert_eq!((code, out.as_str()), (125, ""));
    assert!(said.contains("guardian is gone"), "{said}");
}

pub(crate) fn help_fits_eighty_columns() {
    let mut command = tenure();
    command.args(["exec", "--help"]);
    let (code, help, _) = run(command);
    assert_eq!(code, 0);
    for line in help.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for word in ["--election", "--grace", "TENURE_FENCE", "123", "Examples:", "--at-least"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(!help.contains("guardian") && !help.contains("stage"), "{help}");
}
