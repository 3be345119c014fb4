//! Settings of a participant, and the inequality that they must satisfy before anything is sent.

use std::fmt;
use std::time::Duration;

use crate::identity;

mod checks;
pub use checks::ConfigError;

/// What a participant believes of the database's clock on its very first answer (rule 10).
///
/// Later answers are always judged by the participant's own clock; this is only about the first one, for which
/// there is nothing to compare with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClockTrust {
    /// The remaining time on the database's clock is believed, so a program that starts while nobody leads leads
    /// at once. Unsafe only where the database's clock leapt ahead between the leader's last renewal and this
    /// participant's first answer.
    #[default]
    Database,
    /// A participant that has just started waits for the whole length of the lease that it finds, or for its own
    /// `lease_duration` where it finds none. Safe against every step of the database's clock; each start costs
    /// that wait.
    Strict,
}

/// The settings of one participant in one election. Built by [`Config::builder`]; whatever exists is valid.
///
/// Every `Config` satisfies
/// `renew_interval + 2 * operation_timeout + retry_delay <= lease_duration - safety_margin`, where
/// `retry_delay = max(renew_interval / 4, 50 ms)`: after a renewal fails there is time for a second attempt
/// before the term ends. It also satisfies `safety_margin >= lease_duration / 20`.
///
/// ```
/// use std::time::Duration;
/// use tenure::Config;
///
/// let config = Config::builder("invoice-reconciler").lease_duration(Duration::from_secs(20)).build()?;
/// assert_eq!(config.safety_margin(), Duration::from_secs(2));
/// assert_eq!(config.term_duration(), Duration::from_secs(18));
///
/// let error = Config::builder("invoice-reconciler").lease_duration(Duration::from_secs(4)).build().unwrap_err();
/// assert_eq!(error.field(), "renew_interval");
/// # Ok::<(), tenure::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Config {
    name: String,
    lease_duration: Duration,
    renew_interval: Duration,
    retry_period: Duration,
    operation_timeout: Duration,
    safety_margin: Duration,
    label: String,
    payload: Option<Vec<u8>>,
    release_on_exit: bool,
    min_fence: i64,
    clock_trust: ClockTrust,
    takeover_delay: Duration,
    observer: bool,
}

impl Config {
    /// 31 days: the longest lease that may be configured, and the longest of every other duration.
    pub const MAX_LEASE_DURATION: Duration = Duration::from_secs(31 * 24 * 60 * 60);
    /// 1 ms: the shortest duration that may be configured, whichever it is.
    pub const MIN_DURATION: Duration = Duration::from_millis(1);
    /// The longest name of an election, in bytes.
    pub const MAX_NAME_LEN: usize = 255;
    /// 128: the longest label, in bytes.
    pub const MAX_LABEL_LEN: usize = identity::MAX_LABEL_LEN;
    /// 65,536: the largest payload, in bytes.
    pub const MAX_PAYLOAD_LEN: usize = 64 * 1024;
    /// 2^62, the highest [`min_fence`](ConfigBuilder::min_fence): half of all fences are left above it.
    pub const MAX_MIN_FENCE: i64 = 1 << 62;
    /// 50 ms: the shortest pause before a failed renewal is tried again.
    pub const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);

    /// Starts from the defaults for the election `name`. Nothing is checked before [`ConfigBuilder::build`].
    pub fn builder(name: impl Into<String>) -> ConfigBuilder {
        ConfigBuilder {
            name: name.into(),
            lease_duration: Duration::from_secs(15),
            renew_interval: Duration::from_secs(5),
            retry_period: Duration::from_secs(3),
            operation_timeout: Duration::from_secs(3),
            safety_margin: None,
            label: None,
            payload: None,
            release_on_exit: true,
            min_fence: 0,
            clock_trust: ClockTrust::Database,
            takeover_delay: Duration::ZERO,
            observer: false,
        }
    }

    /// The election.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long a lease is granted for; whole microseconds.
    #[must_use]
    pub fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// How long after a successful renewal the next one is due.
    #[must_use]
    pub fn renew_interval(&self) -> Duration {
        self.renew_interval
    }

    /// How often a candidate looks.
    #[must_use]
    pub fn retry_period(&self) -> Duration {
        self.retry_period
    }

    /// How long one call to the store may take, connecting included.
    #[must_use]
    pub fn operation_timeout(&self) -> Duration {
        self.operation_timeout
    }

    /// How long before its lease a term ends.
    #[must_use]
    pub fn safety_margin(&self) -> Duration {
        self.safety_margin
    }

    /// The readable part of the participant's identity.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// What is published with the lease.
    #[must_use]
    pub fn payload(&self) -> Option<&[u8]> {
        self.payload.as_deref()
    }

    /// Whether ending a term on purpose gives the lease back at once.
    #[must_use]
    pub fn release_on_exit(&self) -> bool {
        self.release_on_exit
    }

    /// Every fence of this participant is above this.
    #[must_use]
    pub fn min_fence(&self) -> i64 {
        self.min_fence
    }

    /// Whether the database's clock is believed on the very first answer.
    #[must_use]
    pub fn clock_trust(&self) -> ClockTrust {
        self.clock_trust
    }

    /// How long a lease that is free is left to others.
    #[must_use]
    pub fn takeover_delay(&self) -> Duration {
        self.takeover_delay
    }

    /// Whether the participant only watches.
    #[must_use]
    pub fn observer(&self) -> bool {
        self.observer
    }

    /// The pause before a failed renewal is tried again: `max(renew_interval / 4, 50 ms)`.
    #[must_use]
    pub fn retry_delay(&self) -> Duration {
        retry_delay(self.renew_interval)
    }

    /// How long after the send of its last successful renewal a term ends: `lease_duration - safety_margin`.
    #[must_use]
    pub fn term_duration(&self) -> Duration {
        self.lease_duration.saturating_sub(self.safety_margin)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("name", &self.name)
            .field("lease_duration", &self.lease_duration)
            .field("renew_interval", &self.renew_interval)
            .field("retry_period", &self.retry_period)
            .field("operation_timeout", &self.operation_timeout)
            .field("safety_margin", &self.safety_margin)
            .field("label", &self.label)
            .field("payload_bytes", &self.payload.as_ref().map(Vec::len))
            .field("release_on_exit", &self.release_on_exit)
            .field("min_fence", &self.min_fence)
            .field("clock_trust", &self.clock_trust)
            .field("takeover_delay", &self.takeover_delay)
            .field("observer", &self.observer)
            .finish()
    }
}

/// Collects settings; [`build`](ConfigBuilder::build) checks them all.
///
/// ```
/// use std::time::Duration;
/// use tenure::{ClockTrust, Config};
///
/// let config = Config::builder("backup")
///     .lease_duration(Duration::from_secs(6))
///     .renew_interval(Duration::from_millis(1500))
///     .retry_period(Duration::from_millis(500))
///     .operation_timeout(Duration::from_millis(1200))
///     .label("web-0")
///     .payload("10.0.0.7:8080")
///     .clock_trust(ClockTrust::Strict)
///     .build()?;
/// assert_eq!(config.retry_delay(), Duration::from_millis(375));
/// assert_eq!(config.payload(), Some(&b"10.0.0.7:8080"[..]));
/// # Ok::<(), tenure::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct ConfigBuilder {
    name: String,
    lease_duration: Duration,
    renew_interval: Duration,
    retry_period: Duration,
    operation_timeout: Duration,
    safety_margin: Option<Duration>,
    label: Option<String>,
    payload: Option<Vec<u8>>,
    release_on_exit: bool,
    min_fence: i64,
    clock_trust: ClockTrust,
    takeover_delay: Duration,
    observer: bool,
}

impl ConfigBuilder {
    /// How long a lease is granted for: the worst time without a leader after a crash, plus a poll. 1 ms to
    /// 31 days; cut to whole microseconds by [`build`](ConfigBuilder::build).
    ///
    /// Defaults to 15 s.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.lease_duration = duration;
        self
    }

    /// How long after a successful renewal the next one is due. 1 ms or more.
    ///
    /// Defaults to 5 s.
    pub fn renew_interval(mut self, interval: Duration) -> Self {
        self.renew_interval = interval;
        self
    }

    /// How often a candidate looks, before jitter; it looks earlier where the observed lease runs out sooner.
    /// 1 ms to 31 days.
    ///
    /// Defaults to 3 s.
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.retry_period = period;
        self
    }

    /// How long one call to the store may take: waiting for a connection, resolving, connecting and the query
    /// together. 1 ms or more.
    ///
    /// Defaults to 3 s.
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// How long before its lease a term ends. It covers clocks that run at different rates (up to 2.5 % apart at
    /// the least margin allowed), so it must be `lease_duration / 20` or more.
    ///
    /// Defaults to `lease_duration / 10`, at least 1 s.
    pub fn safety_margin(mut self, margin: Duration) -> Self {
        self.safety_margin = Some(margin);
        self
    }

    /// The readable part of the participant's identity; a random part is always added, so labels may repeat.
    /// 1 to 128 bytes without NUL.
    ///
    /// Defaults to the host's name and the process id, `host-1234`.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// What to publish with the lease, for everybody who can read it. Up to 64 KiB; no secrets.
    ///
    /// Defaults to none, which is not the same as an empty payload.
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    /// Whether ending a term on purpose gives the lease back at once. Without it a successor waits for the
    /// expiry.
    ///
    /// Defaults to true.
    pub fn release_on_exit(mut self, release: bool) -> Self {
        self.release_on_exit = release;
        self
    }

    /// New fences will be above this: the highest that the protected resources have seen, where the record was
    /// restored or deleted while no participant was running. 0 to 2^62.
    ///
    /// Defaults to 0.
    pub fn min_fence(mut self, fence: i64) -> Self {
        self.min_fence = fence;
        self
    }

    /// Whether the database's clock is believed on the very first answer.
    ///
    /// Defaults to [`ClockTrust::Database`].
    pub fn clock_trust(mut self, trust: ClockTrust) -> Self {
        self.clock_trust = trust;
        self
    }

    /// How long this participant leaves a lease that is free (released, run out, or never taken) to others before it
    /// takes it: for a region that is to lead only where no other one does. Zero to 31 days.
    ///
    /// The preferred participants go first at every hand-over if the delay is longer than their `retry_period` and
    /// three calls to the store (a look that was under way, the next one, the bid). It is a preference, not a promise,
    /// and nothing is taken back from a leader that is not preferred; [`resign`](crate::LeaderGuard::resign) does
    /// that. The delay comes after what rule 10 has a candidate wait for, never in its place. It lengthens the time
    /// without a leader where only participants with a delay are left.
    ///
    /// A lease that this participant holds itself it takes again at once, after a lost reply or a step of the
    /// database's clock, while all others have to wait for it anyway. After a resignation it waits like everybody.
    ///
    /// Defaults to zero.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{Config, Elector, MemoryStore};
    ///
    /// let store = MemoryStore::new();
    /// let spare = Config::builder("gateway").takeover_delay(Duration::from_secs(15)).build()?;
    /// let spare = Elector::start(store.clone(), spare)?;
    /// let preferred = Elector::start(store, Config::builder("gateway").build()?)?;
    /// // The lease is free, and left to others.
    /// assert!(spare.wait_for_leadership_timeout(Duration::from_millis(50)).is_err());
    /// let _guard = preferred.wait_for_leadership()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn takeover_delay(mut self, delay: Duration) -> Self {
        self.takeover_delay = delay;
        self
    }

    /// Whether the participant only watches: it looks at the lease about once in a `retry_period` for as long as an
    /// [`Elector`](crate::Elector) handle of it lives, so that [`status`](crate::Elector::status) and
    /// [`events`](crate::Elector::events) tell who leads. It writes nothing, needs no right to write, and refuses to
    /// campaign ([`CampaignError::Observer`](crate::CampaignError::Observer),
    /// [`RunError::Observer`](crate::RunError::Observer)). The settings that are for leading and for taking over mean
    /// nothing to it, though they are checked. A store that fails it rides out, whatever the error.
    ///
    /// Defaults to false.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{Config, Elector, Event, MemoryStore};
    ///
    /// let store = MemoryStore::new();
    /// let watching = Config::builder("gateway").observer(true).retry_period(Duration::from_millis(5));
    /// let observer = Elector::start(store.clone(), watching.build()?)?;
    /// let news = observer.events();
    ///
    /// let config = Config::builder("gateway").payload("10.0.0.7:8080").build()?;
    /// let leader = Elector::start(store, config)?;
    /// let _guard = leader.wait_for_leadership()?;
    /// let seen = news.iter().find_map(|event| match event {
    ///     Event::Observed { leader, .. } => leader.payload,
    ///     _ => None,
    /// });
    /// assert_eq!(seen.as_deref(), Some(&b"10.0.0.7:8080"[..]));
    /// assert!(observer.wait_for_leadership().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observer(mut self, observer: bool) -> Self {
        self.observer = observer;
        self
    }

    /// Checks everything. Never blocks, never panics, sends nothing. The lease duration is cut to whole
    /// microseconds, the resolution of the database's clock, before the sums are made.
    ///
    /// # Errors
    /// The first setting that cannot be used; see [`ConfigError::field`].
    pub fn build(self) -> Result<Config, ConfigError> {
        checks::text("name", &self.name, Config::MAX_NAME_LEN)?;
        checks::duration("lease_duration", self.lease_duration)?;
        checks::duration("renew_interval", self.renew_interval)?;
        checks::duration("retry_period", self.retry_period)?;
        checks::duration("operation_timeout", self.operation_timeout)?;
        let lease_duration = whole_micros(self.lease_duration);
        let safety_margin =
            self.safety_margin.unwrap_or_else(|| (lease_duration / 10).max(Duration::from_secs(1)));
        checks::duration("safety_margin", safety_margin)?;
        checks::payload(self.payload.as_deref())?;
        checks::min_fence(self.min_fence)?;
        checks::takeover_delay(self.takeover_delay)?;
        let label = self.label.unwrap_or_else(identity::default_label);
        checks::text("label", &label, Config::MAX_LABEL_LEN)?;
        let config = Config {
            name: self.name,
            lease_duration,
            renew_interval: self.renew_interval,
            retry_period: self.retry_period,
            operation_timeout: self.operation_timeout,
            safety_margin,
            label,
            payload: self.payload,
            release_on_exit: self.release_on_exit,
            min_fence: self.min_fence,
            clock_trust: self.clock_trust,
            takeover_delay: self.takeover_delay,
            observer: self.observer,
        };
        checks::margin(&config)?;
        checks::sums(&config)?;
        Ok(config)
    }
}

impl fmt::Debug for ConfigBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigBuilder")
            .field("name", &format_args!("{}", checks::shown(&self.name)))
            .field("lease_duration", &self.lease_duration)
            .field("renew_interval", &self.renew_interval)
            .field("retry_period", &self.retry_period)
            .field("operation_timeout", &self.operation_timeout)
            .field("safety_margin", &self.safety_margin)
            .field(
                "label",
                &format_args!("{}", self.label.as_deref().map_or("None".to_owned(), checks::shown)),
            )
            .field("payload_bytes", &self.payload.as_ref().map(Vec::len))
            .field("release_on_exit", &self.release_on_exit)
            .field("min_fence", &self.min_fence)
            .field("clock_trust", &self.clock_trust)
            .field("takeover_delay", &self.takeover_delay)
            .field("observer", &self.observer)
            .finish()
    }
}

fn retry_delay(renew_interval: Duration) -> Duration {
    (renew_interval / 4).max(Config::MIN_RETRY_DELAY)
}

fn whole_micros(duration: Duration) -> Duration {
    Duration::new(duration.as_secs(), duration.subsec_micros() * 1_000)
}

#[cfg(test)]
mod tests;
