//! Messages to and from rows.
use crate::{Dialect, Error, inbox::DeadLetter, micros::Micros};
use bytes::Bytes;
use sqlx::{Row as _, query::Query};
use twinbox_core::{Message, draft::Fields};

/// Reads a message whose columns, in the order of [`crate::sql::MESSAGE`], start at `at`.
///
/// The headers of a row that another program wrote may be anything that is JSON: what is no string is
/// taken as its JSON text.
pub(crate) fn message<DB: Dialect>(
    row: &DB::Row,
    at: usize,
    service: &str,
    sequence: Option<i64>,
) -> Result<Message, Error> {
    let version: i64 = row.try_get(at + 3)?;
    let text = |n| optional_text::<DB>(row, at + n);
    let needed = |n| Ok::<_, Error>(text(n)?.unwrap_or_default());
    let id = needed(0)?;
    Ok(Message {
        correlation_id: text(7)?.or_else(|| Some(id.clone())),
        id,
        source: text(1)?.unwrap_or_else(|| service.to_owned()),
        event_type: needed(2)?,
        version: u32::try_from(version).unwrap_or(u32::MAX),
        key: text(4)?,
        subject: text(5)?,
        time: row.try_get::<Micros, _>(at + 6)?.0,
        sequence: sequence.and_then(|n| u64::try_from(n).ok()),
        causation_id: text(8)?,
        traceparent: text(9)?,
        content_type: needed(10)?,
        headers: text(11)?.as_deref().map(read_headers).unwrap_or_default(),
        payload: Bytes::from(row.try_get::<Vec<u8>, _>(at + 12)?),
    })
}

/// Reads a message of the log, whose place it is its own to say.
pub(crate) fn of_log<DB: Dialect>(
    row: &DB::Row,
    at: usize,
    service: &str,
    position: i64,
) -> Result<Message, Error> {
    let mut message = message::<DB>(row, at, service, Some(position))?;
    message.unmark();
    Ok(message)
}

/// SQLite keeps as text whatever bytes another program wrote as text. What is no UTF-8 gets replacement
/// characters, because one such row must not stop the log. Unchecked, because the statement is ours, and the
/// look at the type of every value is a third of the work.
pub(crate) fn optional_text<DB: Dialect>(row: &DB::Row, at: usize) -> Result<Option<String>, Error> {
    if let Ok(text) = row.try_get_unchecked(at) {
        return Ok(text);
    }
    let bytes: Option<Vec<u8>> = row.try_get_unchecked(at)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

pub(crate) fn read_headers(json: &str) -> Vec<(String, String)> {
    let headers: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).unwrap_or_default();
    let text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    headers.into_iter().map(|(name, value)| (name, text(value))).collect()
}

/// The headers as the outbox keeps them: a JSON object, or nothing.
pub(crate) fn headers(headers: &[(String, String)]) -> Option<String> {
    if headers.is_empty() {
        return None;
    }
    let object = headers.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    Some(serde_json::Value::Object(object).to_string())
}

/// Binds [`crate::sql::PUBLISHED`].
pub(crate) fn bind<'q, DB: Dialect>(
    query: Query<'q, DB, DB::Arguments>,
    f: Fields,
) -> Query<'q, DB, DB::Arguments> {
    query
        .bind(f.id)
        .bind(f.event_type)
        .bind(i64::from(f.version))
        .bind(f.key)
        .bind(f.subject)
        .bind(f.time.map(Micros))
        .bind(f.correlation_id)
        .bind(f.causation_id)
        .bind(f.traceparent)
        .bind(f.content_type)
        .bind(headers(&f.headers))
        .bind(f.payload.to_vec())
}

/// Binds a message as the tables of parked deliveries and of dead letters keep it.
pub(crate) fn bind_message<'q, DB: Dialect>(
    query: Query<'q, DB, DB::Arguments>,
    m: &Message,
) -> Query<'q, DB, DB::Arguments> {
    let text = |s: &str| crate::text::text(s).into_owned();
    let optional = |s: &Option<String>| s.as_deref().map(text);
    query
        .bind(m.message_id().as_uuid())
        .bind(m.sequence.and_then(|n| i64::try_from(n).ok()))
        .bind(text(&m.id))
        .bind(text(&m.source))
        .bind(text(&m.event_type))
        .bind(i64::from(m.version))
        .bind(optional(&m.key))
        .bind(optional(&m.subject))
        .bind(Micros(m.time))
        .bind(optional(&m.correlation_id))
        .bind(optional(&m.causation_id))
        .bind(optional(&m.traceparent))
        .bind(text(&m.content_type))
        .bind(headers(&m.headers))
        .bind(m.payload.to_vec())
}

/// The columns that [`letter`] reads.
pub(crate) const LETTER_COLUMNS: usize = 18;

/// Reads a dead letter.
pub(crate) fn letter<DB: Dialect>(row: &DB::Row) -> Result<DeadLetter, Error> {
    let attempts: i64 = row.try_get(16)?;
    Ok(DeadLetter {
        message: message::<DB>(row, 0, "", row.try_get(13)?)?,
        reason: row.try_get(14)?,
        error: row.try_get(15)?,
        attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
        id: row.try_get(17)?,
    })
}
