//! A delivery that leaves nothing behind.
use super::{Attempt, Claimed};
use crate::{Dialect, Error, Store};
use twinbox_core::Message;
use uuid::Uuid;

impl<DB: Dialect> Store<DB> {
    /// [`Claims`](Self::claim) a message for a run that is to be [rolled back](Attempt::dry_end), and whose handler is
    /// [told so](crate::Tx::is_dry_run). `again`: although it was handled, and as the first attempt.
    ///
    /// Without `again` another delivery of the message waits for it meanwhile, as for any attempt.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub async fn claim_dry(
        &self,
        consumer: &str,
        message: &Message,
        again: bool,
    ) -> Result<Claimed<DB>, Error> {
        // Nobody else has claims under that name, and nobody waits for this one.
        let nobody = again.then(|| format!("dry run {}", Uuid::now_v7()));
        let claimed = self.claim(nobody.as_deref().unwrap_or(consumer), message, !again).await?;
        let Claimed::Open(mut attempt) = claimed else { return Ok(claimed) };
        attempt.tx.scope.is_dry_run = true;
        consumer.clone_into(&mut attempt.tx.scope.consumer);
        Ok(Claimed::Open(attempt))
    }
}

impl<DB: Dialect> Attempt<DB> {
    /// Rolls back in any case, and answers with how many events would have been published.
    ///
    /// # Errors
    /// Why it could not have been committed, on Postgres also by a constraint that is deferred to the end.
    pub async fn dry_end(mut self) -> Result<u32, Error> {
        let published = self.tx.scope.published();
        let mut fit = self.prepare_commit().await;
        if let (Ok(()), Some(check)) = (&fit, DB::CHECK_DEFERRED) {
            fit = sqlx::raw_sql(check).execute(self.tx.connection()).await.map(drop).map_err(Error::from);
        }
        self.rollback().await;
        fit.map(|()| published)
    }
}
