//! Process tools, mute peers and the clock shim; and nothing outlives a test process.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tenure_testground::{
    BootOffset, ClockShim, PgBouncer, Postgres, Process, await_until, cpu_time, free_port, is_running,
    kill_process, limit_descriptors, limit_threads, mute_listener, signal_storm, syn_black_hole, waits,
};

const SOON: Duration = Duration::from_secs(10);

fn shell(script: &str) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Process::spawn(command)
}

#[test]
fn nothing_outlives_a_test_process_that_is_killed() {
    let mut holder = Process::spawn(Command::new(env!("CARGO_BIN_EXE_ground-holder")));
    let limit = Duration::from_secs(60);
    let dir = holder.expect_line(limit, "its directory", |line| line.starts_with("dir "));
    let pids = holder.expect_line(limit, "its processes", |line| line.starts_with("pids "));
    let pids: Vec<u32> = pids.split(' ').skip(1).map(|pid| pid.parse().unwrap()).collect();
    let scene = Path::new(dir.strip_prefix("dir ").unwrap()).parent().unwrap();
    let on_disk = std::env::temp_dir().join(scene.file_name().unwrap());
    assert!(pids.len() > 12 && pids.iter().all(|pid| is_running(*pid)) && scene.exists() && on_disk.exists());
    kill_process(holder.pid());
    await_until(SOON, "server, pooler and child are gone", || !pids.iter().any(|pid| is_running(*pid)));
    await_until(SOON, "their files are gone", || !scene.exists() && !on_disk.exists());
}

#[test]
fn a_process_is_read_stopped_and_killed() {
    let mut process = shell("echo one; echo two; while :; do echo tick; sleep 0.01; done");
    assert_eq!(process.line(SOON).as_deref(), Some("one"));
    process.expect_line(SOON, "a tick", |line| line == "tick");
    process.stop();
    std::thread::sleep(Duration::from_millis(50));
    while process.try_line().is_some() {}
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(process.try_line(), None, "a stopped process prints nothing");
    process.cont();
    process.expect_line(SOON, "a tick", |line| line == "tick");
    assert_eq!(process.seen()[1], "two");
    let pid = process.pid();
    process.kill();
    assert!(!is_running(pid));
}

#[test]
fn a_process_ends_with_its_value_or_by_itself() {
    let process = shell("sleep 600");
    let pid = process.pid();
    process.stop();
    drop(process);
    assert!(!is_running(pid));
    let mut process = shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done");
    process.expect_line(SOON, "up", |line| line == "up");
    process.terminate();
    assert_eq!(process.wait(SOON).code(), Some(3));
    assert_eq!(process.line(SOON).as_deref(), Some("bye"));
    assert_eq!(process.line(SOON), None);
}

#[test]
fn this_binary_can_be_run_again() {
    let mut process = Process::spawn_self(|command| {
        command.arg("--list");
    });
    process.expect_line(SOON, "this test", |line| line.starts_with("this_binary_can_be_run_again"));
}

#[test]
fn waiting_has_a_bound_and_says_for_what() {
    let waiting = || await_until(Duration::from_millis(50), format_args!("{} comes", "Godot"), || false);
    let panic = std::panic::catch_unwind(waiting).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("Godot comes"), "{text}");
}

#[test]
fn free_ports_are_outside_of_the_range_of_outgoing_connections() {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let first: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
    assert!((0..100).map(|_| free_port()).all(|port| port < first));
}

#[test]
fn a_mute_listener_accepts_and_says_nothing() {
    let peer = mute_listener();
    let mut stream = TcpStream::connect(peer.addr()).unwrap();
    stream.write_all(b"hello?").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    await_until(SOON, "the connection is counted", || peer.accepted() == 1);
    peer.close_all();
    stream.set_read_timeout(Some(SOON)).unwrap();
    // Closed with unread data: a reset.
    assert_eq!(stream.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let addr = peer.addr();
    drop(peer);
    assert_eq!(TcpStream::connect(addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_syn_black_hole_never_finishes_a_connect() {
    let hole = syn_black_hole();
    for _ in 0..3 {
        let error = TcpStream::connect_timeout(&hole.addr(), Duration::from_millis(150)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}

#[test]
fn the_clock_of_a_server_steps_while_it_runs() {
    let shim = ClockShim::new();
    let server = Postgres::builder().envs(shim.env()).start();
    let other = Postgres::shared();
    let mut client = server.client();
    let mut ahead = |of: &Postgres| -> f64 {
        let sql = "SELECT extract(epoch FROM clock_timestamp())::float8";
        let (here, there): (f64, f64) =
            (client.query_one(sql, &[]).unwrap().get(0), of.client().query_one(sql, &[]).unwrap().get(0));
        here - there
    };
    assert!(ahead(other).abs() < 1.0);
    shim.step(3600.0);
    assert!((ahead(other) - 3600.0).abs() < 1.0);
    shim.step(-7200.5);
    assert!((ahead(other) + 3600.5).abs() < 1.0);
    assert!((shim.offset() + 3600.5).abs() < 1e-6);
    let mut fresh = server.client();
    let now: f64 = fresh.query_one("SELECT extract(epoch FROM now())::float8", &[]).unwrap().get(0);
    let true_now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - true_now + 3600.5).abs() < 1.0);
}

/// Prints how many hundreds of seconds each clock has leapt since its start, whenever that changes.
const CLOCK_WATCHER: &str = r#"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    clockid_t clocks[3] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME};
    struct timespec begun[3], now;
    int last[3] = {0}, leapt[3];
    for (int i = 0; i < 3; i++) clock_gettime(clocks[i], &begun[i]);
    puts("up");
    for (;;) {
        fflush(stdout);
        usleep(2000);
        for (int i = 0; i < 3; i++) {
            clock_gettime(clocks[i], &now);
            leapt[i] = (now.tv_sec - begun[i].tv_sec) / 100;
        }
        if (memcmp(leapt, last, sizeof last)) printf("%d %d %d\n", leapt[0], leapt[1], leapt[2]);
        memcpy(last, leapt, sizeof last);
    }
}
"#;

/// Compiles a program in C, and starts it.
fn start(text: &str, env: Vec<(String, String)>) -> Process {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("program.c"), dir.path().join("program"));
    std::fs::write(&source, text).unwrap();
    assert!(Command::new("cc").arg("-o").arg(&program).arg(&source).status().unwrap().success());
    let mut command = Command::new(program);
    command.envs(env);
    Process::spawn(command)
}

#[test]
fn the_clocks_of_a_process_step_one_by_one() {
    let shim = ClockShim::new();
    let mut process = start(CLOCK_WATCHER, shim.env());
    process.expect_line(SOON, "up", |line| line == "up");
    shim.step_boottime(1050.0);
    process.expect_line(SOON, "the boot clock alone", |line| line == "0 0 10");
    shim.step_monotonic(2050.0);
    process.expect_line(SOON, "the monotonic clock too", |line| line == "0 20 10");
    shim.suspend(1050.0);
    process.expect_line(SOON, "wall clock and boot clock", |line| line == "10 20 21");
    assert_eq!(BootOffset::open(shim.path()).get(), Duration::from_secs(2100));
    shim.step(-2100.0);
    process.expect_line(SOON, "the wall clock back", |line| line == "-10 20 21");
}

/// Two threads that wait for a long time, and say when they were interrupted a hundred times.
const INTERRUPTED: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *waits(void *name) {
    for (int i = 0; i < 100; i++) if (usleep(10000000) == 0) return NULL;
    puts(name);
    fflush(stdout);
    return NULL;
}
int main(void) {
    pthread_t other;
    if (pthread_create(&other, NULL, waits, "other")) return 1;
    waits("main");
    return pthread_join(other, NULL);
}
"#;

#[test]
fn a_storm_of_signals_interrupts_every_thread() {
    let mut process = start(INTERRUPTED, signal_storm(Duration::from_millis(1)));
    let mut words = [process.line(SOON), process.line(SOON)].map(Option::unwrap);
    words.sort();
    assert_eq!(words, ["main", "other"]);
    assert!(process.wait(SOON).success());
}

#[test]
fn a_running_process_is_limited_and_let_go_again() {
    let process = shell("while :; do sleep 0.01; done");
    let limits = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{}/limits", process.pid())).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for (name, limit) in
        [("Max open files", limit_descriptors as fn(u32, Option<u64>)), ("Max processes", limit_threads)]
    {
        let before = limits(name);
        limit(process.pid(), Some(77));
        assert_eq!(limits(name), [vec!["77".to_owned()], before[1..].to_vec()].concat());
        limit(process.pid(), None);
        assert_eq!(limits(name), before);
    }
}

#[test]
fn what_a_process_works_and_waits_is_counted() {
    let busy = shell("while :; do :; done");
    await_until(SOON, "it works", || cpu_time(busy.pid()) > Duration::from_millis(100));
    let idle = shell("while :; do sleep 0.01; done");
    await_until(SOON, "it waits", || waits(idle.pid()).into_iter().sum::<u64>() > 20);
    assert!(cpu_time(idle.pid()) < Duration::from_secs(1));
}

#[test]
fn a_pooler_of_a_shared_server_is_cheap() {
    let database = Postgres::shared().database();
    let pooler = PgBouncer::in_front_of(database.server());
    assert!(database.dsn_through(pooler.port()).ends_with(database.name()));
}
