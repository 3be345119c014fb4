//! What a node says: one line for everything that happens, stamped with the machine's boot clock, so that the lines
//! of all nodes can be laid over each other.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tenure::{Clock, SystemClock};

/// Time since boot.
pub(crate) type Stamp = Duration;

pub(crate) fn now() -> Stamp {
    Duration::from_nanos(SystemClock::new().now().as_nanos())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Started {
        at: Stamp,
        identity: String,
    },
    /// A term was handed out.
    Lead {
        at: Stamp,
        fence: i64,
    },
    /// The term was certainly live from `from` to `to`: it was so in a check that had returned by `from`, and in
    /// one that began at `to`, and a term that was lost never comes back.
    Held {
        fence: i64,
        from: Stamp,
        to: Stamp,
    },
    /// The first check after the node had not run for a while.
    Check {
        ok: bool,
        from: Stamp,
        to: Stamp,
    },
    Lost {
        at: Stamp,
        fence: i64,
        cause: String,
    },
    /// The guard is gone, or the callback was told.
    Stopped {
        at: Stamp,
        fence: i64,
    },
    /// The database showed somebody else's term.
    Seen {
        at: Stamp,
        fence: i64,
    },
    /// The store failed.
    Err {
        at: Stamp,
        sqlstate: String,
        fatal: bool,
        text: String,
    },
    /// A shutdown has returned.
    Ended {
        at: Stamp,
        how: String,
    },
    Exit {
        at: Stamp,
    },
}

impl Line {
    /// When what it tells was over, as far as the line knows.
    pub(crate) fn at(&self) -> Stamp {
        match self {
            Line::Started { at, .. }
            | Line::Lead { at, .. }
            | Line::Lost { at, .. }
            | Line::Stopped { at, .. }
            | Line::Seen { at, .. }
            | Line::Err { at, .. }
            | Line::Ended { at, .. }
            | Line::Exit { at } => *at,
            Line::Check { to, .. } | Line::Held { to, .. } => *to,
        }
    }
}

/// Prints it; what a program prints to a pipe is flushed with every line.
#[allow(clippy::print_stdout, reason = "how a node talks to its parent")]
pub(crate) fn say(line: &Line) {
    println!("{line}");
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = |stamp: &Stamp| stamp.as_nanos();
        match self {
            Line::Started { at, identity } => write!(f, "STARTED {} {identity}", n(at)),
            Line::Lead { at, fence } => write!(f, "LEAD {} {fence}", n(at)),
            Line::Held { fence, from, to } => write!(f, "HELD {fence} {} {}", n(from), n(to)),
            Line::Check { ok, from, to } => write!(f, "CHECK {ok} {} {}", n(from), n(to)),
            Line::Lost { at, fence, cause } => write!(f, "LOST {} {fence} {cause}", n(at)),
            Line::Stopped { at, fence } => write!(f, "STOPPED {} {fence}", n(at)),
            Line::Seen { at, fence } => write!(f, "SEEN {} {fence}", n(at)),
            Line::Err { at, sqlstate, fatal, text } => {
                write!(f, "ERR {} {sqlstate} {fatal} {}", n(at), text.replace('\n', " "))
            }
            Line::Ended { at, how } => write!(f, "ENDED {} {how}", n(at)),
            Line::Exit { at } => write!(f, "EXIT {}", n(at)),
        }
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> Result<Line, String> {
        parse(text).ok_or_else(|| format!("not a line of a node: {text}"))
    }
}

fn parse(text: &str) -> Option<Line> {
    let (word, rest) = text.split_once(' ')?;
    let mut words = rest.split(' ');
    let mut word_of = || words.next();
    let stamp = |word: Option<&str>| word?.parse().ok().map(Duration::from_nanos);
    Some(match word {
        "STARTED" => Line::Started { at: stamp(word_of())?, identity: word_of()?.to_owned() },
        "LEAD" => Line::Lead { at: stamp(word_of())?, fence: word_of()?.parse().ok()? },
        "HELD" => {
            Line::Held { fence: word_of()?.parse().ok()?, from: stamp(word_of())?, to: stamp(word_of())? }
        }
        "CHECK" => {
            Line::Check { ok: word_of()?.parse().ok()?, from: stamp(word_of())?, to: stamp(word_of())? }
        }
        "LOST" => Line::Lost {
            at: stamp(word_of())?,
            fence: word_of()?.parse().ok()?,
            cause: words.collect::<Vec<_>>().join(" "),
        },
        "STOPPED" => Line::Stopped { at: stamp(word_of())?, fence: word_of()?.parse().ok()? },
        "SEEN" => Line::Seen { at: stamp(word_of())?, fence: word_of()?.parse().ok()? },
        "ERR" => Line::Err {
            at: stamp(word_of())?,
            sqlstate: word_of()?.to_owned(),
            fatal: word_of()?.parse().ok()?,
            text: words.collect::<Vec<_>>().join(" "),
        },
        "ENDED" => Line::Ended { at: stamp(word_of())?, how: words.collect::<Vec<_>>().join(" ") },
        "EXIT" => Line::Exit { at: stamp(word_of())? },
        _ => return None,
    })
}
