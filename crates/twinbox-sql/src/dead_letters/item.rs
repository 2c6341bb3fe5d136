//! Dead letters and groups of them.
use super::id::DeadLetterId;
use crate::{
    Dialect, Error,
    micros::Micros,
    row::{TextColumns, small_count},
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::{MessageId, Timestamp};
use uuid::Uuid;

/// A dead letter without its message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The id by which commands name the dead letter.
    pub id: DeadLetterId,
    /// The consumer or destination that gave the message up.
    pub owner: String,
    /// The id of the message in the inbox.
    pub message_id: MessageId,
    /// The CloudEvents id of the message.
    pub event_id: String,
    /// The CloudEvents source of the message.
    pub source: String,
    /// The type of the message.
    pub event_type: String,
    /// The key of the message.
    pub key: Option<String>,
    /// Why the message is a dead letter.
    pub reason: String,
    /// The error of the last attempt.
    pub error: String,
    /// The fingerprint of the cause, in 12 hexadecimal digits. Dead letters of one consumer share it if they
    /// have one type and reason, and errors that differ in numbers, ids and quoted texts at most; those of
    /// one destination if they have one type and error code.
    pub fingerprint: String,
    /// How many attempts failed.
    pub attempts: u32,
    /// The time of the message.
    pub time: Timestamp,
    /// The time at which the message became a dead letter.
    pub given_up_at: Timestamp,
    /// Whether the dead letter was redriven and waits for another attempt.
    pub is_redriven: bool,
}

/// Dead letters with the same cause.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterGroup {
    /// The fingerprint of the cause, see [`DeadLetter::fingerprint`].
    pub fingerprint: String,
    /// The newest dead letter of the group: of a destination, the one with the newest message.
    pub newest: DeadLetter,
    /// How many dead letters the group has, counted up to [`DEAD_LETTERS_MAX`] or less.
    pub dead_letters: u64,
    /// Whether it may have more: the count ended at its bound.
    pub has_more: bool,
    /// How many of the counted dead letters were redriven and wait for another attempt.
    pub redriven: u64,
    /// How many dead letters were made in the last [`LATELY`], counted up to the same bound.
    pub lately: u64,
    /// The time at which the first message of the group became a dead letter.
    pub first_given_up_at: Timestamp,
    /// The time at which the last one did.
    pub last_given_up_at: Timestamp,
}

/// The most dead letters that are counted.
pub const DEAD_LETTERS_MAX: u32 = 10_000;
/// The time within which a dead letter is recent.
pub const LATELY: Duration = Duration::from_secs(600);

impl DeadLetterGroup {
    /// Makes a group that is not counted yet.
    #[doc(hidden)]
    pub fn of(newest: DeadLetter) -> Self {
        Self {
            fingerprint: newest.fingerprint.clone(),
            dead_letters: 0,
            has_more: false,
            redriven: 0,
            lately: 0,
            first_given_up_at: newest.given_up_at,
            last_given_up_at: newest.given_up_at,
            newest,
        }
    }
}

impl DeadLetter {
    /// Reads a row of the dead letters of consumers.
    pub(super) fn of_consumer<DB: Dialect>(row: &DB::Row) -> Result<Self, Error> {
        read::<DB>(row, DeadLetterId::OfConsumer(row.try_get("id")?), row.text("consumer")?, "")
    }

    /// Reads a row of the dead letters of destinations. `service`: the source of messages that name none.
    pub(super) fn of_destination<DB: Dialect>(row: &DB::Row, service: &str) -> Result<Self, Error> {
        let destination = row.text("destination")?;
        let id = DeadLetterId::OfDestination(destination.clone(), row.try_get("position")?);
        read::<DB>(row, id, destination, service)
    }
}

fn read<DB: Dialect>(
    row: &DB::Row,
    id: DeadLetterId,
    owner: String,
    service: &str,
) -> Result<DeadLetter, Error> {
    let (source, event_id) = (row.text_or_null("source")?, row.text("event_id")?);
    let event_type = row.text("type")?;
    let source = source.filter(|source| !source.is_empty()).unwrap_or_else(|| service.to_owned());
    let message_id: Option<Uuid> = row.try_get("message_id")?;
    Ok(DeadLetter {
        id,
        owner,
        message_id: message_id
            .map_or_else(|| MessageId::of(&source, &event_type, &event_id), MessageId::from_uuid),
        event_id,
        source,
        event_type,
        key: row.text_or_null("key")?,
        reason: row.text("reason")?,
        error: row.text("error")?,
        fingerprint: row.text("fingerprint")?,
        attempts: small_count(row.try_get("attempts")?),
        time: row.try_get::<Micros, _>("time")?.0,
        given_up_at: row.try_get::<Micros, _>("given_up_at")?.0,
        is_redriven: row.try_get("is_redriven")?,
    })
}
