//! A row as it is stored, and as participants see it.

use rusqlite::types::Type;
use rusqlite::{Error, Row};

use super::boot::Boot;
use crate::lease::{Fence, Lease, LeaseTimes, Timestamp};

/// The columns, in the order of [`COLUMNS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    holder: String,
    fence: Fence,
    boot: String,
    acquired_at: i64,
    renewed_at: i64,
    expires_at: i64,
    mark: i64,
    payload: Option<Vec<u8>>,
}

pub(super) const COLUMNS: &str = "holder, fence, boot, acquired_at, renewed_at, expires_at, mark, payload";

impl Stored {
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Stored> {
        let no_fence = |error| Error::FromSqlConversionFailure(1, Type::Integer, Box::new(error));
        Ok(Stored {
            holder: row.get(0)?,
            fence: Fence::try_from(row.get::<_, i64>(1)?).map_err(no_fence)?,
            boot: row.get(2)?,
            acquired_at: row.get(3)?,
            renewed_at: row.get(4)?,
            expires_at: row.get(5)?,
            mark: row.get(6)?,
            payload: row.get(7)?,
        })
    }

    pub(super) fn lease(self, name: &str, boot: &Boot, now: Timestamp) -> Lease {
        let times = self.times(boot, now);
        Lease::new(name, self.holder, self.fence, times)
            .with_payload(self.payload)
            // As bits, so that every mark has one of its own.
            .with_mark(self.mark as u64)
    }

    /// The times as they are, if they are of this boot. Nobody who was told anything in an earlier boot is alive
    /// to hold a lease, so one of an earlier boot is over. Its times are moved before this boot's zero,
    /// always by the same distance, so that the row stays one version: it is expired, and its length is kept. That it
    /// was released stays visible too.
    fn times(&self, boot: &Boot, now: Timestamp) -> LeaseTimes {
        let released = self.expires_at == Timestamp::EPOCH.as_micros();
        let distance = match (self.boot == boot.id(), released) {
            (true, _) => 0,
            (false, true) => self.renewed_at,
            (false, false) => self.expires_at.max(self.renewed_at).saturating_add(1),
        };
        let moved = |micros: i64| Timestamp::from_micros(micros.saturating_sub(distance));
        LeaseTimes {
            acquired_at: moved(self.acquired_at),
            renewed_at: moved(self.renewed_at),
            expires_at: if released { Timestamp::EPOCH } else { moved(self.expires_at) },
            now,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: i64 = 1_000_000;
    const DAY: i64 = 86_400 * SECOND;

    fn stored(renewed_at: i64, expires_at: i64) -> Stored {
        Stored {
            holder: "h".into(),
            fence: Fence::try_from(7).unwrap(),
            boot: "one".into(),
            acquired_at: renewed_at - SECOND,
            renewed_at,
            expires_at,
            mark: 3,
            payload: None,
        }
    }

    fn seen(stored: &Stored, boot: &str, now: i64) -> Lease {
        stored.clone().lease("n", &Boot::named(boot), Timestamp::from_micros(now))
    }

    #[test]
    fn in_the_same_boot_the_times_are_what_is_stored() {
        let lease = seen(&stored(DAY, DAY + 15 * SECOND), "one", DAY + SECOND);
        assert_eq!(lease.ttl(), Duration::from_secs(14));
        assert_eq!(lease.renewed_at().as_micros(), DAY);
        assert_eq!((lease.fence().get(), lease.version().mark()), (7, 3));
    }

    #[test]
    fn b29_a_lease_of_an_earlier_boot_is_over_whatever_the_clock_says() {
        // The new boot's clock begins again at zero: for a day the old expiry lies ahead of it.
        let row = stored(DAY, DAY + 15 * SECOND);
        for now in [1, SECOND, DAY, 2 * DAY] {
            let lease = seen(&row, "two", now);
            assert!(lease.is_expired() && !lease.is_released(), "{lease:?}");
            assert_eq!((lease.ttl(), lease.length()), (Duration::ZERO, Duration::from_secs(15)));
            assert!(lease.renewed_at() < lease.expires_at() && lease.acquired_at() < lease.renewed_at());
            assert_eq!(lease.version(), seen(&row, "two", now + 5).version(), "one row, one version");
        }
    }

    #[test]
    fn a_release_is_seen_in_any_boot() {
        for boot in ["one", "two"] {
            let lease = seen(&stored(DAY, 0), boot, SECOND);
            assert!(lease.is_released() && lease.is_expired(), "{lease:?}");
            assert_eq!(lease.length(), Duration::ZERO);
        }
    }

    #[test]
    fn numbers_at_the_ends_of_their_range_do_no_harm() {
        for (renewed, expires) in [(i64::MAX, i64::MAX), (i64::MIN + SECOND, i64::MIN), (0, i64::MAX)] {
            for boot in ["one", "two"] {
                let mut row = stored(SECOND, expires);
                row.renewed_at = renewed;
                let lease = seen(&row, boot, SECOND);
                assert!(boot == "one" || lease.is_expired(), "{lease:?}");
            }
        }
        let mut row = stored(1, 2);
        row.mark = -1;
        assert_eq!(seen(&row, "one", 1).version().mark(), u64::MAX);
    }
}
