//! Notices when the machine itself stands still, or makes everybody wait: timings of half a second prove nothing on a
//! machine that does not run for that long. A test that failed meanwhile is run again, unless it found a broken promise; those hold on any
//! machine. It has found one where the text of its panic says so, and where a fleet that was given up half-way, after
//! whatever other failure, turns out to have told of one (`Drop` of `Fleet`).

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What the panic of a broken promise says somewhere.
pub(crate) const BROKEN: &str = "broken promise";

/// Asserts what holds on any machine, however slow it is.
macro_rules! promised {
    ($holds:expr, $($what:tt)+) => {
        assert!($holds, "{}: {}", $crate::fleet::stillness::BROKEN, format_args!($($what)+))
    };
}
pub(crate) use promised;

const NAP: Duration = Duration::from_millis(20);
/// Longer than that the timings of the tests do not bear.
const STILL: Duration = Duration::from_millis(150);
const TRIES: u32 = 3;
/// Where the kernel says for how long somebody has waited for a processor.
const PRESSURE: &str = "/proc/pressure/cpu";
const SECOND: Duration = Duration::from_secs(1);
/// Where somebody waits for longer than this in a second, the machine has too much to do.
const TOO_MUCH: Duration = Duration::from_millis(800);

/// How often the machine has stood still.
static STILLS: AtomicU64 = AtomicU64::new(0);

/// From now on it is counted how often the machine stands still.
pub(crate) fn watch() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        thread::spawn(|| {
            let (mut second, mut waited) = (Instant::now(), waited());
            loop {
                let begun = Instant::now();
                thread::sleep(NAP);
                let mut bad = begun.elapsed() > NAP + STILL;
                if second.elapsed() > SECOND {
                    let now = self::waited();
                    bad |= is_too_much(now.saturating_sub(waited), second.elapsed());
                    (second, waited) = (Instant::now(), now);
                }
                if bad {
                    STILLS.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    });
}

/// For how long somebody has waited for a processor, as far as the kernel says.
fn waited() -> Duration {
    waited_by(&std::fs::read_to_string(PRESSURE).unwrap_or_default())
}

fn waited_by(pressure: &str) -> Duration {
    let total =
        pressure.lines().find(|line| line.starts_with("some")).and_then(|line| line.split("total=").nth(1));
    Duration::from_micros(total.and_then(|micros| micros.trim().parse().ok()).unwrap_or(0))
}

fn is_too_much(waited: Duration, passed: Duration) -> bool {
    waited.as_secs_f64() > TOO_MUCH.as_secs_f64() * passed.as_secs_f64()
}

/// How often the machine has stood still since [`watch`].
pub(crate) fn stills() -> u64 {
    STILLS.load(Ordering::Relaxed)
}

/// What has come of the runs of one test, apart from how they ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Runs that did not count.
    pub(crate) excused: usize,
    /// Pairs of terms that were live at one instant.
    pub(crate) overlaps: usize,
    /// What fleets that were given up have told, in the present run.
    broken: Vec<String>,
}

thread_local! {
    /// Of the test that runs on this thread.
    static TALLY: RefCell<Tally> = RefCell::default();
}

/// A fleet that was given up has broken a promise.
pub(crate) fn broken(what: String) {
    TALLY.with_borrow_mut(|tally| tally.broken.push(what));
}

pub(crate) fn overlapped(pairs: usize) {
    TALLY.with_borrow_mut(|tally| tally.overlaps += pairs);
}

/// What there is of the test that has just run on this thread. The next one begins with nothing.
pub(crate) fn take_tally() -> Tally {
    TALLY.take()
}

fn text(panic: &(dyn std::any::Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default()
}

/// Runs a test, and again where it failed while the machine stood still.
pub(crate) fn on_a_machine_that_runs<T>(name: &str, test: impl Fn() -> T) -> T {
    watch();
    until_it_counts(name, stills, test)
}

#[allow(clippy::print_stdout, reason = "a run that did not count is said so")]
fn until_it_counts<T>(name: &str, stills: impl Fn() -> u64, test: impl Fn() -> T) -> T {
    for run in 1.. {
        let before = stills();
        TALLY.with_borrow_mut(|tally| tally.broken.clear());
        let panic = match catch_unwind(AssertUnwindSafe(&test)) {
            Ok(outcome) => return outcome,
            Err(panic) => panic,
        };
        let found = TALLY.with_borrow_mut(|tally| std::mem::take(&mut tally.broken));
        if !found.is_empty() {
            resume_unwind(Box::new(format!("{}\n{BROKEN}: {}", text(&*panic), found.join("\n"))));
        }
        let still = stills() - before;
        if still == 0 || run == TRIES || text(&*panic).contains(BROKEN) {
            resume_unwind(panic);
        }
        println!("{name}: does not count, the machine stood still {still} times; again");
        TALLY.with_borrow_mut(|tally| tally.excused += 1);
    }
    unreachable!("the last run counts")
}

/// How often a test runs that always fails so, where the machine stands still during every run or never, and the text
/// of its end.
fn runs(stands_still: bool, fail: impl Fn()) -> (u64, String) {
    let count = AtomicU64::new(0);
    let stills = || if stands_still { count.load(Ordering::Relaxed) } else { 0 };
    let test = || {
        count.fetch_add(1, Ordering::Relaxed);
        fail();
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| until_it_counts("a control", stills, test)));
    let panic = outcome.expect_err("what fails every time fails");
    (count.load(Ordering::Relaxed), text(&*panic).to_owned())
}

/// Panics without a word on standard error.
fn fails(message: &str) {
    resume_unwind(Box::new(message.to_owned()));
}

pub(crate) fn only_a_machine_that_stood_still_is_an_excuse() {
    assert_eq!(runs(false, || fails("not in time")).0, 1);
    assert_eq!(runs(true, || fails("not in time")).0, u64::from(TRIES));
    assert_eq!(runs(true, || fails("broken promise: two leaders")).0, 1);
    assert_eq!(runs(true, || fails("not equal: broken promise: two leaders")).0, 1);
}

/// `give_up` lets go of a fleet that has told of two leaders, while it panics for another reason.
pub(crate) fn what_was_given_up_is_no_excuse(give_up: impl Fn()) {
    take_tally();
    let (runs, text) = runs(true, give_up);
    assert_eq!(runs, 1, "{text}");
    assert!(text.contains("not in time") && text.contains("two leaders"), "{text}");
    let tally = take_tally();
    assert_eq!((tally.excused, tally.overlaps), (0, 1), "{tally:?}");
}

pub(crate) fn a_second_in_which_somebody_always_waits_is_told_from_others() {
    let pressure = "some avg10=1.23 avg60=0.50 avg300=0.10 total=2450395\nfull avg10=0.00 total=7\n";
    assert_eq!(waited_by(pressure), Duration::from_micros(2_450_395));
    assert_eq!(waited_by(""), Duration::ZERO, "a kernel that does not say");
    assert!(!is_too_much(Duration::from_millis(810), SECOND * 2));
    assert!(!is_too_much(Duration::from_millis(790), SECOND));
    assert!(is_too_much(Duration::from_millis(810), SECOND));
}
