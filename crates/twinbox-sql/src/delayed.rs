//! Messages that wait for their time, and who brings them to the log.
use crate::{
    Dialect, Error, InTransaction, Outbox, Store, Tx,
    micros::Micros,
    sql::{Statements, query},
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::{BoxFuture, MessageId, crash};

/// What [`Store::move_due`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Messages that are in the log now.
    pub messages: u64,
    /// How long until the next one is due, by the database's clock: zero if one is. None: nothing waits.
    pub next_due: Option<Duration>,
}

impl<DB: Dialect> Outbox<DB> {
    /// Takes a message back that was published [for later](twinbox_core::Draft::not_before), in the caller's
    /// transaction. False: it is in the log, was cancelled before, or never waited. If several were published
    /// under one id, all that wait are cancelled.
    ///
    /// Until the transaction ends the message is neither moved nor lost: rolled back, it waits on.
    ///
    /// # Errors
    /// The database refused.
    pub fn cancel<'a>(
        &'a self,
        tx: &'a mut impl InTransaction<DB>,
        id: MessageId,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        let (conn, _) = tx.parts();
        Box::pin(cancel::<DB>(conn, self.statements(), id))
    }
}

impl<DB: Dialect> Tx<'_, DB> {
    /// [`Outbox::cancel`] with this transaction.
    ///
    /// # Errors
    /// The database refused, and on Postgres the transaction is lost.
    pub async fn cancel(&mut self, id: MessageId) -> Result<bool, Error> {
        let statements = self.statements();
        cancel::<DB>(self, &statements, id).await
    }
}

async fn cancel<DB: Dialect>(
    conn: &mut DB::Connection,
    statements: &Statements,
    id: MessageId,
) -> Result<bool, Error> {
    let cancelled = query::<DB>(&statements.cancel).bind(id.as_uuid()).execute(conn).await?;
    Ok(DB::rows_affected(&cancelled) > 0)
}

impl<DB: Dialect> Store<DB> {
    /// Moves messages whose time has come to the log, at most `limit` of them, in the order of their times and in
    /// a transaction of their own. While none is due it costs one look at an index.
    ///
    /// They keep id, key, headers, correlation and trace context; their time is that of the move, unless the draft
    /// set one. Of several movers one moves at a time. Killed at any point, it has moved a message or it has not:
    /// run it again.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn move_due(&self, limit: u32) -> Result<Moved, Error> {
        let statements = self.statements();
        let next_due = self.next_due().await?;
        if next_due.is_none_or(|due| !due.is_zero()) {
            return Ok(Moved { messages: 0, next_due });
        }
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        let moved = query::<DB>(&statements.move_due).bind(i64::from(limit)).execute(&mut *tx).await?;
        let messages = DB::rows_affected(&moved);
        crash::point("log.before_forget_moved");
        if DB::FORGET_MOVED.is_some() && messages > 0 {
            let moved = i64::try_from(messages).unwrap_or(i64::MAX);
            query::<DB>(&statements.forget_moved).bind(moved).execute(&mut *tx).await?;
        }
        crash::point("log.before_move");
        tx.commit().await?;
        crash::point("log.after_move");
        Ok(Moved { messages, next_due: self.next_due().await? })
    }

    async fn next_due(&self) -> Result<Option<Duration>, Error> {
        let next = query::<DB>(&self.statements().delayed_next);
        let mut conn = self.connection().await?;
        let row = next.fetch_optional(&mut *conn).await?;
        conn.done().await?;
        let Some(row) = row else { return Ok(None) };
        let (due, now): (Micros, Micros) = (row.try_get(0)?, row.try_get(1)?);
        let micros = due.0.as_micros().saturating_sub(now.0.as_micros());
        Ok(Some(Duration::from_micros(u64::try_from(micros).unwrap_or(0))))
    }
}
