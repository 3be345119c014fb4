//! Many on one file.

use std::time::Duration;

use tenure::{Config, Elector};
use tenure_testground::Process;

use crate::child;
use crate::figures::figure;
use crate::fleet::{Fleet, LIMIT};
use crate::line::now;
use crate::node::Options;
use crate::place::{Place, in_full};
use crate::profile::P3;
use crate::stillness::BROKEN;

/// A term as its holder saw it.
#[derive(Clone, Copy, Debug)]
struct Term {
    fence: i64,
    from: Duration,
    to: Duration,
}

fn parse(text: &str) -> Term {
    let mut numbers = text.split(' ').map(|number| number.parse::<u64>().expect("numbers"));
    let mut next = || numbers.next().expect("three of them");
    let fence = i64::try_from(next()).expect("a fence");
    Term { fence, from: Duration::from_nanos(next()), to: Duration::from_nanos(next()) }
}

pub(crate) fn many_processes_and_thousands_of_terms() {
    let (processes, each) = if in_full() { (20, 1_000) } else { (8, 60) };
    let place = Place::new();
    let begun = now();
    let mut children: Vec<Process> =
        (0..processes).map(|_| child::start_for_terms(each, place.path())).collect();
    let mut terms: Vec<Term> = Vec::new();
    for child in &mut children {
        let mut own = Vec::new();
        while let Some(word) = child::word(child) {
            own.push(parse(&word));
        }
        assert_eq!(own.len(), each, "a term ended by itself");
        assert!(child.wait(LIMIT).success());
        terms.extend(own);
    }
    let took = now() - begun;
    terms.sort_by_key(|term| term.from);
    assert_eq!(terms.len(), processes * each);
    for pair in terms.windows(2) {
        assert!(pair[0].to <= pair[1].from, "{BROKEN}: two leaders: {pair:?}");
        assert!(pair[0].fence < pair[1].fence, "{BROKEN}: fences do not rise: {pair:?}");
    }
    figure(format_args!(
        "{processes} processes, {} terms in {took:.1?}, fences to {}",
        terms.len(),
        terms[terms.len() - 1].fence
    ));
}

pub(crate) fn the_acceptance_suite_from_several_processes_at_once() {
    let place = Place::new();
    let mut children: Vec<Process> = (0..3).map(|_| child::start("suite", place.path())).collect();
    for child in &mut children {
        assert_eq!(child::word(child).as_deref(), Some("passed"));
        assert!(child.wait(LIMIT).success());
    }
}

pub(crate) fn twenty_processes_create_the_file_and_elect_one() {
    let place = Place::empty();
    let mut fleet = Fleet::new();
    for n in 0..20 {
        fleet.start(&Options { schema: true, ..place.options(&format!("n{n}")) });
    }
    fleet.await_story(LIMIT, "all have started", |fleet| {
        (0..20).all(|node| fleet.identity(node).is_some()).then_some(())
    });
    let first = fleet.await_lead(LIMIT, "one leads", |_| true);
    fleet.await_held(&first, P3.lease);
    assert_eq!((first.fence, fleet.leads().len()), (1, 1), "{}", fleet.told());
    // All at once, on two cores: what they give back is taken up by others that end as well.
    fleet.finish();
    fleet.judge(1);
}

pub(crate) fn electors_of_one_process_share_a_store() {
    let place = Place::new();
    let config = |name: &str| {
        let config = Config::builder(name).lease_duration(Duration::from_secs(6));
        config
            .renew_interval(Duration::from_millis(200))
            .operation_timeout(Duration::from_secs(2))
            .build()
            .unwrap()
    };
    let electors: Vec<Elector> =
        (0..10).map(|n| Elector::start(place.store.clone(), config(&format!("e{n}"))).unwrap()).collect();
    let guards: Vec<_> = electors.iter().map(|elector| elector.wait_for_leadership().unwrap()).collect();
    let begun = now();
    while now() - begun < Duration::from_secs(8) {
        for guard in &guards {
            assert_eq!(guard.check().unwrap().get(), 1);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(guards);
    for elector in electors {
        elector.shutdown(LIMIT).unwrap();
    }
}
