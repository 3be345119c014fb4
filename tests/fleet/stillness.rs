//! Notices when the machine itself stands still: timings of half a second prove nothing on a machine that does not
//! run for that long. A test that failed meanwhile is run again, unless what it found is a broken promise; those hold
//! on any machine.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What the panic of a broken promise begins with.
pub(crate) const BROKEN: &str = "broken promise";
const NAP: Duration = Duration::from_millis(20);
/// Longer than that the timings of the tests do not bear.
const STILL: Duration = Duration::from_millis(150);
const TRIES: u32 = 3;

/// How often the machine has stood still.
static STILLS: AtomicU64 = AtomicU64::new(0);

/// From now on it is counted how often the machine stands still.
pub(crate) fn watch() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        thread::spawn(|| {
            loop {
                let begun = Instant::now();
                thread::sleep(NAP);
                if begun.elapsed() > NAP + STILL {
                    STILLS.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    });
}

/// How often the machine has stood still since [`watch`].
pub(crate) fn stills() -> u64 {
    STILLS.load(Ordering::Relaxed)
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
    for _ in 1..TRIES {
        let before = stills();
        let panic = match catch_unwind(AssertUnwindSafe(&test)) {
            Ok(outcome) => return outcome,
            Err(panic) => panic,
        };
        let still = stills() - before;
        if still == 0 || text(&*panic).starts_with(BROKEN) {
            resume_unwind(panic);
        }
        println!("{name}: does not count, the machine stood still {still} times; again");
    }
    test()
}

/// How often a test runs that always fails so, where the machine stands still during every run or never.
fn runs(message: &'static str, stands_still: bool) -> u64 {
    let count = AtomicU64::new(0);
    let stills = || if stands_still { count.load(Ordering::Relaxed) } else { 0 };
    let test = || {
        count.fetch_add(1, Ordering::Relaxed);
        resume_unwind(Box::new(message.to_owned()));
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| until_it_counts("a control", stills, test)));
    assert!(outcome.is_err(), "what fails every time fails");
    count.load(Ordering::Relaxed)
}

pub(crate) fn only_a_machine_that_stood_still_is_an_excuse() {
    assert_eq!(runs("not in time", false), 1);
    assert_eq!(runs("not in time", true), u64::from(TRIES));
    assert_eq!(runs("broken promise: two leaders", true), 1);
}
