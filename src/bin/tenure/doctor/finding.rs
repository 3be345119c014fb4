//! What an examination has come to.

use serde_json::{Value, json};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Elections are safe; somebody should know.
    Note,
    /// Nobody can lead until it is mended. Not unsafe.
    Broken,
    /// Two may lead, or a fence may be given out twice.
    Unsafe,
}

impl Level {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Broken => "broken",
            Level::Unsafe => "unsafe",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) topic: &'static str,
    /// What it is, and what that means.
    pub(crate) what: String,
    /// What to do about it.
    pub(crate) advice: Option<String>,
}

impl Finding {
    pub(crate) fn new(level: Level, topic: &'static str, what: impl Into<String>) -> Finding {
        Finding { level, topic, what: what.into(), advice: None }
    }

    pub(crate) fn ok(topic: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(Level::Ok, topic, what)
    }

    pub(crate) fn note(topic: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(Level::Note, topic, what)
    }

    pub(crate) fn unsafe_(topic: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(Level::Unsafe, topic, what)
    }

    pub(crate) fn broken(topic: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(Level::Broken, topic, what)
    }

    pub(crate) fn advice(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "level": self.level.word(), "topic": self.topic, "what": self.what, "advice": self.advice })
    }
}

/// The worst of them.
pub(crate) fn verdict(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}
