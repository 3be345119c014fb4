//! Files that can't be used, that are not what they should be, and that go away.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use tenure::{Bid, SqliteStore, Store, StoreError};
use tenure_testground::await_until;

use crate::fleet::{Fleet, LIMIT};
use crate::line::Line;
use crate::node::Options;
use crate::place::{Place, ms};
use crate::profile::P3;

const LEASE: Duration = Duration::from_secs(60);

fn bid() -> Bid<'static> {
    Bid::new("e", "h", LEASE)
}

/// What every call says about the file.
#[track_caller]
fn refused(path: &Path) -> StoreError {
    let store = SqliteStore::open(path).unwrap();
    let error = store.acquire(&bid(), LIMIT).unwrap_err();
    assert!(error.is_fatal(), "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert_eq!(store.observe("e", LIMIT).unwrap_err().to_string(), error.to_string());
    error
}

#[track_caller]
fn refused_for(path: &Path, why: &str) {
    let error = refused(path);
    assert!(error.to_string().contains(why), "{error}");
    let error = SqliteStore::open(path).unwrap().ensure_schema().unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains(why), "{error}");
}

pub(crate) fn what_cannot_be_used_is_refused_with_its_path() {
    let place = Place::new();
    let at = |name: &str| place.around().join(name);
    refused_for(&at("missing/lease.db"), "there is no directory");
    refused_for(&place.directory(), "is a directory");
    std::fs::write(at("text"), "no database\n".repeat(100)).unwrap();
    refused_for(&at("text"), "is not an SQLite database");
    refused_for(&at("text/lease.db"), "is no directory");
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    refused_for(&at("socket"), "is not a plain file");
    // A name that no file can have: perhaps another file system will be mounted there.
    let error = SqliteStore::open(at(&"n".repeat(300))).unwrap().observe("e", LIMIT).unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("nnn"), "{error}");
    // The pages after the header are gone: a damaged file.
    let damaged = SqliteStore::open(at("damaged")).unwrap();
    damaged.ensure_schema().unwrap();
    drop(damaged);
    await_until(LIMIT, "its last connection is closed", || !at("damaged-wal").exists());
    let mut bytes = std::fs::read(at("damaged")).unwrap();
    bytes[100..].fill(7);
    std::fs::write(at("damaged"), bytes).unwrap();
    refused_for(&at("damaged"), "is damaged");
    // Under another name it would have another -wal file.
    std::fs::hard_link(place.path(), at("link")).unwrap();
    refused_for(&at("link"), "hard links");
    refused_for(place.path(), "hard links");
    std::fs::remove_file(at("link")).unwrap();
    assert!(place.another().acquire(&bid(), LIMIT).unwrap().is_some());
}

pub(crate) fn a_table_that_is_missing_or_wrong_is_fatal() {
    let place = Place::empty();
    let error = refused(place.path());
    assert!(error.to_string().contains("call ensure_schema()"), "{error}");
    // Another program's file.
    place.connection().execute_batch("CREATE TABLE other (id INTEGER)").unwrap();
    let error = refused(place.path());
    assert!(error.to_string().contains("call ensure_schema()"), "{error}");
    place.store.ensure_schema().unwrap();
    assert!(place.store.acquire(&bid(), LIMIT).unwrap().is_some());
    // The last fence there is.
    let last = i64::MAX - 1;
    let over = place.store.observe("e", LIMIT).unwrap().into_lease().map(|lease| lease.version());
    let highest = place.store.acquire(&bid().above(last).over(over), LIMIT).unwrap().unwrap();
    let error = place.store.acquire(&bid().over(Some(highest.version())), LIMIT).unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("no fences left"), "{error}");
    // Values that nobody of ours has written.
    for (column, value) in [("fence", "0"), ("fence", "-7")] {
        place.connection().execute(&format!("UPDATE leader_election SET {column} = {value}"), []).unwrap();
        refused(place.path());
    }
    place
        .connection()
        .execute_batch("DROP TABLE leader_election; CREATE TABLE leader_election (name TEXT)")
        .unwrap();
    refused(place.path());
    let error = place.store.ensure_schema().unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("can't carry elections"), "{error}");
    place
        .connection()
        .execute_batch(&format!(
            "DROP TABLE leader_election; {}",
            place.store.schema().replace(" STRICT,", "")
        ))
        .unwrap();
    place.store.ensure_schema().unwrap();
    place.store.acquire(&bid(), LIMIT).unwrap().unwrap();
    // Without STRICT a column can have a value of another type; then nothing is guessed.
    place.connection().execute_batch("UPDATE leader_election SET renewed_at = 'yesterday'").unwrap();
    let error = refused(place.path());
    assert!(error.to_string().contains("expected shape"), "{error}");
    // And what is demanded of other columns is not fulfilled by ours.
    let sql = "DROP TABLE leader_election; CREATE TABLE leader_election (name TEXT NOT NULL PRIMARY KEY, \
               holder TEXT NOT NULL, fence INTEGER NOT NULL CHECK (fence > 5), boot TEXT NOT NULL, acquired_at INTEGER NOT NULL, \
               renewed_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, mark INTEGER NOT NULL, payload BLOB)";
    place.connection().execute_batch(sql).unwrap();
    let error = place.store.acquire(&bid(), LIMIT).unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("can't store"), "{error}");
}

pub(crate) fn the_table_may_have_any_name() {
    let place = Place::new();
    let odd = SqliteStore::builder(place.path()).table("we \"ird.x; --").open().unwrap();
    odd.ensure_schema().unwrap();
    odd.ensure_schema().unwrap();
    assert!(odd.acquire(&bid(), LIMIT).unwrap().is_some());
    assert!(place.store.observe("e", LIMIT).unwrap().lease().is_none(), "another table");
    assert!(odd.observe("e", LIMIT).unwrap().lease().is_some());
}

/// A whole directory takes the place of the other one, as a restored backup does.
fn replace(place: &Place) {
    let fresh = place.around().join("fresh");
    std::fs::create_dir(&fresh).unwrap();
    let store = SqliteStore::open(fresh.join("lease.db")).unwrap();
    store.ensure_schema().unwrap();
    drop(store);
    await_until(LIMIT, "its last connection is closed", || !fresh.join("lease.db-wal").exists());
    std::fs::rename(place.directory(), place.around().join("old")).unwrap();
    std::fs::rename(&fresh, place.directory()).unwrap();
}

pub(crate) fn a_file_that_was_replaced_is_left() {
    let place = Place::new();
    let lease = place.store.acquire(&bid(), LIMIT).unwrap().unwrap();
    replace(&place);
    assert!(
        place.store.observe("e", LIMIT).unwrap().lease().is_none(),
        "the file that is there now has no row"
    );
    let renewal = tenure::Renewal::new("e", "h", lease.fence(), LEASE);
    assert!(place.store.renew(&renewal, LIMIT).unwrap().is_none());
    std::fs::remove_dir_all(place.directory()).unwrap();
    assert!(place.store.renew(&renewal, LIMIT).unwrap_err().is_fatal());
    assert!(refused(place.path()).to_string().contains("there is no directory"));
}

pub(crate) fn a_file_that_was_replaced_under_a_leader_ends_its_term() {
    let place = Place::new();
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&place.options("a"));
    let second = fleet.start(&place.options("b"));
    fleet.await_story(LIMIT, "the other one knows", |fleet| {
        let seen = |line: &Line| matches!(line, Line::Seen { fence, .. } if *fence == first.fence);
        fleet.nodes[second].story.lines.iter().any(seen).then_some(())
    });
    replace(&place);
    fleet.await_lost(P3.step(), first.fence);
    let next = fleet.await_lead(P3.take() + P3.lease, "somebody leads", |led| led.fence != first.fence);
    assert!(next.fence > first.fence, "fences go on above those that were seen");
    fleet.finish();
    fleet.judge(2);
}

/// Somebody takes the two files for left over. Whoever has them open notices, and does not lead where nobody sees it.
pub(crate) fn files_beside_it_that_are_deleted_under_a_leader_split_nothing() {
    let place = Place::new();
    let mut fleet = Fleet::new();
    let first = fleet.start_leader(&place.options("a"));
    fleet.start(&place.options("b"));
    fleet.await_held(&first, P3.renew * 3);
    // So that the row is in the file itself, and the term can go on.
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    let busy: i64 = place.connection().query_row(checkpoint, [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0);
    for end in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", place.path().display())).unwrap();
    }
    // Somebody new sees the same row as the others, and not one that never changes.
    fleet.start(&place.options("c"));
    fleet.await_held(&first, P3.renew * 3 + P3.lease * 3);
    assert_eq!(fleet.leads().len(), 1, "{}", fleet.told());
    let seen = place.another().observe("e", LIMIT).unwrap().into_lease().unwrap();
    assert!(seen.ttl() > P3.lease - P3.renew - P3.op * 2, "the leader's renewals are in the file: {seen:?}");
    fleet.finish();
    fleet.judge(1);
}

/// Two stores of one process keep the old files for each other, and neither writes where nobody sees it.
pub(crate) fn files_beside_it_that_are_deleted_are_left_by_all_of_a_process() {
    let place = Place::new();
    let other = place.another();
    place.store.acquire(&bid(), LIMIT).unwrap().unwrap();
    assert!(other.observe("e", LIMIT).unwrap().lease().is_some());
    place.connection().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    for end in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", place.path().display())).unwrap();
    }
    let error = place.store.observe("e", LIMIT).unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("the files beside it"), "{error}");
    // The other store lets go of them with its next call.
    await_until(LIMIT, "both are back", || {
        other.observe("e", LIMIT).is_ok() && place.store.observe("e", LIMIT).is_ok()
    });
    let seen = place.store.observe("e", LIMIT).unwrap().into_lease().unwrap();
    let renewal = tenure::Renewal::new("e", "h", seen.fence(), LEASE);
    let renewed = place.store.renew(&renewal, LIMIT).unwrap().unwrap();
    let others = other.observe("e", LIMIT).unwrap().into_lease().unwrap();
    assert_eq!(others.version(), renewed.version());
}

/// How many descriptors this process has of the place's files.
fn open_here(place: &Place) -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    links.filter(|link| link.starts_with(place.directory())).count()
}

/// Whether the files are still its own can't be told, so nothing is written back to them as it lets go.
pub(crate) fn a_file_that_can_not_be_looked_at_is_left_as_it_is() {
    let place = Place::new();
    let way = place.around().join("way");
    std::os::unix::fs::symlink(place.directory(), &way).unwrap();
    let store = SqliteStore::open(way.join(place.path().file_name().unwrap())).unwrap();
    let lease = store.acquire(&bid(), LIMIT).unwrap().unwrap();
    // The store holds the only connections, and the row is in the file beside it.
    std::fs::remove_file(&way).unwrap();
    std::os::unix::fs::symlink(&way, &way).unwrap();
    let error = store.renew(&tenure::Renewal::new("e", "h", lease.fence(), LEASE), LIMIT).unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("can't be looked at"), "{error}");
    drop(store);
    await_until(LIMIT, "its connections are closed", || open_here(&place) == 0);
    let beside = std::fs::metadata(format!("{}-wal", place.path().display()));
    assert!(beside.is_ok_and(|file| file.len() > 0), "it was written back");
}

pub(crate) fn the_last_clone_leaves_nothing_behind() {
    let place = Place::new();
    let store = place.another();
    let clone = store.clone();
    store.acquire(&bid(), LIMIT).unwrap();
    drop(store);
    clone.observe("e", LIMIT).unwrap();
    assert!(open_here(&place) >= 2, "the file and its -wal");
    drop(clone);
    await_until(LIMIT, "the connections are closed", || open_here(&place) == 0);
    assert!(!place.directory().join("lease.db-wal").exists(), "the last connection takes it away");
}

/// As the user that a service runs as, who was not given the right.
pub(crate) fn what_a_user_may_not_write_is_fatal() {
    const NOBODY: u32 = 65_534;
    let place = Place::new();
    let allow =
        |path: &Path, mode: u32| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    allow(place.around(), 0o755);
    let cases: [(u32, u32, &str); 3] = [
        (0o777, 0o644, "may not be read and written"),
        (0o755, 0o666, "may not create any"),
        (0o700, 0o666, "may not enter"),
    ];
    for (directory, file, why) in cases {
        allow(&place.directory(), directory);
        allow(place.path(), file);
        let mut fleet = Fleet::new();
        fleet.start(&Options { user: Some(NOBODY), ..place.options("nobody") });
        let text = fleet.await_story(LIMIT, "it is told why", |fleet| {
            fleet.lines().find_map(|(_, line)| match line {
                Line::Err { fatal: true, text, .. } => Some(text.clone()),
                _ => None,
            })
        });
        assert!(text.contains("lease.db") && text.contains(why), "{text}");
        fleet.finish();
    }
    allow(&place.directory(), 0o777);
    let mut fleet = Fleet::new();
    fleet.start_leader(&Options { user: Some(NOBODY), ..place.options("nobody") });
    std::thread::sleep(ms(150));
    fleet.finish();
}
