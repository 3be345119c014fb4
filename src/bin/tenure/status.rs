//! `tenure status`: who leads.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use tenure::{Lease, Store};

use crate::failure::Failure;
use crate::options::{Bound, Elections, StoreOptions};
use crate::output::{cut, json_lines, printable, say, short, width};
use crate::view::{self, State};
use crate::voice;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure status --store postgres://app@db/app
  tenure status --election invoice-reconciler --json | jq -r '.[0].holder'

Times are by the database's clock. LEFT is how long the lease still runs,
AGE how long ago it was renewed, LENGTH for how long. A row that is `expired`
has no leader, one that is `released` has none and may be taken at once, and
`vacant` means that nobody has ever led. One that is `deposed` has been taken
by `tenure resign`: nobody leads until it has run out. On a terminal long texts
are cut.

With --json each election is an object with these keys:
  election, state (leading, deposed, expired, released, vacant), holder, fence,
  timeline (of the server, if it tells), remaining_ms, renewed_ms_ago,
  acquired_ms_ago, length_ms (null once released), payload (null where it is
  not UTF-8), payload_hex. Where there is no row all but two are null.")]
pub(crate) struct Status {
    #[command(flatten)]
    store: StoreOptions,
    #[command(flatten)]
    elections: Elections,
    /// An array of objects in place of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    bound: Bound,
}

impl Status {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        self.elections.check()?;
        let store = self.store.open()?;
        let timeout = self.bound.operation_timeout;
        let (elections, some) = match self.elections.named(&store, timeout) {
            Some(named) => (named?, false),
            None => {
                let all: Vec<_> = store.list(timeout)?.into_iter().map(named).collect();
                let some = all.len() == Lease::MAX_LISTED;
                (all, some)
            }
        };
        if self.json {
            let object = |(name, lease): &(String, Option<Lease>)| view::json(name, lease.as_ref());
            say(&json_lines(&Value::Array(elections.iter().map(object).map(Value::Object).collect())))?;
        } else if elections.is_empty() {
            voice::say("tenure: there are no elections yet\n");
        } else {
            say(&table(&elections, width()))?;
        }
        if some {
            voice::say(format!(
                "tenure: there may be more than these {}; name them with --election\n",
                Lease::MAX_LISTED
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn named(lease: Lease) -> (String, Option<Lease>) {
    (lease.name().to_owned(), Some(lease))
}

const TITLES: [&str; 8] = ["ELECTION", "STATE", "LEFT", "AGE", "LENGTH", "FENCE", "HOLDER", "PAYLOAD"];
const ELECTION: usize = 0;
const HOLDER: usize = 6;
const PAYLOAD: usize = 7;
/// Which columns give way when the terminal is too narrow, and how much they keep, until it fits: first the random end
/// of the holder.
const NARROWED: [(usize, usize); 8] = [
    (HOLDER, 20),
    (PAYLOAD, 12),
    (ELECTION, 24),
    (HOLDER, 14),
    (PAYLOAD, 7),
    (ELECTION, 12),
    (HOLDER, 8),
    (ELECTION, 8),
];
const GAP: &str = "  ";

fn cells(name: &str, lease: Option<&Lease>) -> [String; 8] {
    let none = || "-".to_owned();
    let Some(lease) = lease else {
        let state = "vacant".to_owned();
        return [printable(name), state, none(), none(), none(), none(), none(), none()];
    };
    let state = State::of(lease);
    [
        printable(name),
        state.word().to_owned(),
        if state.is_live() { short(lease.ttl()) } else { none() },
        short(view::age(lease)),
        if state == State::Released { none() } else { short(lease.length()) },
        lease.fence().to_string(),
        printable(lease.holder()),
        view::payload(lease).unwrap_or_else(none),
    ]
}

fn table(elections: &[(String, Option<Lease>)], width: Option<usize>) -> String {
    let mut rows = vec![TITLES.map(str::to_owned)];
    rows.extend(elections.iter().map(|(name, lease)| cells(name, lease.as_ref())));
    let mut widths = [0; TITLES.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    if let Some(room) = width {
        let total = widths.iter().sum::<usize>() + GAP.len() * (widths.len() - 1);
        let mut excess = total.saturating_sub(room);
        for (column, least) in NARROWED {
            let given = excess.min(widths[column].saturating_sub(least));
            widths[column] -= given;
            excess -= given;
        }
    }
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{:width$}", cut(cell, width)));
        cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::{lease, released};

    fn long() -> Vec<(String, Option<Lease>)> {
        let payload = lease(7, 5).with_payload(Some("https://reports.example:8443/health".into()));
        vec![
            ("the-invoice-reconciler-of-the-whole-company".into(), Some(payload)),
            ("b\u{1b}[2J".into(), Some(released(1_099_511_627_777))),
            ("nobody".into(), None),
        ]
    }

    #[test]
    fn a_line_fits_the_terminal() {
        for width in [80, 100, 120] {
            let shown = table(&long(), Some(width));
            assert!(shown.lines().all(|line| line.chars().count() <= width), "{width}:\n{shown}");
            assert!(shown.contains('…'), "{shown}");
        }
        let narrow = table(&long(), Some(80));
        for part in ["leading", "10s", "5s", "15s", "1099511627777", "vacant", "the-invoice", "PAYLOAD"] {
            assert!(narrow.contains(part), "{part}:\n{narrow}");
        }
    }

    #[test]
    fn nothing_is_cut_where_nobody_looks_and_nothing_is_obeyed() {
        let shown = table(&long(), None);
        assert!(shown.contains("the-invoice-reconciler-of-the-whole-company"), "{shown}");
        assert!(shown.contains("https://reports.example:8443/health"), "{shown}");
        assert!(shown.contains("b\\u{1b}[2J") && !shown.contains('\u{1b}'), "{shown}");
    }
}
