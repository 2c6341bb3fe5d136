//! What somebody did by hand.
use crate::{
    Dialect, Error, Store,
    micros::Micros,
    sql::{query, scalar},
    text::bounded,
};
use sqlx::Row as _;
use twinbox_core::Timestamp;

/// What is about to be done by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent<'a> {
    /// Who does it.
    pub who: &'a str,
    /// What, as the command that does it.
    pub what: &'a str,
    /// To what, or to which.
    pub target: &'a str,
    /// Why.
    pub reason: Option<&'a str>,
}

/// What was done by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audited {
    /// Its number in this database.
    pub id: i64,
    /// When it was begun.
    pub at: Timestamp,
    /// Who did it.
    pub who: String,
    /// What, as the command that did it.
    pub what: String,
    /// To what, or to which.
    pub target: String,
    /// Why.
    pub reason: Option<String>,
    /// How many it was done to. None: it is not known to have ended.
    pub count: Option<u64>,
}

impl<DB: Dialect> Store<DB> {
    /// Puts on record what is about to be done, and answers with the number of the entry. Killed after this, the entry says
    /// that nobody knows whether it was.
    ///
    /// # Errors
    /// The database refused or is away: do not begin.
    pub async fn begin_audit(&self, intent: &Intent<'_>) -> Result<i64, Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let id = scalar::<DB, i64>(&self.statements().audit_begin)
            .bind(bounded(intent.who))
            .bind(bounded(intent.what))
            .bind(bounded(intent.target))
            .bind(intent.reason.map(bounded))
            .fetch_one(&mut *conn)
            .await?;
        conn.done().await?;
        Ok(id)
    }

    /// Puts on record that it was done, to so many.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn end_audit(&self, id: i64, count: u64) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let end = query::<DB>(&self.statements().audit_end).bind(i64::try_from(count).unwrap_or(i64::MAX));
        end.bind(id).execute(&mut *conn).await?;
        conn.done().await
    }

    /// What was done by hand, newest first.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn audited(&self, limit: u32) -> Result<Vec<Audited>, Error> {
        let mut conn = self.connection().await?;
        let rows =
            query::<DB>(&self.statements().audited).bind(i64::from(limit)).fetch_all(&mut *conn).await?;
        conn.done().await?;
        let read = |row: DB::Row| {
            let count: Option<i64> = row.try_get(6)?;
            Ok(Audited {
                id: row.try_get(0)?,
                at: row.try_get::<Micros, _>(1)?.0,
                who: row.try_get(2)?,
                what: row.try_get(3)?,
                target: row.try_get(4)?,
                reason: row.try_get(5)?,
                count: count.and_then(|count| u64::try_from(count).ok()),
            })
        };
        rows.into_iter().map(read).collect()
    }
}
