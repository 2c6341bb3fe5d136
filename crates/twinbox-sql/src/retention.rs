//! Deleting what nobody needs any more.
use crate::{
    Dialect, Error, Store,
    micros::micros,
    sql::{query, scalar},
};
use std::time::Duration;

/// Messages that one statement deletes.
const BATCH: u32 = 1000;

/// What [`Store::purge`] keeps. A bare [`Duration`] is `Retention::new` of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Retention {
    keep: Duration,
    max_lag: Option<(Duration, OnMaxLag)>,
}

/// What becomes of a destination that is too far behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnMaxLag {
    /// It is reported, and everything that it has not settled is kept.
    Block,
    /// It is detached, and what it has not settled is deleted like the rest. Its reader then ends with
    /// [`ErrorKind::Detached`](crate::ErrorKind::Detached) until the destination is [retired](Store::retire) and
    /// started again.
    Detach,
}

impl Retention {
    /// Messages that are younger than `keep` stay, whoever has settled them.
    pub fn new(keep: Duration) -> Self {
        Self { keep, max_lag: None }
    }

    /// What becomes of a destination that has yet to settle a message that is older than this. None is detached
    /// for messages that are kept anyway. Default: all are waited for.
    pub fn max_lag(self, max_lag: Duration, on_max_lag: OnMaxLag) -> Self {
        Self { max_lag: Some((max_lag, on_max_lag)), ..self }
    }
}

impl From<Duration> for Retention {
    fn from(keep: Duration) -> Self {
        Self::new(keep)
    }
}

/// What [`Store::purge`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// Messages that are gone.
    pub messages: u64,
    /// The reader furthest behind, if it keeps messages that are old enough to go.
    pub held_by: Option<String>,
    /// Readers that are further behind than [`Retention::max_lag`]. With [`OnMaxLag::Detach`] they are detached
    /// now; those that were before are not among them.
    pub lagging: Vec<String>,
}

impl<DB: Dialect> Store<DB> {
    /// Deletes the messages of the log that are older than `keep`, that every destination and every consumer of
    /// the log has settled, and that none has put aside. Without any reader: nothing. In statements of 1,000
    /// messages, so that nobody waits for it.
    ///
    /// A message that is kept for a week at 100 a second and 1 KB costs about 60 GB with its indexes.
    ///
    /// Killed half-way, it has deleted some of them; run it again. Readers are detached before the first message that
    /// they need is deleted. Age is when a message was committed, as far as ticks of the readers tell; on SQLite it is
    /// the time of the message.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge(&self, retention: impl Into<Retention>) -> Result<Purged, Error> {
        let Retention { keep, max_lag } = retention.into();
        let lagging = match max_lag {
            Some((max_lag, on_max_lag)) => self.lagging(max_lag, keep, on_max_lag).await?,
            None => Vec::new(),
        };
        let age = micros(keep);
        let statements = self.statements();
        let mut messages = 0;
        loop {
            let _permit = self.write_permit().await?;
            let purge = query::<DB>(&statements.purge).bind(age).bind(i64::from(BATCH));
            let mut conn = self.connection().await?;
            let done = DB::rows_affected(&purge.execute(&mut *conn).await?);
            conn.done().await?;
            messages += done;
            if done < u64::from(BATCH) {
                break;
            }
        }
        self.forget_replays(keep).await?;
        let mut conn = self.connection().await?;
        if DB::PURGE_TICKS.is_some() {
            query::<DB>(&statements.purge_ticks).bind(age).execute(&mut *conn).await?;
        }
        let held_by = scalar::<DB, String>(&statements.held_by).bind(age);
        let held_by = held_by.fetch_optional(&mut *conn).await?;
        conn.done().await?;
        Ok(Purged { messages, held_by, lagging })
    }

    /// Deletes the cursors of replays that have ended, and, when they are old enough, what those had refused.
    async fn forget_replays(&self, keep: Duration) -> Result<(), Error> {
        let statements = self.statements();
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&statements.replay_forget_cursors).execute(&mut *conn).await?;
        let age = micros(keep).saturating_neg();
        query::<DB>(&statements.replay_forget_parked).bind(age).execute(&mut *conn).await?;
        conn.done().await
    }

    async fn lagging(
        &self,
        max_lag: Duration,
        keep: Duration,
        on_max_lag: OnMaxLag,
    ) -> Result<Vec<String>, Error> {
        let (statement, age) = match on_max_lag {
            OnMaxLag::Block => (&self.statements().lagging, max_lag),
            OnMaxLag::Detach => (&self.statements().detach, max_lag.max(keep)),
        };
        let _permit = self.write_permit().await?;
        let lagging = scalar::<DB, String>(statement).bind(micros(age));
        let mut conn = self.connection().await?;
        let mut lagging = lagging.fetch_all(&mut *conn).await?;
        conn.done().await?;
        lagging.sort();
        Ok(lagging)
    }
}
