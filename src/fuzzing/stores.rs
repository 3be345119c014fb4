//! The same operations on two stores: what they decide must be the same.

use std::time::Duration;

use super::bytes::Bytes;
use crate::lease::{Bid, Fence, Lease, Renewal, Version};
use crate::store::{Store, StoreError};

const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough never to end, or over at once: nothing here depends on how fast the stores are.
const LEASES: [Duration; 2] = [Duration::from_secs(3_600), Duration::from_micros(1)];
const HOLDERS: [&str; 3] = ["anna", "bo", "日本"];

/// What both stores have answered so far, as far as later operations need it.
struct Memory {
    /// Every version, as each store has it, and the fence.
    versions: Vec<([Version; 2], Fence)>,
    timelines: [Option<u32>; 2],
}

/// Runs operations on both stores, in elections of that name, until the bytes are used up.
///
/// # Panics
/// If the stores answer differently.
pub fn stores(bytes: &[u8], name: &str, stores: [&dyn Store; 2]) {
    let mut bytes = Bytes(bytes);
    let names = [name.to_owned(), format!("{name}'\"\\")];
    let mut memories = names.map(|name| (name, Memory { versions: Vec::new(), timelines: [None; 2] }));
    for _ in 0..64 {
        if bytes.is_empty() {
            break;
        }
        let (name, memory) = &mut memories[usize::from(bytes.choose(2))];
        match bytes.choose(6) {
            0 | 1 => acquire(&mut bytes, name, memory, stores),
            2 => renew(&mut bytes, name, memory, stores),
            3 => release(&mut bytes, name, memory, stores),
            _ => observe(name, memory, stores),
        }
    }
}

fn acquire(bytes: &mut Bytes<'_>, name: &str, memory: &mut Memory, stores: [&dyn Store; 2]) {
    let holder = HOLDERS[usize::from(bytes.choose(3))];
    let lease = LEASES[usize::from(bytes.choose(4) == 0)];
    let payload = payload(bytes);
    let above = if bytes.choose(4) == 0 { bytes.i64() } else { 0 };
    let named = memory.choose(bytes);
    let timeline = bytes.choose(8);
    let answers = [0, 1].map(|i| {
        let bid = Bid::new(name, holder, lease)
            .payload(payload.as_deref())
            .above(above)
            .over(named.map(|version| memory.versions[version].0[i].clone()))
            .timeline(match timeline {
                0 => Some(9),
                1 => None,
                _ => memory.timelines[i],
            });
        stores[i].acquire(&bid, PATIENCE)
    });
    memory.learn(&format!("{holder} bids over {named:?} above {above}"), answers);
}

fn renew(bytes: &mut Bytes<'_>, name: &str, memory: &mut Memory, stores: [&dyn Store; 2]) {
    let holder = HOLDERS[usize::from(bytes.choose(3))];
    let Some(fence) = memory.fence(bytes) else { return };
    let lease = LEASES[usize::from(bytes.choose(4) == 0)];
    let payload = payload(bytes);
    let renewal = Renewal::new(name, holder, fence, lease).payload(payload.as_deref());
    let answers = stores.map(|store| store.renew(&renewal, PATIENCE));
    memory.learn(&format!("{holder} renews {fence}"), answers);
}

fn release(bytes: &mut Bytes<'_>, name: &str, memory: &mut Memory, stores: [&dyn Store; 2]) {
    let holder = HOLDERS[usize::from(bytes.choose(3))];
    let Some(fence) = memory.fence(bytes) else { return };
    let answers = stores.map(|store| store.release(name, holder, fence, PATIENCE).is_ok());
    assert_eq!(answers, [true, true], "{holder} releases {fence}");
    observe(name, memory, stores);
}

fn observe(name: &str, memory: &mut Memory, stores: [&dyn Store; 2]) {
    let seen = stores.map(|store| store.observe(name, PATIENCE));
    if let [Ok(first), Ok(second)] = &seen {
        memory.timelines = [first.timeline(), second.timeline()];
    }
    memory.learn("observes", seen.map(|seen| seen.map(crate::Observation::into_lease)));
}

fn payload(bytes: &mut Bytes<'_>) -> Option<Vec<u8>> {
    bytes.flag().then(|| bytes.text(1).into_bytes())
}

impl Memory {
    fn choose(&self, bytes: &mut Bytes<'_>) -> Option<usize> {
        let back = usize::from(bytes.choose(5));
        // Mostly the last version, sometimes an older one or none.
        let back = if back == 4 { return None } else { back.saturating_sub(1) };
        self.versions.len().checked_sub(1 + back)
    }

    fn fence(&self, bytes: &mut Bytes<'_>) -> Option<Fence> {
        if bytes.choose(8) == 0 {
            return Fence::try_from(bytes.i64()).ok();
        }
        self.choose(bytes).map(|version| self.versions[version].1)
    }

    fn learn(&mut self, what: &str, answers: [Result<Option<Lease>, StoreError>; 2]) {
        let shown = answers.each_ref().map(outcome);
        assert_eq!(shown[0], shown[1], "{what}: {answers:#?}");
        if let [Ok(Some(first)), Ok(Some(second))] = &answers {
            let both = [first.version(), second.version()];
            if self.versions.last().is_none_or(|(last, _)| *last != both) {
                self.versions.push((both, first.fence()));
            }
        }
    }
}

/// All of an answer that doesn't depend on the time.
fn outcome(answer: &Result<Option<Lease>, StoreError>) -> String {
    match answer {
        Ok(None) => "nothing".to_owned(),
        Ok(Some(lease)) => format!(
            "{} {} {:?} length {:?}, expired {}, released {}, timeline {:?}",
            lease.holder(),
            lease.fence(),
            lease.payload(),
            lease.length(),
            lease.is_expired(),
            lease.is_released(),
            lease.timeline()
        ),
        Err(error) => format!("an error, fatal {}, time-out {}", error.is_fatal(), error.is_timeout()),
    }
}
