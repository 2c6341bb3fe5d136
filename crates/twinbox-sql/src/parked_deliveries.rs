//! Deliveries that were put aside so that other keys go on.
use crate::{
    Dialect, Error, Fence, Store,
    micros::Micros,
    sql::{query, scalar},
    text::text,
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::{Message, MessageId, Timestamp};

/// What is told of a delivery that was put aside without reading its message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ParkedHead {
    /// Which row; within a key in the order of delivery.
    pub id: i64,
    /// The message, as its source knows it.
    pub event_id: String,
    /// The message, as the inbox knows it.
    pub message_id: MessageId,
    /// Its type.
    pub event_type: String,
    /// Its key.
    pub key: Option<String>,
    /// Since when.
    pub parked_at: Timestamp,
    /// When it is tried again, if none of its key is before it.
    pub next_attempt_at: Timestamp,
    /// Attempts that have failed, and the last error.
    pub failures: Option<(u32, String)>,
}

impl<DB: Dialect> Store<DB> {
    /// Deliveries that a consumer has put aside, in the order in which it did.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn parked_heads(&self, consumer: &str, limit: u32) -> Result<Vec<ParkedHead>, Error> {
        let mut conn = self.connection().await?;
        let rows = query::<DB>(&self.statements().parked_of).bind(consumer.to_owned()).bind(i64::from(limit));
        let rows = rows.fetch_all(&mut *conn).await?;
        conn.done().await?;
        let read = |row: DB::Row| {
            let (failures, error): (Option<i64>, Option<String>) = (row.try_get(7)?, row.try_get(8)?);
            let failures = failures.map(|failures| u32::try_from(failures).unwrap_or(u32::MAX));
            Ok(ParkedHead {
                id: row.try_get(0)?,
                event_id: row.try_get(1)?,
                message_id: MessageId::from_uuid(row.try_get(2)?),
                event_type: row.try_get(3)?,
                key: row.try_get(4)?,
                parked_at: row.try_get::<Micros, _>(5)?.0,
                next_attempt_at: row.try_get::<Micros, _>(6)?.0,
                failures: failures.zip(error),
            })
        };
        rows.into_iter().map(read).collect()
    }

    /// Has the deliveries that a consumer has put aside tried at once, those of one key or all that have one. Answers with
    /// how many were not due.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn retry_parked(&self, consumer: &str, key: Option<&str>) -> Result<u64, Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let retry = query::<DB>(&self.statements().parked_of_now).bind(consumer.to_owned());
        let retry = retry.bind(key.map(|key| text(key).into_owned())).execute(&mut *conn).await?;
        conn.done().await?;
        Ok(DB::rows_affected(&retry))
    }

    /// Puts deliveries of a partition aside, in the order given, each to be tried not before its delay is over. One that
    /// is there already stays as it is. Tell the broker that they are done after this.
    ///
    /// # Errors
    /// The database refused or is away, or [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost): none is put aside.
    pub async fn park_deliveries(
        &self,
        consumer: &str,
        fence: Fence,
        deliveries: &[(Message, Duration)],
    ) -> Result<(), Error> {
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        self.hold_fence(tx.connection(), consumer, fence).await?;
        let all = Vec::from_iter(deliveries.iter().map(|(message, delay)| (message, *delay)));
        DB::park_deliveries(tx.connection(), self.statements(), consumer, fence.partition, &all).await?;
        tx.commit().await
    }

    /// How many bytes of payload are parked of a partition.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn parked_bytes(&self, consumer: &str, partition: u32) -> Result<usize, Error> {
        let mut conn = self.connection().await?;
        let bytes = scalar::<DB, i64>(&self.statements().deliveries_bytes);
        let bytes = bytes.bind(consumer.to_owned()).bind(i64::from(partition)).fetch_one(&mut *conn).await?;
        conn.done().await?;
        Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// How many deliveries of a consumer are put aside.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn parked_deliveries(&self, consumer: &str) -> Result<u64, Error> {
        let mut conn = self.connection().await?;
        let parked = scalar::<DB, i64>(&self.statements().deliveries_parked).bind(consumer.to_owned());
        let parked = parked.fetch_one(&mut *conn).await?;
        conn.done().await?;
        Ok(u64::try_from(parked).unwrap_or(0))
    }
}
