//! A second, simple store that can be wrong in one way at a time.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::fault::Fault;
use crate::lease::{Bid, Fence, Lease, LeaseTimes, Observation, Renewal, Timestamp, Version};
use crate::store::acceptance::Subject;
use crate::store::{NOT_SUPPORTED, Store, StoreError};
use crate::time::{Clock, SystemClock};

#[derive(Clone, Debug)]
pub(super) struct Broken {
    pub(super) fault: Fault,
    pub(super) timeline: Option<u32>,
    shared: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug, Default)]
struct State {
    rows: HashMap<String, Row>,
    held: HashSet<String>,
    stuck: HashSet<String>,
    marks: u64,
}

#[derive(Clone, Debug)]
struct Row {
    holder: String,
    fence: Fence,
    acquired_at: Timestamp,
    renewed_at: Timestamp,
    expires_at: Timestamp,
    payload: Option<Vec<u8>>,
    mark: u64,
}

impl Row {
    fn is_released(&self) -> bool {
        self.expires_at == Timestamp::EPOCH
    }

    fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at > now
    }
}

impl Broken {
    pub(super) fn new(fault: Fault, timeline: Option<u32>) -> Broken {
        Broken { fault, timeline, shared: Arc::default() }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn now(&self) -> Timestamp {
        let micros = i64::try_from(SystemClock::new().now().as_nanos() / 1_000).unwrap();
        Timestamp::from_micros(1_700_000_000_000_000 + micros)
    }

    fn key(&self, name: &str) -> String {
        match self.fault {
            Fault::NamesTrimmed => name.trim().to_owned(),
            Fault::NamesLowercased => name.to_lowercase(),
            Fault::NamesCut => name.chars().take(64).collect(),
            _ => name.to_owned(),
        }
    }

    fn holder(&self, holder: &str) -> String {
        match self.fault {
            Fault::HoldersTrimmed => holder.trim().to_owned(),
            Fault::HoldersCut => holder.chars().take(32).collect(),
            _ => holder.to_owned(),
        }
    }

    fn same_holder(&self, row: &Row, holder: &str) -> bool {
        let same = row.holder == self.holder(holder);
        same || (self.is(Fault::HoldersIgnoreCase) && row.holder.to_lowercase() == holder.to_lowercase())
    }

    fn payload(&self, payload: Option<&[u8]>) -> Option<Vec<u8>> {
        let bytes = payload?;
        match self.fault {
            Fault::PayloadDropped => None,
            Fault::EmptyPayloadIsNone if bytes.is_empty() => None,
            Fault::PayloadEndsAtNul => Some(bytes.split(|b| *b == 0).next().unwrap().to_vec()),
            Fault::PayloadIsText => Some(bytes.iter().map(|b| if *b < 0x80 { *b } else { b'?' }).collect()),
            _ => Some(bytes.to_vec()),
        }
    }

    fn length(&self, asked: Duration) -> Duration {
        match self.fault {
            Fault::LengthsInMilliseconds => Duration::from_millis(u64::try_from(asked.as_millis()).unwrap()),
            Fault::LengthsUpTo30Days => asked.min(Duration::from_secs(30 * 86_400)),
            _ => asked,
        }
    }

    /// Waits until the row is free; `None` where the fault says that a held row is an answer.
    fn locked(&self, name: &str, timeout: Duration) -> Result<MutexGuard<'_, State>, StoreError> {
        let started = SystemClock::new().now();
        let late = if self.is(Fault::WaitsPastTimeout) { Duration::from_millis(400) } else { Duration::ZERO };
        let mut state = self.shared.0.lock();
        while state.held.contains(name) && !self.is(Fault::HoldIgnored) {
            if self.is(Fault::HeldIsFatal) {
                return Err(StoreError::fatal("held"));
            }
            let left = (timeout + late).saturating_sub(SystemClock::new().now().saturating_since(started));
            if left.is_zero() {
                state.stuck.insert(name.to_owned());
                return Err(StoreError::timeout("held"));
            }
            self.shared.1.wait_for(&mut state, left);
        }
        Ok(state)
    }

    fn mark(&self, state: &mut State, acquire: bool) -> u64 {
        if self.is(Fault::MarkNeverMoves) || (self.is(Fault::MarkMovesOnAcquireOnly) && !acquire) {
            return state.marks;
        }
        state.marks += 1;
        state.marks
    }

    fn answer(&self, name: &str, row: &Row, now: Timestamp) -> Lease {
        let now = match self.fault {
            Fault::NowIsRenewedAt => row.renewed_at,
            Fault::NowIsLate => Timestamp::from_micros(now.as_micros() - 10_000_000),
            Fault::NowIsEarly => Timestamp::from_micros(now.as_micros() + 1_000_000),
            _ => now,
        };
        let Row { acquired_at, renewed_at, expires_at, .. } = *row;
        Lease::new(name, &row.holder, row.fence, LeaseTimes { acquired_at, renewed_at, expires_at, now })
            .with_payload(row.payload.clone())
            .with_mark(row.mark)
            .with_timeline(self.timeline)
    }

    fn listed(&self, rows: &HashMap<String, Row>) -> Vec<Lease> {
        let mut now = self.now();
        let mut list = Vec::new();
        for (name, row) in
            rows.iter().filter(|(_, row)| !(self.is(Fault::ListForgetsReleased) && row.is_released()))
        {
            let mut row = row.clone();
            match self.fault {
                Fault::ListReadsItsClockEachTime => now = now + Duration::from_micros(1),
                Fault::ListWithoutPayload => row.payload = None,
                Fault::ListCallsAllLive => now = Timestamp::from_micros(-1),
                _ => {}
            }
            let lease = self.answer(name, &row, now);
            list.push(if self.is(Fault::ListWithoutTimeline) { lease.with_timeline(None) } else { lease });
        }
        let dictionary = |name: &str| name.to_lowercase().replace('\u{e4}', "a");
        list.sort_by_key(|lease| match self.fault {
            Fault::ListByDictionary => dictionary(lease.name()),
            _ => lease.name().to_owned(),
        });
        while self.is(Fault::ListIsTooLong) && list.len() <= Lease::MAX_LISTED {
            list.push(list[0].clone());
        }
        list
    }

    fn other_timeline(&self, bid: &Bid<'_>) -> bool {
        match (self.fault, &bid.over) {
            (Fault::TimelineIgnoredOnCreate, None) | (Fault::TimelineIgnoredOnTakeOver, Some(_)) => false,
            (Fault::TimelineAlwaysRefused, _) => bid.timeline.is_some(),
            _ => bid.timeline.is_some() && bid.timeline != self.timeline,
        }
    }

    fn claimable(&self, row: Option<&Row>, bid: &Bid<'_>, now: Timestamp) -> bool {
        match (row, &bid.over) {
            _ if self.is(Fault::NobodyWins) => false,
            (None, None) => true,
            (None, Some(_)) => self.is(Fault::TakeOverCreates),
            (Some(row), None) => match self.fault {
                Fault::CreateOverLive => row.is_live(now),
                Fault::CreateOverExpired => !row.is_live(now) && !row.is_released(),
                Fault::CreateOverReleased => row.is_released(),
                Fault::CreateOverOwn => row.holder == bid.holder,
                _ => false,
            },
            (Some(row), Some(over)) => match self.fault {
                Fault::LiveIsRefused if row.is_live(now) => false,
                Fault::ExpiredIsFree if !row.is_live(now) && !row.is_released() => true,
                Fault::ReleasedIsFree if row.is_released() => true,
                Fault::OwnRowIsFree if row.holder == bid.holder => true,
                _ => self.is_version(row, over),
            },
        }
    }

    fn is_version(&self, row: &Row, over: &Version) -> bool {
        (self.is(Fault::VersionWithoutHolder) || self.same_holder(row, over.holder()))
            && (self.is(Fault::VersionWithoutFence) || row.fence == over.fence())
            && (self.is(Fault::VersionWithoutRenewedAt) || row.renewed_at == over.renewed_at())
            && (self.is(Fault::VersionWithoutExpiresAt) || row.expires_at == over.expires_at())
            && (self.is(Fault::VersionWithoutMark) || row.mark == over.mark())
    }

    fn next_fence(&self, row: Option<&Row>, bid: &Bid<'_>, now: Timestamp) -> Fence {
        let stored = match row {
            Some(row) if self.is(Fault::FenceRestartsAfterRelease) && row.is_released() => 0,
            Some(row)
                if self.is(Fault::FenceRestartsAfterExpiry) && !row.is_live(now) && !row.is_released() =>
            {
                0
            }
            Some(row) if self.is(Fault::OwnTermContinues) && row.holder == bid.holder => return row.fence,
            Some(row) => row.fence.get(),
            None => 0,
        };
        let highest = match self.fault {
            Fault::FloorIgnoredOnCreate if row.is_none() => stored,
            Fault::FloorIgnoredOnTakeOver if row.is_some() => stored,
            Fault::FloorReplacesStored if bid.above != 0 => bid.above,
            Fault::FenceSkips => stored.max(bid.above) + 1,
            _ => stored.max(bid.above),
        };
        let timeline = self.timeline.filter(|_| !self.is(Fault::FenceIgnoresTimeline));
        Fence::after(highest, timeline).unwrap()
    }

    fn acquired(&self, old: Option<&Row>, bid: &Bid<'_>, now: Timestamp, mark: u64) -> Row {
        let mut row = Row {
            holder: self.holder(bid.holder),
            fence: self.next_fence(old, bid, now),
            acquired_at: now,
            renewed_at: now,
            expires_at: now + self.length(bid.lease_duration),
            payload: self.payload(bid.payload),
            mark,
        };
        match (self.fault, old) {
            (Fault::OwnTermKeepsItsStart, Some(old)) if old.holder == bid.holder => {
                row.acquired_at = old.acquired_at;
            }
            (Fault::TakeOverKeepsPayload, Some(old)) if bid.payload.is_none() => {
                row.payload.clone_from(&old.payload);
            }
            (Fault::ClockReadTwice, _) => row.acquired_at = Timestamp::from_micros(now.as_micros() - 1),
            _ => {}
        }
        row
    }

    fn may_renew(&self, row: &Row, renewal: &Renewal<'_>, now: Timestamp) -> bool {
        let fence = match self.fault {
            Fault::RenewIgnoresFence => true,
            Fault::RenewTakesHigherFence => row.fence <= renewal.fence,
            _ => row.fence == renewal.fence,
        };
        let live = match self.fault {
            Fault::RenewRevivesExpired => !row.is_released(),
            Fault::RenewRevivesReleased => row.is_released() || row.is_live(now),
            _ => row.is_live(now),
        };
        let holder = self.is(Fault::RenewIgnoresHolder) || self.same_holder(row, renewal.holder);
        fence && live && holder && !self.is(Fault::RenewNever)
    }

    fn prolong(&self, row: &mut Row, renewal: &Renewal<'_>, now: Timestamp, mark: u64) {
        let length = self.length(renewal.lease_duration);
        row.expires_at =
            if self.is(Fault::RenewAddsToExpiry) { row.expires_at + length } else { now + length };
        if !self.is(Fault::RenewKeepsRenewedAt) {
            row.renewed_at = now;
        }
        if self.is(Fault::RenewMovesAcquiredAt) {
            row.acquired_at = now;
        }
        if self.is(Fault::RenewRaisesFence) {
            row.fence = Fence::after(row.fence.get(), None).unwrap();
        }
        if !(self.is(Fault::RenewKeepsPayload) && renewal.payload.is_none()) {
            row.payload = self.payload(renewal.payload);
        }
        row.mark = mark;
    }

    fn may_release(&self, row: &Row, holder: &str, fence: Fence, now: Timestamp) -> bool {
        match self.fault {
            Fault::ReleaseByName => true,
            Fault::ReleaseIgnoresFence => self.same_holder(row, holder),
            Fault::ExpiredStaysUnreleased if !row.is_live(now) => false,
            _ => self.same_holder(row, holder) && row.fence == fence,
        }
    }

    fn give_up(&self, row: &mut Row, now: Timestamp, mark: u64) {
        row.expires_at = if self.is(Fault::ReleaseExpiresNow) { now } else { Timestamp::EPOCH };
        row.mark = mark;
        match self.fault {
            Fault::ReleaseResetsFence => row.fence = Fence::try_from(1).unwrap(),
            Fault::ReleaseDropsPayload => row.payload = None,
            Fault::ReleaseClearsHolder => row.holder.clear(),
            Fault::ReleaseMovesRenewedAt => row.renewed_at = now,
            _ => {}
        }
    }
}

fn ghost(now: Timestamp) -> Row {
    let fence = Fence::try_from(1).unwrap();
    let payload = None;
    Row {
        holder: "ghost".into(),
        fence,
        acquired_at: now,
        renewed_at: now,
        expires_at: Timestamp::EPOCH,
        payload,
        mark: 0,
    }
}

impl Store for Broken {
    fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        let sent = self.now();
        let mut state = self.locked(bid.name, timeout)?;
        let now = if self.is(Fault::ClockBeforeWait) { sent } else { self.now() };
        let key = self.key(bid.name);
        let old = state.rows.get(&key).cloned();
        let stuck = self.is(Fault::HeldStaysHeld) && state.stuck.contains(bid.name);
        if stuck || self.other_timeline(bid) || !self.claimable(old.as_ref(), bid, now) {
            if self.is(Fault::RefusedCreateWrites) && bid.over.is_none() {
                let mark = self.mark(&mut state, true);
                state.rows.get_mut(&key).unwrap().mark = mark;
            }
            return Ok(None);
        }
        if self.is(Fault::AcquireIsNotAtomic) {
            MutexGuard::unlocked(&mut state, || std::thread::sleep(Duration::from_millis(5)));
        }
        let mark = self.mark(&mut state, true);
        let row = self.acquired(old.as_ref(), bid, now, mark);
        let mut answer = self.answer(bid.name, &row, now);
        state.rows.insert(key, row);
        if self.is(Fault::AnswerWithoutMark) {
            answer = answer.with_mark(0);
        }
        Ok(Some(answer))
    }

    fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
        let sent = self.now();
        let mut state = match self.locked(renewal.name, timeout) {
            Err(_) if self.is(Fault::HeldRenewIsRefused) => return Ok(None),
            locked => locked?,
        };
        let now = if self.is(Fault::ClockBeforeWait) { sent } else { self.now() };
        let guard = if self.is(Fault::GuardBeforeWait) { sent } else { now };
        let mark = self.mark(&mut state, false);
        let key = self.key(renewal.name);
        if self.is(Fault::RenewCreates) {
            state.rows.entry(key.clone()).or_insert_with(|| Row {
                holder: renewal.holder.to_owned(),
                fence: renewal.fence,
                expires_at: now + renewal.lease_duration,
                ..ghost(now)
            });
        }
        if self.is(Fault::RenewTouchesEveryElection) {
            for row in state.rows.values_mut().filter(|row| self.may_renew(row, renewal, guard)) {
                self.prolong(row, renewal, now, mark);
            }
        }
        let Some(row) = state.rows.get_mut(&key) else { return Ok(None) };
        if !self.may_renew(row, renewal, guard) {
            if self.is(Fault::RefusedRenewWrites) {
                row.mark = mark;
            }
            if self.is(Fault::RefusedRenewPublishes) {
                row.payload = self.payload(renewal.payload);
            }
            return Ok(None);
        }
        self.prolong(row, renewal, now, mark);
        Ok(Some(self.answer(renewal.name, row, now)))
    }

    fn release(&self, name: &str, holder: &str, fence: Fence, timeout: Duration) -> Result<(), StoreError> {
        let mut state = match self.locked(name, timeout) {
            Err(_) if self.is(Fault::HeldReleaseIsDone) => return Ok(()),
            locked => locked?,
        };
        let now = self.now();
        let mark = self.mark(&mut state, false);
        let key = self.key(name);
        if self.is(Fault::ReleaseCreates) {
            state.rows.entry(key.clone()).or_insert_with(|| ghost(now));
        }
        if self.is(Fault::ReleaseTouchesEveryElection) {
            for row in state.rows.values_mut().filter(|row| self.may_release(row, holder, fence, now)) {
                self.give_up(row, now, mark);
            }
        }
        let Some(row) = state.rows.get_mut(&key) else { return Ok(()) };
        if !self.may_release(row, holder, fence, now) {
            return Ok(());
        }
        if row.is_released() && self.is(Fault::SecondReleaseFails) {
            return Err(StoreError::retryable("released already"));
        }
        self.give_up(row, now, mark);
        if self.is(Fault::ReleaseDeletes) {
            state.rows.remove(&key);
        }
        Ok(())
    }

    fn observe(&self, name: &str, _timeout: Duration) -> Result<Observation, StoreError> {
        let mut state = self.shared.0.lock();
        let now = self.now();
        let mark = state.marks + 1;
        let key = self.key(name);
        if self.is(Fault::ObserveCreates) {
            state.rows.entry(key.clone()).or_insert_with(|| ghost(now));
        }
        if let Some(row) = state.rows.get_mut(&key).filter(|_| self.is(Fault::ObserveWrites)) {
            row.mark = mark;
            state.marks = mark;
        }
        Ok(match state.rows.get(&key) {
            Some(row) if self.is(Fault::RowWithoutTimeline) => {
                Observation::of(self.answer(name, row, now).with_timeline(None))
            }
            Some(row) => Observation::of(self.answer(name, row, now)),
            None if self.is(Fault::VacantWithoutTimeline) => Observation::vacant(None),
            None => Observation::vacant(self.timeline),
        })
    }

    fn list(&self, _timeout: Duration) -> Result<Vec<Lease>, StoreError> {
        let mut state = self.shared.0.lock();
        match self.fault {
            Fault::NoList => return Err(StoreError::fatal("none").with_sqlstate(NOT_SUPPORTED)),
            Fault::ListFails => return Err(StoreError::retryable("later").with_sqlstate(NOT_SUPPORTED)),
            Fault::ListWrites => state.rows.values_mut().for_each(|row| row.mark += 1_000),
            _ => {}
        }
        Ok(self.listed(&state.rows))
    }
}

impl Subject for Broken {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    fn hold(&self, name: &str) -> Box<dyn Any> {
        self.shared.0.lock().held.insert(name.to_owned());
        Box::new(Hold(self.clone(), name.to_owned()))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(3)
    }
}

struct Hold(Broken, String);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.shared.0.lock().held.remove(&self.1);
        self.0.shared.1.notify_all();
    }
}
