//! From PostgreSQL's values to ours and back.

use std::error::Error;

use postgres::Row;
use postgres::types::private::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::error;
use crate::lease::{Fence, Lease, LeaseTimes, Observation, Timestamp};
use crate::store::StoreError;

/// From 1970-01-01, our zero, to 2000-01-01, PostgreSQL's.
const EPOCHS_APART_MICROS: i64 = 946_684_800_000_000;

/// A `timestamptz` as it is sent: microseconds, with the infinities at both ends of the range.
///
/// The driver's own conversion to the system's time type turns infinity into a date.
#[derive(Clone, Copy, Debug)]
pub(super) struct Micros(pub(super) Timestamp);

impl<'a> FromSql<'a> for Micros {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Micros, Box<dyn Error + Sync + Send>> {
        let micros = match i64::from_be_bytes(raw.try_into()?) {
            i64::MIN => i64::MIN,
            since_2000 => since_2000.saturating_add(EPOCHS_APART_MICROS),
        };
        Ok(Micros(Timestamp::from_micros(micros)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

impl ToSql for Micros {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let micros = match self.0.as_micros() {
            i64::MAX => i64::MAX,
            since_1970 => since_1970.saturating_sub(EPOCHS_APART_MICROS),
        };
        out.extend_from_slice(&micros.to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

/// As `bigint`, for the fenced writes of applications.
impl ToSql for Fence {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.get().to_sql(ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::INT8
    }

    to_sql_checked!();
}

/// The lease in a row of `sql`'s column order.
pub(super) fn lease(row: &Row, name: &str) -> Result<Lease, StoreError> {
    let fence: i64 = get(row, 1)?;
    let fence = Fence::try_from(fence).map_err(|invalid| {
        StoreError::fatal(format!("the row of the election {name:?} holds a fence that nobody issued"))
            .with_source(invalid)
    })?;
    let instant = |column| get::<Micros>(row, column).map(|micros| micros.0);
    let times = LeaseTimes {
        acquired_at: instant(2)?,
        renewed_at: instant(3)?,
        expires_at: instant(4)?,
        now: instant(7)?,
    };
    let holder: String = get(row, 0)?;
    let mark: i64 = get(row, 6)?;
    Ok(Lease::new(name, holder, fence, times)
        .with_payload(get(row, 5)?)
        .with_mark(mark.unsigned_abs())
        .with_timeline(timeline(row)?))
}

/// Whether an observation's row comes from a standby. Its word is not taken: it may lag behind the primary.
pub(super) fn is_standby(row: &Row) -> bool {
    // Unreadable counts as one.
    row.try_get(9).unwrap_or(true)
}

/// Whether an observation was made in a table that a crash empties.
pub(super) fn is_unlogged(row: &Row) -> Result<bool, StoreError> {
    get::<Option<bool>>(row, 10).map(Option::unwrap_or_default)
}

/// What an observation's row says.
pub(super) fn observation(row: &Row, name: &str) -> Result<Observation, StoreError> {
    match get::<Option<String>>(row, 0)? {
        Some(_) => lease(row, name).map(Observation::of),
        None => Ok(Observation::vacant(timeline(row)?)),
    }
}

/// What a list's row says, if it is one of an election.
pub(super) fn listed(row: &Row) -> Result<Option<Lease>, StoreError> {
    match get::<Option<String>>(row, 10)? {
        Some(name) => lease(row, &name).map(Some),
        None => Ok(None),
    }
}

fn timeline(row: &Row) -> Result<Option<u32>, StoreError> {
    let timeline: Option<i64> = get(row, 8)?;
    Ok(timeline.and_then(|timeline| u32::try_from(timeline).ok()))
}

fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, StoreError> {
    row.try_get(column).map_err(error::wrong_shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(micros: i64) -> i64 {
        let mut wire = BytesMut::new();
        Micros(Timestamp::from_micros(micros)).to_sql(&Type::TIMESTAMPTZ, &mut wire).unwrap();
        Micros::from_sql(&Type::TIMESTAMPTZ, &wire).unwrap().0.as_micros()
    }

    #[test]
    fn timestamps_survive_the_wire() {
        for micros in [0, 1, -1, 946_684_800_000_000, 1_700_000_000_123_457, i64::MIN, i64::MAX, i64::MAX - 1]
        {
            assert_eq!(there_and_back(micros), micros);
        }
    }

    #[test]
    fn what_postgres_can_count_and_we_cannot_is_infinite() {
        let last = 9_223_371_331_199_999_999_i64.to_be_bytes();
        assert_eq!(Micros::from_sql(&Type::TIMESTAMPTZ, &last).unwrap().0.as_micros(), i64::MAX);
        assert!(Micros::from_sql(&Type::TIMESTAMPTZ, &[0; 4]).is_err());
    }

    #[test]
    fn a_fence_is_a_bigint() {
        let mut wire = BytesMut::new();
        Fence::try_from(7).unwrap().to_sql(&Type::INT8, &mut wire).unwrap();
        assert_eq!(&wire[..], [0, 0, 0, 0, 0, 0, 0, 7]);
        assert!(!<Fence as ToSql>::accepts(&Type::INT4));
    }
}
