//! The timings that nodes run with, and the bounds that follow.

use std::time::Duration;

use tenure::{Config, ConfigBuilder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    name: &'static str,
    pub(crate) lease: Duration,
    pub(crate) renew: Duration,
    pub(crate) retry: Duration,
    pub(crate) op: Duration,
    pub(crate) margin: Duration,
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Three seconds of lease.
pub(crate) const P3: Profile =
    Profile { name: "P3", lease: ms(3_000), renew: ms(500), retry: ms(300), op: ms(400), margin: ms(1_000) };

/// Six seconds of lease.
pub(crate) const P6: Profile = Profile {
    name: "P6",
    lease: ms(6_000),
    renew: ms(1_500),
    retry: ms(500),
    op: ms(1_200),
    margin: ms(1_000),
};

/// For thousands of terms: a candidate looks every few milliseconds.
pub(crate) const HASTY: Profile = Profile {
    name: "HASTY",
    lease: ms(6_000),
    renew: ms(500),
    retry: ms(15),
    op: ms(2_000),
    margin: ms(500),
};

/// For hundreds of participants of one election.
pub(crate) const CROWD: Profile = Profile {
    name: "CROWD",
    lease: ms(10_000),
    renew: ms(2_000),
    retry: ms(2_000),
    op: ms(2_000),
    margin: ms(1_000),
};

impl Profile {
    pub(crate) fn named(name: &str) -> Option<Profile> {
        [P3, P6, HASTY, CROWD].into_iter().find(|profile| profile.name == name)
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn config(&self, election: &str) -> ConfigBuilder {
        Config::builder(election)
            .lease_duration(self.lease)
            .renew_interval(self.renew)
            .retry_period(self.retry)
            .operation_timeout(self.op)
            .safety_margin(self.margin)
    }

    /// How long a term lives after the send of its last renewal. Kept to the letter.
    pub(crate) fn term(&self) -> Duration {
        self.lease - self.margin
    }

    /// By then the leader itself has noticed that its term is over.
    pub(crate) fn step(&self) -> Duration {
        self.term() + ms(250) + SLACK
    }

    /// From the last successful renewal to the next leader, where the old one released nothing.
    pub(crate) fn take(&self) -> Duration {
        self.lease + self.retry * 3 / 2 + self.op + ms(500) + SLACK
    }

    /// From a release to the next leader.
    pub(crate) fn hand(&self) -> Duration {
        self.retry * 3 / 2 + self.op + ms(300) + SLACK
    }
}

/// What a machine with two busy cores may take longer, wherever a bound is one of liveness.
pub(crate) const SLACK: Duration = ms(1_500);
