//! A row that a machine finds after it was started again.

use std::time::Duration;

use tenure::{Bid, Elector, Renewal, SqliteStore, Store};

use crate::figures::figure;
use crate::fleet::LIMIT;
use crate::line::now;
use crate::place::Place;
use crate::profile::P6;

const LEASE: Duration = Duration::from_secs(3_600);

/// As after months of running: every time of the row lies far ahead of the new boot's clock.
fn reboot(place: &Place) {
    let sql = "UPDATE leader_election SET boot = '11111111-2222-3333-4444-555555555555',
               acquired_at = acquired_at + 10000000000000, renewed_at = renewed_at + 10000000000000,
               expires_at = iif(expires_at = 0, 0, expires_at + 10000000000000)";
    assert_eq!(place.connection().execute(sql, []).unwrap(), 1);
}

fn granted(store: &SqliteStore) -> tenure::Lease {
    store.acquire(&Bid::new("e", "before", LEASE), LIMIT).unwrap().expect("the first")
}

pub(crate) fn a_lease_of_an_earlier_boot_is_taken_over_at_once() {
    let place = Place::new();
    let before = granted(&place.store);
    reboot(&place);
    let begun = now();
    let config = P6.config("e").build().unwrap();
    let elector = Elector::start(place.another(), config).unwrap();
    let guard = elector.wait_for_leadership_timeout(LIMIT).unwrap();
    let took = now() - begun;
    assert_eq!(guard.fence().get(), before.fence().get() + 1);
    assert!(took < P6.lease / 2, "it was waited for: {took:?}");
    figure(format_args!("a lease of an hour from an earlier boot was taken over after {took:.1?}"));
    let row = place.store.observe("e", LIMIT).unwrap().into_lease().unwrap();
    assert!(row.held_by(elector.identity().as_str()) && row.ttl() <= P6.lease);
    guard.resign().unwrap();
    elector.shutdown(LIMIT).unwrap();
}

pub(crate) fn nothing_of_an_earlier_boot_can_be_renewed() {
    let place = Place::new();
    let before = granted(&place.store);
    let renewal = Renewal::new("e", "before", before.fence(), LEASE).payload(Some(b"here"));
    assert!(place.store.renew(&renewal, LIMIT).unwrap().is_some());
    reboot(&place);
    assert!(place.store.renew(&renewal, LIMIT).unwrap().is_none());
    let seen = |store: &SqliteStore| store.observe("e", LIMIT).unwrap().into_lease().unwrap();
    let found = seen(&place.store);
    assert!(found.is_expired() && !found.is_released() && found.length() == LEASE, "{found:?}");
    assert_eq!(found.payload(), Some(b"here".as_slice()));
    // Two look at the same state, and one of them takes it.
    assert_eq!(found.version(), seen(&place.another()).version());
    let bid = Bid::new("e", "after", LEASE).over(Some(found.version()));
    let taken = place.store.acquire(&bid, LIMIT).unwrap().expect("it is as it was seen");
    assert_eq!(taken.fence().get(), before.fence().get() + 1);
    assert!(place.another().acquire(&bid, LIMIT).unwrap().is_none());
    // A release is one in any boot.
    place.store.release("e", "after", taken.fence(), LIMIT).unwrap();
    reboot(&place);
    let released = seen(&place.store);
    assert!(released.is_released() && released.length().is_zero(), "{released:?}");
}
