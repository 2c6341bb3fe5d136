//! The wire format: an EventBridge event, in the form in which an EventBridge rule sends it to a queue, or a
//! bare CloudEvent in JSON.
//!
//! Only `source` and `detail-type` of the envelope are checked by AWS: a policy may say who sends which. So
//! the CloudEvent inside has to say the same, and the mark of a replay counts only inside an envelope.
use crate::cloud_event::{HEADERS_EXTENSION, is_json};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::value::RawValue;
use std::collections::HashMap;
use twinbox_core::{Message, Timestamp, draft, message::attribute as a};

type Members<'a> = HashMap<String, &'a RawValue>;

/// Where an SQS message came from. It identifies a message whose body cannot be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) queue: &'a str,
    pub(crate) message_id: &'a str,
    pub(crate) sent_at: Timestamp,
}

/// Decodes a message, and returns its defect if it has one. Then the whole body is the payload.
pub(crate) fn decode(body: &str, origin: Origin<'_>) -> (Message, Option<String>) {
    let is_of_today = |message: Message| message.check_time(origin.sent_at).map(|()| message);
    match parse(body).and_then(is_of_today) {
        Ok(message) => (message, None),
        Err(defect) => {
            let (id, source) = (origin.message_id.to_owned(), format!("sqs:{}", origin.queue));
            let body = Bytes::copy_from_slice(body.as_bytes());
            (Message::placeholder(id, source, origin.sent_at, body), Some(defect))
        }
    }
}

fn parse(body: &str) -> Result<Message, String> {
    let members = parse_members(body).map_err(|e| format!("the body is not a JSON object: {e}"))?;
    let message = match (members.get("detail-type"), members.get("detail")) {
        // An envelope of EventBridge. Twinbox publishes a CloudEvent as its detail.
        (Some(_), Some(detail)) => match parse_members(detail.get()) {
            Ok(event) if event.contains_key(a::SPEC_VERSION) => {
                cloud_event(&event).and_then(|message| check_envelope(&members, message))
            }
            _ => foreign_event(&members, detail),
        },
        _ => cloud_event(&members).map(|mut message| {
            message.remove_replay_headers();
            message
        }),
    }?;
    message.check_limits()?;
    Ok(message)
}

fn parse_members(json: &str) -> Result<Members<'_>, serde_json::Error> {
    serde_json::from_str(json)
}

/// Compares a CloudEvent with its envelope.
fn check_envelope(envelope: &Members<'_>, message: Message) -> Result<Message, String> {
    for (name, attribute, own) in
        [("detail-type", a::TYPE, &message.event_type), ("source", a::SOURCE, &message.source)]
    {
        if envelope.get(name).and_then(|value| text(value)).as_ref() != Some(own) {
            return Err(format!("the CloudEvents attribute `{attribute}` is not the `{name}` of the event"));
        }
    }
    Ok(message)
}

/// Reads an EventBridge event that is not a CloudEvent: its attributes come from the envelope, and its detail
/// is the payload.
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

/// Reads a CloudEvent in structured JSON mode.
fn cloud_event(event: &Members<'_>) -> Result<Message, String> {
    let headers = match event.get(HEADERS_EXTENSION) {
        Some(headers) => text(headers)
            .and_then(|pairs| serde_json::from_str::<Vec<(String, String)>>(&pairs).ok())
            .ok_or_else(|| format!("the attribute `{HEADERS_EXTENSION}` is not a list of pairs"))?,
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
            .ok_or("the member `data_base64` is not base64")?,
        (Some(data), None) => {
            let content_type = event.get(a::CONTENT_TYPE).and_then(|value| text(value));
            // A CloudEvent holds data that is not JSON in a JSON string.
            let holds_text = content_type.is_some_and(|name| !is_json(&name));
            let plain = if holds_text { text(data) } else { None };
            plain.map_or_else(|| data.get().as_bytes().to_vec(), String::into_bytes)
        }
    };
    Ok(data.into())
}

/// Returns the content of a JSON string, or the text of a number or a boolean. None: any other value.
fn text(value: &RawValue) -> Option<String> {
    match value.get().as_bytes().first()? {
        b'"' => serde_json::from_str(value.get()).ok(),
        b'{' | b'[' | b'n' => None,
        _ => Some(value.get().to_owned()),
    }
}

#[cfg(test)]
mod tests;
