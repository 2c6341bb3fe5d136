//! The heartbeat of a consumer, and whether an operator has paused it.
use super::handle::Inbox;
use crate::{
    Dialect, Error,
    change::changed_row,
    row::optional_text,
    statement::{query, scalar},
    text_column::Text,
};
use std::time::Duration;

/// The interval at which a running consumer records its heartbeat.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

impl<DB: Dialect> Inbox<DB> {
    /// Records that this process runs the consumer, and where at its broker its messages are, see
    /// [`Transport::address`](twinbox_core::Transport::address). Returns why it is paused, if it is.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn heartbeat(&self, address: Option<&str>) -> Result<Option<String>, Error> {
        let _permit = self.engine.write_permit().await?;
        let mut conn = self.engine.connection().await?;
        let (sql, consumer) = (&self.engine.sql().consumers, &self.consumer);
        let heartbeat = query::<DB>(&sql.heartbeat).bind(consumer.clone()).bind(address.map(str::to_owned));
        let read = || query::<DB>(&sql.pause_reason).bind(consumer.clone());
        let row = changed_row::<DB>(&mut conn, heartbeat, read).await?;
        conn.done().await?;
        row.map_or(Ok(None), |row| optional_text::<DB>(&row, "pause_reason"))
    }

    /// Returns why the consumer is paused, or `None` if it is not.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn pause_reason(&self) -> Result<Option<String>, Error> {
        let mut conn = self.engine.connection().await?;
        let reason = scalar::<DB, Option<Text>>(&self.engine.sql().consumers.pause_reason);
        let reason = reason.bind(self.consumer.clone()).fetch_optional(&mut *conn).await?;
        conn.done().await?;
        Ok(reason.flatten().map(|reason| reason.0))
    }

    /// Returns how many deliveries of the consumer are parked.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn parked_deliveries(&self) -> Result<u64, Error> {
        let mut conn = self.engine.connection().await?;
        let parked = scalar::<DB, i64>(&self.engine.sql().deliveries.count).bind(self.consumer.clone());
        let parked = parked.fetch_one(&mut *conn).await?;
        conn.done().await?;
        Ok(crate::row::count(parked))
    }
}
