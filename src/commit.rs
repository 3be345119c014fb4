//! The fenced commit: a transaction in the database that holds the lease, committed only while the lease is this
//! term's (rule 12).

use std::fmt;

use postgres::Transaction;

use crate::guard::{LeaderGuard, Lost, Term};
use crate::store::StoreError;
use crate::store::postgres::fenced::{self, CommitFailure};
use crate::term::LossCause;

/// Why a transaction was not committed, or is not known to be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CommitError {
    /// The term is over, and nothing was written. It is over for everybody from now on, also where this is how it was
    /// found out.
    Stale(Lost),
    /// Nothing was written; about the term that says nothing. With SQLSTATE 40001 or 40P01 the same work may succeed
    /// in another transaction.
    NotCommitted(StoreError),
    /// The commit was sent and not answered. It may have happened, while the lease was this term's; or not at all.
    Unknown(StoreError),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CommitError::Stale(_) => "not committed, the term is over",
            CommitError::NotCommitted(_) => "not committed",
            CommitError::Unknown(_) => "whether it was committed is unknown",
        })
    }
}

impl std::error::Error for CommitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CommitError::Stale(lost) => Some(lost),
            CommitError::NotCommitted(error) | CommitError::Unknown(error) => Some(error),
        }
    }
}

impl Term {
    /// Commits the transaction if the lease is this term's, and rolls it back otherwise.
    ///
    /// The transaction is one of the caller's own, in the **same database as the lease**. However long this process
    /// stood still since it last checked, nothing of a leader that has been superseded is committed; and no successor's
    /// term begins between the check and the commit, since the check locks the lease's row.
    ///
    /// Give it the **outermost** transaction, and one that has not ended. A nested one is a savepoint: of that only the
    /// savepoint is released or rolled back, and what the outer one does later is not checked. One that was
    /// ended by a statement of the caller's has committed already.
    ///
    /// ```no_run
    /// use postgres::{Client, NoTls};
    /// use tenure::{CommitError, Config, Elector, PostgresStore};
    ///
    /// let url = "postgres://app@db/app";
    /// let mut db = Client::connect(url, NoTls)?;
    /// let elector = Elector::start(PostgresStore::connect(url)?, Config::builder("billing").build()?)?;
    /// let guard = elector.wait_for_leadership()?;
    ///
    /// let mut transaction = db.transaction()?;
    /// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", &[])?;
    /// match guard.commit(transaction) {
    ///     Ok(()) => println!("committed"),
    ///     Err(CommitError::Stale(lost)) => println!("somebody else leads, nothing was written: {lost}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # What it costs, and how long it takes
    ///
    /// One round trip more than a commit. The transactions of one election that are committed in this way take turns
    /// for the row, with each other and with the renewals. Each wait for it is bounded by `operation_timeout`; where
    /// many want it there can be several. Bounded is also the time for which this process may stand still between the
    /// check and the commit: then the server ends the *session* (with `idle_in_transaction_session_timeout`, for this
    /// transaction), since nobody else can lead as long as it holds the row. Apart from that the calls take as long as
    /// the caller's connection lets them; a deadline of
    /// its own is for its owner to set. So is `synchronous_commit`: what a crash of the server may take back, it may
    /// take back here, too.
    ///
    /// # Isolation
    ///
    /// In a transaction that is `REPEATABLE READ` or `SERIALIZABLE`, the server refuses to lock a row that has changed
    /// since its snapshot, and a renewal changes it: the commit then fails with SQLSTATE 40001, as such transactions do
    /// anyway, and wants the work done again. `READ COMMITTED` does not have that.
    ///
    /// # Errors
    /// The term is over ([`CommitError::Stale`]): this is also what a transaction in some other database gets whose
    /// table lacks the lease. Or the database failed, before the commit or in it.
    pub fn commit(&self, mut transaction: Transaction<'_>) -> Result<(), CommitError> {
        self.verify(&mut transaction)?;
        fenced::commit(transaction).map_err(|failure| match failure {
            CommitFailure::Undone(error) => CommitError::NotCommitted(error),
            CommitFailure::Unknown(error) => CommitError::Unknown(error),
        })
    }

    /// The check of [`commit`](Term::commit), for a caller that commits by itself: if it succeeds, the lease stays
    /// this term's until the outermost transaction ends, **or is rolled back to a savepoint made before this call**.
    /// So give it the outermost transaction.
    ///
    /// Call it last. From here on the lease cannot be renewed, by this participant neither, and work that is done
    /// between this and the commit delays the renewals. A pause longer than `operation_timeout` ends the session, as
    /// there. Where it fails, drop the transaction.
    ///
    /// # Errors
    /// As there; never [`CommitError::Unknown`].
    pub fn verify(&self, transaction: &mut Transaction<'_>) -> Result<(), CommitError> {
        self.check().map_err(CommitError::Stale)?;
        let entry = self.entry();
        let Some(table) = &entry.table else {
            let why = "the lease is not in a table of PostgreSQL, where the transaction could see it";
            return Err(CommitError::NotCommitted(StoreError::fatal(why)));
        };
        let claim = (&*entry.election, &*entry.holder, self.fence());
        if fenced::is_held(transaction, table, claim, entry.patience).map_err(CommitError::NotCommitted)? {
            return Ok(());
        }
        // Nobody is told so who is then told by somebody else that it is live (rule 5). The watchdog looks often.
        let cause = self.seal(LossCause::Superseded).err().unwrap_or(LossCause::Superseded);
        Err(CommitError::Stale(Lost { fence: self.fence(), cause }))
    }
}

impl LeaderGuard {
    /// Commits the transaction if the lease is this term's, and rolls it back otherwise; see [`Term::commit`].
    ///
    /// # Errors
    /// The term is over, or the database failed.
    pub fn commit(&self, transaction: Transaction<'_>) -> Result<(), CommitError> {
        self.term().commit(transaction)
    }

    /// The check alone, for a caller that commits by itself; see [`Term::verify`].
    ///
    /// # Errors
    /// The term is over, or the database failed.
    pub fn verify(&self, transaction: &mut Transaction<'_>) -> Result<(), CommitError> {
        self.term().verify(transaction)
    }
}
