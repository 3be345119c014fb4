//! The row under the fleet vanishes or becomes an older one. Whoever leads may still be inside the term that the row
//! does not show any more, so all that have seen it wait for a whole lease from when they saw the change, and the fences
//! go on above what they have seen.

use std::io::{Read, Write};

use tenure::PostgresStore;
use tenure_testground::Mode;

use crate::fleet::line::{Line, now};
use crate::fleet::profile::SLACK;
use crate::fleet::{Ground, LIMIT, Led, Way, rows};
use crate::report::Report;
use crate::stage::Stage;

/// What becomes of the leader at the moment when the row breaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leader {
    /// It hears of it at its next renewal.
    Hears,
    /// Its path is black-holed, so that it leads up to its deadline.
    IsCutOff,
}

/// Breaks the row under `led`: the term ends, and nobody leads before the longest lease is over.
#[track_caller]
fn survive(stage: &mut Stage<'_>, led: &Led, leader: Leader, fault: impl FnOnce(&Ground<'_>)) -> Led {
    stage.ground.await_renewal();
    let before = now();
    if leader == Leader::IsCutOff {
        stage.proxies[led.node].set(Mode::BlackHole);
    }
    fault(&stage.ground);
    let broken = now();
    match leader {
        Leader::Hears => stage.is_refused(led, broken),
        Leader::IsCutOff => stage.steps_down(led, broken),
    }
    let next = stage.leads_again(led, broken, stage.profile.take() - SLACK);
    stage.is_waited_for(&next, before);
    stage.proxies[led.node].set(Mode::Pass);
    let healed = now();
    stage.goes_on(&next);
    stage.calms(healed);
    next
}

fn delete(ground: &Ground<'_>) {
    ground.database.execute("DELETE FROM leader_election WHERE name = 'e'");
}

/// `DELETE` of the row.
pub(crate) fn row_deleted(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    survive(&mut stage, &first, Leader::Hears, delete);
    stage.finish(2)
}

/// `DELETE` of the row while its holder is cut off.
pub(crate) fn row_deleted_and_its_holder_cut_off(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    survive(&mut stage, &first, Leader::IsCutOff, delete);
    stage.finish(2)
}

/// `TRUNCATE` of the table.
pub(crate) fn table_truncated(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    survive(&mut stage, &first, Leader::Hears, |ground| ground.database.execute("TRUNCATE leader_election"));
    stage.finish(2)
}

/// `DROP TABLE`, and more than a lease later the table is made again as every program makes it at its start.
pub(crate) fn table_dropped_and_recreated(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    stage.ground.await_renewal();
    stage.ground.database.execute("DROP TABLE leader_election");
    let dropped = now();
    // It is an error, and might pass: the term lives to its deadline.
    stage.steps_down(&first, dropped);
    stage.nobody_leads_for(&first, stage.profile.lease);
    let told = |line: &Line| matches!(line, Line::Err { sqlstate, fatal: true, .. } if sqlstate == "42P01");
    for node in stage.fleet.running() {
        assert!(stage.fleet.nodes[node].story.lines.iter().any(told), "{}", stage.fleet.told());
    }
    let store = PostgresStore::connect(&stage.ground.dsn()).expect("a usable DSN");
    let before = now();
    store.ensure_schema().expect("the table is not there");
    let created = now();
    // The nodes pause for a retry period after what is fatal.
    let bound = stage.profile.take() - SLACK + stage.profile.retry;
    let next = stage.leads_again(&first, created, bound);
    stage.is_waited_for(&next, before);
    stage.goes_on(&next);
    stage.calms(created);
    stage.finish_by_stories(2)
}

/// Makes the row what it was when it last had this fence.
fn set_back(ground: &Ground<'_>, fence: i64) {
    let wanted = format!("name = 'e' AND fence = {fence}");
    let set_back = rows::set_back(&mut ground.database.client(), &wanted, 0).expect("a statement");
    assert_eq!(set_back, Some(fence), "an earlier version");
}

/// The second term, after the first leader was cut off for a while. All have seen it, the first one too.
fn second_term_after_a_cut(stage: &mut Stage<'_>) -> Led {
    let first = stage.first;
    stage.proxies[first.node].set(Mode::Reset);
    let cut = now();
    stage.steps_down(&first, cut);
    let second = stage.takes_over(&first);
    stage.proxies[first.node].set(Mode::Pass);
    stage.goes_on(&second);
    second
}

/// The row is set back to the last version of the term before, whose holder is a candidate again.
pub(crate) fn row_set_back_to_an_earlier_term(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let second = second_term_after_a_cut(&mut stage);
    let fence = stage.first.fence;
    survive(&mut stage, &second, Leader::Hears, |ground| set_back(ground, fence));
    stage.finish_by_stories(3)
}

/// The same while the present holder is cut off: the row says nothing of a leader that leads for two seconds more.
pub(crate) fn row_set_back_and_the_leader_cut_off(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let second = second_term_after_a_cut(&mut stage);
    let fence = stage.first.fence;
    survive(&mut stage, &second, Leader::IsCutOff, |ground| set_back(ground, fence));
    stage.finish_by_stories(3)
}

/// The row is set back to the release of the term before, while the present holder is cut off.
pub(crate) fn row_set_back_to_an_earlier_release(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    stage.fleet.terminate(first.node);
    let (status, ended) = stage.fleet.await_exit(first.node, LIMIT);
    assert!(status.success(), "{status}");
    let second = stage.leads_again(&first, ended, stage.profile.hand() - SLACK);
    stage.goes_on(&second);
    survive(&mut stage, &second, Leader::IsCutOff, |ground| set_back(ground, first.fence));
    stage.finish_by_stories(3)
}

/// The whole table as `COPY` writes it.
fn dump(ground: &Ground<'_>) -> Vec<u8> {
    let mut dump = Vec::new();
    let mut client = ground.database.client();
    let mut copy = client.copy_out("COPY leader_election TO STDOUT").expect("a dump");
    copy.read_to_end(&mut dump).expect("all of it");
    dump
}

/// In one transaction: nobody sees the table empty.
fn load(ground: &Ground<'_>, dump: &[u8]) {
    let mut client = ground.database.client();
    let mut transaction = client.transaction().expect("a transaction");
    transaction.batch_execute("TRUNCATE leader_election").expect("an empty table");
    let mut copy = transaction.copy_in("COPY leader_election FROM STDIN").expect("a way in");
    copy.write_all(dump).expect("all of it");
    assert_eq!(copy.finish().expect("a loaded dump"), 1);
    transaction.commit().expect("a commit");
}

/// The table is replaced by a dump of itself from more than a lease ago, in the same term.
pub(crate) fn table_replaced_by_an_older_dump(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    let dump = dump(&stage.ground);
    stage.goes_on(&first);
    survive(&mut stage, &first, Leader::Hears, |ground| load(ground, &dump));
    stage.finish_by_stories(2)
}

/// The same while the leader is cut off: the row shows its own term, and an end that has long passed.
pub(crate) fn table_replaced_and_the_leader_cut_off(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    let dump = dump(&stage.ground);
    stage.goes_on(&first);
    survive(&mut stage, &first, Leader::IsCutOff, |ground| load(ground, &dump));
    stage.finish_by_stories(2)
}
