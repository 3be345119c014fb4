//! How quick the database answers, and which timings that bears.

use std::time::{Duration, Instant, SystemTime};

use tenure::{Config, ConfigError, Store, StoreError, Timestamp};

use super::finding::Finding;
use crate::options::Timings;
use crate::output::short;

/// How many reads are timed.
const READS: usize = 200;
/// How much longer than 99 of 100 reads a call may take, at the least, before its time is up: a call that has to
/// connect first is some ten round trips, and the day on which that matters is a bad one.
const ROOM: u32 = 20;
/// To which a recommended time-out is rounded up.
const STEP: Duration = Duration::from_millis(500);
const LEAST_TIMEOUT: Duration = Duration::from_millis(1_500);
/// From this difference on somebody may care who reads logs of both machines.
const CLOCKS_APART: Duration = Duration::from_secs(60);

/// How long reads take, the shortest first. There may be none.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundTrips(Vec<Duration>);

impl RoundTrips {
    /// Reads an election that nobody has.
    ///
    /// # Errors
    /// The first read that failed, beside those before it.
    pub(crate) fn measure(store: &impl Store, timeout: Duration) -> (RoundTrips, Option<StoreError>) {
        let mut all = Vec::with_capacity(READS);
        let mut failed = None;
        for _ in 0..READS {
            let begun = Instant::now();
            if let Err(error) = store.observe("tenure-doctor", timeout) {
                failed = Some(error);
                break;
            }
            all.push(begun.elapsed());
        }
        (RoundTrips::of(all), failed)
    }

    pub(crate) fn of(mut all: Vec<Duration>) -> RoundTrips {
        all.sort_unstable();
        RoundTrips(all)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// So many hundredths took no longer than this; `None` without any.
    pub(crate) fn percentile(&self, hundredths: usize) -> Option<Duration> {
        let last = self.0.len().checked_sub(1)?;
        self.0.get((self.0.len() * hundredths / 100).min(last)).copied()
    }

    pub(crate) fn unreadable() -> Finding {
        Finding::note("round trips", "not measured: nothing can be read, for a reason above.")
    }

    pub(crate) fn finding(&self, timeout: Duration) -> Finding {
        let (Some(median), Some(most), Some(slowest)) =
            (self.percentile(50), self.percentile(99), self.0.last())
        else {
            return RoundTrips::unreadable();
        };
        let what = format!(
            "{} reads: half of them within {}, 99 of 100 within {}, the slowest {}.",
            self.count(),
            millis(median),
            millis(most),
            millis(*slowest)
        );
        if most * ROOM <= timeout {
            return Finding::ok("round trips", what);
        }
        let what = format!(
            "{what} A call that has to connect first may take some {ROOM} times as long, which is more than an \
             operation_timeout of {}: renewals would fail on a bad day.",
            short(timeout)
        );
        Finding::note("round trips", what).advice("use the timings below, or come closer to the database")
    }
}

/// In milliseconds, as people read round trips.
fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1_000.0)
}

/// How far the database's clock is ahead of this machine's, and how far that may be off: half of the round trip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockOffset {
    pub(crate) ahead_micros: i64,
    pub(crate) uncertainty: Duration,
}

impl ClockOffset {
    pub(crate) fn new(theirs: Timestamp, asked_at: Instant, answered_at: Instant) -> ClockOffset {
        let round_trip = answered_at.saturating_duration_since(asked_at);
        let since = answered_at.elapsed() + round_trip / 2;
        let ours = SystemTime::now()
            .checked_sub(since)
            .and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        let ours = ours.map_or(0, |at| i64::try_from(at.as_micros()).unwrap_or(i64::MAX));
        ClockOffset {
            ahead_micros: theirs.as_micros().saturating_sub(ours),
            uncertainty: round_trip / 2 + Duration::from_micros(1),
        }
    }

    pub(crate) fn finding(&self) -> Finding {
        let distance = Duration::from_micros(self.ahead_micros.unsigned_abs());
        let direction = if self.ahead_micros < 0 { "behind" } else { "ahead of" };
        let (shown, uncertainty) = (short(distance), millis(self.uncertainty));
        let what =
            format!("the database's is {shown} {direction} this machine's, give or take {uncertainty}.");
        if distance.saturating_sub(self.uncertainty) < CLOCKS_APART {
            return Finding::ok("clock", format!("{what} No election depends on it."));
        }
        Finding::note(
            "clock",
            format!("{what} No election depends on it, since only durations are compared."),
        )
        .advice("have both set by NTP, for the sake of the logs")
    }
}

/// Timings that bear these round trips, and the sums of [`Config`].
#[derive(Clone, Debug)]
pub(crate) struct Recommended {
    pub(crate) config: Config,
    /// Whether they are those that were asked for, or the defaults.
    pub(crate) as_asked: bool,
    /// Whether a retry period was asked for: left to itself, `tenure exec` looks more often than a program does.
    looks_as_asked: bool,
}

impl Recommended {
    /// # Errors
    /// The timings that were asked for can't be used by any database.
    pub(crate) fn new(timings: &Timings, trips: &RoundTrips) -> Result<Recommended, ConfigError> {
        let config = timings.config("NAME").build()?;
        let looks_as_asked = timings.retry_period.is_some();
        let needed = trips.percentile(99).unwrap_or_default() * ROOM;
        if needed <= config.operation_timeout() {
            return Ok(Recommended { config, as_asked: true, looks_as_asked });
        }
        let steps = u32::try_from(needed.as_millis().div_ceil(STEP.as_millis())).unwrap_or(u32::MAX);
        Ok(Recommended { config: scaled(STEP.saturating_mul(steps))?, as_asked: false, looks_as_asked })
    }

    /// As one writes it in a program.
    pub(crate) fn rust(&self) -> Vec<String> {
        let call = |name: &str, time: Duration| match time.subsec_millis() {
            0 => format!("    .{name}(Duration::from_secs({}))", time.as_secs()),
            _ => format!("    .{name}(Duration::from_millis({}))", time.as_millis()),
        };
        let mut lines = vec!["Config::builder(\"NAME\")".to_owned()];
        lines.extend(self.times().map(|(name, time)| call(name, time)));
        lines.push("    .build()?".to_owned());
        lines
    }

    /// As `tenure exec` takes it.
    pub(crate) fn options(&self) -> String {
        let option = |name: &str, time: Duration| match time.subsec_millis() {
            0 => format!("--{}={}s", name.replace('_', "-"), time.as_secs()),
            _ => format!("--{}={}ms", name.replace('_', "-"), time.as_millis()),
        };
        let times = self.times().filter(|(name, _)| self.looks_as_asked || *name != "retry_period");
        times.map(|(name, time)| option(name, time)).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn times(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let config = &self.config;
        [
            ("lease_duration", config.lease_duration()),
            ("renew_interval", config.renew_interval()),
            ("retry_period", config.retry_period()),
            ("operation_timeout", config.operation_timeout()),
            ("safety_margin", config.safety_margin()),
        ]
        .into_iter()
    }
}

/// The defaults, stretched or shrunk to this time-out: five of them are a lease. In shorter leases than that of the
/// least, a margin of a second would leave too little.
fn scaled(timeout: Duration) -> Result<Config, ConfigError> {
    let longest = Config::MAX_LEASE_DURATION / 5;
    let timeout = timeout.clamp(LEAST_TIMEOUT, longest);
    let renew = Duration::from_millis(u64::try_from(timeout.as_millis() * 5 / 3).unwrap_or(u64::MAX));
    Config::builder("NAME")
        .lease_duration(timeout * 5)
        .renew_interval(renew)
        .retry_period(timeout)
        .operation_timeout(timeout)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    const NONE: Timings = Timings {
        lease_duration: None,
        renew_interval: None,
        retry_period: None,
        operation_timeout: None,
        safety_margin: None,
    };

    fn trips(millis: &[u64]) -> RoundTrips {
        RoundTrips::of(millis.iter().copied().map(Duration::from_millis).collect())
    }

    #[test]
    fn whatever_is_recommended_can_be_configured_and_leaves_room() {
        for millis in [0, 1, 149, 150, 151, 200, 333, 1_000, 5_000, 60_000, 10_000_000, 1_000_000_000] {
            let trips = trips(&[millis]);
            let recommended = Recommended::new(&NONE, &trips).unwrap();
            let config = &recommended.config;
            let needed = Duration::from_millis(millis) * ROOM;
            assert_eq!(recommended.as_asked, millis <= 150, "{millis}");
            assert!(config.operation_timeout() >= needed.min(Config::MAX_LEASE_DURATION / 5), "{config:?}");
            // The printed lines are the configuration: read back, they are the same and accepted.
            let option = |name: &str| {
                let text = recommended.options();
                let rest = text.split(&format!("--{name}=")).nth(1).unwrap().to_owned();
                humantime::parse_duration(rest.split(' ').next().unwrap()).unwrap()
            };
            let read = Config::builder("x")
                .lease_duration(option("lease-duration"))
                .renew_interval(option("renew-interval"))
                .operation_timeout(option("operation-timeout"))
                .safety_margin(option("safety-margin"))
                .build()
                .unwrap();
            assert_eq!(read.lease_duration(), config.lease_duration());
            assert_eq!(recommended.rust().len(), 7);
            assert!(!recommended.options().contains("retry"), "`tenure exec` has its own");
        }
    }

    #[test]
    fn timings_that_were_asked_for_are_kept_where_they_fit() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let asked = Timings { lease_duration: seconds(60), operation_timeout: seconds(10), ..NONE };
        let recommended = Recommended::new(&asked, &trips(&[100])).unwrap();
        assert!(recommended.as_asked && recommended.config.lease_duration() == Duration::from_secs(60));
        let looks = Timings { retry_period: seconds(1), ..NONE };
        assert!(Recommended::new(&looks, &trips(&[4])).unwrap().options().contains("--retry-period=1s"));
        let millis = |millis| Some(Duration::from_millis(millis));
        let short = Timings {
            lease_duration: seconds(2),
            renew_interval: millis(500),
            operation_timeout: millis(100),
            ..NONE
        };
        assert!(Recommended::new(&short, &trips(&[4])).unwrap().as_asked);
        for slow in 6..200 {
            let recommended = Recommended::new(&short, &trips(&[slow])).unwrap();
            assert!(
                !recommended.as_asked && recommended.config.operation_timeout() >= millis(1_500).unwrap()
            );
        }
        let tight = Timings { lease_duration: seconds(4), ..NONE };
        assert_eq!(Recommended::new(&tight, &trips(&[1])).unwrap_err().field(), "renew_interval");
    }

    #[test]
    fn slow_reads_are_noted() {
        let timeout = Duration::from_secs(3);
        assert_eq!(trips(&[1; 200]).finding(timeout).level, Level::Ok);
        let slow = trips(&[400; 200]).finding(timeout);
        assert_eq!(slow.level, Level::Note);
        assert!(slow.what.contains("within 400.00 ms"), "{slow:?}");
        assert_eq!(trips(&[]).finding(timeout).level, Level::Note);
        let mixed: Vec<u64> = (1..=200).collect();
        assert_eq!(trips(&mixed).percentile(50), Some(Duration::from_millis(101)));
        assert_eq!(trips(&mixed).percentile(99), Some(Duration::from_millis(199)));
        assert_eq!(trips(&[5]).percentile(99), Some(Duration::from_millis(5)));
    }

    #[test]
    fn clocks_that_are_far_apart_are_noted_and_nothing_more() {
        let offset =
            |ahead_micros| ClockOffset { ahead_micros, uncertainty: Duration::from_millis(1) }.finding();
        assert_eq!(offset(59_000_000).level, Level::Ok);
        let behind = offset(-3_600_000_000);
        assert_eq!(behind.level, Level::Note);
        assert!(behind.what.contains("1h 0m behind"), "{behind:?}");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let theirs = Timestamp::from_micros(i64::try_from(now.as_micros()).unwrap() + 5_000_000);
        let at = Instant::now();
        let measured = ClockOffset::new(theirs, at, at);
        assert!((4_000_000..=5_000_000).contains(&measured.ahead_micros), "{measured:?}");
    }
}
