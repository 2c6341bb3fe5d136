//! The wire format: an event of EventBridge as a rule sends it, or a CloudEvent in JSON alone.
use crate::cloud_event::{HEADERS_EXTENSION, is_json};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::value::RawValue;
use std::collections::HashMap;
use twinbox_core::{Message, Timestamp, draft, message::attribute as a};

type Members<'a> = HashMap<String, &'a RawValue>;

/// The message of SQS: the identity of a message that cannot be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) queue: &'a str,
    pub(crate) id: &'a str,
    pub(crate) sent_at: Timestamp,
}

/// Decodes a message. A message with a defect keeps the whole body as its payload.
pub(crate) fn decode(body: &str, origin: Origin<'_>) -> (Message, Option<String>) {
    match read(body) {
        Ok(message) => (message, None),
        Err(defect) => {
            let (id, source) = (origin.id.to_owned(), format!("sqs:{}", origin.queue));
            let body = Bytes::copy_from_slice(body.as_bytes());
            (Message::placeholder(id, source, origin.sent_at, body), Some(defect))
        }
    }
}

fn read(body: &str) -> Result<Message, String> {
    let members = members(body).map_err(|e| format!("the body is no JSON object: {e}"))?;
    let message = match (members.get("detail-type"), members.get("detail")) {
        (Some(_), Some(detail)) => match self::members(detail.get()) {
            Ok(event) if event.contains_key(a::SPEC_VERSION) => cloud_event(&event),
            _ => foreign_event(&members, detail),
        },
        _ => cloud_event(&members),
    }?;
    message.check_limits()?;
    Ok(message)
}

fn members(json: &str) -> Result<Members<'_>, serde_json::Error> {
    serde_json::from_str(json)
}

/// Reads an event of another publisher: its attributes come from the envelope, and its detail is the payload.
fn foreign_event(envelope: &Members<'_>, detail: &RawValue) -> Result<Message, String> {
    let get = |name: &str| match name {
        a::SPEC_VERSION => Some("1.0".to_owned()),
        a::TYPE => text(envelope.get("detail-type")?),
        a::ID | a::SOURCE | a::TIME => text(envelope.get(name)?),
        _ => None,
    };
    let payload = Bytes::copy_from_slice(detail.get().as_bytes());
    Message::from_attributes(get, Vec::new(), payload).map_err(|e| e.to_string())
}

/// Reads a CloudEvent in JSON, structured mode.
fn cloud_event(event: &Members<'_>) -> Result<Message, String> {
    let headers = match event.get(HEADERS_EXTENSION) {
        Some(headers) => text(headers)
            .and_then(|pairs| serde_json::from_str::<Vec<(String, String)>>(&pairs).ok())
            .ok_or_else(|| format!("the attribute `{HEADERS_EXTENSION}` is no list of pairs"))?,
        None => Vec::new(),
    };
    let headers = headers.into_iter().filter(|(name, _)| draft::is_transported(name)).collect();
    let get = |name: &str| event.get(name).and_then(|value| text(value));
    Message::from_attributes(get, headers, payload(event)?).map_err(|e| e.to_string())
}

fn payload(event: &Members<'_>) -> Result<Bytes, String> {
    let data = match (event.get("data"), event.get("data_base64")) {
        (Some(_), Some(_)) => return Err("the event has both `data` and `data_base64`".to_owned()),
        (None, None) => Vec::new(),
        (None, Some(encoded)) => text(encoded)
            .and_then(|encoded| STANDARD.decode(encoded).ok())
            .ok_or("the member `data_base64` is no base64")?,
        (Some(data), None) => {
            let content_type = event.get(a::CONTENT_TYPE).and_then(|value| text(value));
            let is_json = content_type.is_none_or(|content_type| is_json(&content_type));
            // A CloudEvent holds data of another content type as a JSON string.
            let plain = if is_json { None } else { text(data) };
            plain.map_or_else(|| data.get().as_bytes().to_vec(), String::into_bytes)
        }
    };
    Ok(data.into())
}

/// Returns a JSON string, or a number or a boolean as text.
fn text(value: &RawValue) -> Option<String> {
    match value.get().as_bytes().first()? {
        b'"' => serde_json::from_str(value.get()).ok(),
        b'{' | b'[' | b'n' => None,
        _ => Some(value.get().to_owned()),
    }
}

#[cfg(test)]
mod tests;
