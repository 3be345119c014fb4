//! An elector that runs callbacks in a thread of its own, and callbacks that write down what is called.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tenure::{Callbacks, Elector, Leader, Lost, RunError, Term};

use crate::util::eventually;

type Work = dyn Fn(&Elector, Term) + Send + Sync;
type Log = Arc<Mutex<Vec<String>>>;

pub(crate) struct Recorder {
    pub(crate) started: Box<Work>,
    pub(crate) stopped: Box<dyn Fn(Lost) + Send + Sync>,
    pub(crate) new_leader: Box<dyn Fn(&Leader) + Send + Sync>,
}

impl Recorder {
    pub(crate) fn new(started: impl Fn(&Elector, Term) + Send + Sync + 'static) -> Recorder {
        Recorder { started: Box::new(started), stopped: Box::new(|_| ()), new_leader: Box::new(|_| ()) }
    }
}

struct Recording {
    elector: Elector,
    recorder: Recorder,
    log: Log,
}

impl Callbacks for Recording {
    fn started_leading(&self, term: Term) {
        self.log.lock().push(format!("started {}", term.fence()));
        (self.recorder.started)(&self.elector, term);
    }

    fn stopped_leading(&self, lost: Lost) {
        self.log.lock().push(format!("stopped {} {}", lost.fence, lost.cause));
        (self.recorder.stopped)(lost);
    }

    fn new_leader(&self, leader: &Leader) {
        self.log.lock().push(format!("leader {}", leader.fence));
        (self.recorder.new_leader)(leader);
    }
}

pub(crate) struct Running {
    thread: Mutex<Option<JoinHandle<Result<(), RunError>>>>,
    log: Log,
}

impl Running {
    pub(crate) fn start(elector: &Elector, recorder: Recorder) -> Running {
        let log = Log::default();
        let recording = Recording { elector: elector.clone(), recorder, log: log.clone() };
        let elector = elector.clone();
        let thread = std::thread::spawn(move || elector.run(recording));
        Running { thread: Mutex::new(Some(thread)), log }
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }

    /// Waits for `run` to return.
    #[track_caller]
    pub(crate) fn join(&self) -> Result<(), RunError> {
        let thread = self.thread.lock().take().unwrap();
        eventually("the end of run", || thread.is_finished());
        thread.join().unwrap()
    }
}
