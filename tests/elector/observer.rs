//! Who only watches.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use tenure::{CampaignError, Event, MemoryStore, Role, RunError, StoreError};

use crate::faulty::{Faulty, Kind, Mode};
use crate::util::*;

/// What the events tell of the leader: who, and with which payload.
fn told(events: &Receiver<Event>) -> Vec<String> {
    let payload = |leader: &tenure::Leader| {
        leader.payload.as_deref().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    };
    let tell = |event| match event {
        Event::Observed { leader, .. } => Some(format!("{} {}", leader.fence, payload(&leader))),
        Event::Published { leader, .. } => Some(format!("{} now {}", leader.fence, payload(&leader))),
        Event::Vacant { last, .. } => Some(format!("{} left", last.fence)),
        Event::CampaignStarted { .. } | Event::CampaignEnded { .. } => Some("campaigns".to_owned()),
        _ => None,
    };
    events.try_iter().filter_map(tell).collect()
}

#[track_caller]
fn expect(events: &Receiver<Event>, expected: &[&str]) {
    let mut all = Vec::new();
    eventually(&format!("{expected:?}"), || {
        all.extend(told(events));
        assert!(expected.iter().zip(&all).all(|(e, a)| e == a) && all.len() <= expected.len(), "{all:?}");
        all.len() == expected.len()
    });
}

#[test]
fn rule_14_an_observer_sees_leaders_come_and_go_and_writes_nothing() {
    let store = Faulty::new();
    let observer = start(&store, calm().observer(true));
    let events = observer.events();
    assert_eq!(observer.status().role, Role::Observer);
    eventually("a first look", || observer.status().observed_age.is_some());
    assert_eq!(observer.status().leader, None);

    let leader = start(store.memory(), calm().payload("here"));
    let guard = leader.wait_for_leadership().unwrap();
    expect(&events, &["1 here"]);
    assert_eq!(observer.status().leader.as_deref(), Some(leader.identity().as_str()));
    assert_eq!(observer.status().leader_payload.as_deref(), Some(&b"here"[..]));
    guard.publish("there").unwrap();
    expect(&events, &["1 now there"]);
    guard.resign().unwrap();
    expect(&events, &["1 left"]);
    assert_eq!(observer.status().leader, None);
    let looks = store.calls(Kind::Observe);
    eventually("more looks at a free lease", || store.calls(Kind::Observe) >= looks + 5);
    let guard = leader.wait_for_leadership().unwrap();
    expect(&events, &["2 here"]);
    drop(guard);
    expect(&events, &["2 left"]);

    for kind in [Kind::Acquire, Kind::Renew, Kind::Release] {
        assert_eq!(store.calls(kind), 0, "{kind:?}");
    }
    let status = observer.status();
    assert_eq!((status.role, status.terms, status.fence), (Role::Observer, 0, None));
    assert!(!observer.is_leader());
}

#[test]
fn an_observer_refuses_to_campaign_at_once_whatever_the_store_does() {
    let store = Faulty::new();
    store.set_all(&Mode::Hang);
    let observer = start(&store, calm().observer(true));
    let waiting = observer.clone();
    within(ms(5_000), move || {
        let refused = |error: CampaignError| assert!(matches!(error, CampaignError::Observer), "{error}");
        refused(waiting.wait_for_leadership().unwrap_err());
        refused(waiting.wait_for_leadership_timeout(BOUND).unwrap_err());
        let error = waiting.run(|_| unreachable!()).unwrap_err();
        assert!(matches!(error, RunError::Observer), "{error}");
    });
    store.set_all(&Mode::Pass);
}

#[test]
fn an_observer_rides_everything_out_and_says_so() {
    let store = Faulty::new();
    store.set_all(&Mode::Fail(StoreError::fatal("no table").with_sqlstate("42P01")));
    let observer = start(&store, calm().observer(true));
    eventually("failures", || observer.status().failures_by_kind.fatal >= 3);
    assert!(observer.status().last_error.is_some_and(|error| error.is_fatal()));
    assert_eq!(observer.status().observed_age, None);
    store.set_all(&Mode::Pass);
    eventually("an answer", || observer.status().last_error.is_none());
    assert!(observer.status().observed_age.is_some());
}

#[test]
fn an_observer_ends_with_its_last_handle_or_when_it_is_stopped() {
    let store = Arc::new(MemoryStore::new());
    let observer = start(&store, calm().observer(true));
    let events = observer.events();
    drop(observer.clone());
    eventually("a look", || observer.status().observed_age.is_some());
    drop(observer);
    eventually("the end of the threads", || Arc::strong_count(&store) == 1);
    assert!(told(&events).is_empty());

    let faulty = Faulty::new();
    let observer = start(&faulty, calm().observer(true));
    eventually("a look", || observer.status().observed_age.is_some());
    observer.stop();
    assert_eq!(observer.status().role, Role::Idle);
    within(BOUND, move || observer.shutdown(BOUND)).unwrap();
    let looks = faulty.calls(Kind::Observe);
    std::thread::sleep(ms(300));
    assert_eq!(faulty.calls(Kind::Observe), looks);
}
