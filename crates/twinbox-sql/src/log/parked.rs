//! Looking at what is put aside.
use crate::{
    Dialect, Error, Store, row,
    sql::{query, scalar},
};
use sqlx::Row as _;
use std::collections::HashSet;
use twinbox_core::Message;

/// A message that is put aside, with its row.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ParkedMessage {
    /// The message.
    pub message: Message,
    /// `waiting`, `dead` or `blocking`.
    pub state: String,
    /// How often it was tried.
    pub attempts: u32,
    /// Why it was put aside at first, as a code.
    pub first_error: String,
    /// Why it failed last, as a code.
    pub last_error: String,
}

impl<DB: Dialect> Store<DB> {
    /// Messages that a destination did not take, oldest first.
    ///
    /// # Errors
    /// The database is away.
    pub async fn parked(&self, destination: &str, limit: u32) -> Result<Vec<ParkedMessage>, Error> {
        let mut conn = self.connection().await?;
        let rows = query::<DB>(&self.statements().parked)
            .bind(destination.to_owned())
            .bind(i64::from(limit))
            .fetch_all(&mut *conn)
            .await?;
        conn.done().await?;
        let read = |row: DB::Row| {
            let message = row::of_log::<DB>(&row, 6, self.service(), row.try_get(0)?)?;
            let attempts: i64 = row.try_get(2)?;
            Ok(ParkedMessage {
                message,
                state: row.try_get(1)?,
                attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
                first_error: row.try_get(3)?,
                last_error: row.try_get(4)?,
            })
        };
        rows.into_iter().map(read).collect()
    }

    /// Which of the messages from one position to another are put aside.
    pub(super) async fn parked_among(
        &self,
        conn: &mut DB::Connection,
        destination: &str,
        (first, last): (i64, i64),
    ) -> Result<HashSet<i64>, Error> {
        let positions = scalar::<DB, i64>(&self.statements().parked_among);
        let positions = positions.bind(destination.to_owned()).bind(first).bind(last);
        Ok(positions.fetch_all(conn).await?.into_iter().collect())
    }
}
