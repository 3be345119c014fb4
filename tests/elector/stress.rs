//! Many participants, random actions, and observers who trust nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure::{Clock, Elector, MemoryStore, SystemClock, Term, Time};

use crate::faulty::{Faulty, Mode};
use crate::util::*;

/// From before a check was made until after it had succeeded, for one participant.
#[derive(Clone, Copy, Debug)]
struct Live {
    from: Time,
    to: Time,
    fence: i64,
}

#[derive(Default)]
struct Board {
    terms: Mutex<Vec<Term>>,
    live: Mutex<Vec<Live>>,
    done: AtomicBool,
}

impl Board {
    /// Checks every term that was ever handed out, again and again.
    fn observe(&self) {
        let clock = SystemClock::new();
        let mut seen: Vec<Live> = Vec::new();
        while !self.done.load(Ordering::SeqCst) {
            let terms = self.terms.lock().clone();
            for term in terms.iter().rev().take(8) {
                let from = clock.now();
                if let Ok(fence) = term.check() {
                    seen.push(Live { from, to: clock.now(), fence: fence.get() });
                }
            }
            std::thread::yield_now();
        }
        self.live.lock().extend(seen);
    }

    /// No term was seen live at a time when another one was. A check that succeeded did so at some instant
    /// between its two readings of the clock; so terms must be separable in time.
    fn assert_one_leader(&self) -> usize {
        let mut spans: std::collections::BTreeMap<i64, (Time, Time)> = std::collections::BTreeMap::new();
        for live in self.live.lock().iter() {
            // The surely live span: from the end of the first check to the beginning of the last.
            let span = spans.entry(live.fence).or_insert((live.to, live.from));
            *span = (span.0.min(live.to), span.1.max(live.from));
        }
        let spans: Vec<_> = spans.into_iter().collect();
        for pair in spans.windows(2) {
            let ((older, (_, last)), (newer, (first, _))) = (pair[0], pair[1]);
            assert!(last <= first, "fence {older} was live at {last:?}, fence {newer} at {first:?}");
        }
        spans.len()
    }
}

fn act(elector: &Elector, board: &Board, rng: &mut fastrand::Rng) {
    let timeout = Duration::from_micros(rng.u64(0..150_000));
    let Ok(guard) = elector.wait_for_leadership_timeout(timeout) else { return };
    board.terms.lock().push(guard.term());
    let until = Instant::now() + Duration::from_micros(rng.u64(0..120_000));
    while Instant::now() < until && guard.sleep(ms(1)).is_ok() {}
    match rng.u32(..8) {
        0 => drop(guard.resign()),
        1 => drop(guard.publish("x")),
        2 => elector.stop(),
        // Overruns, as work does that does not check.
        3 => std::thread::sleep(Duration::from_micros(rng.u64(0..300_000))),
        _ => drop(guard),
    }
}

#[test]
fn the_promise_holds_under_random_stops_timeouts_and_outages() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let store = Faulty::over(MemoryStore::new());
    let board = Arc::new(Board::default());
    let observers: Vec<_> = (0..2)
        .map(|_| {
            let board = board.clone();
            std::thread::spawn(move || board.observe())
        })
        .collect();
    let until = Instant::now() + Duration::from_secs(6);
    let participants: Vec<_> = (0..8)
        .map(|n| {
            let (store, board) = (store.clone(), board.clone());
            let mut rng = fastrand::Rng::with_seed(seed ^ n);
            std::thread::spawn(move || {
                while Instant::now() < until {
                    let config = brisk().lease_duration(ms(300)).renew_interval(ms(40));
                    let config = config.operation_timeout(ms(50)).safety_margin(ms(50)).retry_period(ms(20));
                    let elector = start(&store, config);
                    for _ in 0..rng.u32(1..6) {
                        act(&elector, &board, &mut rng);
                    }
                }
            })
        })
        .collect();
    let mut rng = fastrand::Rng::with_seed(seed);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_micros(rng.u64(0..200_000)));
        let modes = [Mode::TimeOut, Mode::LoseReply, Mode::HoldReply, Mode::Hang, Mode::Panic];
        let modes = [&modes[..], &[Mode::Delay(ms(60)), Mode::Delay(ms(310))]].concat();
        store.set(&[crate::faulty::ALL[rng.usize(..4)]], &modes[rng.usize(..modes.len())]);
        std::thread::sleep(Duration::from_micros(rng.u64(0..150_000)));
        store.set_all(&Mode::Pass);
    }
    for thread in participants {
        thread.join().unwrap();
    }
    board.done.store(true, Ordering::SeqCst);
    for thread in observers {
        thread.join().unwrap();
    }
    let led = board.assert_one_leader();
    let history = store.memory().history(NAME);
    assert!(history.windows(2).all(|w| w[0].0 < w[1].0), "{history:?}");
    println!("{led} terms seen live, {} granted", history.len());
    assert!(led >= 5, "only {led} terms: nothing was tested");
    let last = start(&store, brisk());
    assert!(within(BOUND, move || last.wait_for_leadership()).is_ok());
}
