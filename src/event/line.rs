//! What an event is as a line of the log: a level, a sentence, and the values in it under names of their own.

use std::time::Duration;

use log::Level;
use log::kv::{ToValue, Value};

use super::{Event, Operation};
use crate::store::StoreError;
use crate::term::LossCause;

/// From then on the log says that the process stood still.
const STALL: Duration = Duration::from_millis(500);

/// A value of a log line.
#[derive(Debug)]
pub(super) enum Field {
    Text(String),
    Name(&'static str),
    Count(u64),
    Number(i64),
    Flag(bool),
    Millis(f64),
}

impl ToValue for Field {
    fn to_value(&self) -> Value<'_> {
        match self {
            Field::Text(text) => Value::from(text.as_str()),
            Field::Name(name) => Value::from(*name),
            Field::Count(count) => Value::from(*count),
            Field::Number(number) => Value::from(*number),
            Field::Flag(flag) => Value::from(*flag),
            Field::Millis(millis) => Value::from(*millis),
        }
    }
}

pub(super) type Fields = Vec<(&'static str, Field)>;

/// Whole microseconds are precise enough, and short to read.
fn millis(duration: Duration) -> Field {
    Field::Millis(duration.as_micros() as f64 / 1_000.0)
}

fn cause_name(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Expired => "expired",
        LossCause::Superseded => "superseded",
        LossCause::Resigned => "resigned",
        LossCause::Stopped => "stopped",
        LossCause::Failed => "failed",
    }
}

fn of_error(fields: &mut Fields, error: &StoreError) {
    fields.push(("error", Field::Text(error.to_string())));
    fields.push(("error_kind", Field::Name(error.kind_name())));
    if let Some(code) = error.sqlstate() {
        fields.push(("sqlstate", Field::Text(code.to_owned())));
    }
}

/// A line that tells of no event: the store answered.
pub(super) fn answered(operation: Operation, took: Duration) -> (String, Fields) {
    let fields = vec![
        ("event", Field::Name("answered")),
        ("operation", Field::Name(operation.name())),
        ("took_ms", millis(took)),
    ];
    (format!("{operation}: the store answered after {took:?}"), fields)
}

impl Event {
    /// Nothing above `Debug` on a day on which nothing happens.
    pub(super) fn level(&self) -> Level {
        match self {
            Event::Renewed { .. } => Level::Trace,
            Event::CampaignStarted { .. } | Event::CampaignEnded { .. } | Event::Published { .. } => {
                Level::Debug
            }
            Event::Elected { .. }
            | Event::Released { .. }
            | Event::Observed { .. }
            | Event::Vacant { .. }
            | Event::Recovered { .. }
            | Event::Lost { cause: LossCause::Resigned | LossCause::Stopped, .. } => Level::Info,
            Event::Lost { .. }
            | Event::ReleaseFailed { .. }
            | Event::Failed { .. }
            | Event::ClockStepped { .. }
            | Event::FenceRegressed { .. }
            | Event::RowGone { .. }
            | Event::TimelineChanged { .. }
            | Event::UselessGrant { .. } => Level::Warn,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Event::CampaignStarted { .. } => "campaign_started",
            Event::CampaignEnded { .. } => "campaign_ended",
            Event::Elected { .. } => "elected",
            Event::Renewed { .. } => "renewed",
            Event::Lost { .. } => "lost",
            Event::Released { .. } => "released",
            Event::ReleaseFailed { .. } => "release_failed",
            Event::Observed { .. } => "observed",
            Event::Published { .. } => "published",
            Event::Vacant { .. } => "vacant",
            Event::Failed { .. } => "failed",
            Event::Recovered { .. } => "recovered",
            Event::ClockStepped { .. } => "clock_stepped",
            Event::FenceRegressed { .. } => "fence_regressed",
            Event::RowGone { .. } => "row_gone",
            Event::TimelineChanged { .. } => "timeline_changed",
            Event::UselessGrant { .. } => "useless_grant",
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Event::CampaignStarted { .. } => "campaigns".to_owned(),
            Event::CampaignEnded { .. } => "campaigns no more".to_owned(),
            Event::Elected { fence } => format!("elected, fence {fence}"),
            Event::Renewed { fence, headroom, .. } => {
                format!("renewed, fence {fence}, with {headroom:?} left")
            }
            Event::Lost { fence, cause, error, stalled } => {
                let mut text = format!("the term with fence {fence} is over: {cause}");
                if let Some(error) = error {
                    text = format!("{text}; the last renewal failed: {error}");
                }
                if *cause == LossCause::Expired && *stalled >= STALL {
                    text = format!("{text}; this process stood still for {stalled:?}");
                }
                text
            }
            Event::Released { fence, .. } => format!("the lease with fence {fence} was released"),
            Event::ReleaseFailed { fence, error } => {
                format!(
                    "the lease with fence {fence} may not have been released, it expires by itself: {error}"
                )
            }
            Event::Observed { leader } => format!("{} leads, fence {}", leader.holder, leader.fence),
            Event::Published { leader } => format!("{} publishes something else", leader.holder),
            Event::Vacant { last } => {
                format!("nobody leads; before, {} did, fence {}", last.holder, last.fence)
            }
            Event::Failed { operation, error, .. } => format!("{operation}: the store failed: {error}"),
            Event::Recovered { failures, after } => {
                format!("the store answers again after {failures} failures in {after:?}")
            }
            Event::ClockStepped { forward, by } => {
                let way = if *forward { "forward" } else { "back" };
                format!("the database's clock stepped {way} by {by:?} or more")
            }
            Event::FenceRegressed { seen, found } => {
                format!("the row went back from fence {seen} to {found}; waiting out whoever may lead")
            }
            Event::RowGone { .. } => "the row is gone; waiting out whoever may lead".to_owned(),
            Event::TimelineChanged { from, to } => {
                format!("the server's timeline changed from {from:?} to {to:?}; waiting out whoever may lead")
            }
            Event::UselessGrant { fence } => format!("the lease with fence {fence} came too late to be used"),
        }
    }

    pub(super) fn fields(&self) -> Fields {
        let mut fields = vec![("event", Field::Name(self.name()))];
        let number = |fence: &crate::lease::Fence| Field::Number(fence.get());
        match self {
            Event::CampaignStarted { .. } | Event::CampaignEnded { .. } | Event::RowGone { .. } => {}
            Event::Elected { fence } | Event::UselessGrant { fence } => fields.push(("fence", number(fence))),
            Event::Renewed { fence, took, headroom, remaining } => fields.extend([
                ("fence", number(fence)),
                ("took_ms", millis(*took)),
                ("headroom_ms", millis(*headroom)),
                ("remaining_ms", millis(*remaining)),
            ]),
            Event::Lost { fence, cause, error, stalled } => {
                fields.extend([
                    ("fence", number(fence)),
                    ("cause", Field::Name(cause_name(*cause))),
                    ("stalled_ms", millis(*stalled)),
                ]);
                if let Some(error) = error {
                    of_error(&mut fields, error);
                }
            }
            Event::Released { fence, took } => {
                fields.extend([("fence", number(fence)), ("took_ms", millis(*took))]);
            }
            Event::ReleaseFailed { fence, error } => {
                fields.push(("fence", number(fence)));
                of_error(&mut fields, error);
            }
            Event::Observed { leader } | Event::Published { leader } | Event::Vacant { last: leader } => {
                fields.extend([
                    ("fence", number(&leader.fence)),
                    ("holder", Field::Text(leader.holder.clone())),
                ]);
            }
            Event::Failed { operation, error, took } => {
                fields.extend([("operation", Field::Name(operation.name())), ("took_ms", millis(*took))]);
                of_error(&mut fields, error);
            }
            Event::Recovered { failures, after } => {
                fields.extend([("failures", Field::Count(*failures)), ("after_ms", millis(*after))]);
            }
            Event::ClockStepped { forward, by } => {
                fields.extend([("forward", Field::Flag(*forward)), ("by_ms", millis(*by))]);
            }
            Event::FenceRegressed { seen, found } => {
                fields.extend([("seen", Field::Number(*seen)), ("fence", Field::Number(*found))]);
            }
            Event::TimelineChanged { from, to } => {
                let timeline = |key, of: &Option<u32>| of.map(|of| (key, Field::Count(of.into())));
                fields.extend(timeline("from", from));
                fields.extend(timeline("to", to));
            }
        }
        fields
    }
}

#[cfg(test)]
mod tests;
