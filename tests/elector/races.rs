//! Stops, elections, losses and ends that meet at random moments, many times.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::{Callbacks, CampaignError, Elector, Leader, LossCause, Lost, MemoryStore, Role, Term};

use crate::faulty::{Faulty, Kind, Mode};
use crate::util::*;

#[test]
fn a_stop_at_any_moment_wakes_everybody_and_leaves_nothing() {
    let mut rng = fastrand::Rng::new();
    for round in 0..200 {
        let store = MemoryStore::new();
        let elector = start(&store, calm());
        let events = elector.events();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let elector = elector.clone();
                std::thread::spawn(move || match elector.wait_for_leadership() {
                    Ok(guard) => guard.sleep(BOUND).unwrap_err().cause,
                    Err(CampaignError::Stopped) => LossCause::Stopped,
                    Err(error) => panic!("{error}"),
                })
            })
            .collect();
        std::thread::sleep(Duration::from_micros(rng.u64(0..1_500)));
        elector.stop();
        let ending = elector.clone();
        for waiter in waiters {
            assert_eq!(within(BOUND, move || waiter.join().unwrap()), LossCause::Stopped);
        }
        within(BOUND, move || ending.shutdown(BOUND)).unwrap();
        assert!(!is_held(&store), "round {round}");
        assert_eq!(elector.status().role, Role::Idle);
        let mut seen = Vec::new();
        eventually("an end for each beginning", || {
            seen.extend(terms(&events));
            seen.len() % 2 == 0
        });
        let lost = seen.iter().filter(|(_, cause)| cause.is_some()).count();
        assert!(seen.len() == 2 * lost && lost <= 1, "round {round}: {seen:?}");
    }
}

#[test]
fn each_term_is_reported_once_whoever_ends_it_first() {
    let mut rng = fastrand::Rng::new();
    for round in 0..25 {
        let store = Faulty::new();
        let elector = start(&store, brisk());
        let events = elector.events();
        let guard = elector.wait_for_leadership().unwrap();
        let (term, stopper) = (guard.term(), elector.clone());
        let pause = Duration::from_micros(rng.u64(0..400));
        // Superseded, stopped and resigned within the same moment.
        store.set(&[Kind::Renew], &Mode::Hang);
        store.wait_until_hanging(Kind::Renew);
        store.memory().delete(NAME);
        let stop = std::thread::spawn(move || stopper.stop());
        store.set(&[Kind::Renew], &Mode::Pass);
        std::thread::sleep(pause);
        drop(guard);
        stop.join().unwrap();
        let cause = term.check().unwrap_err().cause;
        within(BOUND, move || elector.shutdown(BOUND)).unwrap();
        assert_eq!(wait_for_terms(&events, 2), [(1, None), (1, Some(cause))], "round {round}");
        assert!(terms(&events).is_empty());
        assert_eq!(term.check().unwrap_err().cause, cause);
    }
}

#[test]
fn guards_that_pass_from_hand_to_hand_never_stall() {
    let store = MemoryStore::new();
    let led = Arc::new(AtomicUsize::new(0));
    let players: Vec<_> = (0..3)
        .map(|_| {
            let elector = start(&store, calm().retry_period(ms(4)));
            let led = led.clone();
            std::thread::spawn(move || {
                while led.load(Ordering::SeqCst) < 150 {
                    if let Ok(guard) = elector.wait_for_leadership_timeout(ms(5_000)) {
                        guard.check().unwrap();
                        led.fetch_add(1, Ordering::SeqCst);
                        guard.resign().unwrap();
                    }
                }
            })
        })
        .collect();
    for player in players {
        within(BOUND, move || player.join().unwrap());
    }
    let history = store.history(NAME);
    assert!(history.windows(2).all(|w| w[0].0 < w[1].0));
    assert_eq!(history.len(), led.load(Ordering::SeqCst), "each term had its holder");
}

/// Counts, and panics or stops now and then.
struct Erratic {
    elector: Elector,
    dice: Arc<dyn Fn(u64) -> bool + Send + Sync>,
    started: AtomicUsize,
    stopped: AtomicUsize,
}

impl Callbacks for &Erratic {
    fn started_leading(&self, term: Term) {
        self.started.fetch_add(1, Ordering::SeqCst);
        assert!(!(self.dice)(4), "the work");
        if (self.dice)(3) {
            self.elector.stop();
        }
        let _ = term.sleep(ms(1));
    }

    fn stopped_leading(&self, _: Lost) {
        self.stopped.fetch_add(1, Ordering::SeqCst);
        assert!(!(self.dice)(6), "the end");
    }

    fn new_leader(&self, _: &Leader) {
        assert!(!(self.dice)(6), "the news");
    }
}

#[test]
fn o5_each_started_has_its_stopped_however_the_run_ends() {
    let mut panics = 0;
    for round in 0..80 {
        let store = MemoryStore::new();
        let elector = start(&store, calm().retry_period(ms(2)));
        let erratic = Erratic {
            elector: elector.clone(),
            dice: Arc::new(|sides| fastrand::u64(..sides) == 0),
            started: AtomicUsize::new(0),
            stopped: AtomicUsize::new(0),
        };
        panics += usize::from(elector.run(&erratic).is_err());
        let (started, stopped) = (erratic.started.into_inner(), erratic.stopped.into_inner());
        assert_eq!(started, stopped, "round {round}");
        // A term that was just won when the run ended is given back by the renewal thread.
        eventually("the release", || !elector.is_leader() && !is_held(&store));
        within(BOUND, move || elector.shutdown(BOUND)).unwrap();
    }
    assert!(panics > 0 && panics < 80, "{panics}");
}
