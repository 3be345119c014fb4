//! Every order in which threads can use one term: loom runs each scene again and again, with every interleaving
//! and every value that the memory orderings allow a thread to read.
//!
//! The scenes are bounded in two ways. Threads do one or two things each, as many as there are roles around a real
//! term: the watchdog, the renewal thread, two that check, one that resigns. And each thread may be preempted only
//! so often in one execution, as the scene says; what a thread gives up by itself (its end, a join) doesn't count.
//! `LOOM_MAX_PREEMPTIONS` sets another bound for all scenes; with 4, and 6 without a watchdog, they are 1.3 million
//! executions and some minutes.
//!
//! The clock is an atomic that the scene moves on. It is read by a read-modify-write without ordering: a reading is
//! never out of date, as the machine's clock never is, and lends the word no ordering that it does not have.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release --lib --no-default-features --features testing \
//!         --target-dir target/loom interleavings -- --show-output

#![allow(clippy::print_stdout, reason = "how much was tried is a part of the result")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc as Counter;
use std::sync::atomic::{AtomicU64 as Count, Ordering as CountOrdering};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread::{self, JoinHandle};

use super::{AtomicTerm, LossCause, cause_of, word_of};
use crate::lease::Fence;
use crate::time::Time;

const BEGIN: u64 = 100;
const DEADLINE: u64 = 200;
const LATER: u64 = 400;

/// What a scene needs of a term: the real one, or one that is wrong on purpose.
trait Subject: Send + Sync + 'static {
    fn begin(deadline: Time) -> Self;
    fn check(&self, now: impl Fn() -> Time) -> Result<Time, LossCause>;
    fn extend(&self, now: impl Fn() -> Time, deadline: Time) -> Result<(), LossCause>;
    fn seal(&self, now: impl Fn() -> Time, cause: LossCause) -> Result<(), LossCause>;
}

impl Subject for AtomicTerm {
    fn begin(deadline: Time) -> AtomicTerm {
        AtomicTerm::new(Fence::try_from(7).unwrap(), deadline)
    }
    fn check(&self, now: impl Fn() -> Time) -> Result<Time, LossCause> {
        AtomicTerm::check(self, now)
    }
    fn extend(&self, now: impl Fn() -> Time, deadline: Time) -> Result<(), LossCause> {
        AtomicTerm::extend(self, now, deadline)
    }
    fn seal(&self, now: impl Fn() -> Time, cause: LossCause) -> Result<(), LossCause> {
        AtomicTerm::seal(self, now, cause)
    }
}

// ------------------------------------------------------------------------------------------------ the scene

/// One term, the clock, and the ways in which threads tell each other that it is over.
struct Scene<S> {
    term: S,
    clock: AtomicU64,
    /// Set by whoever was told that the term is over.
    over: AtomicU64,
    /// Written by whoever ends the term on purpose, before that; without any ordering of its own.
    farewell: AtomicU64,
}

/// What one thread was told, in order.
#[derive(Debug, Default)]
struct Told {
    causes: Vec<LossCause>,
    /// How often this thread's own seal ended the term.
    ended: usize,
}

impl<S: Subject> Scene<S> {
    fn new() -> Arc<Scene<S>> {
        Arc::new(Scene {
            term: S::begin(Time::from_nanos(DEADLINE)),
            clock: AtomicU64::new(BEGIN),
            over: AtomicU64::new(0),
            farewell: AtomicU64::new(0),
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.clock.fetch_add(0, Ordering::Relaxed))
    }

    fn lost(&self, told: &mut Told, cause: LossCause) {
        if cause == LossCause::Resigned {
            let farewell = self.farewell.load(Ordering::Relaxed);
            assert_eq!(farewell, 1, "an end was seen without what came before it");
        }
        told.causes.push(cause);
        self.over.store(1, Ordering::Release);
    }

    /// A worker of the leader's. Says whether it may go on.
    fn check(&self, told: &mut Told) -> Option<Time> {
        let heard = self.over.load(Ordering::Acquire) == 1 || !told.causes.is_empty() || told.ended > 0;
        let before = self.now();
        match self.term.check(|| self.now()) {
            Ok(deadline) => {
                assert!(!heard, "told that the term is live after somebody was told that it is over");
                assert!(before < deadline, "told that the term is live after its deadline");
                Some(deadline)
            }
            Err(cause) => {
                self.lost(told, cause);
                None
            }
        }
    }

    fn work(&self, told: &mut Told) {
        self.check(told);
    }

    /// The watchdog: sleeps to the deadline that it saw, and looks again. It is what makes time pass.
    fn watch(&self, told: &mut Told) {
        while let Some(deadline) = self.check(told) {
            self.clock.fetch_max(deadline.as_nanos(), Ordering::Relaxed);
        }
    }

    fn extend(&self, told: &mut Told, deadline: u64) {
        let heard = self.over.load(Ordering::Acquire) == 1;
        match self.term.extend(|| self.now(), Time::from_nanos(deadline)) {
            Ok(()) => assert!(!heard, "extended after somebody was told that the term is over"),
            Err(cause) => self.lost(told, cause),
        }
    }

    fn seal(&self, told: &mut Told, cause: LossCause) {
        if cause == LossCause::Resigned {
            self.farewell.store(1, Ordering::Relaxed);
        }
        match self.term.seal(|| self.now(), cause) {
            Ok(()) => {
                told.ended += 1;
                self.lost(told, cause);
            }
            Err(cause) => self.lost(told, cause),
        }
    }
}

type Role<S> = fn(&Scene<S>, &mut Told);

fn spawn<S: Subject>(scene: &Arc<Scene<S>>, role: Role<S>) -> JoinHandle<Told> {
    let scene = scene.clone();
    thread::spawn(move || {
        let mut told = Told::default();
        role(&scene, &mut told);
        told
    })
}

/// Plays the roles at once, the first of them on the thread that waits for the others, and looks at the end.
fn play<S: Subject>(first: Role<S>, others: &[Role<S>]) {
    let scene = Scene::new();
    let threads: Vec<JoinHandle<Told>> = others.iter().map(|role| spawn(&scene, *role)).collect();
    let mut all = Told::default();
    first(&scene, &mut all);
    for thread in threads {
        let told = thread.join().unwrap();
        all.causes.extend(told.causes);
        all.ended += told.ended;
    }
    let first_told = all.causes.first().copied();
    // Everything has happened before this.
    if first_told.is_none() {
        scene.clock.fetch_max(LATER, Ordering::Relaxed);
    }
    scene.check(&mut all);
    assert!(!all.causes.is_empty(), "the term outlived everything");
    assert!(
        all.causes.iter().all(|cause| Some(*cause) == first_told.or(Some(LossCause::Expired))),
        "two causes"
    );
    assert!(all.ended <= 1, "the term was ended twice");
    if all.ended == 0 {
        assert!(all.causes.iter().all(|cause| *cause == LossCause::Expired), "nobody gave that cause");
    }
}

// ---------------------------------------------------------------------------------------------- exploration

/// Runs a scene in every order. `Err`: the number of the execution that failed, and how.
fn explore(preemptions: usize, scene: impl Fn() + Send + Sync + 'static) -> Result<u64, (u64, String)> {
    let count = Counter::new(Count::new(0));
    let counted = count.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counted.fetch_add(1, CountOrdering::Relaxed);
            scene();
        });
    }));
    let count = count.load(CountOrdering::Relaxed);
    match outcome {
        Ok(()) => Ok(count),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
            Err((count, text.to_owned()))
        }
    }
}

/// The scenes: a name, how often a thread may be preempted, and the roles.
fn scenes<S: Subject>() -> [(&'static str, usize, fn()); 5] {
    [
        ("watchdog, renewal, a check after another", 3, || {
            play::<S>(
                |s, told| {
                    s.check(told);
                    s.check(told);
                },
                &[Scene::watch, |s, told| s.extend(told, LATER)],
            );
        }),
        ("watchdog, two renewals of which the later answer brings the earlier deadline", 3, || {
            play::<S>(
                Scene::work,
                &[Scene::watch, |s, told| {
                    s.extend(told, LATER);
                    s.extend(told, DEADLINE + 100);
                }],
            );
        }),
        ("resignation and refused renewal at once, a check", 4, || {
            play::<S>(
                |s, told| s.seal(told, LossCause::Resigned),
                &[|s, told| s.seal(told, LossCause::Superseded), Scene::work],
            );
        }),
        ("watchdog, renewal, resignation", 3, || {
            play::<S>(
                |s, told| s.seal(told, LossCause::Resigned),
                &[Scene::watch, |s, told| s.extend(told, LATER)],
            );
        }),
        ("watchdog, renewal, two checks, resignation", 1, || {
            play::<S>(
                |s, told| s.seal(told, LossCause::Resigned),
                &[Scene::watch, |s, told| s.extend(told, LATER), Scene::work, Scene::work],
            );
        }),
    ]
}

#[test]
fn rule_5_lost_is_final_in_every_order() {
    let mut sum = 0;
    for (name, preemptions, scene) in scenes::<AtomicTerm>() {
        let begun = std::time::Instant::now();
        let count =
            explore(preemptions, scene).unwrap_or_else(|(n, why)| panic!("{name}, execution {n}: {why}"));
        println!(
            "{count:>9} executions in {:>5.1?}, up to {preemptions} preemptions: {name}",
            begun.elapsed()
        );
        sum += count;
    }
    println!("{sum:>9} executions in all");
    assert!(sum > 10_000, "only {sum} executions: the scenes have shrunk");
}

// -------------------------------------------------------------------------------------- terms that are wrong

/// A copy of the term with one thing wrong, to show that the scenes notice.
struct Wrong<const FLAW: u8>(AtomicU64);

/// Nothing is wrong: the copy is faithful.
const NOTHING: u8 = 0;
const SEAL_STORES: u8 = 1;
const EXTEND_STORES: u8 = 2;
const CHECK_READS_A_FLAG: u8 = 3;
const CHECK_DOES_NOT_END: u8 = 4;
const EXPIRY_STORES: u8 = 5;
const RELAXED: u8 = 6;

impl<const FLAW: u8> Wrong<FLAW> {
    fn load(&self) -> u64 {
        self.0.load(if FLAW == RELAXED { Ordering::Relaxed } else { Ordering::Acquire })
    }

    fn swap_from(&self, word: u64, new: u64, stores: bool) -> bool {
        if stores {
            self.0.store(new, Ordering::Release);
            return true;
        }
        let (success, failure) = match FLAW {
            RELAXED => (Ordering::Relaxed, Ordering::Relaxed),
            _ => (Ordering::AcqRel, Ordering::Acquire),
        };
        self.0.compare_exchange(word, new, success, failure).is_ok()
    }

    fn live_word(&self, now: &impl Fn() -> Time) -> Result<u64, LossCause> {
        loop {
            let word = self.load();
            if let Some(cause) = cause_of(word) {
                return Err(cause);
            }
            if now().as_nanos() < word {
                return Ok(word);
            }
            if FLAW == CHECK_DOES_NOT_END
                || self.swap_from(word, word_of(LossCause::Expired), FLAW == EXPIRY_STORES)
            {
                return Err(LossCause::Expired);
            }
        }
    }

    fn replace(&self, now: impl Fn() -> Time, new: u64, stores: bool) -> Result<(), LossCause> {
        loop {
            let word = self.live_word(&now)?;
            if self.swap_from(word, new, stores) {
                return Ok(());
            }
        }
    }
}

impl<const FLAW: u8> Subject for Wrong<FLAW> {
    fn begin(deadline: Time) -> Wrong<FLAW> {
        Wrong(AtomicU64::new(deadline.as_nanos()))
    }

    fn check(&self, now: impl Fn() -> Time) -> Result<Time, LossCause> {
        if FLAW == CHECK_READS_A_FLAG {
            // Live until a thread that was scheduled said otherwise.
            let word = self.load();
            return cause_of(word).map_or(Ok(Time::from_nanos(word)), Err);
        }
        self.live_word(&now).map(Time::from_nanos)
    }

    fn extend(&self, now: impl Fn() -> Time, deadline: Time) -> Result<(), LossCause> {
        self.replace(now, deadline.as_nanos(), FLAW == EXTEND_STORES)
    }

    fn seal(&self, now: impl Fn() -> Time, cause: LossCause) -> Result<(), LossCause> {
        self.replace(now, word_of(cause), FLAW == SEAL_STORES)
    }
}

/// Some scene must notice, in these words; those with the fewest preemptions are tried first.
fn must_turn_red<const FLAW: u8>(what: &str, noticed: &str) {
    let mut before = 0;
    for preemptions in 0..=3 {
        for (name, most, scene) in scenes::<Wrong<FLAW>>() {
            if preemptions > most {
                continue;
            }
            match explore(preemptions, scene) {
                Ok(count) => before += count,
                Err((count, why)) => {
                    let count = before + count;
                    println!("{what}: red in execution {count}, {preemptions} preemptions ({name}): {why}");
                    assert!(why.contains(noticed), "{what}: {why}");
                    return;
                }
            }
        }
    }
    panic!("{what}: nobody noticed in {before} executions");
}

#[test]
fn a_faithful_copy_stays_green() {
    for (name, preemptions, scene) in &scenes::<Wrong<NOTHING>>()[..4] {
        explore(preemptions - 1, *scene).unwrap_or_else(|(n, why)| panic!("{name}, execution {n}: {why}"));
    }
}

#[test]
fn rule_5_a_seal_that_stores_turns_red() {
    must_turn_red::<SEAL_STORES>("a seal that stores", "two causes");
}

#[test]
fn rule_5_an_extension_that_stores_turns_red() {
    must_turn_red::<EXTEND_STORES>("an extension that stores", "is over");
}

#[test]
fn rule_4_a_check_of_a_cached_flag_turns_red() {
    must_turn_red::<CHECK_READS_A_FLAG>("a check of a cached flag", "after its deadline");
}

#[test]
fn rule_5_a_check_that_does_not_end_the_term_turns_red() {
    must_turn_red::<CHECK_DOES_NOT_END>("a check that does not end the term", "two causes");
}

#[test]
fn rule_5_an_expiry_that_stores_turns_red() {
    must_turn_red::<EXPIRY_STORES>("an expiry that stores", "two causes");
}

#[test]
fn relaxed_orderings_turn_red() {
    must_turn_red::<RELAXED>("a word without orderings", "without what came before");
}
