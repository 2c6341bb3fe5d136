//! The wire format: a message as an event of EventBridge, whose `Detail` is a CloudEvent in JSON.
use super::json;
use crate::cloud_event::{HEADERS_EXTENSION, is_json};
use aws_sdk_eventbridge::{primitives::DateTime, types::PutEventsRequestEntry};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::borrow::Cow;
use twinbox_core::{Message, PublishError, PublishErrorKind, Timestamp, draft, message};

/// The most bytes of `DetailType`. EventBridge acknowledges and drops an event with more.
const DETAIL_TYPE_BYTES_MAX: usize = 128;
/// The most bytes of `Source`.
const SOURCE_BYTES_MAX: usize = 256;
/// The most levels of arrays and objects in `Detail`. `Detail` itself is the first.
const DEPTH_MAX: usize = 1000;

/// The bytes that EventBridge counts for `Time`.
const TIME_BYTES: usize = 14;

/// An event and its size, as EventBridge counts it.
#[derive(Debug, Clone)]
pub(crate) struct EncodedEntry {
    pub(crate) entry: PutEventsRequestEntry,
    pub(crate) bytes: usize,
}

/// Returns the event for a message, or why EventBridge can never accept the message.
pub(crate) fn encode(bus: &str, bytes_max: usize, message: &Message) -> Result<EncodedEntry, PublishError> {
    let (source, detail_type) = (&message.source, &message.event_type);
    if source.is_empty() || source.len() > SOURCE_BYTES_MAX || source.starts_with("aws.") {
        return Err(refused("eventbridge.source"));
    }
    if detail_type.is_empty() || detail_type.len() > DETAIL_TYPE_BYTES_MAX {
        return Err(refused("eventbridge.detail_type"));
    }
    if !message.time.fits_rfc3339() {
        return Err(refused("eventbridge.time"));
    }
    if message.payload.len() > bytes_max {
        return Err(refused("eventbridge.too_large"));
    }
    let detail = detail(message)?;
    let bytes = TIME_BYTES + source.len() + detail_type.len() + detail.len();
    if bytes > bytes_max {
        return Err(refused("eventbridge.too_large"));
    }
    let entry = PutEventsRequestEntry::builder()
        .event_bus_name(bus)
        .source(source)
        .detail_type(detail_type)
        .detail(detail)
        .time(date_time(message.time))
        .set_trace_header(message.traceparent.as_deref().and_then(trace_header))
        .build();
    Ok(EncodedEntry { entry, bytes })
}

fn refused(code: &str) -> PublishError {
    PublishError::new(PublishErrorKind::RefusedForGood, code)
}

/// Returns the CloudEvent in JSON.
fn detail(message: &Message) -> Result<String, PublishError> {
    let mut detail = String::with_capacity(message.payload.len() + 512);
    let mut separator = '{';
    for (name, text) in message.attributes() {
        detail.push(separator);
        member(&mut detail, name, &quoted(&text));
        separator = ',';
    }
    let headers: Vec<_> = message.headers.iter().filter(|(name, _)| draft::is_transported(name)).collect();
    if !headers.is_empty() {
        detail.push(',');
        member(&mut detail, HEADERS_EXTENSION, &quoted(&json_of(&headers)));
    }
    if !message.payload.is_empty() {
        let (name, data) = data(message)?;
        detail.push(',');
        member(&mut detail, name, &data);
    }
    detail.push('}');
    Ok(detail)
}

fn member(detail: &mut String, name: &str, value: &str) {
    detail.push('"');
    detail.push_str(name);
    detail.push_str("\":");
    detail.push_str(value);
}

fn quoted(text: &str) -> String {
    json_of(&text)
}

fn json_of(texts: &impl serde::Serialize) -> String {
    serde_json::to_string(texts).expect("strings can be written as JSON")
}

/// Returns the name and the JSON of the member that holds the payload.
fn data(message: &Message) -> Result<(&'static str, Cow<'_, str>), PublishError> {
    if !is_json(&message.content_type) {
        return Ok(("data_base64", quoted(&STANDARD.encode(&message.payload)).into()));
    }
    match json::check(&message.payload, DEPTH_MAX - 1) {
        Ok(text) => Ok(("data", text.into())),
        Err(defect) => Err(refused(defect.kind.code()).with_source(defect)),
    }
}

fn date_time(time: Timestamp) -> DateTime {
    let micros = time.as_micros();
    let nanos = u32::try_from(micros.rem_euclid(1_000_000) * 1000).unwrap_or_default();
    DateTime::from_secs_and_nanos(micros.div_euclid(1_000_000), nanos)
}

/// Converts a W3C trace parent to X-Ray's form. None: it is invalid.
fn trace_header(traceparent: &str) -> Option<String> {
    if !message::is_traceparent(traceparent) {
        return None;
    }
    let (trace, parent, flags) = (&traceparent[3..35], &traceparent[36..52], &traceparent[53..55]);
    let is_zero = |text: &str| text.bytes().all(|b| b == b'0');
    if is_zero(trace) || is_zero(parent) {
        return None;
    }
    let sampled = u8::from_str_radix(flags, 16).ok()? & 1;
    let (epoch, unique) = trace.split_at(8);
    Some(format!("Root=1-{epoch}-{unique};Parent={parent};Sampled={sampled}"))
}

#[cfg(test)]
mod tests;
