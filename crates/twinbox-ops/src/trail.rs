//! What happened to one message.
use crate::Ops;
use sqlx::Row as _;
use std::collections::BTreeSet;
use twinbox_core::{Message, MessageId, Timestamp};
use twinbox_sql::{
    Dialect, Error,
    dead_letters::{DeadLetter, of_event},
    engine::{MessageColumns, Micros, Text, TextColumns, count, log_message, query, scalar, small_count},
};
use uuid::Uuid;

/// The most copies of one event id that are shown, and its dead letters of consumers and of destinations.
const COPIES_MAX: u32 = 20;
/// The newest messages of the log whose types a message that is gone may have had.
const RECENT_MESSAGES: i64 = 10_000;

/// What this database knows of a message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MessageTrail {
    /// The copies of the message in the log, oldest first: several if several were published under
    /// one id.
    pub log: Vec<LogEntry>,
    /// The claim and the failures of the message at each consumer of this database, by name.
    pub consumers: Vec<ConsumerTrail>,
    /// The dead letters of the message.
    pub dead_letters: Vec<DeadLetter>,
}

/// A message of the log, with its state for each reader.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LogEntry {
    /// The position of the message.
    pub position: i64,
    /// The message as the log has it.
    pub message: Message,
    /// The state of the message for each reader of the log.
    pub readers: Vec<(String, MessageState)>,
}

/// The state of a message for a reader of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageState {
    /// The message is not settled yet.
    Pending,
    /// The message was sent, or skipped because its type is not for the reader.
    Settled,
    /// The message is parked.
    Parked {
        /// `waiting`, `dead` or `blocking`.
        state: String,
        /// The number of attempts.
        attempts: u32,
        /// The error code of its last failure.
        error: String,
    },
}

/// What one consumer did with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerTrail {
    /// The name of the consumer.
    pub consumer: String,
    /// The state of the claim (`processed`, `rejected` or `dead`) and when it was made. None: it
    /// has no claim.
    pub claim: Option<(String, Timestamp)>,
    /// How many attempts have failed, and the last error.
    pub failures: Option<(u32, String)>,
    /// How many times a replay took the claim back.
    pub superseded: u64,
}

impl<DB: Dialect> Ops<DB> {
    /// Follows a message by its event id or its message id. A message id finds nothing once both log row and
    /// claim are gone. An event id of which log and dead letters have nothing finds the claims of messages of
    /// this service with a type of the newest 10,000 messages.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn trail(&self, id: &str) -> Result<MessageTrail, Error> {
        let (event_id, message_id) = match Uuid::try_parse(id) {
            Ok(message_id) => match self.event_of(message_id).await? {
                Some(event_id) => (event_id, Some(MessageId::from_uuid(message_id))),
                None => (id.to_owned(), None),
            },
            Err(_) => (id.to_owned(), None),
        };
        let log = self.log_entries(&event_id).await?;
        let dead_letters = of_event(&self.engine, &event_id, COPIES_MAX).await?;
        let of_log = log.iter().map(|entry| entry.message.message_id());
        let of_dead_letters = dead_letters.iter().map(|dead_letter| dead_letter.message_id);
        let mut message_ids = match message_id {
            Some(id) => BTreeSet::from([id]),
            None => BTreeSet::from_iter(of_log.chain(of_dead_letters)),
        };
        if message_ids.is_empty() {
            message_ids = self.possible_ids(&event_id).await?;
        }
        let mut consumers = Vec::new();
        for message_id in message_ids {
            consumers.extend(self.consumer_trails(message_id).await?);
        }
        consumers.sort_by(|x, y| x.consumer.cmp(&y.consumer));
        Ok(MessageTrail { log, consumers, dead_letters })
    }

    /// Returns the message ids that an event of this service has with each recent type.
    async fn possible_ids(&self, event_id: &str) -> Result<BTreeSet<MessageId>, Error> {
        let mut conn = self.engine.connection().await?;
        let types = scalar::<DB, Text>(&self.engine.sql().outbox.recent_types).bind(RECENT_MESSAGES);
        let types = types.fetch_all(&mut *conn).await?;
        conn.done().await?;
        let service = self.engine.service();
        Ok(types.iter().map(|event_type| MessageId::of(service, &event_type.0, event_id)).collect())
    }

    /// Returns the messages of a key in the log, the newest first. No index has keys: it reads every message
    /// with a time from `since` on.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn messages_of_key(
        &self,
        key: &str,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<Message>, Error> {
        let mut conn = self.engine.connection().await?;
        let rows = query::<DB>(&self.engine.sql().log.messages_of_key)
            .bind(key.to_owned())
            .bind(Micros(since))
            .bind(i64::from(limit))
            .fetch_all(&mut *conn)
            .await?;
        conn.done().await?;
        let message = |row| log_message::<DB>(row, self.engine.service(), row.try_get("position")?);
        rows.iter().map(message).collect()
    }

    async fn event_of(&self, message_id: Uuid) -> Result<Option<String>, Error> {
        let mut conn = self.engine.connection().await?;
        let event = scalar::<DB, Text>(&self.engine.sql().inbox.event_of_message).bind(message_id);
        let event = event.fetch_optional(&mut *conn).await?;
        conn.done().await?;
        Ok(event.map(|event| event.0))
    }

    async fn log_entries(&self, event_id: &str) -> Result<Vec<LogEntry>, Error> {
        let readers = self.readers().await?;
        let mut conn = self.engine.connection().await?;
        let rows = query::<DB>(&self.engine.sql().log.messages_of_event)
            .bind(event_id.to_owned())
            .bind(i64::from(COPIES_MAX))
            .fetch_all(&mut *conn)
            .await?;
        let mut entries = Vec::new();
        for row in rows {
            let position: i64 = row.try_get("position")?;
            let columns = MessageColumns::of::<DB>(&row)?;
            let message = columns.read_log::<DB>(&row, self.engine.service(), position)?;
            let mut states = Vec::new();
            for reader in &readers {
                let state = self.message_state(&mut conn, &reader.name, position).await?;
                states.push((reader.name.clone(), state));
            }
            entries.push(LogEntry { position, message, readers: states });
        }
        conn.done().await?;
        Ok(entries)
    }

    async fn message_state(
        &self,
        conn: &mut DB::Connection,
        reader: &str,
        position: i64,
    ) -> Result<MessageState, Error> {
        let sql = self.engine.sql();
        let parked = query::<DB>(&sql.parked_messages.find).bind(reader.to_owned()).bind(position);
        if let Some(row) = parked.fetch_optional(&mut *conn).await? {
            return Ok(MessageState::Parked {
                state: row.text("state")?,
                attempts: small_count(row.try_get("attempts")?),
                error: row.text("last_error")?,
            });
        }
        let cursor = query::<DB>(&sql.cursors.position).bind(reader.to_owned());
        let Some(cursor) = cursor.fetch_optional(&mut *conn).await? else { return Ok(MessageState::Pending) };
        let settled = query::<DB>(&sql.log.is_settled)
            .bind(cursor.try_get::<i64, _>("p")?)
            .bind(cursor.try_get::<i64, _>("w")?)
            .bind(cursor.try_get::<i64, _>("position")?)
            .bind(position);
        let is_settled = settled.fetch_optional(conn).await?.is_some();
        Ok(if is_settled { MessageState::Settled } else { MessageState::Pending })
    }

    async fn consumer_trails(&self, message_id: MessageId) -> Result<Vec<ConsumerTrail>, Error> {
        let id = message_id.as_uuid();
        let claims = &self.engine.sql().inbox.claims_of_message;
        let rows = self.engine.fetch_all(claims, |query| query.bind(id).bind(id).bind(id)).await?;
        let read = |row: &DB::Row| {
            let (state, at): (Option<String>, Option<Micros>) =
                (row.text_or_null("state")?, row.try_get("claimed_at")?);
            let (failures, error): (Option<i64>, Option<String>) =
                (row.try_get("failures")?, row.text_or_null("last_error")?);
            Ok(ConsumerTrail {
                consumer: row.text("consumer")?,
                claim: state.zip(at.map(|at| at.0)),
                failures: failures.map(small_count).zip(error),
                superseded: count(row.try_get("superseded")?),
            })
        };
        rows.iter().map(read).collect()
    }
}
