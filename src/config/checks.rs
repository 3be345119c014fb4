//! What a configuration is refused for, and the error that says so.

use std::fmt;
use std::time::Duration;

use super::Config;
use crate::identity;

/// How many bytes of a refused text an error shows.
const SHOWN_BYTES: usize = 40;

/// A setting that cannot be used. Its text says which, why, and what to change.
///
/// ```
/// use tenure::Config;
///
/// let error = Config::builder("a\0b").build().unwrap_err();
/// assert_eq!(error.field(), "name");
/// assert_eq!(error.to_string(), r#"name: "a\0b" contains a NUL byte, which databases refuse; remove it"#);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    field: &'static str,
    problem: String,
}

impl ConfigError {
    fn new(field: &'static str, problem: String) -> ConfigError {
        ConfigError { field, problem }
    }

    /// The builder method whose setting was refused, such as `"lease_duration"`. Where several settings only
    /// fail together, the one that it is most likely right to change.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

/// Readable where a `main` returns it.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigError {}

/// Quoted and cut: an error must not carry what made the setting too long.
pub(super) fn shown(text: &str) -> String {
    if text.len() <= SHOWN_BYTES {
        return format!("{text:?}");
    }
    format!("{:?}...", identity::cut(text, SHOWN_BYTES))
}

pub(super) fn text(field: &'static str, text: &str, max: usize) -> Result<(), ConfigError> {
    if text.is_empty() {
        return Err(ConfigError::new(field, format!("is empty; give 1 to {max} bytes")));
    }
    if text.len() > max {
        let problem = format!("{} has {} bytes; shorten it to {max}", shown(text), text.len());
        return Err(ConfigError::new(field, problem));
    }
    if text.contains('\0') {
        let problem = format!("{} contains a NUL byte, which databases refuse; remove it", shown(text));
        return Err(ConfigError::new(field, problem));
    }
    Ok(())
}

pub(super) fn duration(field: &'static str, duration: Duration) -> Result<(), ConfigError> {
    let (min, max) = (Config::MIN_DURATION, Config::MAX_LEASE_DURATION);
    if duration < min {
        return Err(ConfigError::new(field, format!("{duration:?} is too short; give at least {min:?}")));
    }
    if duration > max {
        let problem = format!("{duration:?} is too long; give at most 31 days ({max:?})");
        return Err(ConfigError::new(field, problem));
    }
    Ok(())
}

/// Any delay that an election can outlast, none included.
pub(super) fn takeover_delay(delay: Duration) -> Result<(), ConfigError> {
    let max = Config::MAX_LEASE_DURATION;
    if delay > max {
        let problem =
            format!("{delay:?} is too long; give at most 31 days ({max:?}), or make it an observer");
        return Err(ConfigError::new("takeover_delay", problem));
    }
    Ok(())
}

pub(super) fn payload(payload: Option<&[u8]>) -> Result<(), ConfigError> {
    let (len, max) = (payload.map_or(0, <[u8]>::len), Config::MAX_PAYLOAD_LEN);
    if len > max {
        let problem = format!("{len} bytes are too many; publish at most {max}, or a reference to the data");
        return Err(ConfigError::new("payload", problem));
    }
    Ok(())
}

pub(super) fn min_fence(fence: i64) -> Result<(), ConfigError> {
    let max = Config::MAX_MIN_FENCE;
    if fence < 0 {
        return Err(ConfigError::new("min_fence", format!("{fence} is negative; give 0 or more")));
    }
    if fence > max {
        let problem = format!("{fence} leaves too few fences above it; give at most 2^62 ({max})");
        return Err(ConfigError::new("min_fence", problem));
    }
    Ok(())
}

pub(super) fn margin(config: &Config) -> Result<(), ConfigError> {
    let (margin, lease) = (config.safety_margin, config.lease_duration);
    if margin >= lease {
        let problem = format!(
            "{margin:?} leaves nothing of lease_duration {lease:?}; raise lease_duration, or lower safety_margin \
             (default: a tenth of the lease, at least 1 s) to no less than {:?}",
            least_margin(lease)
        );
        return Err(ConfigError::new("safety_margin", problem));
    }
    // Both are at most 31 days, so the product is exact.
    if margin * 20 < lease {
        let least = least_margin(lease);
        let problem = format!(
            "{margin:?} is less than lease_duration / 20 = {lease:?} / 20 = {least:?}, too little for clocks that \
             run at different rates; raise safety_margin to {least:?} or more"
        );
        return Err(ConfigError::new("safety_margin", problem));
    }
    Ok(())
}

fn least_margin(lease: Duration) -> Duration {
    (lease + Duration::from_nanos(19)) / 20
}

/// The invariant of [`Config`]. Every term is at most 31 days here: the sums cannot overflow.
pub(super) fn sums(config: &Config) -> Result<(), ConfigError> {
    let (renew, timeout) = (config.renew_interval, config.operation_timeout);
    let needed = renew + timeout * 2 + config.retry_delay();
    let available = config.term_duration();
    if needed <= available {
        return Ok(());
    }
    let field = if renew >= available {
        "renew_interval"
    } else if timeout * 2 >= available {
        "operation_timeout"
    } else {
        "lease_duration"
    };
    let problem = format!(
        "a failed renewal could not be tried again before the term ends: renew_interval {renew:?} + 2 * \
         operation_timeout {timeout:?} + retry_delay {:?} = {needed:?} is more than lease_duration {:?} - \
         safety_margin {:?} = {available:?}; lengthen lease_duration by {:?} or more at this margin, or shorten renew_interval or \
         operation_timeout",
        config.retry_delay(),
        config.lease_duration,
        config.safety_margin,
        needed - available,
    );
    Err(ConfigError::new(field, problem))
}
