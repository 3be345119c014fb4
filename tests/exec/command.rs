//! A well-behaved parent: exit codes, signals, descriptors, the environment.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use tenure_testground::{Process, await_until, kill_process, stop_process};

use crate::fleet::LIMIT;
use crate::place::{Place, await_child, children, ms, now, run, start};
use crate::stillness::promised;
use crate::worker::{Kind, survivors};

fn sh(place: &Place, script: &str) -> Command {
    place.exec(&[], &["sh", "-c", script])
}

pub(crate) fn exit_codes_are_the_commands() {
    let place = Place::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("kill -USR1 $$", 138),
    ] {
        let (ended, _, said) = run(sh(&place, script));
        assert_eq!((ended, said.as_str()), (code, ""), "{script}");
        assert!(place.lease().is_released(), "{script}");
    }
    assert!(place.lease().fence().get() >= 6, "a term for each");
}

/// A host that lacks the program must not win the election only to lose it.
pub(crate) fn what_cannot_be_run_takes_no_lease() {
    let place = Place::new();
    let directory = place.path("directory").display().to_string();
    std::fs::create_dir(&directory).unwrap();
    let cases = [
        ("no-such-command-anywhere", 127, "No such file"),
        ("/no/such/command", 127, "No such file"),
        ("/etc/passwd", 126, "Permission denied"),
        (directory.as_str(), 126, "Permission denied"),
    ];
    for (command, code, why) in cases {
        let (ended, _, said) = run(place.exec(&[], &[command]));
        assert_eq!(ended, code, "{command}: {said}");
        assert!(said.contains(command) && said.contains(why), "{said}");
    }
    assert!(!place.path("lease.db").exists());
    // One that shows only when it is run: a file with an interpreter that is not there.
    let script = place.path("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (ended, _, said) = run(place.exec(&[], &[script]));
    assert_eq!(ended, 127, "{said}");
    assert!(place.lease().is_released(), "given back at once");
}

pub(crate) fn signals_are_passed_on() {
    let place = Place::new();
    let script = "trap 'echo HUP' HUP; trap 'echo INT' INT; trap 'echo QUIT' QUIT; trap 'echo USR1' USR1
        trap 'echo USR2' USR2; trap 'echo WINCH' WINCH; trap 'echo CONT' CONT; trap 'echo TERM; exit 5' TERM
        echo ready; while :; do sleep 0.01; done";
    let mut process = start(sh(&place, script), &place.path("errors"));
    let says = |process: &mut Process, word: &str| {
        process.expect_line(LIMIT, word, |line| line == word);
    };
    says(&mut process, "ready");
    for name in ["HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "CONT", "TERM"] {
        let pid = process.pid().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
        says(&mut process, name);
        assert!(name == "TERM" || !place.lease().is_expired(), "the lease is kept");
    }
    assert_eq!(process.wait(LIMIT).code(), Some(5));
}

/// Before it waits, while it is elected, while its guardian or its command starts: none is lost.
pub(crate) fn a_signal_at_any_moment_ends_it() {
    let place = Place::new();
    let mut ran = 0;
    for _ in 0..40 {
        let mut process =
            start(place.exec(&[], &["sh", "-c", "echo up; exec sleep 60"]), &place.path("errors"));
        std::thread::sleep(ms(60).mul_f64(fastrand::f64()));
        process.terminate();
        let status = process.wait(ms(10_000));
        assert!(status.code() == Some(143) || status.signal() == Some(15), "{status}");
        ran += usize::from(process.line(LIMIT).is_some());
    }
    assert!(0 < ran && ran < 40, "{ran}: every one of them came too early, or too late");
    assert!(place.lease().is_released());
}

/// As the keys of a terminal send it: a guardian that has only just been started is struck by it, too.
pub(crate) fn a_signal_for_the_whole_group_is_no_failure_of_the_guardian() {
    let place = Place::new();
    for _ in 0..20 {
        let mut command = place.exec(&[], &["sleep", "60"]);
        command.process_group(0);
        let mut process = start(command, &place.path("errors"));
        while children(process.pid()).is_empty() {
            assert!(process.has_ended().is_none(), "it ended by itself");
        }
        let group = format!("-{}", process.pid());
        assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
        let status = process.wait(LIMIT);
        assert_eq!(status.code(), Some(130), "{}", std::fs::read_to_string(place.path("errors")).unwrap());
    }
    assert!(place.lease().is_released());
}

/// The command has outlived a signal, and that was long ago.
pub(crate) fn a_guardian_that_fails_after_a_signal_has_failed_all_the_same() {
    let place = Place::new();
    let script = "trap 'echo reloaded' HUP; echo ready; while :; do sleep 0.05; done";
    let mut process = start(sh(&place, script), &place.path("errors"));
    process.expect_line(LIMIT, "ready", |line| line == "ready");
    let pid = process.pid().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    process.expect_line(LIMIT, "reloaded", |line| line == "reloaded");
    kill_process(await_child(process.pid(), "guardian"));
    assert_eq!(process.wait(LIMIT).code(), Some(125));
    assert!(std::fs::read_to_string(place.path("errors")).unwrap().contains("guardian"));
}

pub(crate) fn a_command_that_stands_still_can_be_ended() {
    let place = Place::new();
    let mut process = start(sh(&place, "echo $$; exec sleep 60"), &place.path("errors"));
    stop_process(process.line(LIMIT).unwrap().parse().unwrap());
    process.terminate();
    assert_eq!(process.wait(LIMIT).code(), Some(143));
    assert!(place.lease().is_released());
}

pub(crate) fn nothing_that_a_terminal_would_obey_is_said() {
    let place = Place { election: "a\u{1b}[2Jb".to_owned(), ..Place::new() };
    let process = start(place.exec(&["--restart"], &["sleep", "60"]), &place.path("errors"));
    kill_process(await_child(process.pid(), "guardian"));
    let said = || std::fs::read_to_string(place.path("errors")).unwrap();
    await_until(LIMIT, "it says why", || said().ends_with("waiting to lead again\n"));
    assert!(!said().contains('\u{1b}') && said().contains("[2Jb"), "{:?}", said());
}

pub(crate) fn a_signal_ends_the_wait() {
    let place = Place::new();
    let leader = start(place.work(&[], Kind::Single, false), &place.path("errors"));
    let life = place.await_life(1, 1);
    for (name, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)] {
        let mut process = start(place.exec(&["-v"], &["true"]), &place.path(name));
        let said = || std::fs::read_to_string(place.path(name)).unwrap();
        await_until(LIMIT, "it waits", || said().contains("waiting to lead"));
        assert!(
            Command::new("kill")
                .args([&format!("-{name}"), &process.pid().to_string()])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(process.wait(LIMIT).code(), Some(code));
    }
    assert_eq!(place.lease().fence().get(), life.fence);
    drop(leader);
}

pub(crate) fn standard_input_is_the_commands() {
    let place = Place::new();
    let mut piped = place.exec(&[], &["cat"]);
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through a pipe").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"through a pipe");
    std::fs::write(place.path("input"), "from a file").unwrap();
    let mut filed = place.exec(&[], &["cat"]);
    filed.stdin(File::open(place.path("input")).unwrap());
    assert_eq!(run(filed).1, "from a file");
    assert_eq!(run(place.exec(&[], &["cat"])), (0, String::new(), String::new()));
    // None at all: the shell closes it.
    let closed = place.exec(&[], &["cat"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" <&-", "sh"]).arg(closed.get_program()).args(closed.get_args());
    shell.env("TENURE_STORE", &place.store);
    assert_eq!(run(shell), (0, String::new(), String::new()));
}

pub(crate) fn nothing_but_the_three_descriptors_is_open() {
    let place = Place::new();
    let (code, listed, _) = run(sh(&place, "for each in /proc/$$/fd/*; do echo ${each##*/}; done"));
    assert_eq!(code, 0);
    // What this test program itself passes to every child, `tenure` passes on.
    let plain = Command::new("sh")
        .args(["-c", "for each in /proc/$$/fd/*; do echo ${each##*/}; done"])
        .output()
        .unwrap();
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert_eq!(listed, plain);
    assert!(listed.starts_with("0\n1\n2\n") || listed.starts_with("0\n1\n10\n"), "{listed}");
    // And 0 is what it was given, not a channel to anybody.
    let (_, target, _) = run(place.exec(&[], &["readlink", "/proc/self/fd/0"]));
    assert_eq!(target, "/dev/null\n");
}

pub(crate) fn signals_have_their_defaults_and_what_was_ignored_stays_so() {
    let place = Place::new();
    let set = |text: &str, name: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
        // 32 and 33 are the C library's own.
        u64::from_str_radix(&line, 16).unwrap() & !(3 << 31)
    };
    let (_, status, _) = run(place.exec(&[], &["cat", "/proc/self/status"]));
    for name in ["SigBlk:", "SigIgn:", "SigCgt:"] {
        assert_eq!(set(&status, name), 0, "{status}");
    }
    let ignoring = place.exec(&[], &["cat", "/proc/self/status"]);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' HUP INT; exec \"$@\"", "sh"])
        .arg(ignoring.get_program())
        .args(ignoring.get_args());
    shell.env("TENURE_STORE", &place.store);
    let (_, status, _) = run(shell);
    assert_eq!(set(&status, "SigIgn:"), 0b11, "SIGHUP and SIGINT, as under nohup: {status}");
}

pub(crate) fn the_environment_says_who_leads() {
    let place = Place::new();
    let mut command = place.exec(&["--label=web-7", "--payload=http://web-7"], &["env"]);
    command.env("OTHER", "kept");
    let (code, all, _) = run(command);
    assert_eq!(code, 0);
    let lease = place.lease();
    let holder = format!("TENURE_HOLDER={}", lease.holder());
    assert!(holder.starts_with("TENURE_HOLDER=web-7-"));
    let fence = format!("TENURE_FENCE={}", lease.fence());
    for setting in [fence.as_str(), "TENURE_ELECTION=e", &holder, "OTHER=kept"] {
        assert!(all.lines().any(|line| line == setting), "{setting}: {all}");
    }
    assert!(!all.contains("TENURE_STORE"), "{all}");
    assert_eq!(lease.payload(), Some(&b"http://web-7"[..]));
}

/// A background child is asked first, and one that does not listen is killed.
pub(crate) fn what_is_left_behind_is_asked_and_then_killed() {
    let place = Place::new();
    let left = "sh -c 'trap \"echo asked; exit\" TERM; echo up; while :; do sleep 0.01; done' & while ! [ -s up ]; do sleep 0.01; done; exit 3";
    let directory = place.path("work");
    std::fs::create_dir(&directory).unwrap();
    let mut command =
        sh(&place, &format!("cd {}; {}", directory.display(), left.replace("echo up", "echo up >up")));
    command.stderr(Stdio::null());
    let (code, said, _) = run(command);
    assert_eq!((code, said.as_str()), (3, "asked\n"));
    assert!(place.lease().is_released());
    let words = crate::worker::words(&place.stamps(), Kind::Tree, true);
    let script = format!(
        "\"$@\" & while [ $(ls {} | wc -l) -lt 3 ]; do sleep 0.01; done; exit 4",
        place.stamps().display()
    );
    let begun = now();
    let (code, ..) = run(place.exec(
        &["--grace=300ms"],
        &[&["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()], &words[..]].concat(),
    ));
    assert_eq!(code, 4);
    promised!(survivors(&place.stamps()).is_empty(), "some are left");
    let took = now().saturating_since(begun);
    assert!(took > ms(300), "the deaf had their grace: {took:?}");
}

/// Once nothing is left that could write, a reader comes to the end, also while the guardian gives the lease back.
pub(crate) fn whoever_reads_the_output_reads_its_end() {
    let place = Place::new();
    let mut process = start(sh(&place, "echo up; exec sleep 60"), &place.path("errors"));
    assert_eq!(process.line(LIMIT).as_deref(), Some("up"));
    process.kill();
    assert_eq!(process.line(LIMIT), None);
    // And a daemon that was sent away keeps nobody waiting either.
    let mut process = start(sh(&place, "setsid --fork sleep 60; echo away"), &place.path("errors"));
    assert_eq!(process.line(LIMIT).as_deref(), Some("away"));
    assert_eq!(process.line(LIMIT), None);
    assert_eq!(process.wait(LIMIT).code(), Some(0));
}
