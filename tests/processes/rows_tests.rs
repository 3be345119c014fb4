//! The row checker is told fabricated histories, too.

use std::time::Duration;

use crate::rows::{Row, Takeover, faults, takeover};

const LEASE: Duration = Duration::from_millis(3);

fn row(holder: &str, fence: i64, acquired: i64, renewed: i64) -> Row {
    let expires = renewed + 3_000;
    Row { at: renewed + 1, holder: holder.to_owned(), fence, acquired, renewed, expires }
}

fn released(row: &Row, at: i64) -> Row {
    Row { at, expires: 0, ..row.clone() }
}

pub(crate) fn bad_rows_are_told_from_good_ones() {
    let first = row("a", 1, 10_000, 10_000);
    let renewed = row("a", 1, 10_000, 11_000);
    let second = row("b", 2, 14_000, 14_000);
    let third = row("a", 3, 14_700, 14_700);
    let good = [first.clone(), renewed.clone(), second.clone(), released(&second, 14_500), third];
    assert_eq!(faults(&good, LEASE), Vec::<String>::new());
    assert_eq!(takeover(&good, 2), Takeover::AfterExpiry(Duration::ZERO));
    assert_eq!(takeover(&good, 3), Takeover::AfterRelease(Duration::from_micros(200)));
    // A bid whose grant was not heard of, taken over by who made it.
    let unheard = row("b", 2, 14_100, 14_100);
    let own = [first.clone(), renewed.clone(), unheard, row("b", 3, 14_200, 14_200)];
    assert_eq!(takeover(&own, 3), Takeover::AfterExpiry(Duration::from_micros(100)));
    let early = row("b", 2, 13_999, 13_999);
    let bad: [(&str, &[Row]); 8] = [
        ("before the expiry", &[renewed.clone(), early]),
        ("fell", &[second.clone(), row("a", 1, 18_000, 18_000)]),
        ("under its fence", &[first.clone(), row("b", 1, 10_000, 11_000)]),
        ("under its fence", &[first.clone(), row("a", 1, 10_500, 11_000)]),
        ("goes back", &[renewed, first.clone()]),
        ("of a released lease", &[first.clone(), released(&first, 10_500), row("a", 1, 10_000, 11_000)]),
        ("an expired lease", &[first.clone(), row("a", 1, 10_000, 13_000)]),
        ("not a whole lease", &[Row { expires: 12_999, ..first }]),
    ];
    for (what, rows) in bad {
        let found = faults(rows, LEASE);
        assert!(found.iter().any(|fault| fault.contains(what)), "no {what:?} among {found:#?}");
    }
}
