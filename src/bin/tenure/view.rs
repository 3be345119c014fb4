//! A lease as people and programs are shown it. All times are differences on the database's own clock.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tenure::Lease;

use crate::output::printable;

/// What the label of an operator begins with; the user and, behind an `@`, the host follow.
pub(crate) const OPERATOR: &str = "operator-";

/// Whether somebody leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Leading,
    /// Live, and nobody's: `tenure resign` made the leader step down, which may still be inside its term.
    Deposed,
    Expired,
    Released,
}

impl State {
    pub(crate) fn of(lease: &Lease) -> State {
        if lease.is_released() {
            State::Released
        } else if lease.is_expired() {
            State::Expired
        } else if is_operators(lease) {
            State::Deposed
        } else {
            State::Leading
        }
    }

    /// Whether the lease runs.
    pub(crate) fn is_live(self) -> bool {
        matches!(self, State::Leading | State::Deposed)
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            State::Leading => "leading",
            State::Deposed => "deposed",
            State::Expired => "expired",
            State::Released => "released",
        }
    }
}

/// Nobody renews what an operator has taken; a leader that chose a label like an operator's does.
pub(crate) fn is_operators(lease: &Lease) -> bool {
    let label = lease.holder().strip_prefix(OPERATOR);
    label.is_some_and(|rest| rest.contains('@')) && lease.renewed_at() == lease.acquired_at()
}

/// How long ago the lease was last renewed.
pub(crate) fn age(lease: &Lease) -> Duration {
    lease.now().saturating_since(lease.renewed_at())
}

/// The payload as text where it is text, in hexadecimal otherwise.
pub(crate) fn payload(lease: &Lease) -> Option<String> {
    let bytes = lease.payload()?;
    Some(match std::str::from_utf8(bytes) {
        Ok(text) => printable(text),
        Err(_) => format!("0x{}", hex(bytes)),
    })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The keys that `tenure status --json` documents.
pub(crate) fn json(election: &str, lease: Option<&Lease>) -> Map<String, Value> {
    let millis = |duration: Duration| Value::from(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    let text =
        |lease: &Lease| lease.payload().and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::to_owned);
    let state = lease.map_or("vacant", |lease| State::of(lease).word());
    let length = lease.filter(|lease| !lease.is_released()).map(|lease| millis(lease.length()));
    let fields = [
        ("election", Value::from(election)),
        ("state", Value::from(state)),
        ("holder", json!(lease.map(Lease::holder))),
        ("fence", json!(lease.map(|lease| lease.fence().get()))),
        ("timeline", json!(lease.and_then(Lease::timeline))),
        ("remaining_ms", json!(lease.map(|lease| millis(lease.ttl())))),
        ("renewed_ms_ago", json!(lease.map(|lease| millis(age(lease))))),
        (
            "acquired_ms_ago",
            json!(lease.map(|lease| millis(lease.now().saturating_since(lease.acquired_at())))),
        ),
        ("length_ms", json!(length)),
        ("payload", json!(lease.and_then(text))),
        ("payload_hex", json!(lease.and_then(Lease::payload).map(hex))),
    ];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tenure::{Fence, LeaseTimes, Timestamp};

    /// A lease of 15 s, renewed at second 100 and looked at so many seconds later.
    pub(crate) fn lease(fence: i64, age: i64) -> Lease {
        held(&format!("h{fence}"), fence, age)
    }

    pub(crate) fn held(holder: &str, fence: i64, age: i64) -> Lease {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let (acquired_at, renewed_at, expires_at, now) = (at(90), at(100), at(115), at(100 + age));
        let times = LeaseTimes { acquired_at, renewed_at, expires_at, now };
        Lease::new("n", holder, Fence::try_from(fence).unwrap(), times).with_mark(1)
    }

    /// One that an operator took at second 100, and that was looked at so many seconds later.
    pub(crate) fn deposed(fence: i64, age: i64) -> Lease {
        let taken = held("operator-alice@web-0-1f", fence, age);
        let mut times = times(&taken);
        times.acquired_at = times.renewed_at;
        Lease::new("n", taken.holder(), taken.fence(), times).with_mark(1)
    }

    pub(crate) fn times(lease: &Lease) -> LeaseTimes {
        LeaseTimes {
            acquired_at: lease.acquired_at(),
            renewed_at: lease.renewed_at(),
            expires_at: lease.expires_at(),
            now: lease.now(),
        }
    }

    pub(crate) fn released(fence: i64) -> Lease {
        let times = LeaseTimes {
            acquired_at: Timestamp::from_micros(1),
            renewed_at: Timestamp::from_micros(1),
            expires_at: Timestamp::EPOCH,
            now: Timestamp::from_micros(5),
        };
        Lease::new("n", format!("h{fence}"), Fence::try_from(fence).unwrap(), times)
    }

    #[test]
    fn states_are_told_by_the_databases_clock() {
        assert_eq!(State::of(&lease(1, 14)), State::Leading);
        assert_eq!(State::of(&lease(1, 15)), State::Expired);
        assert_eq!(State::of(&released(1)), State::Released);
        assert_eq!(State::of(&deposed(1, 4)), State::Deposed);
        assert_eq!(State::of(&deposed(1, 15)), State::Expired);
        let renewed = held("operator-alice@web-0-1f", 1, 4);
        assert_eq!(State::of(&renewed), State::Leading, "whoever renews leads, whatever it is called");
        assert_eq!(State::of(&held("operator-7", 1, 4)), State::Leading, "somebody's label");
        assert_eq!(age(&lease(1, 4)), Duration::from_secs(4));
        assert_eq!(age(&lease(1, -4)), Duration::ZERO, "a clock that went back");
    }

    #[test]
    fn a_payload_is_text_or_hexadecimal() {
        let with = |bytes: &[u8]| lease(1, 1).with_payload(Some(bytes.to_vec()));
        assert_eq!(payload(&lease(1, 1)), None);
        assert_eq!(payload(&with(b"10.0.0.7:8080")).unwrap(), "10.0.0.7:8080");
        assert_eq!(payload(&with(b"\x1b[0m")).unwrap(), "\\u{1b}[0m");
        assert_eq!(payload(&with(&[0xff, 0x1b])).unwrap(), "0xff1b");
        let of = |lease: &Lease, key: &str| json("n", Some(lease))[key].clone();
        assert_eq!((of(&with(b"x"), "payload"), of(&with(b"x"), "payload_hex")), ("x".into(), "78".into()));
        assert_eq!(
            (of(&with(&[255]), "payload"), of(&with(&[255]), "payload_hex")),
            (Value::Null, "ff".into())
        );
    }

    #[test]
    fn the_keys_are_always_there() {
        let all = json("n", Some(&lease(7, 4)));
        assert_eq!((&all["fence"], &all["remaining_ms"]), (&json!(7), &json!(11_000)));
        assert_eq!((&all["renewed_ms_ago"], &all["acquired_ms_ago"]), (&json!(4_000), &json!(14_000)));
        assert_eq!(all["length_ms"], json!(15_000));
        let none = json("n", None);
        assert_eq!(none["state"], "vacant");
        assert_eq!(all.keys().collect::<Vec<_>>(), none.keys().collect::<Vec<_>>());
        assert_eq!(json("n", Some(&released(2)))["length_ms"], Value::Null);
    }
}
