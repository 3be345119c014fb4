//! How a fault is made, and how it is lifted.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use tenure_testground::{Mode, await_until, cont_process, is_running, stop_process};

use crate::arena::{Arena, Cut, SEATS, VETERANS};
use crate::aside::Open;
use crate::fleet::LIMIT;
use crate::fleet::line::{Stamp, now};
use crate::plan::{Fault, Kind, Planned, Who};

/// For a server that is asked to stop; meanwhile nothing else happens.
const PATIENCE: Duration = Duration::from_secs(2);

/// A fault that lasts.
#[derive(Debug)]
pub(crate) struct Active {
    number: usize,
    name: String,
    until: Stamp,
    lift: Lift,
}

/// What ends it.
#[derive(Debug)]
enum Lift {
    Paths(Vec<usize>),
    Thaw(Vec<usize>),
    /// Another node takes the seat, once the one before has ended.
    Settle(usize),
    Server {
        paused: bool,
    },
    Pooler {
        frozen: bool,
    },
    /// Its end is what ends it.
    Said(#[expect(dead_code, reason = "dropped at the end")] Open),
    ReadOnly,
}

enum Outcome {
    /// Something else is in the way.
    Impossible,
    /// A matter of a moment.
    Over,
    Lasts(Lift),
}

impl Arena<'_> {
    /// Makes the fault happen, if it can.
    pub(crate) fn strike(&mut self, planned: &Planned) {
        let Planned { fault, lasts, dice, .. } = *planned;
        let seats = self.targets(planned);
        let until = now() + lasts;
        let outcome = if fault.kind.on_paths() {
            self.on_paths(fault, seats, dice)
        } else if fault.kind.on_nodes() {
            self.on_nodes(fault, seats, until)
        } else if fault.kind.step(dice) != 0.0 {
            self.shim.step(fault.kind.step(dice));
            self.note(format!("{fault}: {:+.1} s", fault.kind.step(dice)));
            Outcome::Over
        } else {
            self.on_servers(fault)
        };
        self.count(fault.to_string(), !matches!(outcome, Outcome::Impossible));
        if let Outcome::Lasts(lift) = outcome {
            self.struck += 1;
            let number = self.struck;
            self.cut_off(number, fault, &lift);
            self.note(format!("{number}: {fault} for {lasts:.1?}{}", self.whom(&lift)));
            self.actives.push(Active { number, name: fault.to_string(), until, lift });
        }
    }

    fn whom(&self, lift: &Lift) -> String {
        let (Lift::Paths(seats) | Lift::Thaw(seats)) = lift else { return String::new() };
        let whom: Vec<String> = seats.iter().map(|seat| self.who(*seat)).collect();
        format!(": {}", whom.join(", "))
    }

    fn targets(&self, planned: &Planned) -> Vec<usize> {
        let kind = planned.fault.kind;
        if !kind.on_paths() && !kind.on_nodes() {
            return Vec::new();
        }
        let survived = !matches!(kind, Kind::Kill | Kind::Terminate);
        let may = |seat: &usize| survived || !VETERANS.contains(seat);
        match planned.fault.who {
            Who::Leader => self.leaders_seat().into_iter().filter(may).collect(),
            Who::One => (planned.seat..SEATS).chain(0..SEATS).find(may).into_iter().collect(),
            Who::All => (0..SEATS).filter(may).collect(),
        }
    }

    fn on_paths(&mut self, fault: Fault, mut seats: Vec<usize>, dice: u64) -> Outcome {
        if fault.kind != Kind::ResetOnce {
            seats.retain(|seat| !self.path_is_taken(*seat));
        }
        if seats.is_empty() {
            return Outcome::Impossible;
        }
        let Some(mode) = fault.kind.mode(dice) else {
            seats.iter().for_each(|seat| self.seats[*seat].proxy.reset_all());
            self.note(fault.to_string());
            return Outcome::Over;
        };
        seats.iter().for_each(|seat| self.seats[*seat].proxy.set(mode));
        Outcome::Lasts(Lift::Paths(seats))
    }

    fn path_is_taken(&self, seat: usize) -> bool {
        self.actives.iter().any(|active| matches!(&active.lift, Lift::Paths(seats) if seats.contains(&seat)))
    }

    fn node_is_taken(&self, seat: usize) -> bool {
        self.actives.iter().any(|active| match &active.lift {
            Lift::Thaw(seats) => seats.contains(&seat),
            Lift::Settle(gone) => *gone == seat,
            _ => false,
        })
    }

    fn on_nodes(&mut self, fault: Fault, mut seats: Vec<usize>, until: Stamp) -> Outcome {
        seats.retain(|seat| !self.node_is_taken(*seat));
        if fault.kind == Kind::Terminate {
            // Before it says who it is it may not have its signal handler yet.
            seats.retain(|seat| self.fleet.identity(self.seats[*seat].node).is_some());
        }
        if seats.is_empty() {
            return Outcome::Impossible;
        }
        if matches!(fault.kind, Kind::FreezeShort | Kind::FreezeLong) {
            seats.iter().for_each(|seat| stop_process(self.pid(*seat)));
            return Outcome::Lasts(Lift::Thaw(seats));
        }
        for seat in seats {
            self.struck += 1;
            let number = self.struck;
            self.note(format!("{number}: {fault}: {}", self.who(seat)));
            let node = self.seats[seat].node;
            if fault.kind == Kind::Kill {
                self.fleet.kill(node);
            } else {
                self.fleet.terminate(node);
            }
            self.actives.push(Active { number, name: fault.to_string(), until, lift: Lift::Settle(seat) });
        }
        Outcome::Over
    }

    fn pid(&self, seat: usize) -> u32 {
        self.fleet.nodes[self.seats[seat].node].process.pid()
    }

    fn server_is_up(&self) -> bool {
        !self.actives.iter().any(|active| matches!(active.lift, Lift::Server { .. }))
    }

    fn on_servers(&mut self, fault: Fault) -> Outcome {
        let free = |taken: fn(&Lift) -> bool| !self.actives.iter().any(|active| taken(&active.lift));
        let up = self.server_is_up();
        let pooler_is_well = free(|lift| matches!(lift, Lift::Pooler { .. }));
        let writable = free(|lift| matches!(lift, Lift::ReadOnly));
        let pooler = self.ground.pooler.as_ref().expect("it has one");
        match fault.kind {
            Kind::ServerPaused if up => self.server.pause(),
            Kind::ServerRestarted if up => self.server.stop_within(PATIENCE, false),
            Kind::ServerStoppedAtOnce if up => self.server.stop_within(PATIENCE, true),
            Kind::ServerCrashed if up => self.server.kill9(),
            Kind::PoolerRestarted if pooler_is_well => pooler.stop(),
            Kind::PoolerCrashed if pooler_is_well => pooler.kill9(),
            Kind::PoolerFrozen if pooler_is_well => pooler.pause_process(),
            Kind::PoolerPaused if pooler_is_well => {
                let console = pooler.dsn_for("postgres", "pgbouncer");
                return Outcome::Lasts(Lift::Said(self.asides.hold(&console, "PAUSE", "RESUME")));
            }
            Kind::ReadOnly if up && writable => {
                self.configure("default_transaction_read_only = on\n");
                return Outcome::Lasts(Lift::ReadOnly);
            }
            Kind::RowLocked | Kind::TableLocked | Kind::BackendsTerminated if up => return self.say(fault),
            _ => return Outcome::Impossible,
        }
        Outcome::Lasts(match fault.kind {
            Kind::PoolerRestarted | Kind::PoolerCrashed => Lift::Pooler { frozen: false },
            Kind::PoolerFrozen => Lift::Pooler { frozen: true },
            kind => Lift::Server { paused: kind == Kind::ServerPaused },
        })
    }

    /// What is done with statements.
    fn say(&mut self, fault: Fault) -> Outcome {
        let dsn = self.ground.database.dsn();
        let locks = match fault.kind {
            Kind::RowLocked => "BEGIN; SELECT 1 FROM leader_election WHERE name = 'e' FOR UPDATE",
            Kind::TableLocked => "BEGIN; LOCK TABLE leader_election IN ACCESS EXCLUSIVE MODE",
            _ => {
                let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid()";
                self.asides.say(&dsn, sql);
                self.note(fault.to_string());
                return Outcome::Over;
            }
        };
        Outcome::Lasts(Lift::Said(self.asides.hold(&dsn, locks, "ROLLBACK")))
    }

    /// What the server reads over its other settings, as `ALTER SYSTEM` leaves it; needs no server that answers.
    fn configure(&self, settings: &str) {
        let path = self.server.data_dir().join("postgresql.auto.conf");
        let file = File::create(&path).and_then(|mut file| file.write_all(settings.as_bytes()));
        file.unwrap_or_else(|error| panic!("can't write {}: {error}", path.display()));
        if self.server_is_up() {
            self.server.reload();
        }
    }

    /// Remembers that the leader is cut off from now on, if it is.
    fn cut_off(&mut self, by: usize, fault: Fault, lift: &Lift) {
        let Some((led, seat)) = self.leader().zip(self.leaders_seat()) else { return };
        let struck = match lift {
            Lift::Paths(seats) | Lift::Thaw(seats) => seats.contains(&seat),
            Lift::Server { .. } => true,
            _ => false,
        };
        if struck && fault.kind.cuts() {
            let frozen = fault.kind.on_nodes();
            self.cuts.push(Cut { by, node: led.node, fence: led.fence, from: now(), to: None, frozen });
        }
    }

    /// Ends what has lasted long enough.
    pub(crate) fn lift_due(&mut self) {
        let (due, lasting) = std::mem::take(&mut self.actives).into_iter().partition(|a| a.until <= now());
        self.actives = lasting;
        self.lift(due);
    }

    /// Ends everything; when this returns all but replacements that have to wait is as it was.
    #[track_caller]
    pub(crate) fn lift_all(&mut self) -> Stamp {
        // First the servers, which others of them need.
        let mut all = std::mem::take(&mut self.actives);
        all.sort_by_key(|active| !matches!(active.lift, Lift::Server { .. }));
        self.lift(all);
        self.asides.finish();
        self.note("everything is lifted".to_owned());
        now()
    }

    fn lift(&mut self, actives: Vec<Active>) {
        for active in &actives {
            let now = now();
            let cuts = self.cuts.iter_mut().filter(|cut| cut.by == active.number);
            cuts.for_each(|cut| cut.to = Some(now));
        }
        for active in actives {
            if self.end(&active.lift) {
                self.note(format!("{}: over: {}", active.number, active.name));
            } else {
                self.actives.push(active);
            }
        }
    }

    /// False: it can't end yet.
    fn end(&mut self, lift: &Lift) -> bool {
        let pooler = self.ground.pooler.as_ref().expect("it has one");
        match lift {
            Lift::Paths(seats) => seats.iter().for_each(|seat| self.seats[*seat].proxy.set(Mode::Pass)),
            Lift::Thaw(seats) => seats.iter().for_each(|seat| cont_process(self.pid(*seat))),
            Lift::Server { paused: true } => self.server.resume(),
            Lift::Server { paused: false } => self.server.start(),
            Lift::Pooler { frozen: true } => pooler.resume_process(),
            Lift::Pooler { frozen: false } => pooler.start(),
            Lift::Said(_) => {}
            Lift::ReadOnly => self.configure(""),
            Lift::Settle(seat) => return self.succeed(*seat),
        }
        true
    }

    /// Another node in the place of one that has ended or is about to. False: not yet.
    fn succeed(&mut self, seat: usize) -> bool {
        let node = self.seats[seat].node;
        if self.fleet.running().contains(&node) {
            if is_running(self.pid(seat)) {
                return false;
            }
            let (status, _) = self.fleet.await_exit(node, LIMIT);
            assert!(status.success(), "{} ended with {status}\n{}", self.who(seat), self.fleet.told());
        }
        let may = self.may_settle();
        if may {
            self.settle(seat);
        }
        may
    }

    /// Waits until whoever was asked to end has ended, and all seats are taken.
    #[track_caller]
    pub(crate) fn await_seats(&mut self) {
        await_until(LIMIT, "all seats are taken", || {
            self.fleet.read();
            self.lift_due();
            self.actives.is_empty()
        });
    }
}
