//! B11: the database, the pooler or the network stands still, with its connections open.

use std::time::{Duration, Instant};

use tenure::{Elector, LeaderGuard, PostgresStore};
use tenure_testground::{Mode, MuteListener, Postgres, Proxy, mute_listener};

use crate::figures::figure;
use crate::fleet::{Fleet, Ground, Way};
use crate::line::now;
use crate::node::Options;
use crate::profile::P3;
use crate::stillness::promised;

/// What stands still, and how it is set in motion again.
trait Stall {
    /// Where clients connect to.
    fn port(&self) -> u16;
    fn apply(&mut self);
    fn lift(&mut self);
}

struct Server<'a>(&'a Postgres);

impl Stall for Server<'_> {
    fn port(&self) -> u16 {
        self.0.port()
    }
    fn apply(&mut self) {
        self.0.pause();
    }
    fn lift(&mut self) {
        self.0.resume();
    }
}

struct BehindPooler<'a>(&'a Postgres, u16);

impl Stall for BehindPooler<'_> {
    fn port(&self) -> u16 {
        self.1
    }
    fn apply(&mut self) {
        self.0.pause();
    }
    fn lift(&mut self) {
        self.0.resume();
    }
}

struct Pooler<'a>(&'a tenure_testground::PgBouncer);

impl Stall for Pooler<'_> {
    fn port(&self) -> u16 {
        self.0.port()
    }
    fn apply(&mut self) {
        self.0.pause_process();
    }
    fn lift(&mut self) {
        self.0.resume_process();
    }
}

struct Path(Proxy, Mode);

impl Stall for Path {
    fn port(&self) -> u16 {
        self.0.port()
    }
    fn apply(&mut self) {
        self.0.set(self.1);
    }
    fn lift(&mut self) {
        self.0.set(Mode::Pass);
    }
}

/// Connections are closed, and new ones end at a peer that accepts and never says a word.
struct Mute {
    proxy: Proxy,
    server: std::net::SocketAddr,
    mute: MuteListener,
}

impl Stall for Mute {
    fn port(&self) -> u16 {
        self.proxy.port()
    }
    fn apply(&mut self) {
        self.proxy.retarget(self.mute.addr());
        self.proxy.close_all();
    }
    fn lift(&mut self) {
        self.proxy.retarget(self.server);
        self.proxy.close_all();
    }
}

fn elector(dsn: &str, election: &str) -> Elector {
    let store = PostgresStore::connect(dsn).expect("a usable DSN");
    Elector::start(store, P3.config(election).build().expect("a usable profile")).expect("two threads")
}

/// Leaders in this process, whose ends are measured while nothing moves.
fn leaders(dsn: &str) -> Vec<(Elector, LeaderGuard)> {
    let elect = |n| {
        let elector = elector(dsn, &format!("end-{n}"));
        let guard = elector.wait_for_leadership().expect("nobody else campaigns");
        (elector, guard)
    };
    (0..6).map(elect).collect()
}

/// Every way to end returns within an operation timeout and a second. Returns the slowest.
fn every_end_is_bounded(what: &str, dsn: &str, leaders: Vec<(Elector, LeaderGuard)>) -> Duration {
    let mut slowest = Duration::ZERO;
    let mut bounded = |end: &str, body: &mut dyn FnMut()| {
        let begun = Instant::now();
        body();
        let took = begun.elapsed();
        assert!(took <= P3.op + Duration::from_secs(1), "{what}: {end} took {took:?}");
        slowest = slowest.max(took);
    };
    let [a, b, c, d, e, f] = <[_; 6]>::try_from(leaders).expect("six leaders");
    let mut a = (Some(a.0), Some(a.1));
    bounded("dropping the guard", &mut || drop(a.1.take()));
    bounded("dropping the elector", &mut || drop(a.0.take()));
    let mut b = Some(b);
    bounded("dropping guard and elector", &mut || {
        let (elector, guard) = b.take().expect("once");
        drop(guard);
        drop(elector);
    });
    let mut c = Some(c);
    bounded("resign", &mut || {
        let (_elector, guard) = c.take().expect("once");
        let _ = guard.resign();
    });
    bounded("stop", &mut || d.0.stop());
    let mut e = Some(e);
    bounded("shutdown", &mut || {
        let (elector, guard) = e.take().expect("once");
        drop(guard);
        let _ = elector.shutdown(Duration::ZERO);
    });
    let mut f = Some(f);
    bounded("shutdown with the work still running", &mut || {
        let (elector, _guard) = f.take().expect("once");
        assert!(elector.shutdown(Duration::ZERO).is_err());
    });
    let mut d = Some(d);
    bounded("dropping a stopped elector, then its guard", &mut || drop(d.take()));
    let timeout = Duration::from_millis(600);
    let begun = Instant::now();
    let outcome = elector(dsn, "end-0").wait_for_leadership_timeout(timeout);
    assert!(matches!(outcome, Err(tenure::CampaignError::TimedOut)), "{what}: {outcome:?}");
    let took = begun.elapsed();
    // The wait itself, and the drop of its elector.
    assert!(took <= timeout + P3.op + Duration::from_secs(1), "{what}: waiting took {took:?}");
    slowest
}

fn survive(what: &str, ground: &Ground<'_>, stall: &mut dyn Stall) {
    let dsn = ground.database.dsn_through(stall.port());
    let options = |label| Options { dsn: dsn.clone(), ..ground.options(label) };
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&options("a"));
    fleet.start(&options("b"));
    let leaders = leaders(&dsn);
    fleet.await_held(&first, P3.lease);
    let before = fleet.counts(first.node);
    stall.apply();
    let cut = now();
    let slowest = every_end_is_bounded(what, &dsn, leaders);
    let down = fleet.stepped_down(&first, cut, P3);
    // Nobody leads until something moves.
    std::thread::sleep((cut + P3.lease + P3.retry * 2).saturating_sub(now()));
    fleet.read();
    promised!(fleet.leads().len() == 1, "{}", fleet.told());
    let lifted = now();
    stall.lift();
    let next = fleet.await_lead(P3.take(), "somebody leads again", |led| led.fence != first.fence);
    fleet.counts_come_back(first.node, before);
    figure(format_args!(
        "{what}: stepped down {down:.1?} after the cut, slowest end {slowest:.1?}, led again {:.1?} after it",
        next.at - lifted
    ));
    fleet.await_held(&next, P3.renew * 2);
    fleet.verify(ground, P3, 2);
}

pub(crate) fn b11_the_server_is_stopped() {
    let server = Postgres::start_new();
    let ground = Ground::on(&server, Way::Direct);
    survive("server stopped", &ground, &mut Server(&server));
}

pub(crate) fn b11_the_server_is_stopped_behind_a_pooler() {
    let server = Postgres::start_new();
    let ground = Ground::on(&server, Way::Pooled);
    survive("server behind a pooler stopped", &ground, &mut BehindPooler(&server, ground.addr().port()));
}

pub(crate) fn b11_the_pooler_is_stopped() {
    let ground = Ground::shared(Way::Pooled);
    let pooler = ground.pooler.as_ref().expect("there is one");
    survive("pooler stopped", &ground, &mut Pooler(pooler));
}

fn on_a_path(mode: Mode) {
    let ground = Ground::shared(Way::Direct);
    let mut path = Path(Proxy::to(ground.addr()), mode);
    survive(&format!("path {mode:?}"), &ground, &mut path);
}

pub(crate) fn b11_the_path_swallows_everything() {
    on_a_path(Mode::BlackHole);
}

pub(crate) fn b11_the_path_swallows_replies() {
    on_a_path(Mode::SwallowReplies);
}

pub(crate) fn b11_the_path_holds_requests_back() {
    on_a_path(Mode::HoldRequests);
}

pub(crate) fn b11_the_peer_is_mute() {
    let ground = Ground::shared(Way::Direct);
    let mut stall = Mute { proxy: Proxy::to(ground.addr()), server: ground.addr(), mute: mute_listener() };
    survive("mute peer", &ground, &mut stall);
}
