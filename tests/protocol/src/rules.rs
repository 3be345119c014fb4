//! The rules as parameters: what the design says, and the drafts that it rejects.

use crate::Ticks;

/// What a reply's duration counts from (rule 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Anchor {
    /// The local instant before the request was sent.
    Send,
    /// The local instant at which the reply came. Rejected.
    Reply,
}

/// What a bid asks of the row (rule 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Names {
    /// Exactly what was observed, or that there is no row.
    Version,
    /// As above, but a bid that names a version also creates the row where it is gone. Rejected.
    VersionOrNothing,
    /// That it has expired on the database's clock. Rejected.
    Expiry,
    /// Nothing: a bid overwrites whatever it finds. Rejected.
    Nothing,
}

/// How long a candidate holds off for a version that it has not seen before (rule 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The version's length, from the answer on.
    Length,
    /// What remains on the database's clock, looked up at every answer. Rejected.
    DatabaseClock,
    /// The length, less an age that is plausible: no greater than the time since the last answer. Rejected.
    PlausibleAge,
    /// The length, less the age where the database's clock and the own one moved alike since the last answer.
    /// Rejected.
    AgeUnlessStepped,
    /// What remains on the database's clock where that is more than the length. Rejected.
    Uncapped,
}

/// Which rows a candidate takes for what it left itself (rule 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Own {
    /// The exact version that its last answered write left, or what an unanswered one must have left.
    Recognised,
    /// Every row that carries its name, whatever was seen in between. Rejected.
    ByName,
}

/// When the timeline is another one (rule 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timelines {
    /// When it differs.
    Differ,
    /// When it is greater. Rejected.
    Rise,
}

/// The rules of one model. [`Rules::FINAL`] is what the design says; each draft changes one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Rule 2.
    pub anchor: Anchor,
    /// Rule 2: how long before its lease a term ends.
    pub margin: Ticks,
    /// Rule 5: a reply that comes after the deadline doesn't bring the term back.
    pub lost_is_final: bool,
    /// Rule 8.
    pub names: Names,
    /// Rule 8: a version contains the mark that changes with every write.
    pub version_has_mark: bool,
    /// Rules 8 and 9: a released row is known by its expiry at the epoch, and not by the database's clock.
    pub released_at_epoch: bool,
    /// Rule 10.
    pub wait: Wait,
    /// Rule 10.
    pub own: Own,
    /// Rule 10: a record that is gone or went back is waited out from when that was seen.
    pub waits_for_lost_records: bool,
    /// Rule 10: a fence that was seen in other hands tells of a record that went back, too.
    pub same_fence_in_other_hands: bool,
    /// Rule 10: the database's clock isn't believed for the very first answer either.
    pub strict: bool,
    /// Rule 11: every participant has an identity of its own.
    pub unique_identities: bool,
    /// Rule 15: a bid names the timeline on which its version was observed.
    pub names_timeline: bool,
    /// Rule 15.
    pub timelines: Timelines,
}

impl Rules {
    /// What the design says, with the smallest margin of a discrete world, and `ClockTrust::Strict`.
    pub const FINAL: Rules = Rules {
        anchor: Anchor::Send,
        margin: 1,
        lost_is_final: true,
        names: Names::Version,
        version_has_mark: true,
        released_at_epoch: true,
        wait: Wait::Length,
        own: Own::Recognised,
        waits_for_lost_records: true,
        same_fence_in_other_hands: true,
        strict: true,
        unique_identities: true,
        names_timeline: true,
        timelines: Timelines::Differ,
    };

    /// The final rules with the default trust: the very first answer's clock is believed.
    pub const DEFAULT_TRUST: Rules = Rules { strict: false, ..Rules::FINAL };
}
