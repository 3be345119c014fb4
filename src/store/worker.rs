//! The threads that the driver runs on, few and named, never the caller's (rule 7).
//!
//! A caller hands over a job and waits for the answer with a bound of its own, so that it comes back in time
//! even where the thread does not. The threads hold no handle of the store: when the last clone is gone the
//! queue is disconnected, and each thread ends after the job that it is at.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;

use super::StoreError;

/// Jobs that may wait for a thread, unless a store wants less. Only threads that hang, in somebody else's pool or on
/// a disk, let a queue grow so long.
#[cfg(any(test, feature = "postgres"))]
const QUEUE: usize = 1024;
/// How long after the deadline the thread's own account of the failure is waited for.
const GRACE: Duration = Duration::from_millis(100);
/// Longer waits are cut to this.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

type Job<C> = Box<dyn FnOnce(&C) + Send>;

/// Up to `size` threads, started when they are first needed, that share a context.
pub(super) struct Workers<C> {
    /// What the threads' names begin with.
    label: &'static str,
    // Before the queue: the threads then still have theirs, so the last one is not dropped on a caller's
    // thread.
    context: Arc<C>,
    size: usize,
    started: Mutex<usize>,
    /// Jobs that are waiting or running.
    outstanding: Arc<AtomicUsize>,
    jobs: Sender<Job<C>>,
    queue: Receiver<Job<C>>,
}

impl<C: Send + Sync + 'static> Workers<C> {
    #[cfg(any(test, feature = "postgres"))]
    pub(super) fn new(label: &'static str, context: C, size: usize) -> Workers<C> {
        Workers::with_queue(label, context, size, QUEUE)
    }

    pub(super) fn with_queue(label: &'static str, context: C, size: usize, waiting: usize) -> Workers<C> {
        let (jobs, queue) = bounded(waiting);
        Workers {
            label,
            context: Arc::new(context),
            size,
            started: Mutex::new(0),
            outstanding: Arc::default(),
            jobs,
            queue,
        }
    }

    #[cfg(feature = "postgres")]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn context(&self) -> &C {
        &self.context
    }

    /// Runs `work` on one of the threads and waits for its result, `timeout` and a little at the most. Work
    /// that has not begun by then is not begun.
    pub(super) fn call<R: Send + 'static>(
        &self,
        timeout: Duration,
        work: impl FnOnce(&C, Instant) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let until = Instant::now() + timeout.min(LONGEST);
        let (reply, answer) = bounded(1);
        let outstanding = Outstanding::one_more(&self.outstanding);
        self.start_thread_if_short()?;
        let job: Job<C> = Box::new(move |context| {
            let result = if Instant::now() < until { work(context, until) } else { Err(timed_out()) };
            drop(outstanding);
            // Nobody may be waiting any more.
            reply.send(result).ok();
        });
        if self.jobs.send_deadline(job, until).is_err() {
            return Err(StoreError::timeout("all of the store's threads were busy for the whole time"));
        }
        match answer.recv_deadline(until + GRACE) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(timed_out()),
            Err(RecvTimeoutError::Disconnected) => {
                Err(StoreError::retryable("the database driver panicked during the call"))
            }
        }
    }

    fn start_thread_if_short(&self) -> Result<(), StoreError> {
        let mut started = self.started.lock();
        if *started >= self.size || *started >= self.outstanding.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (context, queue) = (Arc::clone(&self.context), self.queue.clone());
        let thread = thread::Builder::new().name(format!("{}-{started}", self.label));
        match thread.spawn(move || work_off(&*context, &queue)) {
            Ok(_) => *started += 1,
            Err(error) if *started == 0 => {
                return Err(StoreError::retryable("can't start a thread for the database").with_source(error));
            }
            // The ones that there are will have to do.
            Err(_) => {}
        }
        Ok(())
    }
}

fn work_off<C>(context: &C, queue: &Receiver<Job<C>>) {
    for job in queue {
        // The driver panics where it can't create a runtime. What it left behind is not used again: a session
        // counts as broken until its call has returned.
        catch_unwind(AssertUnwindSafe(|| job(context))).ok();
    }
}

pub(super) fn timed_out() -> StoreError {
    StoreError::timeout("the database did not answer in time")
}

/// Counts a job while it exists.
struct Outstanding(Arc<AtomicUsize>);

impl Outstanding {
    fn one_more(count: &Arc<AtomicUsize>) -> Outstanding {
        count.fetch_add(1, Ordering::Relaxed);
        Outstanding(Arc::clone(count))
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn threads_are_started_when_needed_and_end_with_the_store() {
        let workers = Workers::new("test", (), 2);
        assert_eq!(*workers.started.lock(), 0);
        for _ in 0..5 {
            assert_eq!(workers.call(LONG, |(), _| Ok(7)).unwrap(), 7);
        }
        assert_eq!(*workers.started.lock(), 1);
        let context = Arc::downgrade(&workers.context);
        drop(workers);
        let until = Instant::now() + LONG;
        while context.strong_count() > 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(context.strong_count(), 0);
    }

    #[test]
    fn rule_7_a_caller_is_back_in_time_though_no_thread_is() {
        let workers = Workers::new("test", (), 1);
        let (release, gate) = bounded::<()>(0);
        let begun = Instant::now();
        let stuck = workers.call(Duration::from_millis(20), move |(), _| {
            gate.recv().ok();
            Ok(())
        });
        assert!(stuck.unwrap_err().is_timeout());
        let ran = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ran);
        let late =
            workers.call(Duration::from_millis(20), move |(), _| Ok(count.fetch_add(1, Ordering::SeqCst)));
        assert!(late.unwrap_err().is_timeout());
        assert!(begun.elapsed() < Duration::from_secs(2));
        drop(release);
        workers.call(LONG, |(), _| Ok(())).unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 0, "work whose time was over was begun");
    }

    #[test]
    fn rule_7_a_caller_that_finds_the_queue_full_is_back_in_time() {
        let workers = Workers::with_queue("test", (), 1, 1);
        let (release, gate) = bounded::<()>(0);
        let short = Duration::from_millis(20);
        let stuck = workers.call(short, move |(), _| {
            gate.recv().ok();
            Ok(())
        });
        assert!(stuck.unwrap_err().is_timeout());
        assert!(workers.call(short, |(), _| Ok(())).unwrap_err().is_timeout(), "it waits in the queue");
        let begun = Instant::now();
        let error = workers.call(short, |(), _| Ok(())).unwrap_err();
        assert!(error.is_timeout() && begun.elapsed() >= short, "{error}");
        assert_eq!(error.to_string(), "all of the store's threads were busy for the whole time");
        assert_eq!(workers.outstanding.load(Ordering::SeqCst), 2, "what was not taken is not counted");
        drop(release);
        workers.call(LONG, |(), _| Ok(())).unwrap();
    }

    #[test]
    fn a_panic_is_an_error_and_the_thread_goes_on() {
        let workers = Workers::new("test", (), 1);
        let error = workers.call(LONG, |(), _| -> Result<(), StoreError> { panic!("provoked") }).unwrap_err();
        assert!(error.is_retryable());
        workers.call(LONG, |(), _| Ok(())).unwrap();
    }
}
