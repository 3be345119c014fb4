//! Work that does not end when it should: it winds down slowly, panics, returns early, or blocks in every callback.
//! The leader is an elector of this process, its rival a node.

use std::sync::Arc;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure::{Callbacks, Elector, Lost, PostgresStore, RunError, ShutdownError, Store, Term};
use tenure_testground::{Mode, Proxy, await_until};

use crate::figures::figure;
use crate::fleet::{Fleet, Ground, LIMIT, Led, Way};
use crate::history::{self, AtLeast, Story};
use crate::line::{Line, Stamp, now};
use crate::node::Options;
use crate::profile::{P3, P6, Profile, SLACK};
use crate::rows::{self, Takeover, takeover};
use crate::stillness::promised;

/// What work takes to wind down, as it was met in the field: longer than any lease here.
const WIND_DOWN: Duration = Duration::from_secs(8);

type Lines = Arc<Mutex<Vec<Line>>>;
type Body = dyn Fn(&Elector, &Lines, &Term) + Send + Sync;

/// A leader in this process, whose callbacks write down what a node says.
struct Leader {
    elector: Elector,
    lines: Lines,
    run: JoinHandle<Result<(), RunError>>,
}

struct Work {
    elector: Elector,
    lines: Lines,
    body: Box<Body>,
}

impl Callbacks for Work {
    fn started_leading(&self, term: Term) {
        self.lines.lock().push(Line::Lead { at: now(), fence: term.fence().get() });
        (self.body)(&self.elector, &self.lines, &term);
    }

    fn stopped_leading(&self, lost: Lost) {
        tell_lost(&self.lines, &lost);
        self.lines.lock().push(Line::Stopped { at: now(), fence: lost.fence.get() });
    }
}

/// Says so once for each term, whoever notices first.
fn tell_lost(lines: &Lines, lost: &Lost) {
    let mut lines = lines.lock();
    let known = |line: &Line| matches!(line, Line::Lost { fence, .. } if *fence == lost.fence.get());
    if !lines.iter().any(known) {
        lines.push(Line::Lost { at: now(), fence: lost.fence.get(), cause: lost.cause.to_string() });
    }
}

/// Checks the term again and again until it is lost, or for `length`.
fn check(lines: &Lines, term: &Term, length: Duration) {
    let (fence, begun) = (term.fence().get(), now());
    let mut certain: Option<(Stamp, Stamp)> = None;
    while now() - begun < length {
        let from = now();
        match term.check() {
            Ok(_) => certain = Some((certain.map_or(now(), |(since, _)| since), from)),
            Err(lost) => {
                if let Some((from, to)) = certain {
                    lines.lock().push(Line::Held { fence, from, to: to.max(from) });
                }
                return tell_lost(lines, &lost);
            }
        }
        sleep(Duration::from_millis(3));
    }
    if let Some((from, to)) = certain {
        lines.lock().push(Line::Held { fence, from, to: to.max(from) });
    }
}

impl Leader {
    fn start(
        store: impl Store,
        profile: Profile,
        body: impl Fn(&Elector, &Lines, &Term) + Send + Sync + 'static,
    ) -> Leader {
        let config = profile.config("e").label("a").build().expect("a usable profile");
        let elector = Elector::start(store, config).expect("two threads");
        let lines: Lines = Arc::default();
        let work = Work { elector: elector.clone(), lines: lines.clone(), body: Box::new(body) };
        let running = elector.clone();
        let leader = Leader { run: spawn(move || running.run(work)), elector, lines };
        await_until(LIMIT, "the first one leads", || leader.elector.is_leader());
        leader
    }

    /// When something was said for the first time.
    fn when(&self, wanted: impl Fn(&Line) -> bool) -> Option<Stamp> {
        self.lines.lock().iter().find(|line| wanted(line)).map(|line| match line {
            Line::Lead { at, .. } | Line::Lost { at, .. } | Line::Stopped { at, .. } => *at,
            line => panic!("{line} has no stamp"),
        })
    }

    fn await_when(&self, what: &str, within: Duration, wanted: impl Fn(&Line) -> bool) -> Stamp {
        await_until(within, what, || self.when(&wanted).is_some());
        self.when(&wanted).expect("just seen")
    }

    /// Ends both sides, and holds what they said and the row's own history against the promise.
    #[track_caller]
    fn verify(self, mut fleet: Fleet, ground: &Ground<'_>, profile: Profile, terms: usize) {
        self.elector.stop();
        await_until(LIMIT, "run returns", || self.run.is_finished());
        fleet.finish();
        self.lines.lock().push(Line::Exit { at: now() });
        let mine = Story { label: "a".to_owned(), lines: self.lines.lock().clone(), cut_off: false };
        let stories: Vec<Story> =
            fleet.nodes.iter().map(|node| node.story.clone()).chain(std::iter::once(mine)).collect();
        let faults = history::faults(&stories, AtLeast { terms, held: Duration::from_millis(100) });
        promised!(faults.is_empty(), "{faults:#?}\n{stories:#?}");
        let rows = ground.rows();
        let faults = rows::faults(&rows, profile.lease);
        promised!(faults.is_empty(), "{faults:#?}\n{rows:#?}");
    }
}

fn store(dsn: &str) -> PostgresStore {
    PostgresStore::connect(dsn).expect("a usable DSN")
}

/// The rival, started and waiting.
fn rival(ground: &Ground<'_>, profile: Profile) -> Fleet {
    let mut fleet = Fleet::new();
    let node = fleet.start(&Options { profile, ..ground.options("b") });
    fleet.await_story(LIMIT, "the rival has started", |fleet| fleet.identity(node).map(drop));
    // It has looked, and knows the leader's rhythm.
    sleep(profile.renew * 3);
    fleet.read();
    assert_eq!(fleet.leads(), [], "the leader is not alone");
    fleet
}

#[track_caller]
fn rival_leads(fleet: &mut Fleet, within: Duration) -> Led {
    fleet.await_lead(within, "the rival leads", |_| true)
}

/// Leads until the term is lost, and winds down for a long time, during which no check may succeed. When it was
/// through stands in `ended`.
fn slow(ended: &Arc<Mutex<Option<Stamp>>>) -> impl Fn(&Elector, &Lines, &Term) + Send + Sync + 'static {
    let ended = ended.clone();
    move |_, lines, term| {
        check(lines, term, Duration::MAX);
        let begun = now();
        while now() - begun < WIND_DOWN {
            promised!(term.check().is_err(), "a term came back");
            sleep(Duration::from_millis(3));
        }
        ended.lock().get_or_insert(now());
    }
}

pub(crate) fn b10_a_shutdown_with_enough_grace_renews_until_the_work_has_ended() {
    let ground = Ground::shared(Way::Direct);
    let ended = Arc::new(Mutex::new(None));
    let leader = Leader::start(store(&ground.dsn()), P3, slow(&ended));
    let mut fleet = rival(&ground, P3);
    let asked = now();
    leader.elector.clone().shutdown(Duration::from_secs(20)).expect("the work ends within the grace");
    let ended = ended.lock().expect("the work has ended before the shutdown returned");
    assert!(ended - asked >= WIND_DOWN);
    let next = rival_leads(&mut fleet, P3.hand());
    promised!(next.at >= ended, "somebody led while the work went on");
    let rows = ground.rows();
    let Takeover::AfterRelease(gap) = takeover(&rows, next.fence) else { panic!("not released: {rows:#?}") };
    let released = rows.iter().find(|row| row.is_released()).map(|row| rows::stamp(row.at));
    promised!(released.expect("it was") + rows::TOLERANCE >= ended, "released too early");
    let winding_down = rows.iter().filter(|row| rows::stamp(row.renewed) > asked && row.fence == 1).count();
    let rhythm = WIND_DOWN.as_millis() / P3.renew.as_millis();
    assert!(winding_down as u128 >= rhythm / 2, "{winding_down} renewals while the work wound down");
    figure(format_args!(
        "B10: 8 s of winding down within the grace: {winding_down} renewals, then the next one leads {gap:.1?} after the release"
    ));
    leader.verify(fleet, &ground, P3, 2);
}

pub(crate) fn b10_a_shutdown_past_its_grace_leaves_the_lease_to_expire() {
    let ground = Ground::shared(Way::Direct);
    let ended = Arc::new(Mutex::new(None));
    let leader = Leader::start(store(&ground.dsn()), P3, slow(&ended));
    let mut fleet = rival(&ground, P3);
    let asked = Instant::now();
    let error = leader.elector.clone().shutdown(Duration::from_secs(1)).expect_err("the work goes on");
    let took = asked.elapsed();
    assert!(matches!(error, ShutdownError::WorkStillRunning), "{error}");
    assert!(error.to_string().contains("still running"), "{error}");
    assert!(took <= Duration::from_millis(1_500), "{took:?}");
    let next = rival_leads(&mut fleet, P3.take());
    let taken = takeover(&ground.rows(), next.fence);
    promised!(matches!(taken, Takeover::AfterExpiry(_)), "released under running work: {taken:?}");
    assert!(ended.lock().is_none(), "the work was to outlast the lease");
    figure(format_args!("B10: shutdown past its grace of 1 s: returned after {took:.1?}, then {taken:.1?}"));
    await_until(LIMIT, "the work ends", || ended.lock().is_some());
    leader.verify(fleet, &ground, P3, 2);
}

pub(crate) fn b10_a_partition_cancels_the_work_in_time_and_shows_its_overrun() {
    let ground = Ground::shared(Way::Direct);
    let proxy = Proxy::to(ground.addr());
    let ended = Arc::new(Mutex::new(None));
    let dsn = ground.database.dsn_through(proxy.port());
    let leader = Leader::start(store(&dsn), P3, slow(&ended));
    let mut fleet = rival(&ground, P3);
    proxy.set(Mode::BlackHole);
    let cut = now();
    let lost = leader.await_when("the work hears of it", P3.step(), |line| matches!(line, Line::Lost { .. }));
    let next = rival_leads(&mut fleet, P3.take());
    assert_eq!(next.fence, 2);
    let status = leader.elector.status();
    assert!(status.overrun.is_some_and(|overrun| overrun > Duration::ZERO), "{status:?}");
    assert!(ended.lock().is_none(), "the work was to outlast the lease");
    let stopped = |line: &Line| matches!(line, Line::Stopped { .. });
    let stopped = leader.await_when("the end is told", WIND_DOWN + LIMIT, stopped);
    assert!(stopped >= ended.lock().expect("it has ended"), "told before the work had ended");
    figure(format_args!(
        "B10: partition: cancelled after {:.1?}, stopped after {:.1?}",
        lost - cut,
        stopped - cut
    ));
    proxy.set(Mode::Pass);
    leader.verify(fleet, &ground, P3, 2);
}

pub(crate) fn b12_work_that_panics_hands_over_and_says_why() {
    let ground = Ground::shared(Way::Direct);
    let leader = Leader::start(store(&ground.dsn()), P6, |_, lines, term| {
        check(lines, term, P6.renew * 3 + Duration::from_secs(1));
        panic!("no more disk");
    });
    let mut fleet = rival(&ground, P6);
    let next = rival_leads(&mut fleet, P6.renew + P6.hand() + Duration::from_secs(1));
    assert_eq!(next.fence, 2);
    let taken = takeover(&ground.rows(), 2);
    assert!(matches!(taken, Takeover::AfterRelease(gap) if gap <= P6.hand()), "{taken:?}");
    await_until(LIMIT, "run returns", || leader.run.is_finished());
    assert!(!leader.elector.is_leader());
    let Leader { elector, lines, run } = leader;
    let outcome = run.join().expect("the panic stays in its thread");
    assert_eq!(outcome.expect_err("a panic").to_string(), "started_leading panicked: no more disk");
    figure(format_args!("B12: work panicked: {taken:.1?}"));
    Leader { elector, lines, run: spawn(|| Ok(())) }.verify(fleet, &ground, P6, 2);
}

pub(crate) fn b12_work_that_returns_hands_over() {
    let ground = Ground::shared(Way::Direct);
    let returned = Arc::new(Mutex::new(None));
    let when = returned.clone();
    let leader = Leader::start(store(&ground.dsn()), P6, move |_, lines, term| {
        let first = term.fence().get() == 1;
        check(lines, term, if first { P6.renew * 3 + Duration::from_secs(1) } else { Duration::MAX });
        when.lock().get_or_insert(now());
    });
    let mut fleet = rival(&ground, P6);
    let next = rival_leads(&mut fleet, P6.renew + P6.hand() + Duration::from_secs(1));
    let rows = ground.rows();
    let taken = takeover(&rows, next.fence);
    assert!(matches!(taken, Takeover::AfterRelease(gap) if gap <= P6.hand()), "{taken:?}");
    let released = rows.iter().find(|row| row.is_released()).map(|row| rows::stamp(row.at)).expect("it was");
    let took = released.saturating_sub(returned.lock().expect("it has returned"));
    assert!(took <= Duration::from_millis(500) + SLACK, "{took:?}");
    figure(format_args!("B12: work returned: released after {took:.1?}, {taken:.1?}"));
    leader.verify(fleet, &ground, P6, 2);
}

/// A store whose third renewal panics.
#[derive(Debug)]
struct Breaks(PostgresStore, Mutex<(u32, Option<Stamp>)>);

impl Store for Breaks {
    fn acquire(
        &self,
        bid: &tenure::Bid<'_>,
        timeout: Duration,
    ) -> Result<Option<tenure::Lease>, tenure::StoreError> {
        self.0.acquire(bid, timeout)
    }

    fn renew(
        &self,
        renewal: &tenure::Renewal<'_>,
        timeout: Duration,
    ) -> Result<Option<tenure::Lease>, tenure::StoreError> {
        let third = {
            let mut calls = self.1.lock();
            calls.0 += 1;
            if calls.0 == 3 {
                calls.1 = Some(now());
            }
            calls.0 == 3
        };
        assert!(!third, "the third renewal");
        self.0.renew(renewal, timeout)
    }

    fn release(
        &self,
        name: &str,
        holder: &str,
        fence: tenure::Fence,
        timeout: Duration,
    ) -> Result<(), tenure::StoreError> {
        self.0.release(name, holder, fence, timeout)
    }

    fn observe(&self, name: &str, timeout: Duration) -> Result<tenure::Observation, tenure::StoreError> {
        self.0.observe(name, timeout)
    }
}

pub(crate) fn b12_a_store_that_panics_in_a_renewal_costs_the_term_and_no_more() {
    let ground = Ground::shared(Way::Direct);
    let breaks = Arc::new(Breaks(store(&ground.dsn()), Mutex::new((0, None))));
    let seen: Arc<Mutex<Option<String>>> = Arc::default();
    let error = seen.clone();
    let leader = Leader::start(breaks.clone(), P6, move |elector, lines, term| {
        check(lines, term, Duration::MAX);
        let last = elector.status().last_error;
        error.lock().get_or_insert_with(|| last.map(|error| error.to_string()).unwrap_or_default());
        // It would lead again at once, since the lease is its own; this one gives up.
        elector.stop();
    });
    let mut fleet = Fleet::new();
    fleet.start(&Options { profile: P6, ..ground.options("b") });
    let lost = leader.await_when("the term is lost", LIMIT, |line| matches!(line, Line::Lost { .. }));
    let panicked = breaks.1.lock().1.expect("it has panicked");
    assert!(lost.saturating_sub(panicked) <= P6.step(), "{:?}", lost.saturating_sub(panicked));
    let next = fleet.await_lead(P6.take(), "the rival leads", |_| true);
    assert_eq!(next.fence, 2);
    assert!(next.at.saturating_sub(panicked) <= P6.take(), "{:?}", next.at.saturating_sub(panicked));
    let seen = seen.lock().clone().expect("the work has ended");
    assert_eq!(seen, "the store panicked: the third renewal");
    figure(format_args!("B12: renewal panicked: lost {:.1?} after it", lost.saturating_sub(panicked)));
    leader.verify(fleet, &ground, P6, 2);
}
