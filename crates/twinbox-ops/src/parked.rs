//! Parked messages of destinations, and parked deliveries of consumers.
use crate::Ops;
use sqlx::Row as _;
use twinbox_core::{Message, MessageId, Timestamp};
use twinbox_sql::{
    Dialect, Error, ErrorKind, ReaderName,
    engine::{MessageColumns, Micros, Query, Statement, TextColumns, small_count, text},
};

/// A message that is parked for a destination.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ParkedMessage {
    /// The message that is parked.
    pub message: Message,
    /// The state of the message: `waiting`, `dead` or `blocking`.
    pub state: String,
    /// The number of attempts.
    pub attempts: u32,
    /// The error code with which the message was parked.
    pub first_error: String,
    /// The error code of the last failed attempt.
    pub last_error: String,
}

/// A delivery that is parked for a consumer, without its message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ParkedDelivery {
    /// The number of the parked delivery. Rows of a key are numbered in the order of delivery.
    pub id: i64,
    /// The CloudEvents id of the message.
    pub event_id: String,
    /// The id of the message in the inbox.
    pub message_id: MessageId,
    /// The type of the message.
    pub event_type: String,
    /// The key of the message.
    pub key: Option<String>,
    /// The time at which the delivery was parked.
    pub parked_at: Timestamp,
    /// The time of the next attempt, if no earlier delivery of the key waits.
    pub next_attempt_at: Timestamp,
    /// The failed attempts, and the last error.
    pub failures: Option<(u32, String)>,
}

impl ParkedDelivery {
    fn read<DB: Dialect>(row: &DB::Row) -> Result<Self, Error> {
        let failures: Option<i64> = row.try_get("failures")?;
        let last_error: Option<String> = row.text_or_null("last_error")?;
        Ok(Self {
            id: row.try_get("id")?,
            event_id: row.text("event_id")?,
            message_id: MessageId::from_uuid(row.try_get("message_id")?),
            event_type: row.text("type")?,
            key: row.text_or_null("key")?,
            parked_at: row.try_get::<Micros, _>("parked_at")?.0,
            next_attempt_at: row.try_get::<Micros, _>("next_attempt_at")?.0,
            failures: failures.map(small_count).zip(last_error),
        })
    }
}

impl<DB: Dialect> Ops<DB> {
    /// Returns the parked messages of a destination, oldest first.
    ///
    /// # Errors
    /// The database is away.
    pub async fn parked_messages(&self, destination: &str, limit: u32) -> Result<Vec<ParkedMessage>, Error> {
        let list = &self.engine.sql().parked_messages.list;
        let bind = |query: Query<'static, DB>| query.bind(destination.to_owned()).bind(i64::from(limit));
        let rows = self.engine.fetch_all(list, bind).await?;
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        let columns = MessageColumns::of::<DB>(first)?;
        let read = |row: &DB::Row| {
            Ok(ParkedMessage {
                message: columns.read_log::<DB>(row, self.engine.service(), row.try_get("position")?)?,
                state: row.text("state")?,
                attempts: small_count(row.try_get("attempts")?),
                first_error: row.text("first_error")?,
                last_error: row.text("last_error")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Returns the messages of a replay that its destination refused for good.
    ///
    /// # Errors
    /// The database is away.
    pub async fn refused_messages(&self, replay: i64, limit: u32) -> Result<Vec<ParkedMessage>, Error> {
        self.parked_messages(&ReaderName::Replay(replay).to_string(), limit).await
    }

    /// Returns the parked deliveries of a consumer, in the order in which they were parked.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn parked_deliveries(&self, consumer: &str, limit: u32) -> Result<Vec<ParkedDelivery>, Error> {
        let list = &self.engine.sql().deliveries.list;
        let bind = |query: Query<'static, DB>| query.bind(consumer.to_owned()).bind(i64::from(limit));
        self.engine.fetch_all(list, bind).await?.iter().map(ParkedDelivery::read::<DB>).collect()
    }

    /// Returns the parked deliveries of a key with their consumers: up to `limit` of each consumer, in the
    /// order in which they were parked. All but the first of a consumer wait behind it.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn parked_deliveries_of_key(
        &self,
        key: &str,
        limit: u32,
    ) -> Result<Vec<(String, ParkedDelivery)>, Error> {
        let mut parked = Vec::new();
        for consumer in self.consumer_names().await? {
            let (name, key) = (consumer.clone(), text(key).into_owned());
            let find = &self.engine.sql().deliveries.of_key;
            let bind = |query: Query<'static, DB>| query.bind(name).bind(key).bind(i64::from(limit));
            for row in &self.engine.fetch_all(find, bind).await? {
                parked.push((consumer.clone(), ParkedDelivery::read::<DB>(row)?));
            }
        }
        Ok(parked)
    }

    /// Makes the parked deliveries of a key, or of all keys, due now. Returns how many were not due.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn retry_parked_deliveries(&self, consumer: &str, key: Option<&str>) -> Result<u64, Error> {
        let retry = &self.engine.sql().deliveries.retry_now;
        let key = key.map(|key| text(key).into_owned());
        self.engine.execute(retry, |query| query.bind(consumer.to_owned()).bind(key)).await
    }

    /// Releases a key of a destination that a dead letter blocks, or the whole destination, so that later
    /// messages are sent. The dead letters stay. Returns how many held it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: no dead letter holds that key. Or the database refused or is away.
    pub async fn release_key(&self, destination: &str, key: &str) -> Result<u64, Error> {
        let released = self.release(&self.engine.sql().parked_messages.release_key, destination, key).await?;
        if released == 0 {
            let what = format!("no dead letter of {destination:?} holds the key {key:?}");
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        Ok(released)
    }

    /// Gives up a parked message by its event id: it becomes a dead letter, and its key is released.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: the message is not parked, or no message waits behind it. Or the database
    /// refused or is away.
    pub async fn skip_parked(&self, destination: &str, event_id: &str) -> Result<u64, Error> {
        let skipped = self.release(&self.engine.sql().parked_messages.skip, destination, event_id).await?;
        if skipped == 0 {
            let what =
                format!("nothing waits behind a message {event_id:?} that is parked for {destination:?}");
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        Ok(skipped)
    }

    async fn release(&self, statement: &Statement, destination: &str, which: &str) -> Result<u64, Error> {
        let which = text(which).into_owned();
        self.engine.execute(statement, |query| query.bind(destination.to_owned()).bind(which)).await
    }
}
