//! `tenure schema` and `tenure init`: the table as text, and the table.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::{AnyStore, Store};

use crate::failure::{Failure, is_missing};
use crate::options::StoreOptions;
use crate::output::{printable, say};

/// How long a look may take before the table is made.
const LOOK: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure schema --store postgres://app@db/app >migrations/0042_election.sql
  tenure schema --store postgres://app@db/app --table ops.leases

Nothing is connected to or opened: the URL only says which database it is for.")]
pub(crate) struct Schema {
    #[command(flatten)]
    store: StoreOptions,
}

impl Schema {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        match self.store.open()? {
            AnyStore::Postgres(store) => say(store.schema().trim_end())?,
            AnyStore::Sqlite(store) => say(store.schema().trim_end())?,
            _ => say("-- this store has no table")?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure init --store postgres://owner@db/app
  tenure init --store sqlite:/var/lib/app/lease.db

Where the table is there already it is checked, and nothing is changed. A role
that only runs elections needs USAGE on the schema and SELECT, INSERT, UPDATE
on the table; whoever makes the table grants them.")]
pub(crate) struct Init {
    #[command(flatten)]
    store: StoreOptions,
}

impl Init {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let store = self.store.open()?;
        let before = store.list(LOOK);
        store.ensure_schema()?;
        let what = match &store {
            AnyStore::Postgres(store) => format!("the table {}", store.lease_table().unwrap_or_default()),
            AnyStore::Sqlite(store) => format!("the table in {}", store.path().display()),
            other => format!("what is needed for {other:?}"),
        };
        // Somebody else may have made it between the two looks; then it is there all the same.
        let is = match before {
            Err(error) if is_missing(&error) => "has been created",
            Ok(_) => "is there already, and can carry elections",
            Err(_) => "is there, and can carry elections",
        };
        say(&printable(&format!("{what} {is}")))?;
        Ok(ExitCode::SUCCESS)
    }
}
