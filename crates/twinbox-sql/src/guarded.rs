//! A transaction that the code in it cannot end.
use crate::{BatchTx, Dialect, Error, OwnedTx, Tx, error::is_outage, scope::Scope};
use std::time::Duration;

/// How long the database may take to say that it is there.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long a rollback is waited for.
const ROLLBACK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Commits only as the transaction that it began as, and whole. Dropped, it rolls back.
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

    pub(crate) async fn answers(&mut self) -> bool {
        let asked = sqlx::raw_sql("SELECT 1").execute(&mut *self.tx);
        match tokio::time::timeout(ANSWER_MAX, asked).await {
            Ok(Err(error)) => error.as_database_error().is_some() && !is_outage(&error),
            Ok(Ok(_)) => true,
            Err(_) => false,
        }
    }

    /// Before [`commit`](Self::commit), and after the last statement that is not the runtime's.
    ///
    /// # Errors
    /// The transaction was ended, lost to an error that was ignored, or left a savepoint open: roll it back.
    pub(crate) async fn allow_commit(&mut self) -> Result<(), Error> {
        if self.scope.savepoint_abandoned() {
            return Err(crate::tx::savepoint_abandoned());
        }
        DB::allow_commit(self.tx.connection(), &self.scope.statements, &self.guard).await
    }

    /// The same, by the statement that stores an answer: what that has to bind.
    pub(crate) async fn allow_answer(&mut self) -> Result<String, Error> {
        if self.scope.savepoint_abandoned() {
            return Err(crate::tx::savepoint_abandoned());
        }
        DB::answer_guard(self.tx.connection(), &self.scope.statements, &self.guard).await
    }

    pub(crate) async fn commit(self) -> Result<(), Error> {
        self.tx.commit_guarded().await?;
        if DB::committed(&self.guard) { Ok(()) } else { Err(crate::dialect::transaction_ended()) }
    }

    /// Errors are left to the database, which rolls back what it loses the connection of. A statement that is still
    /// running has to end first: after 5 s that goes on in the background, with its connection.
    pub(crate) async fn rollback(mut self) {
        let rolling_back = tokio::spawn(async move {
            DB::prepare_rollback(self.tx.connection(), Some(&self.guard)).await;
            if let Err(error) = self.tx.rollback().await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a rollback was left to the database"
                );
            }
        });
        if tokio::time::timeout(ROLLBACK_WAIT_MAX, rolling_back).await.is_err() {
            tracing::warn!("a statement of a handler that was given up is still running");
        }
    }
}
