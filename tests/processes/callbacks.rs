//! B13: every callback sleeps for nine seconds when it is first called, which is three leases, and asks everything
//! that there is to ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure::{Callbacks, Elector, Event, Leader, LossCause, Lost, PostgresStore, ShutdownError, Store, Term};
use tenure_testground::await_until;

use crate::figures::figure;
use crate::fleet::{Fleet, Ground, LIMIT, Way};
use crate::profile::{P3, SLACK};

const SLEEP: Duration = Duration::from_secs(9);
/// For so long nothing is lost, whatever the callbacks do.
const STEADY: Duration = Duration::from_secs(15);
/// What a call that asks no database may take.
const AT_ONCE: Duration = Duration::from_millis(200);

#[derive(Clone)]
struct Sleeper {
    elector: Elector,
    store: PostgresStore,
    /// The slowest call of the elector's, and of the database's.
    slowest: Arc<Mutex<(Duration, Duration)>>,
    slept: Arc<[AtomicBool; 3]>,
    stops: Arc<AtomicBool>,
}

impl Sleeper {
    fn timed<T>(&self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = call();
        let mut slowest = self.slowest.lock();
        slowest.0 = slowest.0.max(begun.elapsed());
        result
    }

    fn ask_everything(&self, term: Option<&Term>) {
        self.timed(|| self.elector.status());
        self.timed(|| self.elector.is_leader());
        self.timed(|| self.elector.fence());
        self.timed(|| self.elector.events());
        if let Some(term) = term {
            self.timed(|| term.check()).expect("it leads");
            self.timed(|| term.remaining());
        }
        let begun = Instant::now();
        self.store.observe("e", P3.op).expect("an answer");
        let mut slowest = self.slowest.lock();
        slowest.1 = slowest.1.max(begun.elapsed());
    }

    fn sleep_once(&self, callback: usize) {
        if !self.slept[callback].swap(true, Ordering::SeqCst) {
            sleep(SLEEP);
        }
    }
}

impl Callbacks for Sleeper {
    fn started_leading(&self, term: Term) {
        let begun = Instant::now();
        self.ask_everything(Some(&term));
        self.sleep_once(0);
        while begun.elapsed() < STEADY {
            self.ask_everything(Some(&term));
            sleep(Duration::from_millis(50));
        }
        // A shutdown is asked for from inside, and once more from outside, while this sleeps.
        self.timed(|| self.elector.stop());
        self.timed(|| self.elector.clone().shutdown(Duration::ZERO)).expect_err("this very call is the work");
        self.stops.store(true, Ordering::SeqCst);
        sleep(P3.lease);
    }

    fn stopped_leading(&self, _: Lost) {
        self.ask_everything(None);
        self.sleep_once(1);
    }

    fn new_leader(&self, _: &Leader) {
        self.ask_everything(None);
        self.sleep_once(2);
    }
}

pub(crate) fn b13_callbacks_that_sleep_for_three_leases_lose_nothing() {
    let begun = Instant::now();
    let ground = Ground::shared(Way::Direct);
    let store = PostgresStore::connect(&ground.dsn()).expect("a usable DSN");
    let elector = Elector::start(store.clone(), P3.config("e").build().expect("a usable profile"));
    let elector = elector.expect("two threads");
    let events = elector.events();
    let sleeper = Sleeper {
        elector: elector.clone(),
        store,
        slowest: Arc::default(),
        slept: Arc::default(),
        stops: Arc::default(),
    };
    let run = spawn({
        let (elector, sleeper) = (elector.clone(), sleeper.clone());
        move || elector.run(sleeper)
    });
    await_until(LIMIT, "it leads", || elector.is_leader());
    let mut fleet = Fleet::new();
    fleet.start(&ground.options("b"));
    await_until(LIMIT, "it was asked to stop from inside", || sleeper.stops.load(Ordering::SeqCst));
    fleet.read();
    assert_eq!(fleet.leads(), [], "{}", fleet.told());
    assert!(ground.rows().iter().all(|row| row.fence == 1 && !row.is_released()));
    // From outside, while the callback sleeps.
    let asked = Instant::now();
    let grace = Duration::from_millis(500);
    let error = elector.clone().shutdown(grace).expect_err("the callback sleeps");
    assert!(matches!(error, ShutdownError::WorkStillRunning), "{error}");
    assert!(asked.elapsed() <= grace + P3.op + SLACK, "{:?}", asked.elapsed());
    await_until(LIMIT, "run returns", || run.is_finished());
    run.join().expect("no panic").expect("no callback panics");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    assert!(sleeper.slept.iter().all(|slept| slept.load(Ordering::SeqCst)), "a callback was not called");
    let ends: Vec<Event> = events.try_iter().filter(|event| matches!(event, Event::Lost { .. })).collect();
    assert!(matches!(&ends[..], [Event::Lost { cause: LossCause::Stopped, .. }]), "{ends:?}");
    let (slowest, asking) = *sleeper.slowest.lock();
    assert!(slowest <= AT_ONCE, "a call inside a callback took {slowest:?}");
    assert!(asking <= P3.op + SLACK, "{asking:?}");
    figure(format_args!("B13: slowest call inside a callback {slowest:.1?}, of the database {asking:.1?}"));
    fleet.verify(&ground, P3, 0);
}
