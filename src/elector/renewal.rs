//! The renewal thread: makes the machine's calls, feeds the answers back, and carries out what follows.
//!
//! It is the only thread that calls the store. It takes no lock that foreign code can hold, and calls no
//! foreign code but the store; a store that panics costs the term, not the thread.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use crate::config::ClockTrust;
use crate::config::Config;
use crate::election::{Call, Election, Input, Settings, TermChange, Trouble};
use crate::event::Operation;
use crate::guard::{Entry, Hold, PublishError, Term, WAIT_SLICE};
use crate::lease::{Bid, Fence, Lease, Renewal};
use crate::store::{Store, StoreError};
use crate::term::LossCause;
use crate::time::Time;

use super::books::Books;
use super::shared::{Message, Shared, Waiter};
use super::watchdog::Watch;

#[derive(Debug)]
pub(crate) struct Renewing {
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
    /// Where this participant's terms are written down.
    entry: Arc<Entry>,
    inbox: Receiver<Message>,
    election: Election,
    wake_at: Option<Time>,
    /// Inputs that follow from outputs.
    inputs: VecDeque<Input>,
    waiters: VecDeque<Waiter>,
    campaigning: bool,
    /// Terms that were handed to somebody who has not given them back yet.
    held: Vec<Term>,
    /// Published with the term that is under way.
    payload: Option<Vec<u8>>,
    /// How the last call of each kind ended, for whoever asked for it.
    last_release: Option<StoreError>,
    last_renewal: Option<Result<(), StoreError>>,
    /// The anchor of the last call.
    sent_at: Time,
    books: Books,
}

enum Next {
    Message(Message),
    Time,
    Closed,
}

impl Renewing {
    pub(crate) fn new(store: Arc<dyn Store>, shared: Arc<Shared>, inbox: Receiver<Message>) -> Renewing {
        let election = Election::new(settings(&shared.config, shared.identity.as_str()));
        let entry = Arc::new(Entry {
            table: store.lease_table(),
            election: shared.config.name().to_owned(),
            holder: shared.identity.as_str().to_owned(),
            patience: shared.config.operation_timeout(),
        });
        Renewing {
            books: Books::new(shared.clone()),
            store,
            shared,
            entry,
            inbox,
            election,
            wake_at: None,
            inputs: VecDeque::new(),
            waiters: VecDeque::new(),
            campaigning: false,
            held: Vec::new(),
            payload: None,
            last_release: None,
            last_renewal: None,
            sent_at: Time::ZERO,
        }
    }

    /// The thread's body. Whatever goes wrong in it, no term outlives it.
    pub(crate) fn run_to_the_end(self) {
        let shared = self.shared.clone();
        let _ = catch_unwind(AssertUnwindSafe(|| self.run()));
        // The watchdog ends what is still live: that takes no code that may just have panicked here.
        let _ = shared.watchdog.send(Watch::Quit);
    }

    fn run(mut self) {
        self.settle(); // An observer begins to look.
        loop {
            match self.next() {
                Next::Message(message) => self.handle(message),
                Next::Time => self.feed(Input::Tick),
                Next::Closed => {
                    // No handle and no guard is left, so nobody can hold or want anything.
                    self.feed(Input::Stop);
                    break;
                }
            }
            if self.shared.is_stopped()
                && self.held.is_empty()
                && self.election.is_idle()
                && self.inbox.is_empty()
            {
                break;
            }
        }
    }

    /// Waits for a message or the time to wake up, in slices, since waits stop while the machine is suspended.
    fn next(&self) -> Next {
        loop {
            let left = self.wake_at.map(|at| at.saturating_since(self.shared.clock.now()));
            if left.is_some_and(|left| left.is_zero()) && self.inbox.is_empty() {
                return Next::Time;
            }
            let news = match left {
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(left) => self.inbox.recv_timeout(left.min(WAIT_SLICE)),
            };
            match news {
                Ok(message) => return Next::Message(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Next::Closed,
            }
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Campaign(waiter) => {
                if !self.shared.is_stopped() {
                    self.waiters.push_back(waiter);
                    self.settle();
                }
                self.keep_up();
            }
            Message::Withdraw { ticket } => {
                self.withdraw(ticket);
                self.keep_up();
            }
            Message::Resign { fence, release, reply } => {
                self.resign(fence, release);
                if let Some(reply) = reply {
                    let _ = reply.send(self.last_release.take().map_or(Ok(()), Err));
                }
            }
            Message::Publish { fence, payload, reply } => self.publish(fence, payload, &reply),
            Message::Stop => {
                self.waiters.clear();
                self.feed(Input::Stop);
            }
            Message::Abandon => {
                self.waiters.clear();
                self.feed(Input::Abandon);
            }
        }
    }

    /// Tells the machine whether somebody waits for leadership, or wants to know who has it.
    fn settle(&mut self) {
        let watches = self.shared.config.observer() && !self.shared.is_stopped();
        let wanted = watches || !self.waiters.is_empty();
        if wanted != self.campaigning {
            self.campaigning = wanted;
            self.books.campaign(wanted);
            self.feed(if wanted { Input::Campaign } else { Input::Withdraw });
        }
    }

    /// Messages come before the time to wake up, and most of them step the machine, which does what is due. The
    /// rest, in a crowd, must not keep a renewal waiting.
    fn keep_up(&mut self) {
        self.feed(Input::Tick);
    }

    fn withdraw(&mut self, ticket: u64) {
        self.waiters.retain(|w| w.ticket != ticket);
        self.settle();
    }

    fn resign(&mut self, fence: Fence, release: bool) {
        self.held.retain(|h| h.fence() != fence);
        if self.held.iter().all(|held| held.is_leader()) {
            self.books.overruns_no_more();
        }
        self.last_release = None;
        self.feed(Input::Resign { fence, release });
    }

    fn publish(&mut self, fence: Fence, payload: Vec<u8>, reply: &Sender<Result<(), PublishError>>) {
        let term = self.held.iter().find(|t| t.fence() == fence).cloned();
        let Some(term) = term else {
            return; // The dropped reply says that the term is over.
        };
        // It may have ended while this message waited; the next term does not inherit its payload.
        if let Err(lost) = term.check() {
            let _ = reply.send(Err(PublishError::Lost(lost)));
            return;
        }
        self.payload = Some(payload);
        self.last_renewal = None;
        self.feed(Input::RenewNow);
        let renewed = self.last_renewal.take();
        let outcome = match term.check() {
            Err(lost) => Err(PublishError::Lost(lost)),
            // A term that is live is renewed when that is asked for.
            Ok(_) => renewed
                .unwrap_or_else(|| Err(StoreError::retryable("no renewal was due")))
                .map_err(PublishError::Store),
        };
        let _ = reply.send(outcome);
    }

    /// Runs the machine with one input and with all that follow from it.
    fn feed(&mut self, input: Input) {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            // The send anchor: nothing may come between this and the call that only makes it later (rule 2).
            let now = self.shared.clock.now();
            let step = self.election.step(now, dice(), input);
            if let Some(change) = step.term {
                self.change_term(change);
            }
            self.wake_at = step.wake_at;
            for note in step.notes {
                self.books.note(note);
            }
            if let Some(call) = step.call {
                let answer = self.call(call, now);
                self.inputs.push_front(answer);
            }
        }
        self.books.look_at_role();
        self.settle();
    }

    fn change_term(&mut self, change: TermChange) {
        match change {
            TermChange::Begin { fence, deadline } => self.begin(fence, deadline),
            TermChange::Extend { fence, deadline } => {
                let Some(term) = self.current(fence) else { return };
                let headroom = term.remaining();
                match term.extend(deadline) {
                    Ok(()) => self.books.extended(fence, headroom, deadline),
                    Err(LossCause::Expired | LossCause::Superseded) => {
                        self.ended();
                        self.inputs.push_back(Input::Ended(fence));
                    }
                    // An end of our own making: the lease is kept until the work has ended, and whoever holds
                    // the term tells us so through the inbox.
                    Err(_) => {}
                }
            }
            TermChange::End { fence, cause } => {
                if let Some(term) = self.current(fence) {
                    self.shared.end(&term, cause);
                }
                self.ended();
            }
        }
    }

    fn current(&self, fence: Fence) -> Option<Arc<Term>> {
        self.shared.current.load_full().filter(|term| term.fence() == fence)
    }

    fn begin(&mut self, fence: Fence, deadline: Time) {
        // Whoever has given up is passed over before anybody can see a term.
        let Some(waiter) = std::iter::from_fn(|| self.waiters.pop_front()).find(|w| w.settled.settle())
        else {
            self.inputs.push_back(Input::Resign { fence, release: true });
            return;
        };
        let (term, watched) = Term::begin(fence, deadline, self.entry.clone(), self.shared.clock.clone());
        self.payload = self.shared.config.payload().map(<[u8]>::to_vec);
        // Counted before the watchdog can count its end.
        self.books.elected(fence, self.sent_at);
        if self.shared.watchdog.send(Watch::Term(watched)).is_err() {
            // Without a watchdog there is no term.
            let _ = term.seal(LossCause::Failed);
        }
        self.shared.current.store(Some(Arc::new(term.clone())));
        // From here on whoever asks for the status sees that the last term is live; before, that nobody holds it.
        if self.held.is_empty() {
            self.books.overruns_no_more();
        }
        if self.shared.is_stopped() {
            self.shared.end(&term, LossCause::Stopped);
        }
        // Written down before it is handed over: the new owner may give it back at once.
        self.held.push(term.clone());
        self.books.campaigning(!self.waiters.is_empty());
        let hold = Hold::new(&self.shared.guards);
        if waiter.reply.send(Ok((term.clone(), hold))).is_err() {
            // Its thread unwound while it waited.
            self.held.pop();
            let release = self.shared.end(&term, LossCause::Resigned);
            self.inputs.push_back(Input::Resign { fence, release });
        }
    }

    /// A term is over; whoever still holds it overruns from now on.
    fn ended(&mut self) {
        if !self.held.is_empty() {
            self.books.overruns();
        }
    }

    /// Makes the call; `sent` is its anchor.
    fn call(&mut self, call: Call, sent: Time) -> Input {
        self.sent_at = sent;
        let (name, holder) = (self.shared.config.name(), self.shared.identity.as_str());
        let timeout = self.shared.config.operation_timeout();
        let lease_duration = self.shared.config.lease_duration();
        match call {
            Call::Observe => {
                let answer = guarded(|| self.store.observe(name, timeout));
                if let Ok(seen) = &answer {
                    self.books.saw(seen.lease());
                }
                Input::Observed(self.judge(Operation::Observe, answer))
            }
            Call::Acquire { over, timeline, above } => {
                let bid = Bid::new(name, holder, lease_duration)
                    .payload(self.shared.config.payload())
                    .above(above)
                    .over(over)
                    .timeline(timeline);
                let answer = guarded(|| self.store.acquire(&bid, timeout));
                if let Ok(Some(lease)) = &answer {
                    self.books.saw(Some(lease));
                }
                Input::Acquired(self.judge(Operation::Acquire, answer))
            }
            Call::Renew { fence } => {
                let renewal =
                    Renewal::new(name, holder, fence, lease_duration).payload(self.payload.as_deref());
                let answer = guarded(|| self.store.renew(&renewal, timeout));
                if let Err((error, _)) = &answer {
                    // No more than a word to the watchdog, which tells of the end and has to know why.
                    self.books.not_renewed(fence, error);
                }
                let over = self.end_if_over(fence, &answer);
                if let Ok(Some(lease)) = &answer {
                    self.books.saw(Some(lease));
                    if !over {
                        self.books.renewed(fence, sent, self.took());
                    }
                }
                self.last_renewal = Some(answer.as_ref().map(drop).map_err(|(e, _)| e.clone()));
                Input::Renewed(self.judge(Operation::Renew, answer))
            }
            Call::Release { fence } => {
                let answer = guarded(|| self.store.release(name, holder, fence, timeout));
                let failure = answer.as_ref().err().map(|(e, _)| e.clone());
                self.last_release.clone_from(&failure);
                let took = self.took();
                // Whether it worked or not, there is nothing more to do about it: the lease expires.
                let _ = self.judge(Operation::Release, answer);
                self.books.released(fence, failure, took);
                Input::Released
            }
        }
    }

    /// Rule 18: a term that is over by this answer ends first. The books, and what is asked of them, come later.
    fn end_if_over(&self, fence: Fence, answer: &Result<Option<Lease>, (StoreError, Trouble)>) -> bool {
        let answer = answer.as_ref().map(Option::as_ref).map_err(|(_, trouble)| trouble);
        let cause = self.election.ended_by(fence, answer);
        if let (Some(cause), Some(term)) = (cause, self.current(fence)) {
            self.shared.end(&term, cause);
        }
        cause.is_some()
    }

    /// Since the call was sent.
    fn took(&self) -> Duration {
        self.shared.clock.now().saturating_since(self.sent_at)
    }

    /// Turns an answer into what the machine wants to know, and has it written down.
    fn judge<T>(
        &mut self,
        operation: Operation,
        answer: Result<T, (StoreError, Trouble)>,
    ) -> Result<T, Trouble> {
        let took = self.took();
        match answer {
            Ok(value) => {
                self.books.answered(operation, took);
                Ok(value)
            }
            Err((error, trouble)) => {
                self.books.failed(operation, &error, self.sent_at, took);
                if error.is_fatal() {
                    self.refuse_waiters(&error);
                }
                Err(trouble)
            }
        }
    }

    /// Those who do not want to wait until a person has mended something are told so.
    fn refuse_waiters(&mut self, error: &StoreError) {
        self.waiters.retain(|waiter| {
            if !waiter.rides_out_fatal && waiter.settled.settle() {
                let _ = waiter.reply.send(Err(error.clone()));
            }
            waiter.rides_out_fatal
        });
    }
}

/// Calls the store. A panic in it is an error like any other, but one after which its term is not trusted.
fn guarded<T>(call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, (StoreError, Trouble)> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(answer) => answer.map_err(|error| (error, Trouble::Error)),
        Err(panic) => {
            let text = crate::callbacks::panic_text(&*panic);
            Err((StoreError::retryable(format!("the store panicked: {text}")), Trouble::Panic))
        }
    }
}

fn settings(config: &Config, identity: &str) -> Settings {
    Settings {
        identity: identity.to_owned(),
        lease_duration: config.lease_duration(),
        renew_interval: config.renew_interval(),
        retry_period: config.retry_period(),
        retry_delay: config.retry_delay(),
        takeover_delay: config.takeover_delay(),
        safety_margin: config.safety_margin(),
        longest_lease: Config::MAX_LEASE_DURATION,
        min_fence: config.min_fence(),
        strict: config.clock_trust() == ClockTrust::Strict,
        release_on_exit: config.release_on_exit(),
        observer: config.observer(),
    }
}

/// For jitter only; without randomness there is none.
fn dice() -> u64 {
    getrandom::u64().unwrap_or(0)
}
