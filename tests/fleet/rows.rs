//! The row's own history: a trigger writes down every state of it, by the database's clock.

use std::time::{Duration, SystemTime};

use tenure_testground::Database;
use tenure_testground::postgres::{Error, GenericClient};

use super::line::{Stamp, now};
use super::stillness::promised;

const AUDIT: &str = "
CREATE TABLE public.lease_history (
    seq bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(), name text, holder text,
    fence bigint, acquired_at timestamptz, renewed_at timestamptz, expires_at timestamptz
);
CREATE FUNCTION public.write_down() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO public.lease_history (name, holder, fence, acquired_at, renewed_at, expires_at)
    VALUES (NEW.name, NEW.holder, NEW.fence, NEW.acquired_at, NEW.renewed_at, NEW.expires_at);
    RETURN NULL;
END $$;
CREATE TRIGGER write_down AFTER INSERT OR UPDATE ON public.leader_election
    FOR EACH ROW EXECUTE FUNCTION public.write_down();
";

/// From now on everything is written down.
pub(crate) fn audit(database: &Database<'_>) {
    database.execute(AUDIT);
}

/// One state of the row; times in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) at: i64,
    pub(crate) holder: String,
    pub(crate) fence: i64,
    pub(crate) acquired: i64,
    pub(crate) renewed: i64,
    pub(crate) expires: i64,
}

impl Row {
    pub(crate) fn is_released(&self) -> bool {
        self.expires == 0
    }
}

pub(crate) fn history(database: &Database<'_>, election: &str) -> Vec<Row> {
    let micros = |column: &str| format!("(extract(epoch FROM {column}) * 1000000)::bigint");
    let columns: Vec<String> = ["at", "acquired_at", "renewed_at", "expires_at"].map(micros).into();
    let sql = format!(
        "SELECT holder, fence, {} FROM public.lease_history WHERE name = $1 ORDER BY seq",
        columns.join(", ")
    );
    let rows = database.client().query(&sql, &[&election]).expect("the row's history");
    let read = |row: &tenure_testground::postgres::Row| Row {
        holder: row.get(0),
        fence: row.get(1),
        at: row.get(2),
        acquired: row.get(3),
        renewed: row.get(4),
        expires: row.get(5),
    };
    rows.iter().map(read).collect()
}

/// Makes the row what it was so many writes ago, or as long ago as is known, counting only states as wanted; returns
/// its fence.
pub(crate) fn set_back(
    work: &mut impl GenericClient,
    wanted: &str,
    writes: u64,
) -> Result<Option<i64>, Error> {
    let sql = format!(
        "WITH states AS (SELECT * FROM lease_history WHERE {wanted})
        UPDATE leader_election AS lease
          SET holder = old.holder, fence = old.fence, acquired_at = old.acquired_at,
              renewed_at = old.renewed_at, expires_at = old.expires_at
         FROM (SELECT * FROM states ORDER BY seq DESC
               OFFSET (SELECT greatest(least($1, count(*) - 1), 0) FROM states) LIMIT 1) AS old
        WHERE lease.name = 'e' RETURNING lease.fence"
    );
    let writes = i64::try_from(writes).expect("not so many");
    Ok(work.query_opt(&sql, &[&writes])?.map(|row| row.get(0)))
}

/// Everything that is wrong with a row's history. `lease`: what everybody asks for.
pub(crate) fn faults(rows: &[Row], lease: Duration) -> Vec<String> {
    let mut faults = Vec::new();
    let lease = i64::try_from(lease.as_micros()).expect("a short lease");
    for pair in rows.windows(2) {
        let [before, after] = pair else { continue };
        let mut fault = |what: &str| faults.push(format!("{what}: {before:?}, then {after:?}"));
        if after.fence < before.fence {
            fault("the fence fell");
        }
        if after.fence == before.fence {
            if after.holder != before.holder || after.acquired != before.acquired {
                fault("a term was changed under its fence");
            }
            if !after.is_released() && (before.is_released() || after.expires < before.expires) {
                fault("a renewal of a released lease, or one that goes back");
            }
            if !after.is_released() && after.renewed >= before.expires {
                fault("an expired lease was renewed");
            }
        } else if after.holder != before.holder && after.acquired < before.expires {
            fault("taken over before the expiry");
        }
    }
    for row in rows.iter().filter(|row| !row.is_released()) {
        if row.expires - row.renewed != lease || row.expires <= row.at {
            faults.push(format!("not a whole lease from the moment of the write on: {row:?}"));
        }
    }
    faults
}

/// How the lease came to `fence`: how long after the release, or after the expiry where there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takeover {
    AfterRelease(Duration),
    AfterExpiry(Duration),
}

/// From the row's own history. Panics where the lease was taken too early.
#[track_caller]
pub(crate) fn takeover(rows: &[Row], fence: i64) -> Takeover {
    let found = rows.iter().position(|row| row.fence == fence);
    let mut at =
        found.filter(|at| *at > 0).unwrap_or_else(|| panic!("no change to fence {fence} in {rows:#?}"));
    // A participant whose bid was granted without an answer takes its own row over at once (rule 10): what counts is
    // how it came by that one.
    let own = |at: usize| !rows[at - 1].is_released() && rows[at - 1].holder == rows[at].holder;
    while at > 1 && own(at) && rows[at].acquired < rows[at - 1].expires {
        at -= 1;
    }
    let (before, taken) = (&rows[at - 1], &rows[at]);
    let since = if before.is_released() { before.at } else { before.expires };
    promised!(taken.acquired >= since, "too early: {before:?} {taken:?}");
    let gap = Duration::from_micros((taken.acquired - since).unsigned_abs());
    if before.is_released() { Takeover::AfterRelease(gap) } else { Takeover::AfterExpiry(gap) }
}

/// What both clocks may differ by where one is laid over the other: they are read one after the other, and the wall
/// clock is nudged now and then.
pub(crate) const TOLERANCE: Duration = Duration::from_millis(5);

/// A time of the database as a stamp. Both clocks are this machine's.
pub(crate) fn stamp(micros: i64) -> Stamp {
    // They are read one after the other, and this thread may stand still in between.
    let (wall, here) = std::iter::repeat_with(|| {
        let before = now();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        (before, wall, now())
    })
    .find(|(before, _, after)| *after - *before <= Duration::from_millis(1))
    .map(|(before, wall, after)| (wall, (before + after) / 2))
    .expect("sooner or later");
    Duration::from_micros(u64::try_from(micros).expect("after 1970")) - (wall - here)
}
