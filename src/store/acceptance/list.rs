//! The list of all elections: complete, as it is, in order, and read only (rule 14).
//!
//! Other checks may run side by side, and others before have left rows: only this check's own are looked for.

use super::Failure;
use super::bench::{A, Bench, SHORT, same_row};
use crate::lease::{Bid, Lease};
use crate::store::NOT_SUPPORTED;

const LISTS: usize = 20;

/// What comes behind the name of the check's election, in the order of the bytes, which is not a dictionary's.
const BEHIND: [&str; 6] = [" 1", "-10", "-9", "B", "a", "\u{e4}"];

/// All rows; `None` where the store can't list.
fn list(bench: &Bench<'_>) -> Result<Option<Vec<Lease>>, Failure> {
    match bench.store.list(bench.subject.timeout()) {
        Ok(list) => Ok(Some(list)),
        Err(error) if error.is_fatal() && error.sqlstate() == Some(NOT_SUPPORTED) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Elections of each kind, in the order in which a list has them.
fn elections<'a>(bench: &Bench<'a>) -> Result<Vec<Bench<'a>>, Failure> {
    let all: Vec<_> = BEHIND.iter().map(|behind| bench.election(format!("{}{behind}", bench.name))).collect();
    for (n, election) in all.iter().enumerate().rev() {
        match n % 3 {
            0 => drop(election.won(&election.bid(A).payload(Some(&[0, 255, 27])))?),
            1 => election.release(A, election.create(A)?.fence())?,
            _ => {
                election.won(&Bid::new(&election.name, A, SHORT))?;
                election.expired()?;
            }
        }
    }
    Ok(all)
}

pub(super) fn a_list_has_every_row_as_it_is_in_order(bench: &Bench<'_>) -> Result<(), Failure> {
    let elections = elections(bench)?;
    let Some(list) = list(bench)? else { return Ok(()) };
    ensure!(list.len() <= Lease::MAX_LISTED, "a list has {} rows", list.len());
    for pair in list.windows(2) {
        let (one, next) = (pair[0].name(), pair[1].name());
        ensure!(one.as_bytes() < next.as_bytes(), "{next:?} comes behind {one:?}");
        ensure!(pair[0].now() == pair[1].now(), "{one:?} and {next:?} were read by different clocks");
    }
    // A full list ends somewhere; what lies behind that need not be in it.
    let last = list.last().filter(|_| list.len() == Lease::MAX_LISTED).map(Lease::name);
    for election in elections.iter().filter(|election| last.is_none_or(|last| election.name.as_str() <= last))
    {
        let Some(listed) = list.iter().find(|lease| lease.name() == election.name) else {
            return Err(Failure::new(format!("{:?} is not in a list of {}", election.name, list.len())));
        };
        let row = election.row()?;
        ensure!(same_row(listed, &row), "a list has {listed:?}, and the row is {row:?}");
        ensure!(listed.timeline() == row.timeline(), "a list carries timeline {:?}", listed.timeline());
        let (then, now) = (listed.is_expired(), row.is_expired());
        ensure!(then == now, "{:?} is expired: {then} in a list, {now} in the row", row.name());
    }
    Ok(())
}

pub(super) fn listing_writes_nothing(bench: &Bench<'_>) -> Result<(), Failure> {
    let elections = elections(bench)?;
    let before = elections.iter().map(Bench::observe).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..LISTS {
        if list(bench)?.is_none() {
            return Ok(());
        }
    }
    for (election, before) in elections.iter().zip(&before) {
        election.unchanged(before, "a list")?;
    }
    Ok(())
}
