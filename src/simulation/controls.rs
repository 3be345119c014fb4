//! Negative controls: each breaks one rule on purpose and shows that the world notices, and after how many
//! schedules. A proof that cannot fail proves nothing.
//!
//! What is broken is broken from outside: a store in between that does too much, settings that the configuration
//! refuses, two participants with one identity, a term or a driver that is wrong. Random schedules, the small worlds
//! and scripts each get their turn; the term itself is broken under `term::interleavings`, stores under the
//! acceptance suite.

#![allow(clippy::print_stdout, reason = "which layer noticed, and after how much, is a part of the result")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::config::Config;
use crate::election::{Election, Input, Settings};
use crate::lease::{Bid, Fence, Lease, LeaseTimes, Observation, Renewal};
use crate::store::{MemoryStore, Store, StoreError, acceptance};
use crate::term::LossCause;
use crate::time::Time;

use super::exhaustive::{Broken, Small, explore};
use super::faults::{self, Prepare};
use super::node::Link;
use super::options::{Family, Options};
use super::parts::LiveTerm;
use super::schedules::{leader_and_candidate, usual};
use super::world::{NAME, World};

const TWO: &str = "lead at the same instant";
/// As many seeds are tried at most.
const SEEDS: u64 = 2_000;

/// Runs random schedules of a family until one is broken in these words, and says how many that took.
fn red_after(
    what: &str,
    family: Option<Family>,
    noticed: &str,
    tweak: fn(&mut Options),
    prepare: Prepare<'_>,
) {
    let mut count = 0;
    for seed in 1..=SEEDS {
        let mut options = Options::draw(seed);
        if family.is_some_and(|family| family != options.family) {
            continue;
        }
        tweak(&mut options);
        count += 1;
        let outcome = faults::run(options, false, prepare);
        if let Some(violation) = outcome.violations.iter().find(|v| v.contains(noticed)) {
            let unbroken = faults::run(Options::draw(seed), false, &|_, _| {});
            assert!(unbroken.violations.is_empty(), "{what}: seed {seed} is red without it");
            println!("{what}: red in random schedule {count} (seed {seed}): {violation}");
            return;
        }
    }
    panic!("{what}: {count} random schedules noticed nothing");
}

/// Runs small worlds until one is broken in these words.
fn red_in_small(what: &str, small: &Small, noticed: &str, prepare: Prepare<'_>) {
    let sum = explore(small, prepare);
    let Some(Broken { number, violations, choices }) = sum.broken else {
        panic!("{what}: {} small worlds noticed nothing", sum.worlds)
    };
    assert!(violations.iter().any(|v| v.contains(noticed)), "{what}: {violations:?}");
    let choices = choices.deviations();
    println!("{what}: red in small world {number} ({}; {choices} choices): {}", small.name, violations[0]);
}

/// The acceptance suite's check must fail for such a store.
fn red_in_acceptance(what: &str, store: impl Store + Clone, check: &str) {
    let subject = Standing(Arc::new(store));
    let check = acceptance::checks().iter().find(|c| c.name() == check).unwrap();
    let failure = check.run(&subject).expect_err(what);
    println!("{what}: red in the acceptance suite's {}: {failure}", check.name());
}

#[derive(Debug)]
struct Standing(Arc<dyn Store>);

impl acceptance::Subject for Standing {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }
    fn hold(&self, _name: &str) -> Box<dyn std::any::Any> {
        unreachable!("the checks that are asked here hold no row")
    }
}

// ------------------------------------------------------------------------------------------ rule 2, the anchor

#[test]
fn rule_2_a_deadline_anchored_at_the_reply_turns_red() {
    let what = "a deadline anchored at the reply";
    let wrong = |world: &mut World, node: usize| world.nodes[node].parts.anchors_at_reply = true;
    red_after(what, None, TWO, |_| {}, &wrong);
    red_in_small(what, &Small::WATCHED, TWO, &wrong);
}

#[test]
fn rule_10_no_margin_turns_red_with_clocks_that_differ() {
    let what = "no safety margin";
    assert!(Config::builder(NAME).safety_margin(Duration::ZERO).build().is_err());
    red_after(what, None, TWO, |options| options.margin = Duration::ZERO, &|_, _| {});
    red_in_small(what, &Small { margin_ms: 0, ..Small::WATCHED }, TWO, &|_, _| {});
}

// ------------------------------------------------------------------------------------------- rules 4 to 6, terms

/// One word again, but nothing about it is what the rules ask for.
#[derive(Debug)]
struct WrongTerm {
    fence: Fence,
    deadline: AtomicU64,
    /// `check` believes the word alone; what ends it is a thread that has to be scheduled first.
    cached: bool,
}

impl LiveTerm for WrongTerm {
    fn fence(&self) -> Fence {
        self.fence
    }
    fn check(&self, now: Time) -> Result<Time, LossCause> {
        let deadline = Time::from_nanos(self.deadline.load(Ordering::Relaxed));
        if self.is_live_at(now) { Ok(deadline) } else { Err(LossCause::Resigned) }
    }
    fn is_live_at(&self, now: Time) -> bool {
        let deadline = self.deadline.load(Ordering::Relaxed);
        if self.cached { deadline != 0 } else { now.as_nanos() < deadline }
    }
    fn extend(&self, _now: Time, deadline: Time) -> Result<(), LossCause> {
        self.deadline.store(deadline.as_nanos(), Ordering::Relaxed);
        Ok(())
    }
    fn seal(&self, _now: Time, _cause: LossCause) -> Result<(), LossCause> {
        self.deadline.store(0, Ordering::Relaxed);
        Ok(())
    }
}

/// The holder ends the term while a renewal is under way; its thread hears of it after the answer.
fn sealed_during_a_renewal(prepare: Prepare<'_>) -> World {
    let mut world = World::new(1, true);
    let node = world.add(usual("leader"), Duration::from_secs(3));
    prepare(&mut world, node);
    world.campaign(node);
    assert!(world.run_until_leads(node, 1_000));
    world.link(node, Link::Slow(1_000));
    world.run_for(5_500);
    let (term, now) = (world.nodes[node].term.clone().unwrap(), world.local(node));
    term.seal(now, LossCause::Resigned).unwrap();
    world.work(node);
    world.run_for(1_000);
    world.work(node);
    world.input(node, Input::Resign { fence: term.fence(), release: true });
    world
}

#[test]
fn rule_5_an_extension_after_the_seal_turns_red() {
    assert!(sealed_during_a_renewal(&|_, _| {}).oracle.violations.is_empty());
    let world = sealed_during_a_renewal(&|world, node| {
        world.nodes[node].parts.term = |fence, deadline| {
            Arc::new(WrongTerm { fence, deadline: AtomicU64::new(deadline.as_nanos()), cached: false })
        };
    });
    let violations = &world.oracle.violations;
    assert!(violations.iter().any(|v| v.contains("is over, and then that it is live")), "{}", world.story());
    println!("an extension after the seal: red in schedule 1 (a script): {}", violations[0]);
}

#[test]
fn rule_6_a_term_that_a_blocked_thread_has_to_end_turns_red() {
    let what = "a check that waits for a thread";
    // The thread that would end the term stands still, as in a call that nothing interrupts.
    let wrong = |world: &mut World, node: usize| {
        world.nodes[node].parts.term = |fence, deadline| {
            Arc::new(WrongTerm { fence, deadline: AtomicU64::new(deadline.as_nanos()), cached: true })
        };
    };
    red_after(what, None, TWO, |_| {}, &wrong);
    red_in_small(what, &Small::WATCHED, TWO, &wrong);
}

// ------------------------------------------------------------------------------------------------ rule 8, stores

/// A store that does one thing too much.
#[derive(Clone)]
struct Wrong {
    inner: MemoryStore,
    fault: StoreFault,
    /// Whom it serves.
    holder: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreFault {
    /// An own row is taken again with the fence that it has.
    KeepsFence,
    /// A bid succeeds whatever it names.
    NamesNothing,
    /// A participant's own row is taken for its own whatever the timeline.
    ExemptsOwnRows,
}

impl fmt::Debug for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrong").field("fault", &self.fault).finish_non_exhaustive()
    }
}

impl Wrong {
    /// Hides a changed timeline where the row is the holder's own.
    fn shown(&self, lease: Lease) -> Lease {
        let own = self.fault == StoreFault::ExemptsOwnRows && lease.held_by(&self.holder);
        if own { lease.with_timeline(Some(1)) } else { lease }
    }
}

impl Store for Wrong {
    fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        let seen = self.inner.observe(bid.name, timeout)?;
        let own = seen.lease().filter(|l| l.held_by(bid.holder));
        let mut bid = bid.clone();
        match self.fault {
            StoreFault::KeepsFence => {
                if let Some(own) = own.filter(|own| bid.over.as_ref() == Some(&own.version())) {
                    let answer = self.inner.acquire(&bid, timeout)?;
                    return Ok(answer.map(|lease| kept(&lease, own.fence())));
                }
            }
            StoreFault::NamesNothing => {
                bid = bid.over(seen.lease().map(Lease::version)).timeline(seen.timeline());
            }
            StoreFault::ExemptsOwnRows => {
                if own.is_some() {
                    bid = bid.timeline(seen.timeline());
                }
            }
        }
        Ok(self.inner.acquire(&bid, timeout)?.map(|lease| self.shown(lease)))
    }

    fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        Ok(self.inner.renew(renewal, timeout)?.map(|lease| self.shown(lease)))
    }

    fn release(&self, name: &str, holder: &str, fence: Fence, timeout: Duration) -> Result<(), StoreError> {
        self.inner.release(name, holder, fence, timeout)
    }

    fn observe(&self, name: &str, timeout: Duration) -> Result<Observation, StoreError> {
        let seen = self.inner.observe(name, timeout)?;
        let timeline = seen.timeline();
        Ok(match seen.into_lease() {
            Some(lease) => Observation::of(self.shown(lease)),
            None => Observation::vacant(timeline),
        })
    }
}

/// The lease, with another fence in the answer.
fn kept(lease: &Lease, fence: Fence) -> Lease {
    let times = LeaseTimes {
        acquired_at: lease.acquired_at(),
        renewed_at: lease.renewed_at(),
        expires_at: lease.expires_at(),
        now: lease.now(),
    };
    Lease::new(lease.name(), lease.holder(), fence, times)
        .with_mark(lease.version().mark())
        .with_timeline(lease.timeline())
}

fn behind(fault: StoreFault) -> impl Fn(&mut World, usize) {
    move |world, node| {
        let holder = world.nodes[node].settings.settings.identity.clone();
        let inner = world.store.clone();
        world.nodes[node].parts.store = Some(Arc::new(Wrong { inner, fault, holder }));
    }
}

fn wrong_store(fault: StoreFault) -> Wrong {
    Wrong { inner: MemoryStore::new(), fault, holder: String::new() }
}

#[test]
fn rule_8_a_fence_kept_for_a_second_term_turns_red() {
    let what = "a fence kept when a term given up is taken again";
    // The machine does not lead with a fence that it has seen, so it is nobody that leads.
    let wrong = behind(StoreFault::KeepsFence);
    red_after(what, None, "nobody leads", |_| {}, &wrong);
    red_in_small(what, &Small { participants: 1, ..Small::WATCHED }, "nobody leads", &wrong);
    red_in_acceptance(what, wrong_store(StoreFault::KeepsFence), "over_ones_own_version_is_a_new_term");
}

#[test]
fn rule_8_a_bid_that_names_no_version_turns_red() {
    let what = "a bid that names no version";
    let wrong = behind(StoreFault::NamesNothing);
    red_after(what, None, TWO, |_| {}, &wrong);
    red_in_small(what, &Small::START, TWO, &wrong);
    red_in_acceptance(
        what,
        wrong_store(StoreFault::NamesNothing),
        "take_over_is_refused_over_another_version",
    );
}

// ------------------------------------------------------------------------------------ rules 10, 11 and 15, waits

#[test]
fn rule_10_a_take_over_by_the_databases_clock_alone_turns_red() {
    let what = "the database's clock alone decides";
    let wrong = |world: &mut World, node: usize| world.nodes[node].parts.forgets = true;
    red_after(what, Some(Family::Clocks), TWO, |_| {}, &wrong);
    red_in_small(what, &Small::WATCHED, TWO, &wrong);
    // The script of the first schedule: a leader cut off, and one step forward.
    let (mut world, leader, candidate) = leader_and_candidate(1);
    wrong(&mut world, candidate);
    world.link(leader, Link::Cut);
    world.step_clock(60_000);
    world.run_for(20_000);
    assert!(world.oracle.violations.iter().any(|v| v.contains(TWO)), "{}", world.story());
    println!("{what}: red in schedule 1 (a script)");
}

/// Schedule 4: the first's term ends, another's begins, the fail-over loses that.
fn fail_over_to_an_own_row(prepare: Prepare<'_>) -> World {
    let mut world = World::new(4, true);
    world.store.set_timeline(Some(1));
    let first = world.add(usual("first"), Duration::from_secs(3));
    let other = world.add(usual("other"), Duration::from_secs(3));
    prepare(&mut world, first);
    world.campaign(first);
    assert!(world.run_until_leads(first, 1_000));
    world.campaign(other);
    world.run_for(7_000);
    let replicated = world.store.snapshot(NAME);
    world.link(first, Link::Cut);
    assert!(world.run_until_leads(other, 40_000));
    world.store.promote(2, &[replicated]);
    world.link(other, Link::Cut);
    world.link(first, Link::Up);
    assert!(world.run_until_leads(first, 30_000), "{}", world.story());
    world
}

#[test]
fn rule_15_own_rows_exempted_in_a_fail_over_turn_red() {
    let what = "own rows exempted in a fail-over";
    assert!(fail_over_to_an_own_row(&|_, _| {}).oracle.violations.is_empty());
    let wrong = behind(StoreFault::ExemptsOwnRows);
    let world = fail_over_to_an_own_row(&wrong);
    assert!(world.oracle.violations.iter().any(|v| v.contains(TWO)), "{}", world.story());
    println!("{what}: red in schedule 1 (a script): {}", world.oracle.violations[0]);
    // Who delays or gives up is rarely the next to take its own row again.
    let at_once = |options: &mut Options| {
        options.takeover_delay = Duration::ZERO;
        options.asks_anew = false;
    };
    red_after(what, Some(Family::Records), TWO, at_once, &wrong);
    red_in_small(what, &Small::RECORD, TWO, &wrong);
}

/// Everybody is called the same.
fn one_identity(world: &mut World, node: usize) {
    let settings = Settings { identity: "host".to_owned(), ..(*world.nodes[node].settings.settings).clone() };
    world.nodes[node].election = Election::new(settings.clone());
    world.nodes[node].settings.settings = Arc::new(settings);
}

#[test]
fn rule_11_an_identity_used_twice_turns_red() {
    let what = "an identity used twice";
    red_after(what, None, TWO, |_| {}, &one_identity);
    red_in_small(what, &Small::START, TWO, &one_identity);
}

/// Its machine has not been told that it only watches.
fn watches_and_bids(world: &mut World, node: usize) {
    if world.observes(node) {
        let settings = (*world.nodes[node].settings.settings).clone();
        world.nodes[node].election = Election::new(Settings { observer: false, ..settings });
    }
}

#[test]
fn rule_14_an_observer_that_bids_turns_red() {
    red_after("an observer that bids", None, "only watches", |_| {}, &watches_and_bids);
}
