//! Leadership in an async program. The elector blocks, so it lives on a thread of its own and tells the tasks over a
//! watch channel; the tasks ask the term itself wherever they act, which takes no lock and never blocks.
//!
//!     cargo run --example embed_async
//!     cargo run --features sqlite --example embed_async -- sqlite:/var/lib/app/lease.db
//!
//! Ends by itself after three batches.

use std::convert::Infallible;
use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tenure::{AnyStore, CampaignError, Config, Elector, Lost, Term};
use tokio::sync::watch;

type Failure = Box<dyn Error + Send + Sync>;

/// A term, for as long as a task works under it.
#[derive(Clone)]
struct Leading {
    term: Term,
    /// Never sends. When the last clone is gone, so is the last task that works under this term.
    working: mpsc::Sender<Infallible>,
}

/// The thread that campaigns. The lease of a term is given back when its tasks have let go of it, and not before: a
/// term that was stopped is renewed until then, so that nobody else begins beside them.
fn campaign(elector: &Elector, leading: &watch::Sender<Option<Leading>>) -> Result<(), CampaignError> {
    loop {
        let guard = match elector.wait_for_leadership() {
            Ok(guard) => guard,
            Err(CampaignError::Stopped) => return Ok(()),
            Err(error) => return Err(error),
        };
        let (working, done) = mpsc::channel();
        leading.send_replace(Some(Leading { term: guard.term(), working }));
        let lost = guard.lost().recv(); // blocks this thread, and nothing else, until the term is over
        println!("{}", lost.map_or_else(|_| "the term is over".to_owned(), |lost| lost.to_string()));
        leading.send_replace(None);
        let _ = done.recv();
    }
}

/// Whatever was checked before an `await` is old after it. So the check comes last, before what can't be taken back.
async fn one_batch(term: &Term, batch: u32) -> Result<(), Lost> {
    tokio::time::sleep(Duration::from_millis(50)).await; // fetches what there is to do
    let fence = term.check()?;
    println!("batch {batch} with fence {fence}");
    Ok(())
}

/// Works whenever this process leads; ends when the campaigning thread has.
async fn work(mut leading: watch::Receiver<Option<Leading>>, elector: Elector) {
    let mut batch = 0;
    loop {
        // Cloned out of the channel: what is borrowed from it must not be kept across an `await`.
        let now = match leading.wait_for(Option::is_some).await {
            Ok(now) => now.clone(),
            Err(_) => return,
        };
        let Some(Leading { term, working }) = now else { continue };
        // The channel wakes; the check in the batch decides.
        while one_batch(&term, batch + 1).await.is_ok() {
            batch += 1;
            if batch == 3 {
                elector.stop(); // never blocks
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
                _ = leading.changed() => {} // wakes early when the term ends
            }
        }
        println!("stopped working");
        drop(working);
        let over = |now: &Option<Leading>| now.as_ref().map(|now| now.term.fence()) != Some(term.fence());
        if leading.wait_for(over).await.is_err() {
            return;
        }
    }
}

async fn service(url: String) -> Result<(), Failure> {
    // Creating the table asks the database: on a thread that may block.
    let opened = tokio::task::spawn_blocking(move || {
        let store = AnyStore::open(&url)?;
        store.ensure_schema().map(|()| store)
    });
    let elector = Elector::start(opened.await??, Config::builder("example-async").build()?)?;
    let (sender, receiver) = watch::channel(None);
    let campaigner = elector.clone();
    let campaigning = thread::spawn(move || campaign(&campaigner, &sender));

    // The runtime goes on meanwhile: other tasks of the program would be here.
    tokio::task::spawn(work(receiver, elector.clone())).await?;

    // Waits for the release, up to a limit; so on a thread that may block, too.
    let ended = tokio::task::spawn_blocking(move || -> Result<(), Failure> {
        elector.shutdown(Duration::from_secs(10))?;
        Ok(campaigning.join().map_err(|_| "the campaigning thread panicked")??)
    });
    ended.await??;
    println!("bye");
    Ok(())
}

fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or("memory:".to_owned());
    tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(service(url))
}
