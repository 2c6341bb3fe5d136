//! Messages to and from rows.
use crate::{
    Dialect, Error,
    micros::Micros,
    statement::Query,
    text::{headers, read_headers},
    text_column::Text,
};
use bytes::Bytes;
use sqlx::{ColumnIndex as _, Row};
use twinbox_core::{Message, draft::Fields};

/// The indexes of a message's columns in the rows of one statement. They are looked up by name once, and not
/// for each of a thousand rows.
#[derive(Debug, Clone, Copy)]
pub struct MessageColumns {
    event_id: usize,
    source: usize,
    event_type: usize,
    version: usize,
    key: usize,
    subject: usize,
    time: usize,
    correlation_id: usize,
    causation_id: usize,
    traceparent: usize,
    content_type: usize,
    headers: usize,
    payload: usize,
}

impl MessageColumns {
    /// Finds the indexes of the columns in this row, which hold for all rows of its statement.
    ///
    /// # Errors
    /// A column is missing.
    pub fn of<DB: Dialect>(row: &DB::Row) -> Result<Self, Error> {
        let place = |name: &'static str| Ok::<_, Error>(name.index(row)?);
        Ok(Self {
            event_id: place("event_id")?,
            source: place("source")?,
            event_type: place("type")?,
            version: place("version")?,
            key: place("key")?,
            subject: place("subject")?,
            time: place("time")?,
            correlation_id: place("correlation_id")?,
            causation_id: place("causation_id")?,
            traceparent: place("traceparent")?,
            content_type: place("content_type")?,
            headers: place("headers")?,
            payload: place("payload")?,
        })
    }

    /// Reads a message that is kept outside the log.
    ///
    /// The headers of a row that another program wrote may be any JSON: a value that is no string is taken as
    /// its JSON text.
    ///
    /// # Errors
    /// A column has another type.
    pub fn read<DB: Dialect>(
        &self,
        row: &DB::Row,
        service: &str,
        sequence: Option<i64>,
    ) -> Result<Message, Error> {
        let version: i64 = row.try_get(self.version)?;
        let text = |place| text_at::<DB>(row, place);
        let needed = |place| Ok::<_, Error>(text(place)?.unwrap_or_default());
        let id = needed(self.event_id)?;
        Ok(Message {
            correlation_id: text(self.correlation_id)?.or_else(|| Some(id.clone())),
            id,
            source: text(self.source)?.unwrap_or_else(|| service.to_owned()),
            event_type: needed(self.event_type)?,
            version: u32::try_from(version).unwrap_or(u32::MAX),
            key: text(self.key)?,
            subject: text(self.subject)?,
            time: row.try_get::<Micros, _>(self.time)?.0,
            sequence: sequence.and_then(|n| u64::try_from(n).ok()),
            causation_id: text(self.causation_id)?,
            traceparent: text(self.traceparent)?,
            content_type: needed(self.content_type)?,
            headers: text(self.headers)?.as_deref().map(read_headers).unwrap_or_default(),
            payload: Bytes::from(row.try_get::<Vec<u8>, _>(self.payload)?),
        })
    }

    /// Reads a message of the log. Marks of a replay come from the reader alone: marks in the row are
    /// dropped.
    ///
    /// # Errors
    /// A column has another type.
    pub fn read_log<DB: Dialect>(
        &self,
        row: &DB::Row,
        service: &str,
        position: i64,
    ) -> Result<Message, Error> {
        let mut message = self.read::<DB>(row, service, Some(position))?;
        message.remove_replay_headers();
        Ok(message)
    }
}

/// Reads one message of the log, see [`MessageColumns::read_log`].
///
/// # Errors
/// A column is missing or has another type.
pub fn log_message<DB: Dialect>(row: &DB::Row, service: &str, position: i64) -> Result<Message, Error> {
    MessageColumns::of::<DB>(row)?.read_log::<DB>(row, service, position)
}

/// Reads text columns of a row.
pub trait TextColumns {
    /// Reads a text column.
    ///
    /// # Errors
    /// The column is missing or `NULL`.
    fn text(&self, name: &str) -> sqlx::Result<String>;

    /// Reads a text column, where `NULL` is `None`.
    ///
    /// # Errors
    /// The column is missing.
    fn text_or_null(&self, name: &str) -> sqlx::Result<Option<String>>;
}

impl<R: Row> TextColumns for R
where
    R::Database: Dialect<Row = R>,
{
    fn text(&self, name: &str) -> sqlx::Result<String> {
        Ok(self.try_get::<Text, _>(name)?.0)
    }

    fn text_or_null(&self, name: &str) -> sqlx::Result<Option<String>> {
        Ok(self.try_get::<Option<Text>, _>(name)?.map(|text| text.0))
    }
}

/// Reads a text column by name, where `NULL` is `None`.
///
/// # Errors
/// The column is missing.
pub fn optional_text<DB: Dialect>(row: &DB::Row, name: &'static str) -> Result<Option<String>, Error> {
    text_at::<DB>(row, name.index(row)?)
}

/// Reads a text column. SQLite keeps as text whatever bytes another program wrote as text. Bytes that are no
/// UTF-8 get replacement characters, because one such row must not stop the log. Unchecked, because the
/// statement is ours, and the check of every value's type is a third of the work.
fn text_at<DB: Dialect>(row: &DB::Row, place: usize) -> Result<Option<String>, Error> {
    if let Ok(text) = row.try_get_unchecked::<Option<Text>, _>(place) {
        return Ok(text.map(|text| text.0));
    }
    let bytes: Option<Vec<u8>> = row.try_get_unchecked(place)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Converts a count that the database returned to `u64`. A negative one is zero.
pub fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Reads a small count, such as attempts, from a column.
pub fn small_count(number: i64) -> u32 {
    u32::try_from(count(number)).unwrap_or(u32::MAX)
}

/// Binds the columns of `{published}`.
pub(crate) fn bind_fields<'q, DB: Dialect>(query: Query<'q, DB>, f: Fields) -> Query<'q, DB> {
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

/// Binds the columns of the fragment `{stored_message}`.
pub fn bind_message<'q, DB: Dialect>(query: Query<'q, DB>, m: &Message) -> Query<'q, DB> {
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
