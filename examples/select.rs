//! One loop that waits for everything at once: work, the end of the term, a tick, and a signal to end.
//!
//!     cargo run --example select
//!     cargo run --example select -- postgres://app@localhost/app 1000
//!
//! The first argument is the store's URL, the second how many pieces of work there are. Ends when they are done, or in
//! order on SIGTERM or ctrl-c.

use std::error::Error;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded, never, select, tick};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tenure::{AnyStore, CampaignError, Config, Elector, LeaderGuard};

/// What is to be done; it waits in the channel while somebody else leads.
fn incoming(pieces: u32) -> Receiver<u32> {
    let (sender, receiver) = bounded(1);
    thread::spawn(move || (1..=pieces).try_for_each(|piece| sender.send(piece)));
    receiver
}

/// Disconnected, which is ready for good, once a signal has come. Whoever waits for leadership is woken by `stop`.
fn on_signal(elector: Elector) -> Result<Receiver<()>, std::io::Error> {
    let (sender, receiver) = bounded::<()>(0);
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::spawn(move || {
        signals.forever().next();
        drop(sender);
        elector.stop();
    });
    Ok(receiver)
}

/// Whether there is more to do. `taken`: a piece that is out of the channel and not done yet.
fn lead(guard: &LeaderGuard, work: &Receiver<u32>, taken: &mut Option<u32>, end: &Receiver<()>) -> bool {
    let (ticks, nothing) = (tick(Duration::from_millis(500)), never());
    let mut done = 0_u32;
    loop {
        // Of several that are ready, one is picked at random, so that the end of the term may be heard of late: whoever
        // acts checks. What can't be done any more is kept for the next term.
        if let (Some(piece), Ok(fence)) = (*taken, guard.check()) {
            println!("piece {piece} with fence {fence}");
            thread::sleep(Duration::from_millis(10));
            (*taken, done) = (None, done + 1);
        }
        select! {
            recv(guard.lost()) -> lost => {
                println!("{}", lost.map_or_else(|_| "the term is over".to_owned(), |lost| lost.to_string()));
                return true;
            }
            recv(end) -> _ => {
                println!("asked to end after {done} pieces");
                return false;
            }
            recv(if taken.is_none() { work } else { &nothing }) -> piece => match piece {
                Ok(piece) => *taken = Some(piece),
                Err(_) => {
                    println!("{done} pieces done");
                    return false;
                }
            },
            recv(ticks) -> _ => println!("{done} pieces so far, {:.0?} left unless renewed", guard.remaining()),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or("memory:".to_owned());
    let pieces = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let store = AnyStore::open(&url)?;
    store.ensure_schema()?;
    let elector = Elector::start(store, Config::builder("example-select").build()?)?;
    let (work, end) = (incoming(pieces), on_signal(elector.clone())?);
    let mut taken = None;
    println!("{} waits for leadership", elector.identity());
    loop {
        let guard = match elector.wait_for_leadership() {
            Ok(guard) => guard,
            Err(CampaignError::Stopped) => break,
            Err(error) => return Err(error.into()),
        };
        if !lead(&guard, &work, &mut taken, &end) {
            break;
        }
    }
    elector.shutdown(Duration::from_secs(10))?;
    println!("bye");
    Ok(())
}
