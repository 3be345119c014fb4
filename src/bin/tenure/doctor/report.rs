//! The report: for people, at 80 columns, and for programs.

use serde_json::{Map, Value, json};

use super::finding::{Finding, Level, verdict};
use super::pace::{ClockOffset, Recommended, RoundTrips};
use crate::output::{WIDTH, printable, wrapped};

/// Level and topic are before the text.
const INDENT: usize = 22;

pub(crate) struct Report {
    /// Which kind of store, in the words of a URL.
    pub(crate) store: &'static str,
    /// What was looked at.
    pub(crate) subject: String,
    pub(crate) findings: Vec<Finding>,
    pub(crate) trips: RoundTrips,
    pub(crate) clock: Option<ClockOffset>,
    pub(crate) recommended: Recommended,
}

impl Report {
    pub(crate) fn verdict(&self) -> Level {
        verdict(&self.findings)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = vec![wrapped(&printable(&self.subject), WIDTH, 0), String::new()];
        for finding in &self.findings {
            let head = format!("{:8}{:14}", finding.level.word(), finding.topic);
            text.push(format!("{head}{}", wrapped(&printable(&finding.what), WIDTH, INDENT)));
            if let Some(advice) = &finding.advice {
                let advice = format!("-> {}", printable(advice));
                text.push(format!("{}{}", " ".repeat(INDENT), wrapped(&advice, WIDTH, INDENT)));
            }
        }
        let timings = match self.recommended.as_asked {
            _ if self.trips.count() == 0 => "Timings, though nothing was measured:",
            true => "These timings suit it:",
            false => "It needs longer timings:",
        };
        text.extend([String::new(), timings.to_owned(), String::new()]);
        text.extend(self.recommended.rust().into_iter().map(|line| format!("    {line}")));
        let options = format!("tenure exec {}", self.recommended.options());
        text.extend([String::new(), format!("    {}", wrapped(&options, WIDTH, 8).replace('\n', " \\\n"))]);
        text.extend([String::new(), wrapped(self.sentence(), WIDTH, 0)]);
        text.join("\n")
    }

    fn sentence(&self) -> &'static str {
        match self.verdict() {
            Level::Ok => "Fit to carry elections.",
            Level::Note => "Fit to carry elections; see the notes.",
            Level::Broken => "Nobody can lead here until what is broken is mended.",
            Level::Unsafe => "NOT SAFE: do not run elections here before what is unsafe is mended.",
        }
    }

    pub(crate) fn json(&self) -> Value {
        let micros = |hundredths| {
            let found = self.trips.percentile(hundredths);
            found.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
        };
        let times: Map<String, Value> = self
            .recommended
            .times()
            .map(|(name, time)| {
                (format!("{name}_ms"), Value::from(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
            })
            .collect();
        let clock = self.clock.map(|clock| {
            let uncertainty = u64::try_from(clock.uncertainty.as_micros()).unwrap_or(u64::MAX);
            json!({ "ahead_us": clock.ahead_micros, "uncertainty_us": uncertainty })
        });
        json!({
            "store": self.store,
            "subject": self.subject,
            "verdict": self.verdict().word(),
            "findings": self.findings.iter().map(Finding::json).collect::<Vec<_>>(),
            "round_trips": {
                "count": self.trips.count(),
                "median_us": micros(50),
                "p99_us": micros(99),
            },
            "clock": clock,
            "timings": times,
            "timings_as_asked": self.recommended.as_asked,
        })
    }
}
