//! The configuration: never a panic, and whatever is built satisfies the invariant.

use std::time::Duration;

use super::bytes::Bytes;
use crate::config::{ClockTrust, Config, ConfigBuilder};

/// Builds a configuration out of the bytes.
///
/// # Panics
/// If what was built breaks the invariant, or what was refused is not told well.
pub fn config(bytes: &[u8]) {
    let builder = builder(&mut Bytes(bytes));
    let shown = format!("{builder:?}");
    assert!(shown.len() < 2_000, "a builder prints {} bytes", shown.len());
    match builder.build() {
        Ok(config) => check(&config),
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with(error.field()) && text.len() < 600, "{text}");
        }
    }
}

/// Settings, near the defaults or anywhere.
pub(super) fn builder(bytes: &mut Bytes<'_>) -> ConfigBuilder {
    let scale = 1 + usize::from(bytes.flag());
    let mut builder = Config::builder(bytes.text(scale));
    let set = bytes.byte();
    let duration = |bytes: &mut Bytes<'_>| {
        if bytes.flag() { bytes.duration() } else { Duration::from_millis(bytes.millis()) }
    };
    if set & 1 != 0 {
        builder = builder.lease_duration(duration(bytes));
    }
    if set & 2 != 0 {
        builder = builder.renew_interval(duration(bytes));
    }
    if set & 4 != 0 {
        builder = builder.retry_period(duration(bytes));
    }
    if set & 8 != 0 {
        builder = builder.operation_timeout(duration(bytes));
    }
    if set & 16 != 0 {
        builder = builder.safety_margin(duration(bytes));
    }
    if set & 32 != 0 {
        builder = builder.label(bytes.text(1));
    }
    if set & 64 != 0 {
        builder = builder.payload(vec![bytes.byte(); usize::from(bytes.byte()) * 260]);
    }
    if set & 128 != 0 {
        builder = builder.min_fence(bytes.i64()).clock_trust(ClockTrust::Strict);
        if bytes.flag() {
            builder = builder.takeover_delay(duration(bytes)).observer(bytes.flag());
        }
    }
    builder
}

fn check(config: &Config) {
    let nanos = |duration: Duration| duration.as_nanos();
    let (lease, margin) = (nanos(config.lease_duration()), nanos(config.safety_margin()));
    let retry_delay = (nanos(config.renew_interval()) / 4).max(50_000_000);
    assert_eq!(nanos(config.retry_delay()), retry_delay);
    let attempts = nanos(config.renew_interval()) + 2 * nanos(config.operation_timeout()) + retry_delay;
    assert!(attempts <= lease - margin, "no time for a second attempt: {config:?}");
    assert!(margin * 20 >= lease, "too small a margin: {config:?}");
    assert_eq!(nanos(config.term_duration()), lease - margin);
    assert_eq!(lease % 1_000, 0, "no whole microseconds: {config:?}");
    for duration in [
        config.lease_duration(),
        config.renew_interval(),
        config.retry_period(),
        config.operation_timeout(),
        config.safety_margin(),
    ] {
        assert!((Config::MIN_DURATION..=Config::MAX_LEASE_DURATION).contains(&duration), "{config:?}");
    }
    assert!(config.takeover_delay() <= Config::MAX_LEASE_DURATION, "{config:?}");
    for (text, longest) in [(config.name(), Config::MAX_NAME_LEN), (config.label(), Config::MAX_LABEL_LEN)] {
        assert!(!text.is_empty() && text.len() <= longest && !text.contains('\0'), "{config:?}");
    }
    assert!(config.payload().is_none_or(|payload| payload.len() <= Config::MAX_PAYLOAD_LEN));
    assert!((0..=Config::MAX_MIN_FENCE).contains(&config.min_fence()));
}
