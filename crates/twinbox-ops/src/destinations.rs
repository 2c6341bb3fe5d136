//! Pausing, retiring and rebasing destinations.
use crate::Ops;
use sqlx::Row as _;
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    engine::{Cursor, check_tables, query, text},
};

/// The result of [`Ops::retire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetireReport {
    /// Whether the destination had a cursor, for which the log was kept.
    pub had_cursor: bool,
    /// How many parked messages were deleted, dead letters included. Their messages stay in the log until it
    /// is purged.
    pub parked: u64,
}

/// The result of [`Ops::rebase`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebaseReport {
    /// How many messages of the log got a transaction id of this server.
    pub messages: u64,
}

impl<DB: Dialect> Ops<DB> {
    /// Pauses a destination, or a consumer of the log (`consumer:NAME`), within a quarter of its lease. No
    /// message is sent, and no attempt is counted. It stays paused over restarts, in every process, until
    /// [`resume_destination`](Self::resume_destination).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: there is no such destination. Or the database refused or is away.
    pub async fn pause_destination(&self, destination: &str, reason: &str) -> Result<(), Error> {
        self.set_destination_pause(destination, Some(reason)).await
    }

    /// Resumes a paused destination.
    ///
    /// # Errors
    /// As [`pause_destination`](Self::pause_destination).
    pub async fn resume_destination(&self, destination: &str) -> Result<(), Error> {
        self.set_destination_pause(destination, None).await
    }

    async fn set_destination_pause(&self, destination: &str, reason: Option<&str>) -> Result<(), Error> {
        let set = &self.engine.sql().cursors.set_pause;
        let reason = reason.map(|reason| text(reason).into_owned());
        match self.engine.execute(set, |query| query.bind(reason).bind(destination.to_owned())).await? {
            1 => Ok(()),
            _ => Err(Self::unknown_destination(destination)),
        }
    }

    /// Retires a destination, or a consumer of the log (`consumer:NAME`), that is gone for good. Deletes its
    /// cursor, so that the log is not kept for it, and its parked rows, and cancels its replays. If it comes
    /// back it is a new one, and starts where its options say. Retiring an unknown destination is no error.
    ///
    /// In one transaction: killed half-way, it has deleted nothing.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseHeld`]: a process reads for it, or did until its lease ends. Or the database
    /// refused.
    pub async fn retire(&self, destination: &str) -> Result<RetireReport, Error> {
        let sql = self.engine.sql();
        let mut tx = self.engine.begin().await?;
        let delete = query::<DB>(&sql.retention.retire_cursor).bind(destination.to_owned());
        let had_cursor = DB::rows_affected(&delete.execute(&mut *tx).await?) > 0;
        let left = query::<DB>(&sql.cursors.settings).bind(destination.to_owned());
        if left.fetch_optional(&mut *tx).await?.is_some() {
            return Err(Error::new(
                ErrorKind::LeaseHeld,
                format!("a process reads for {destination:?}: stop it, or wait until its lease ends"),
            ));
        }
        let parked = query::<DB>(&sql.retention.retire_parked).bind(destination.to_owned());
        let parked = DB::rows_affected(&parked.execute(&mut *tx).await?);
        self.cancel_replays(&mut tx, Some(destination)).await?;
        tx.commit().await?;
        Ok(RetireReport { had_cursor, parked })
    }

    /// Makes a log readable again that was restored from a dump: messages, ticks, cursors and the sentinel
    /// get transaction ids of this server, so that every reader goes on where it was in the dump. Settled
    /// messages are not delivered again, unsettled ones are not lost, parked ones stay parked, and messages
    /// that were published since the restore are new to all. Replays are cancelled.
    ///
    /// In one transaction, which rewrites the outbox and keeps publishers waiting; killed half-way, it has
    /// changed nothing. Needs the rights of the tables' owner.
    ///
    /// # Errors
    /// The database was not restored from a dump, and nothing is to be done: on SQLite always. Or the
    /// database refused.
    pub async fn rebase(&self) -> Result<RebaseReport, Error> {
        let catalog = self.engine.catalog();
        let mut tx = self.engine.begin().await?;
        check_tables::<DB>(&mut tx, catalog).await?;
        // The ticks that bound them are not kept.
        self.cancel_replays(&mut tx, None).await?;
        let messages = DB::rebase(&mut tx, &catalog.namespace).await?;
        tx.commit().await?;
        Ok(RebaseReport { messages })
    }

    /// Cancels the running replays of one destination, or of all.
    async fn cancel_replays(
        &self,
        conn: &mut DB::Connection,
        destination: Option<&str>,
    ) -> Result<(), Error> {
        let sql = &self.engine.sql().replays;
        for statement in [&sql.cancel_all, &sql.detach_ended] {
            query::<DB>(statement).bind(destination.map(str::to_owned)).execute(&mut *conn).await?;
        }
        Ok(())
    }

    /// How far a destination has settled the log.
    pub(crate) async fn settled_by(
        &self,
        conn: &mut DB::Connection,
        destination: &str,
    ) -> Result<Cursor, Error> {
        let position = query::<DB>(&self.engine.sql().cursors.position).bind(destination.to_owned());
        let Some(row) = position.fetch_optional(conn).await? else {
            return Err(Self::unknown_destination(destination));
        };
        if row.try_get("is_detached")? {
            let what = format!("destination {destination:?} is detached: retire it, and start it again");
            return Err(Error::new(ErrorKind::Detached, what));
        }
        Ok(Cursor { p: row.try_get("p")?, w: row.try_get("w")?, position: row.try_get("position")? })
    }
}
