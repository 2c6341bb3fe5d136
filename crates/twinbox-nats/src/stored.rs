//! Messages as the stream stores them, and their identities.
use crate::{
    connect::Connection,
    error::{Error, ErrorKind},
    header_block::Headers,
    stream,
    subject::StoredSubject,
    wire,
};
use async_nats::jetstream::stream::RawMessage;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::Deserialize;
use twinbox_core::{MessageId, Timestamp};

/// The code of JetStream's error "no message found".
const NO_MESSAGE: &str = "nats.10037";

/// A message of the stream.
#[derive(Debug, Clone)]
pub(crate) struct StoredMessage {
    pub(crate) sequence: u64,
    /// See [`identity`].
    pub(crate) identity: String,
}

#[derive(Deserialize)]
struct GetResponse {
    message: RawMessage,
}

/// Returns the last message of the stream, if the stream still has it.
pub(crate) async fn last(connection: &Connection) -> Result<Option<StoredMessage>, Error> {
    let sequence = stream::info(connection, &connection.options.stream).await?.state.last_sequence;
    let identity = identity_at(connection, sequence).await?;
    Ok(identity.map(|identity| StoredMessage { sequence, identity }))
}

/// Returns the identity of the message at `sequence`, or None if the stream has no message there.
pub(crate) async fn identity_at(connection: &Connection, sequence: u64) -> Result<Option<String>, Error> {
    let stream = &connection.options.stream;
    let about = format!("message {sequence} of the stream `{stream}`");
    let body = serde_json::json!({ "seq": sequence });
    let response = connection.request_with(&about, format!("STREAM.MSG.GET.{stream}"), &body).await;
    let stored: GetResponse = match response {
        Err(error) if error.code() == NO_MESSAGE => return Ok(None),
        response => response?,
    };
    let stored_nanos = stored.message.time.unix_timestamp_nanos();
    let unreadable = |_| {
        Error::new(ErrorKind::Unavailable, "nats.unreadable", format!("{about}: the response cannot be read"))
    };
    let block = stored.message.headers.map(|block| STANDARD.decode(block)).transpose().map_err(unreadable)?;
    let payload = STANDARD.decode(stored.message.payload).map_err(unreadable)?;
    let headers = Headers::read(block.map(Bytes::from));
    let origin = wire::Origin::new(stream, sequence, stored_nanos);
    let options = &connection.options;
    let subject = StoredSubject::partitioned(&stored.message.subject, &options.prefix, options.partitions);
    let (message, _) = wire::decode_stored(&subject, &headers, &payload.into(), origin);
    Ok(Some(identity(message.message_id(), stored_nanos)))
}

/// Returns when the stream stored its first message from `sequence` on that a filter takes, if it has one.
pub(crate) async fn first_stored_from(
    connection: &Connection,
    sequence: u64,
    filters: &[String],
) -> Result<Option<Timestamp>, Error> {
    let stream = &connection.options.stream;
    let mut first: Option<RawMessage> = None;
    for filter in filters {
        let about = format!("the messages `{filter}` of the stream `{stream}`");
        let body = serde_json::json!({ "seq": sequence.max(1), "next_by_subj": filter });
        let found = connection.request_with(&about, format!("STREAM.MSG.GET.{stream}"), &body).await;
        let found: GetResponse = match found {
            Err(error) if error.code() == NO_MESSAGE => continue,
            found => found?,
        };
        if first.as_ref().is_none_or(|first| found.message.sequence < first.sequence) {
            first = Some(found.message);
        }
    }
    let micros = |message: RawMessage| i64::try_from(message.time.unix_timestamp_nanos() / 1000).ok();
    Ok(first.and_then(micros).map(Timestamp::from_micros))
}

/// Returns the identity of a stored message. A resend keeps the message id and has another time of storage.
pub(crate) fn identity(id: MessageId, stored_nanos: i128) -> String {
    format!("{id}@{stored_nanos}")
}
