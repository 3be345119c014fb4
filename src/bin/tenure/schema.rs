//! `tenure schema` and `tenure init`: the table as text, and the table.

use std::process::ExitCode;

use clap::Args;
use tenure::AnyStore;

use crate::failure::Failure;
use crate::options::StoreOptions;

#[derive(Debug, Args)]
pub(crate) struct Schema {
    #[command(flatten)]
    store: StoreOptions,
}

impl Schema {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        match self.store.open()? {
            AnyStore::Postgres(store) => println!("{}", store.schema()),
            AnyStore::Sqlite(store) => println!("{}", store.schema()),
            other => println!("-- no table is needed for {other:?}"),
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    #[command(flatten)]
    store: StoreOptions,
}

impl Init {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        self.store.open()?.ensure_schema()?;
        Ok(ExitCode::SUCCESS)
    }
}
