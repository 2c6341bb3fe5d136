//! A transaction that the handler in it cannot end unnoticed.
use crate::{
    BatchTx, Dialect, Error, ErrorKind, OwnedTx, Tx,
    error::is_outage,
    owned_tx::{AfterCommit, ROLLBACK_MAX, run_commit},
    scope::Scope,
    statement::raw,
};
use std::time::Duration;
use twinbox_core::task_name::TaskName;

/// How long the database may take to answer a ping.
const PING_MAX: Duration = Duration::from_secs(5);

/// A transaction that commits only if it is still the one that was begun, and whole. Dropped, it rolls back.
pub(crate) struct Guarded<DB: Dialect> {
    tx: OwnedTx<DB>,
    guard: DB::Guard,
    pub(crate) scope: Box<Scope>,
}

impl<DB: Dialect> Guarded<DB> {
    pub(crate) fn new(tx: OwnedTx<DB>, guard: DB::Guard, scope: Scope) -> Self {
        Self { tx, guard, scope: Box::new(scope) }
    }

    pub(crate) fn tx(&mut self) -> Tx<'_, DB> {
        Tx::new(self.tx.connection(), &mut self.scope)
    }

    pub(crate) fn batch_tx(&mut self) -> BatchTx<'_, DB> {
        BatchTx::new(self.tx.connection(), &mut self.scope)
    }

    pub(crate) fn connection(&mut self) -> &mut DB::Connection {
        self.tx.connection()
    }

    /// Whether the database answers in this transaction, be it with a refusal.
    pub(crate) async fn is_reachable(&mut self) -> bool {
        match raw::<DB>("SELECT 1").within(PING_MAX).execute(self.tx.connection()).await {
            Err(error) => error.as_database_error().is_some() && !is_outage(&error),
            Ok(_) => true,
        }
    }

    /// Whether no contention was met in this transaction. It was if a savepoint has undone it. On MySQL it is
    /// not known: a wait for a lock that was too long ends its statement alone.
    pub(crate) async fn is_whole(&mut self) -> bool {
        let can_know = (DB::CAPABILITIES.errors_abort || DB::ONE_WRITER) && !self.scope.has_undone_contention;
        can_know && raw::<DB>("SELECT 1").within(PING_MAX).execute(self.tx.connection()).await.is_ok()
    }

    /// Allows the commit. Called after the last statement of the handler, before [`commit`](Self::commit).
    ///
    /// # Errors
    /// The handler ended the transaction, ignored an error that aborted it, or left a savepoint open: roll it
    /// back.
    pub(crate) async fn allow_commit(&mut self) -> Result<(), Error> {
        if self.scope.has_abandoned_savepoint() {
            return Err(Error::savepoint_abandoned());
        }
        DB::allow_commit(self.tx.connection(), &self.scope.catalog, &self.guard).await
    }

    /// The same, for the statement that stores a response: returns its last bind.
    pub(crate) async fn allow_response(&mut self) -> Result<String, Error> {
        if self.scope.has_abandoned_savepoint() {
            return Err(Error::savepoint_abandoned());
        }
        DB::response_guard(self.tx.connection(), &self.scope.catalog, &self.guard).await
    }

    pub(crate) async fn commit(self) -> Result<(), Error> {
        self.tx.commit_guarded(self.scope.wakes_readers).await?;
        if DB::has_committed(&self.guard) { Ok(()) } else { Err(Error::transaction_ended()) }
    }

    /// Commits what was allowed. Returns what is left, if it is fit for another transaction: a connection on
    /// which sqlx counts one. There is none.
    pub(crate) async fn commit_allowed(self) -> Result<Option<OwnedTx<DB>>, Error> {
        let Self { mut tx, guard, scope } = self;
        let after = run_commit::<DB>(tx.connection(), DB::COMMIT.unwrap_or("COMMIT")).await?;
        tx.permit = None;
        if scope.wakes_readers {
            tx.committed.send_replace(());
        }
        if !DB::has_committed(&guard) {
            return Err(Error::transaction_ended());
        }
        tx.last_guard = Some(guard);
        Ok(after.is_fit().then_some(tx))
    }

    /// Allows the commit and commits. Returns what is left, if it is fit for another transaction: a
    /// connection on which sqlx counts one. There is one only if the next one is to begin too.
    ///
    /// # Errors
    /// As [`allow_commit`](Self::allow_commit) and [`OwnedTx::commit`]. It is rolled back.
    pub(crate) async fn commit_at_once(mut self, begins_next: bool) -> Result<Option<OwnedTx<DB>>, Error> {
        match self.run_commit_at_once(begins_next).await {
            Ok(after) => {
                if self.scope.wakes_readers {
                    self.tx.committed.send_replace(());
                }
                Ok(after.is_fit().then_some(self.tx))
            }
            Err(error) => {
                if error.kind() != ErrorKind::CommitUnknown {
                    self.rollback().await;
                }
                Err(error)
            }
        }
    }

    async fn run_commit_at_once(&mut self, begins_next: bool) -> Result<AfterCommit, Error> {
        let guard = self.allow_response().await?;
        let mut sql = self.scope.catalog.sql.inbox.commit_at_once.as_str().replace("GUARD", &guard);
        // The next transaction sets the session up anew.
        let then = if begins_next { DB::BEGIN_NEXT_CLAIM } else { DB::END };
        if !then.is_empty() {
            sql += "; ";
            sql += then;
        }
        run_commit::<DB>(self.tx.connection(), &sql).await
    }

    /// Rolls back. Errors are left to the database, which rolls back when it loses the connection. A
    /// statement that still runs has to end first: after 5 s the connection is closed instead.
    pub(crate) async fn rollback(mut self) {
        let rolling_back = tokio::spawn(TaskName::Rollback.of(async move {
            let rolled_back = async {
                DB::prepare_rollback(self.tx.connection(), Some(&self.guard)).await;
                self.tx.roll_back_whole().await
            };
            match tokio::time::timeout(ROLLBACK_MAX, rolled_back).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a rollback was left to the database"
                ),
                Err(_) => {
                    tracing::warn!("a statement of a handler that was stopped is still running");
                    self.tx.close();
                }
            }
        }));
        let _ = rolling_back.await;
    }
}
