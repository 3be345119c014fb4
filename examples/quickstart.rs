//! Three participants in one process, no server. The leader resigns, then its successor crashes; each change of
//! leadership is one line. Ends by itself after about ten seconds.
//!
//!     cargo run --example quickstart

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use tenure::{
    Bid, Config, Elector, Fence, LeaderGuard, Lease, MemoryStore, Observation, Renewal, Store, StoreError,
};

/// Every participant reaches the common store through a cable of its own. Pulling it is how one "crashes":
/// nothing of what it holds is released.
#[derive(Clone, Debug)]
struct Cable {
    store: MemoryStore,
    pulled: Arc<AtomicBool>,
}

impl Cable {
    fn store(&self) -> Result<&MemoryStore, StoreError> {
        match self.pulled.load(Ordering::Relaxed) {
            false => Ok(&self.store),
            true => Err(StoreError::retryable("the cable is pulled")),
        }
    }
}

impl Store for Cable {
    fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        self.store()?.acquire(bid, timeout)
    }
    fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        self.store()?.renew(renewal, timeout)
    }
    fn release(&self, name: &str, holder: &str, fence: Fence, timeout: Duration) -> Result<(), StoreError> {
        self.store()?.release(name, holder, fence, timeout)
    }
    fn observe(&self, name: &str, timeout: Duration) -> Result<Observation, StoreError> {
        self.store()?.observe(name, timeout)
    }
}

/// One participant: a thread that waits for leadership and hands its guard to the main thread.
struct Participant {
    name: &'static str,
    cable: Cable,
    elector: Elector,
}

struct Elected {
    participant: usize,
    guard: LeaderGuard,
}

fn join(name: &'static str, store: &MemoryStore) -> Result<Participant, Box<dyn Error>> {
    let cable = Cable { store: store.clone(), pulled: Arc::new(AtomicBool::new(false)) };
    let config = Config::builder("quickstart")
        .label(name)
        .lease_duration(Duration::from_secs(3))
        .renew_interval(Duration::from_millis(500))
        .retry_period(Duration::from_millis(300))
        .operation_timeout(Duration::from_millis(400))
        .safety_margin(Duration::from_secs(1))
        .build()?;
    let elector = Elector::start(cable.clone(), config)?;
    Ok(Participant { name, cable, elector })
}

/// Waits in a thread of its own, as a process would.
fn campaign(participants: &[Participant], which: usize, elected: &Sender<Elected>) {
    let (elector, elected) = (participants[which].elector.clone(), elected.clone());
    thread::spawn(move || {
        if let Ok(guard) = elector.wait_for_leadership() {
            let _ = elected.send(Elected { participant: which, guard });
        }
    });
}

/// Waits for the next leader and says who it is and how long nobody led.
fn next_leader(
    participants: &[Participant],
    news: &Receiver<Elected>,
    since: Instant,
    what: &str,
) -> Result<Elected, Box<dyn Error>> {
    let elected = news.recv()?;
    let name = participants[elected.participant].name;
    println!(
        "{name} leads, fence {}, {} ms after {what}",
        elected.guard.fence(),
        since.elapsed().as_millis()
    );
    Ok(elected)
}

fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let participants = [join("anna", &store)?, join("ben", &store)?, join("clara", &store)?];
    let (elected, news) = unbounded();

    let start = Instant::now();
    for which in 0..participants.len() {
        campaign(&participants, which, &elected);
    }
    let first = next_leader(&participants, &news, start, "the start")?;
    println!("  {:.1?} left unless it is renewed", first.guard.remaining());

    println!("{} resigns", participants[first.participant].name);
    let resigned = Instant::now();
    first.guard.resign()?;
    let second = next_leader(&participants, &news, resigned, "the resignation")?;

    // Two renewals later its cable is pulled: nothing is released, and its term ends by its own clock.
    second.guard.sleep(Duration::from_millis(1_200))?;
    println!("{} crashes", participants[second.participant].name);
    let crashed = Instant::now();
    participants[second.participant].cable.pulled.store(true, Ordering::Relaxed);
    let lost = second.guard.lost().recv()?;
    println!("  {} ms later it knows: {lost}", crashed.elapsed().as_millis());
    let third = next_leader(&participants, &news, crashed, "the crash")?;
    assert!(third.guard.fence() > second.guard.fence());

    println!("{} resigns, the end", participants[third.participant].name);
    third.guard.resign()?;
    Ok(())
}
