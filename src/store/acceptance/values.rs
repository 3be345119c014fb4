//! What is written comes back: names, holders, payloads, lengths, and the clock that goes with them.

use std::time::Duration;

use super::Failure;
use super::bench::{A, B, Bench, LONG, now, same_row, since};
use crate::config::Config;
use crate::identity::Identity;
use crate::lease::{Bid, Lease, Renewal};

const OBSERVATIONS: usize = 100;
/// How much later than the write the clock of its answer may have been read.
const ANSWER_SLACK: Duration = Duration::from_millis(500);
/// How long the clock of a store is watched, and how far it may seem off: its rate, not the machine's load.
const WATCHED: Duration = Duration::from_millis(300);
const RATE_SLACK: Duration = Duration::from_millis(30);

/// Texts that some database, driver or collation changes, cuts, or takes for another.
const ODD_TEXTS: [&str; 22] = [
    "lead",
    "LEAD",
    " lead",
    "lead ",
    " lead ",
    "\u{e9}",
    "e\u{301}",
    "e",
    "\u{df}",
    "ss",
    "日本語",
    "\u{1f980}",
    "x'); DROP TABLE leader_election;--",
    "\"",
    "'",
    "\\",
    "%s {} \n",
    "%",
    "_",
    "$1 ?1 :name",
    "\t\u{1}\u{7f}\r\n",
    "\u{202e}\u{feff}\u{200b}",
];

pub(super) fn observing_writes_nothing(bench: &Bench<'_>) -> Result<(), Failure> {
    for _ in 0..OBSERVATIONS {
        ensure!(bench.observe()?.lease().is_none(), "a name that never was has a row");
    }
    // Were there a row after all, this could not create it.
    let lease = bench.create(A)?;
    for n in 0..OBSERVATIONS {
        let row = bench.row()?;
        ensure!(same_row(&row, &lease), "observation {n} found {row:?} instead of {lease:?}");
    }
    bench.release(A, lease.fence())?;
    let released = bench.row()?;
    for n in 0..OBSERVATIONS {
        let row = bench.row()?;
        ensure!(same_row(&row, &released), "observation {n} found {row:?} instead of {released:?}");
    }
    Ok(())
}

pub(super) fn answers_are_the_row(bench: &Bench<'_>) -> Result<(), Failure> {
    let agrees = |answer: &Lease, what: &str| {
        let row = bench.row()?;
        ensure!(same_row(answer, &row), "{what} answered {answer:?} and the row is {row:?}");
        ensure!(answer.name() == bench.name, "{what} answered for {:?}", answer.name());
        Ok(())
    };
    let created = bench.won(&bench.bid(A).payload(Some(b"first")))?;
    agrees(&created, "a create")?;
    ensure!(created.acquired_at() == created.renewed_at(), "a create read its clock twice: {created:?}");
    let renewal = Renewal::new(&bench.name, A, created.fence(), LONG).payload(Some(b"second"));
    let renewed = bench.renewed(&renewal)?;
    agrees(&renewed, "a renewal")?;
    // The answer's version is as good as an observed one.
    let taken = bench.won(&bench.bid(B).over(Some(renewed.version())).payload(Some(b"third")))?;
    agrees(&taken, "a take-over")?;
    ensure!(taken.acquired_at() == taken.renewed_at(), "a take-over read its clock twice: {taken:?}");
    Ok(())
}

pub(super) fn payloads_come_back_byte_for_byte(bench: &Bench<'_>) -> Result<(), Failure> {
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let largest: Vec<u8> = every_byte.iter().copied().cycle().skip(1).take(Config::MAX_PAYLOAD_LEN).collect();
    let payloads: [Option<&[u8]>; 8] = [
        None,
        Some(&[]),
        Some(&[0]),
        Some(b"ends in NUL\0\0"),
        Some(b"\\x00 '' \\\\ %s"),
        Some(&[0xff, 0xfe, 0x80]),
        Some(&every_byte),
        Some(&largest),
    ];
    let same = |lease: &Lease, sent: Option<&[u8]>, what: &str| {
        let (got, sent) = (lease.payload(), sent.map(<[u8]>::len));
        ensure!(got.map(<[u8]>::len) == sent, "{what} of {sent:?} bytes gave {:?}", got.map(<[u8]>::len));
        Ok::<_, Failure>(())
    };
    let mut over = None;
    for sent in payloads {
        let created = bench.fresh()?;
        let lease = created.won(&created.bid(A).payload(sent))?;
        same(&lease, sent, "a create with a payload")?;
        ensure!(created.row()?.payload() == sent, "a create changed the bytes of its payload");
        let lease = bench.won(&bench.bid(A).over(over).payload(sent))?;
        same(&bench.row()?, sent, "a take-over with a payload")?;
        ensure!(lease.payload() == sent, "a take-over changed the bytes of its payload");
        let renewal = Renewal::new(&bench.name, A, lease.fence(), LONG).payload(sent);
        let lease = bench.renewed(&renewal)?;
        same(&bench.row()?, sent, "a renewal with a payload")?;
        ensure!(lease.payload() == sent, "a renewal changed the bytes of its payload");
        over = Some(lease.version());
    }
    Ok(())
}

pub(super) fn the_last_write_decides_the_payload(bench: &Bench<'_>) -> Result<(), Failure> {
    let holds = |expected: Option<&[u8]>, what: &str| {
        let row = bench.row()?;
        ensure!(row.payload() == expected, "{what} left {:?} instead of {expected:?}", row.payload());
        Ok(row)
    };
    let fence = bench.won(&bench.bid(A).payload(Some(b"created")))?.fence();
    let renewal = |payload| Renewal::new(&bench.name, A, fence, LONG).payload(payload);
    bench.renewed(&renewal(Some(b"renewed")))?;
    holds(Some(b"renewed"), "a renewal with another payload")?;
    bench.renewed(&renewal(None))?;
    holds(None, "a renewal without payload")?;
    bench.renewed(&renewal(Some(b"again")))?;
    let stranger = Renewal::new(&bench.name, B, fence, LONG).payload(Some(b"stranger"));
    ensure!(bench.renew_as(&stranger)?.is_none(), "a stranger's renewal was granted");
    let row = holds(Some(b"again"), "a refused renewal")?;
    let taken = bench.won(&bench.bid(B).over(Some(row.version())))?;
    let row = holds(None, "a take-over without payload")?;
    ensure!(taken.payload().is_none(), "a take-over answered with the predecessor's payload");
    bench.won(&bench.bid(A).over(Some(row.version())).payload(Some(b"taken")))?;
    holds(Some(b"taken"), "a take-over with a payload").map(drop)
}

pub(super) fn names_come_back_byte_for_byte(bench: &Bench<'_>) -> Result<(), Failure> {
    // Once at the beginning and once at the end: one may be trimmed where the other is not.
    let mut names: Vec<String> = Vec::new();
    for odd in ODD_TEXTS {
        names.extend([format!("{odd}{}", bench.name), format!("{}{odd}", bench.name)]);
    }
    let filler = "n".repeat(Config::MAX_NAME_LEN - 1 - bench.name.len());
    names.extend(["a", "b"].map(|end| format!("{}{filler}{end}", bench.name)));
    let wide = "日".repeat((Config::MAX_NAME_LEN - bench.name.len()) / "日".len());
    names.push(format!("{}{wide}", bench.name));
    let elections: Vec<Bench<'_>> = names.into_iter().map(|name| bench.election(name)).collect();
    for (n, election) in elections.iter().enumerate() {
        let Some(lease) = election.acquire(&election.bid(&format!("holder-{n}")))? else {
            return Err(Failure::new(format!("{:?} is taken for another name", election.name)));
        };
        ensure!(lease.name() == election.name, "{:?} came back as {:?}", election.name, lease.name());
    }
    for (n, election) in elections.iter().enumerate() {
        let row = election.row()?;
        ensure!(row.name() == election.name, "{:?} came back as {:?}", election.name, row.name());
        ensure!(row.held_by(&format!("holder-{n}")), "{:?} is held by {:?}", election.name, row.holder());
        ensure!(election.renew(row.holder(), row.fence())?.is_some(), "{:?}: renew refused", election.name);
        election.release(row.holder(), row.fence())?;
        ensure!(election.row()?.is_released(), "{:?} was not released", election.name);
    }
    Ok(())
}

pub(super) fn holders_come_back_byte_for_byte(bench: &Bench<'_>) -> Result<(), Failure> {
    let longest = "日".repeat(Identity::MAX_LEN / "日".len());
    let almost = format!("{}本", &longest[.."日".len() * (Identity::MAX_LEN / "日".len() - 1)]);
    let mut holders: Vec<&str> = ODD_TEXTS.to_vec();
    holders.extend([longest.as_str(), almost.as_str()]);
    let mut over = None;
    for (n, holder) in holders.iter().enumerate() {
        let lease = bench.won(&bench.bid(holder).over(over))?;
        for (what, found) in [("an acquire", &lease), ("an observation", &bench.row()?)] {
            ensure!(found.holder() == *holder, "{what} gave {:?} for {holder:?}", found.holder());
        }
        // Its neighbours in the list are those that it could be taken for.
        let first = n.saturating_sub(4);
        for other in holders.iter().skip(first).take(9).filter(|other| *other != holder) {
            ensure!(bench.renew(other, lease.fence())?.is_none(), "{other:?} renewed for {holder:?}");
            bench.release(other, lease.fence())?;
            ensure!(!bench.row()?.is_released(), "{other:?} released for {holder:?}");
        }
        ensure!(bench.renew(holder, lease.fence())?.is_some(), "{holder:?} could not renew");
        bench.release(holder, lease.fence())?;
        let row = bench.row()?;
        ensure!(row.is_released(), "{holder:?} could not release");
        over = Some(row.version());
    }
    Ok(())
}

pub(super) fn granted_lengths_are_exact(bench: &Bench<'_>) -> Result<(), Failure> {
    let day = Duration::from_secs(86_400);
    let lengths = [
        Duration::from_millis(1_500),
        Duration::from_micros(1_234_567),
        Duration::from_micros(2_000_001),
        Duration::from_micros(1_001),
        day - Duration::from_micros(1),
        30 * day,
        Config::MAX_LEASE_DURATION,
    ];
    let exact = |lease: &Lease, asked: Duration, what: &str| {
        let granted = lease.length();
        ensure!(granted == asked, "{what} for {asked:?} was granted {granted:?}");
        Ok(())
    };
    let mut over = None;
    for asked in lengths {
        let created = bench.fresh()?;
        exact(&created.won(&Bid::new(&created.name, A, asked))?, asked, "a create")?;
        let taken = bench.won(&Bid::new(&bench.name, A, asked).over(over))?;
        exact(&taken, asked, "an acquire")?;
        exact(&bench.row()?, asked, "an acquire, observed,")?;
        let lease = bench.take(A, &taken)?;
        let renewed = bench.renewed(&Renewal::new(&bench.name, A, lease.fence(), asked))?;
        exact(&renewed, asked, "a renewal")?;
        exact(&bench.row()?, asked, "a renewal, observed,")?;
        over = Some(renewed.version());
    }
    Ok(())
}

pub(super) fn the_clock_of_the_answer_is_the_one_of_the_row(bench: &Bench<'_>) -> Result<(), Failure> {
    let fresh = |lease: &Lease, what: &str| {
        let ttl = lease.ttl();
        ensure!(ttl <= LONG, "{what} for {LONG:?} has {ttl:?} left");
        ensure!(ttl + ANSWER_SLACK > LONG, "{what} for {LONG:?} has only {ttl:?} left");
        Ok(())
    };
    let lease = bench.create(A)?;
    fresh(&lease, "a create")?;
    let renewed = bench.renewed(&Renewal::new(&bench.name, A, lease.fence(), LONG))?;
    fresh(&renewed, "a renewal")?;
    let taken = bench.take(B, &renewed)?;
    fresh(&taken, "a take-over")?;
    let before = now();
    let first = bench.row()?;
    ensure!(
        first.ttl() <= taken.ttl(),
        "the remaining time grew from {:?} to {:?}",
        taken.ttl(),
        first.ttl()
    );
    let between = now();
    std::thread::sleep(WATCHED);
    let least = since(between);
    let second = bench.row()?;
    let most = since(before);
    let passed = first.ttl().saturating_sub(second.ttl());
    ensure!(passed + RATE_SLACK >= least, "the remaining time fell by {passed:?} in {least:?}");
    ensure!(passed <= most + RATE_SLACK, "the remaining time fell by {passed:?} in {most:?}");
    ensure!(second.now().saturating_since(first.now()) == passed, "now and the remaining time disagree");
    Ok(())
}
