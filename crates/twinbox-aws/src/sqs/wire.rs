//! What stands in a queue: an event of EventBridge as a rule sends it, or the CloudEvent alone.
use crate::eventbridge::entry::{HEADERS, is_json};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::value::RawValue;
use std::collections::HashMap;
use twinbox_core::{Message, Timestamp, draft, message::attribute as a};

type Members<'a> = HashMap<String, &'a RawValue>;

/// Where a message lies in SQS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) queue: &'a str,
    pub(crate) id: &'a str,
    pub(crate) sent: Timestamp,
}

/// The message, or as much of it as could be read and why not more.
pub(crate) fn decode(body: &str, place: Place<'_>) -> (Message, Option<String>) {
    match read(body) {
        Ok(message) => (message, None),
        Err(defect) => {
            let (id, source) = (place.id.to_owned(), format!("sqs:{}", place.queue));
            let body = Bytes::copy_from_slice(body.as_bytes());
            (Message::unreadable(id, source, place.sent, body), Some(defect))
        }
    }
}

fn read(body: &str) -> Result<Message, String> {
    let members = members(body).map_err(|e| format!("it is no JSON object: {e}"))?;
    let message = match (members.get("detail-type"), members.get("detail")) {
        (Some(_), Some(detail)) => match self::members(detail.get()) {
            Ok(event) if event.contains_key(a::SPEC_VERSION) => cloud_event(&event),
            _ => foreign(&members, detail),
        },
        _ => cloud_event(&members),
    }?;
    message.check_limits()?;
    Ok(message)
}

fn members(json: &str) -> Result<Members<'_>, serde_json::Error> {
    serde_json::from_str(json)
}

/// An event that no Twinbox published: the envelope says what it is, and its detail is the payload.
fn foreign(envelope: &Members<'_>, detail: &RawValue) -> Result<Message, String> {
    let get = |name: &str| match name {
        a::SPEC_VERSION => Some("1.0".to_owned()),
        a::TYPE => text(envelope.get("detail-type")?),
        a::ID | a::SOURCE | a::TIME => text(envelope.get(name)?),
        _ => None,
    };
    let payload = Bytes::copy_from_slice(detail.get().as_bytes());
    Message::from_attributes(get, Vec::new(), payload).map_err(|e| e.to_string())
}

/// A CloudEvent in JSON, structured mode.
fn cloud_event(event: &Members<'_>) -> Result<Message, String> {
    let headers = match event.get(HEADERS) {
        Some(headers) => text(headers)
            .and_then(|pairs| serde_json::from_str::<Vec<(String, String)>>(&pairs).ok())
            .ok_or_else(|| format!("its `{HEADERS}` are no list of pairs"))?,
        None => Vec::new(),
    };
    let headers = headers.into_iter().filter(|(name, _)| draft::travels(name)).collect();
    let get = |name: &str| event.get(name).and_then(|value| text(value));
    Message::from_attributes(get, headers, payload(event)?).map_err(|e| e.to_string())
}

fn payload(event: &Members<'_>) -> Result<Bytes, String> {
    let data = match (event.get("data"), event.get("data_base64")) {
        (Some(_), Some(_)) => return Err("it has both `data` and `data_base64`".to_owned()),
        (None, None) => Vec::new(),
        (None, Some(encoded)) => text(encoded)
            .and_then(|encoded| STANDARD.decode(encoded).ok())
            .ok_or("its `data_base64` is no base64")?,
        (Some(data), None) => {
            let content_type = event.get(a::CONTENT_TYPE).and_then(|value| text(value));
            let is_json = content_type.is_none_or(|content_type| is_json(&content_type));
            // The specification writes what is no JSON as a JSON text.
            let plain = if is_json { None } else { text(data) };
            plain.map_or_else(|| data.get().as_bytes().to_vec(), String::into_bytes)
        }
    };
    Ok(data.into())
}

/// A text, or a number or a boolean as text.
fn text(value: &RawValue) -> Option<String> {
    match value.get().as_bytes().first()? {
        b'"' => serde_json::from_str(value.get()).ok(),
        b'{' | b'[' | b'n' => None,
        _ => Some(value.get().to_owned()),
    }
}

#[cfg(test)]
mod tests;
