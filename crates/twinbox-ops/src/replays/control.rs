//! Listing, pausing and cancelling replays.
use crate::Ops;
use twinbox_core::crash;
use twinbox_sql::{Dialect, Error, ErrorKind, engine::query, replay::Replay};

impl<DB: Dialect> Ops<DB> {
    /// Returns the newest replays, newest first. Those that cannot be read, such as one that a newer version
    /// has made, are left out, with a warning.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn replays(&self, limit: u32) -> Result<Vec<Replay>, Error> {
        let mut replays = Vec::new();
        for row in &self.replay_rows(limit).await? {
            match Replay::read::<DB>(row) {
                Ok(replay) => replays.push(replay),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a replay is left out");
                }
            }
        }
        Ok(replays)
    }

    /// Returns the newest replays, and fails if one of them cannot be read.
    pub(crate) async fn readable_replays(&self, limit: u32) -> Result<Vec<Replay>, Error> {
        self.replay_rows(limit).await?.iter().map(Replay::read::<DB>).collect()
    }

    async fn replay_rows(&self, limit: u32) -> Result<Vec<DB::Row>, Error> {
        let list = &self.engine.sql().replays.list;
        self.engine.fetch_all(list, |query| query.bind(i64::from(limit))).await
    }

    /// Returns one replay by its id.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; or the database refused or is away.
    pub async fn replay(&self, id: i64) -> Result<Replay, Error> {
        let find = &self.engine.sql().replays.find;
        let row = self.engine.fetch_optional(find, |query| query.bind(id)).await?;
        let replay = row.as_ref().map(Replay::read::<DB>).transpose()?;
        replay.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no replay {id}")))
    }

    /// Pauses a replay, which stops within a quarter of a lease. Messages in flight arrive.
    ///
    /// # Errors
    /// It has ended, or there is none; or the database refused or is away.
    pub async fn pause_replay(&self, id: i64, reason: &str) -> Result<(), Error> {
        let replay = self.running_replay(id).await?;
        self.pause_destination(&replay.cursor(), reason).await
    }

    /// Resumes a paused replay.
    ///
    /// # Errors
    /// As [`pause_replay`](Self::pause_replay).
    pub async fn resume_replay(&self, id: i64) -> Result<(), Error> {
        let replay = self.running_replay(id).await?;
        self.resume_destination(&replay.cursor()).await
    }

    async fn running_replay(&self, id: i64) -> Result<Replay, Error> {
        let replay = self.replay(id).await?;
        if replay.state.has_ended() {
            return Err(Error::new(ErrorKind::Conflict, format!("replay {id} is {}", replay.state.as_str())));
        }
        Ok(replay)
    }

    /// Cancels a replay for good. Messages that were sent stay sent. False: it had ended.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; or the database refused or is away.
    pub async fn cancel_replay(&self, id: i64) -> Result<bool, Error> {
        let (replay, sql) = (self.replay(id).await?, &self.engine.sql().replays);
        let mut tx = self.engine.begin_short().await?;
        let cancel = query::<DB>(&sql.finish).bind("cancelled".to_owned()).bind(id);
        let is_cancelled = DB::rows_affected(&cancel.execute(&mut *tx).await?) > 0;
        if is_cancelled {
            query::<DB>(&sql.detach_cursor).bind(replay.cursor()).execute(&mut *tx).await?;
        }
        crash::point("replay.before_end");
        tx.commit().await?;
        crash::point("replay.after_end");
        Ok(is_cancelled)
    }
}
