//! A fleet of which each node has a path of its own, and what every scenario wants to know of it.

use std::time::Duration;

use tenure::LossCause;
use tenure_testground::{Counters, Mode, Proxy, await_until};

use crate::fleet::line::{Line, Stamp, now};
use crate::fleet::node::Options;
use crate::fleet::profile::{P3, Profile, SLACK};
use crate::fleet::rows::{Row, Takeover, takeover};
use crate::fleet::stillness::promised;
use crate::fleet::{Fleet, Ground, LIMIT, Led, rows};
use crate::report::{Report, Timing};

/// Three nodes, unless a scenario wants more.
const NODES: usize = 3;

/// Round trips of a node that has connected and has had at least one answer.
pub(crate) const LOOKED: u64 = 6;

/// The row's own history says that this term began after the expiry of the one before, and soon: nobody has begun to
/// wait anew.
#[track_caller]
pub(crate) fn taken_after_the_expiry(rows: &[Row], led: &Led, retry: Duration) {
    let taken = takeover(rows, led.fence);
    let soon = retry + SLACK;
    assert!(matches!(taken, Takeover::AfterExpiry(gap) if gap <= soon), "{taken:?}: {rows:#?}");
}

pub(crate) struct Stage<'a> {
    pub(crate) ground: Ground<'a>,
    pub(crate) fleet: Fleet,
    /// The path of the node with the same number.
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) profile: Profile,
    /// The first term.
    pub(crate) first: Led,
    report: Report,
    /// Threads and descriptors of each of the first nodes.
    before: Vec<(usize, usize)>,
}

/// The servers have no TLS, and asking them for it takes one more trip, which some of the paths are too long for.
fn dsn(ground: &Ground<'_>, path: &Proxy) -> String {
    format!("{}?sslmode=disable", ground.database.dsn_through(path.port()))
}

impl<'a> Stage<'a> {
    /// Three nodes with three seconds of lease; node 0 leads.
    #[track_caller]
    pub(crate) fn set(ground: Ground<'a>) -> Stage<'a> {
        Stage::set_with(ground, P3, NODES, |_, _| ())
    }

    /// `change` gets the number of each node and what it is to be started with. The first node leads before the
    /// others are there; all have started, know who leads and have their connections, and the leader has renewed when
    /// this returns.
    #[track_caller]
    pub(crate) fn set_with(
        ground: Ground<'a>,
        profile: Profile,
        nodes: usize,
        change: impl Fn(usize, &mut Options),
    ) -> Stage<'a> {
        let proxies: Vec<Proxy> = (0..nodes).map(|_| Proxy::to(ground.addr())).collect();
        let options = |n: usize| {
            let dsn = dsn(&ground, &proxies[n]);
            let mut options = Options { dsn, profile, ..ground.options(&format!("n{n}")) };
            change(n, &mut options);
            options
        };
        let options: Vec<Options> = (0..nodes).map(options).collect();
        let mut fleet = Fleet::new();
        let first = fleet.start_leader(&options[0]);
        for options in &options[1..] {
            fleet.start(options);
        }
        fleet.await_story(LIMIT, "all have started", |fleet| {
            (0..nodes).all(|node| fleet.identity(node).is_some()).then_some(())
        });
        fleet.await_held(&first, profile.renew * 3);
        await_until(LIMIT, "everybody who is on its path has looked", || {
            let looked = |proxy: &Proxy| proxy.snapshot().round_trips >= LOOKED;
            let on_it = |n: usize| options[n].dsn.contains(&format!(":{}", proxies[n].port()));
            proxies.iter().enumerate().all(|(n, proxy)| looked(proxy) || !on_it(n))
        });
        let before = (0..nodes).map(|node| fleet.counts(node)).collect();
        Stage { ground, fleet, proxies, profile, first, report: Report::default(), before }
    }

    /// Starts one more node, on the path of its own that it gets.
    pub(crate) fn join(&mut self, label: &str) -> usize {
        self.join_with(label, |_| ())
    }

    /// `change` gets what the node is to be started with.
    pub(crate) fn join_with(&mut self, label: &str, change: impl FnOnce(&mut Options)) -> usize {
        let proxy = Proxy::to(self.ground.addr());
        let dsn = dsn(&self.ground, &proxy);
        self.proxies.push(proxy);
        let profile = self.profile;
        let mut options = Options { dsn, profile, ..self.ground.options(label) };
        change(&mut options);
        self.fleet.start(&options)
    }

    /// Every candidate has looked once more after this was called.
    #[track_caller]
    pub(crate) fn candidates_look(&self, leader: usize) {
        // The first answer may be to a question from before, and may be under way.
        let enough: Vec<u64> = (0..self.proxies.len()).map(|n| self.answers(n) + 3).collect();
        await_until(LIMIT, "every candidate has looked", || {
            self.fleet.running().iter().all(|n| *n == leader || self.answers(*n) >= enough[*n])
        });
    }

    fn answers(&self, node: usize) -> u64 {
        self.proxies[node].snapshot().round_trips
    }

    /// Every path at once.
    pub(crate) fn set_all(&self, mode: Mode) {
        self.proxies.iter().for_each(|proxy| proxy.set(mode));
    }

    /// The leader's own clock ends its term, in time, after its path (or what is behind it) went at `cut`.
    #[track_caller]
    pub(crate) fn steps_down(&mut self, led: &Led, cut: Stamp) {
        let took = self.fleet.stepped_down(led, cut, self.profile);
        self.stepped_down(took, self.profile.step() - SLACK);
    }

    #[track_caller]
    fn stepped_down(&mut self, took: Duration, bound: Duration) {
        assert!(took <= bound + SLACK, "{took:?} of {bound:?}\n{}", self.fleet.told());
        self.report.step_downs.push(Timing { took, bound });
    }

    /// The row is not any more what the leader wrote: its next renewal is refused, which ends the term at once, and
    /// not at the deadline.
    #[track_caller]
    pub(crate) fn is_refused(&mut self, led: &Led, since: Stamp) {
        let bound = self.profile.renew + self.profile.op + Duration::from_millis(250);
        let lost = self.fleet.await_lost(bound + SLACK, led.fence);
        let refused = self.fleet.lines().any(|(_, line)| match line {
            Line::Lost { fence, cause, .. } => {
                *fence == led.fence && *cause == LossCause::Superseded.to_string()
            }
            _ => false,
        });
        assert!(refused, "{}", self.fleet.told());
        self.stepped_down(lost.saturating_sub(since), bound);
    }

    /// Nobody has been able to renew since `cut`, until `lift` has ended that: the leader steps down, nobody leads
    /// for a lease, and afterwards somebody leads again, and steadily.
    #[track_caller]
    pub(crate) fn outage(&mut self, led: &Led, cut: Stamp, lift: impl FnOnce(&Self)) -> Led {
        let over = cut + self.profile.lease + self.profile.retry * 2;
        self.outage_until(over, led, cut, lift)
    }

    /// The same, where `lift` has to wait until `over`.
    #[track_caller]
    pub(crate) fn outage_until(
        &mut self,
        over: Stamp,
        led: &Led,
        cut: Stamp,
        lift: impl FnOnce(&Self),
    ) -> Led {
        self.steps_down(led, cut);
        self.nobody_leads_for(led, over.saturating_sub(now()));
        let lifting = now();
        lift(self);
        let lifted = now();
        let next = self.leads_again(led, lifted, self.profile.take() - SLACK);
        self.not_before(&next, lifting);
        self.goes_on(&next);
        self.calms(lifted);
        next
    }

    /// The term ends within `bound` of `since`, long before its deadline, since the leader's clock leaps.
    #[track_caller]
    pub(crate) fn is_lost(&mut self, led: &Led, since: Stamp, bound: Duration) {
        let took = self.fleet.await_lost(bound + SLACK, led.fence).saturating_sub(since);
        self.stepped_down(took, bound);
    }

    /// A term that can't have begun before `lifting`, when what kept everybody from leading began to end.
    #[track_caller]
    pub(crate) fn not_before(&self, next: &Led, lifting: Stamp) {
        promised!(next.at >= lifting, "{:?} too early\n{}", lifting - next.at, self.fleet.told());
    }

    /// Nobody could have seen before `since` what has to be waited out from then on, for a whole lease.
    #[track_caller]
    pub(crate) fn is_waited_for(&self, next: &Led, since: Stamp) {
        // A term that a slow machine lost, and another one that followed, before anything was done.
        assert!(next.at >= since, "{next:?} is from before the fault\n{}", self.fleet.told());
        let (waited, lease) = (next.at.saturating_sub(since), self.profile.lease);
        // Where it is a version of a term that is known, its age may be credited.
        promised!(waited >= lease - lease / 40, "after {waited:?} {next:?}\n{}", self.fleet.told());
    }

    /// Another term follows one that was not released, within the time that there is for it after the last renewal,
    /// both by its holder's word and by the row's own history. So the row's clock has to be right, and the row has
    /// to be what the participants have made of it.
    #[track_caller]
    pub(crate) fn takes_over(&mut self, old: &Led) -> Led {
        let take = self.profile.take();
        let next = self.fleet.await_lead(take, "somebody takes over", |led| led.fence > old.fence);
        let rows = self.ground.rows();
        let renewed = rows.iter().rev().find(|row| row.fence == old.fence && !row.is_released());
        let renewed = rows::stamp(renewed.expect("it was granted").renewed);
        self.took_over(next.at.saturating_sub(renewed), take - SLACK);
        taken_after_the_expiry(&rows, &next, self.profile.retry);
        next
    }

    /// Another term follows `old` after what kept everybody from leading, or the release, ended at `since`, within
    /// `bound`.
    #[track_caller]
    pub(crate) fn leads_again(&mut self, old: &Led, since: Stamp, bound: Duration) -> Led {
        let within = bound + SLACK;
        let next = self.fleet.await_lead(within, "somebody leads again", |led| led.fence > old.fence);
        self.took_over(next.at.saturating_sub(since), bound);
        next
    }

    /// SIGTERM to the leader: it releases the lease and ends in order, and another one leads soon.
    #[track_caller]
    pub(crate) fn hands_over(&mut self, led: &Led) -> Led {
        self.fleet.terminate(led.node);
        let mut released = None;
        await_until(self.profile.op + SLACK, "the lease is released", || {
            let rows = self.ground.rows();
            released = rows.iter().find(|row| row.fence == led.fence && row.is_released()).map(|row| row.at);
            released.is_some()
        });
        let since = rows::stamp(released.expect("just seen"));
        let next = self.leads_again(led, since, self.profile.hand() - SLACK);
        let taken = takeover(&self.ground.rows(), next.fence);
        let soon = self.profile.retry + SLACK;
        assert!(matches!(taken, Takeover::AfterRelease(gap) if gap <= soon), "{taken:?}");
        self.ends_in_order(led.node);
        next
    }

    /// A node that was asked to has shut down, in time.
    #[track_caller]
    pub(crate) fn ends_in_order(&mut self, node: usize) {
        let within = self.profile.op + Duration::from_secs(1) + SLACK;
        let (status, _) = self.fleet.await_exit(node, within);
        assert!(status.success(), "{status}\n{}", self.fleet.told());
        let how = self.fleet.await_story(LIMIT, "it says how it ended", |fleet| {
            fleet.nodes[node].story.lines.iter().find_map(|line| match line {
                Line::Ended { how, .. } => Some(how.clone()),
                _ => None,
            })
        });
        assert_eq!(how, "clean");
    }

    #[track_caller]
    pub(crate) fn took_over(&mut self, took: Duration, bound: Duration) {
        assert!(took <= bound + SLACK, "{took:?} of {bound:?}\n{}", self.fleet.told());
        self.report.take_overs.push(Timing { took, bound });
    }

    /// The term lives for longer than a lease from now on, so it is renewed.
    #[track_caller]
    pub(crate) fn goes_on(&mut self, led: &Led) {
        let (fence, until) = (led.fence, now() + self.profile.lease);
        self.fleet.await_story(LIMIT, &format!("fence {fence} goes on"), |fleet| {
            (fleet.certain(fence)?.1 > until).then_some(())
        });
    }

    /// Waits until the row has been written so often.
    #[track_caller]
    pub(crate) fn await_rows(&self, count: usize) {
        await_until(LIMIT, format_args!("{count} states of the row"), || self.ground.rows().len() >= count);
    }

    /// What goes through the first leader's path for its next renewal. Where it has to connect for it that takes two
    /// round trips and not one.
    #[track_caller]
    pub(crate) fn cost_of_a_renewal(&self, round_trips: u64) -> Counters {
        let path = &self.proxies[self.first.node];
        path.reset_counters();
        await_until(LIMIT, "a renewal", || path.snapshot().round_trips >= round_trips);
        path.snapshot()
    }

    /// Nobody has led since `last`, a term that is over, and nobody does for `time` from now on.
    #[track_caller]
    pub(crate) fn nobody_leads_for(&mut self, last: &Led, time: Duration) {
        let until = now() + time;
        loop {
            self.fleet.read();
            let mut leads = self.fleet.leads().into_iter();
            let other = leads.find(|led| led.at > last.at);
            promised!(other.is_none(), "{other:?} after {last:?}\n{}", self.fleet.told());
            if now() >= until {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The faults are over: from `since` on somebody leads within what a take-over may take, and goes on, and the
    /// nodes have what they had.
    #[track_caller]
    pub(crate) fn calms(&mut self, since: Stamp) -> Led {
        let (enough, within) = (self.profile.renew * 3, self.profile.take() + self.profile.lease);
        let steady = self.fleet.await_story(within, "one leads steadily", |fleet| {
            let led = fleet.latest()?;
            let held = fleet.certain(led.fence)?;
            (held.1 > held.0.max(since) + enough).then_some(led)
        });
        for node in self.survivors() {
            self.fleet.counts_come_back(node, self.before[node]);
        }
        steady
    }

    /// No call of any node has failed, and no term has ended.
    #[track_caller]
    pub(crate) fn nothing_failed(&mut self) {
        self.fleet.read();
        assert!(self.failures().is_empty(), "{}", self.fleet.told());
        self.fleet.no_lost();
    }

    /// The longest time between two states of the row.
    pub(crate) fn longest_gap(&self) -> Duration {
        let rows = self.ground.rows();
        let gaps =
            rows.windows(2).map(|pair| Duration::from_micros((pair[1].at - pair[0].at).unsigned_abs()));
        gaps.max().expect("renewals")
    }

    fn survivors(&self) -> Vec<usize> {
        self.fleet.running().into_iter().filter(|node| *node < self.before.len()).collect()
    }

    /// Ends the fleet; the stories and the row's own history have to be as promised.
    #[track_caller]
    pub(crate) fn finish(mut self, terms: usize) -> Report {
        self.count();
        self.fleet.verify(&self.ground, self.profile, terms);
        self.filled()
    }

    /// Ends the fleet of which nobody but the first leader has ever led.
    #[track_caller]
    pub(crate) fn finish_with_one_term(mut self) -> Report {
        self.fleet.read();
        self.fleet.no_lost();
        assert_eq!(self.fleet.leads().len(), 1, "{}", self.fleet.told());
        self.finish(1)
    }

    /// Ends the fleet where the scenario has stepped the database's clock or changed the row, so that only the
    /// stories count.
    #[track_caller]
    pub(crate) fn finish_by_stories(mut self, terms: usize) -> Report {
        self.count();
        self.fleet.finish();
        self.fleet.judge(terms);
        self.filled()
    }

    /// What the nodes have now, and had when they began.
    fn count(&mut self) {
        let survivors = self.survivors();
        let before = survivors.iter().map(|node| self.before[*node]);
        let after = survivors.iter().map(|node| self.fleet.counts(*node));
        let sum = |a: (usize, usize), b: (usize, usize)| (a.0 + b.0, a.1 + b.1);
        let (before, after) = (before.fold((0, 0), sum), after.fold((0, 0), sum));
        (self.report.threads, self.report.descriptors) = ((before.0, after.0), (before.1, after.1));
    }

    fn filled(mut self) -> Report {
        self.report.terms = self.fleet.leads().len();
        self.report
    }

    /// What the nodes were told by the database: SQLSTATE and text.
    pub(crate) fn failures(&self) -> Vec<String> {
        let failures = self.fleet.lines().filter_map(|(_, line)| match line {
            Line::Err { sqlstate, text, .. } => Some(format!("{sqlstate} {text}")),
            _ => None,
        });
        failures.collect()
    }
}
