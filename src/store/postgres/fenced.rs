//! The look at the lease in a transaction of the caller's, and that transaction's end (rule 12). Runs on the caller's
//! thread, and uses its connection for nothing else.

use std::time::Duration;

use postgres::Transaction;
use postgres::types::Type;

use super::{engine, error, sql};
use crate::lease::Fence;
use crate::store::StoreError;

/// What a failed `COMMIT` has left.
pub(crate) enum CommitFailure {
    /// Nothing.
    Undone(StoreError),
    /// Nothing or all of it.
    Unknown(StoreError),
}

/// Whether the lease is this term's. If it is, it stays so until the transaction ends.
pub(crate) fn is_held(
    transaction: &mut Transaction<'_>,
    table: &str,
    (election, holder, fence): (&str, &str, Fence),
    patience: Duration,
) -> Result<bool, StoreError> {
    let patience = engine::patience(patience);
    let row = transaction
        .query_typed_one(
            &sql::check(table),
            &[(&patience, Type::TEXT), (&election, Type::TEXT), (&holder, Type::TEXT), (&fence, Type::INT8)],
        )
        .map_err(|error| error::of_statement(error, &table))?;
    let held: Option<bool> = row.try_get(0).map_err(error::wrong_shape)?;
    let isolation: &str = row.try_get(1).map_err(error::wrong_shape)?;
    match held {
        Some(held) => Ok(held),
        None if isolation.starts_with("read ") => Ok(false),
        // The row may have been created since the snapshot was taken.
        None => Err(StoreError::retryable(
            "the transaction's snapshot does not have the lease: try again with another",
        )
        .with_sqlstate("40001")),
    }
}

pub(crate) fn commit(transaction: Transaction<'_>) -> Result<(), CommitFailure> {
    transaction.commit().map_err(|error| match error::is_undone(&error) {
        true => CommitFailure::Undone(error::of_commit(error)),
        false => CommitFailure::Unknown(error::of_commit(error)),
    })
}
