//! Deliveries that were put aside so that other keys go on.
use crate::{
    Dialect, Error, Fence, Store,
    micros::Micros,
    row,
    sql::{query, scalar},
    text::text,
};
use sqlx::Row as _;
use std::{collections::HashSet, time::Duration};
use twinbox_core::{Message, MessageId, Timestamp};

/// A delivery that was put aside.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ParkedDelivery {
    /// Which row; within a key in the order of delivery.
    pub id: i64,
    /// The message, whole.
    pub message: Message,
}

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
        let mut tx = self.begin().await?;
        self.hold_fence(tx.connection(), consumer, fence).await?;
        for (m, delay) in deliveries {
            let plain = |s: &str| text(s).into_owned();
            let optional = |s: &Option<String>| s.as_deref().map(plain);
            query::<DB>(&self.statements().park_delivery)
                .bind(consumer.to_owned())
                .bind(i64::from(fence.partition))
                .bind(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX))
                .bind(m.message_id().as_uuid())
                .bind(m.sequence.and_then(|n| i64::try_from(n).ok()))
                .bind(plain(&m.id))
                .bind(plain(&m.source))
                .bind(plain(&m.event_type))
                .bind(i64::from(m.version))
                .bind(optional(&m.key))
                .bind(optional(&m.subject))
                .bind(Micros(m.time))
                .bind(optional(&m.correlation_id))
                .bind(optional(&m.causation_id))
                .bind(optional(&m.traceparent))
                .bind(plain(&m.content_type))
                .bind(row::headers(&m.headers))
                .bind(m.payload.to_vec())
                .execute(tx.connection())
                .await?;
        }
        tx.commit().await
    }

    /// The keys of a partition that have deliveries put aside. None among them: deliveries without a key.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn parked_delivery_keys(
        &self,
        consumer: &str,
        partition: u32,
    ) -> Result<HashSet<Option<String>>, Error> {
        let mut conn = self.connection().await?;
        let keys = scalar::<DB, Option<String>>(&self.statements().deliveries_keys)
            .bind(consumer.to_owned())
            .bind(i64::from(partition))
            .fetch_all(&mut *conn)
            .await?;
        conn.done().await?;
        Ok(keys.into_iter().collect())
    }

    /// Deliveries of a partition that are due: of each key the first.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn due_deliveries(
        &self,
        consumer: &str,
        partition: u32,
        limit: u32,
    ) -> Result<Vec<ParkedDelivery>, Error> {
        let mut conn = self.connection().await?;
        let rows = query::<DB>(&self.statements().deliveries_due)
            .bind(consumer.to_owned())
            .bind(i64::from(partition))
            .bind(i64::from(limit))
            .fetch_all(&mut *conn)
            .await?;
        conn.done().await?;
        let read = |row| {
            let message = row::message::<DB>(row, 1, "", row.try_get(14)?)?;
            Ok(ParkedDelivery { id: row.try_get(0)?, message })
        };
        rows.iter().map(read).collect()
    }

    /// Tries a delivery again, not before `delay`.
    ///
    /// # Errors
    /// The database refused or is away: it is due as before.
    pub async fn delay_delivery(&self, id: i64, delay: Duration) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&self.statements().delivery_waits)
            .bind(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX))
            .bind(id)
            .execute(&mut *conn)
            .await?;
        conn.done().await
    }

    /// A delivery is done with, and the next of its key due in its time.
    ///
    /// # Errors
    /// The database refused or is away: it is tried again, and the inbox will know it.
    pub async fn unpark_delivery(&self, id: i64) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&self.statements().delivery_done).bind(id).execute(&mut *conn).await?;
        conn.done().await
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
