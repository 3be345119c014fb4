//! Judges what an SQLite file, its place and the table are like. Knows no database.

use std::time::Duration;

use tenure::SqliteExamination;

use super::finding::Finding;
use crate::output::short;

/// A lock that takes longer costs renewals.
const SLOW_LOCK: Duration = Duration::from_millis(500);
/// Some reader keeps what is in it from getting into the file.
const LARGE_WAL: u64 = 64 << 20;

pub(crate) fn judge(found: &SqliteExamination) -> Vec<Finding> {
    vec![
        Finding::ok("library", format!("SQLite {}, in this program.", found.version)),
        place(found),
        table(found),
        lock(found),
        durability(found),
        users(found),
    ]
}

fn place(found: &SqliteExamination) -> Finding {
    let what = format!("{} on {}.", found.path.display(), found.file_system);
    if found.in_memory {
        return Finding::unsafe_(
            "place",
            format!("{what} After a reboot it is gone, and fences begin at 1 again."),
        )
        .advice("put it on a disk, or give whatever compares fences a new start with the machine");
    }
    if found.file_system == "overlay" {
        return Finding::note(
            "place",
            format!("{what} That is a container's own layer: gone with it, seen by no other."),
        )
        .advice("mount a directory of the host into every container, and put the file there");
    }
    Finding::ok("place", what)
}

fn table(found: &SqliteExamination) -> Finding {
    match &found.complaint {
        Some(complaint) => Finding::unsafe_("table", format!("the file {complaint}."))
            .advice("compare it with what `tenure schema` prints"),
        None if found.table_exists => Finding::ok("table", "has the right columns and key."),
        None => Finding::broken("table", "there is no table: nobody can lead.").advice("run `tenure init`"),
    }
}

fn lock(found: &SqliteExamination) -> Finding {
    let advice = "find who keeps transactions open (see users); renewals wait for them, and terms end";
    match &found.write_lock {
        Ok(took) if *took < SLOW_LOCK => {
            Finding::ok("write lock", format!("was there within {}.", short(*took)))
        }
        Ok(took) => Finding::note("write lock", format!("took {} to get.", short(*took))).advice(advice),
        Err(error) => Finding::broken("write lock", format!("was not to be had: {error}.")).advice(advice),
    }
}

fn durability(found: &SqliteExamination) -> Finding {
    let what = format!(
        "journal mode {}, synchronous {}; {} kB, and {} kB that are not in the file yet.",
        found.journal_mode,
        found.synchronous,
        found.bytes / 1024,
        found.wal_bytes / 1024
    );
    // `tenure init` sets it where it makes the table.
    if found.journal_mode != "wal" && found.table_exists {
        return Finding::note("durability", format!("{what} Whoever looks waits for whoever writes."))
            .advice("find out who sets the mode, and let it be wal");
    }
    if found.wal_bytes > LARGE_WAL {
        return Finding::note("durability", what)
            .advice("somebody reads without an end and keeps the -wal file from being written back");
    }
    Finding::ok("durability", what)
}

fn users(found: &SqliteExamination) -> Finding {
    let what = match found.others.as_slice() {
        [] => "no other process has it open, as far as this one may look.".to_owned(),
        others => {
            let others: Vec<_> = others.iter().map(u32::to_string).collect();
            format!("open in processes {}.", others.join(", "))
        }
    };
    Finding::ok("users", what)
}
