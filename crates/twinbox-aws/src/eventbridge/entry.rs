//! A message as an event of EventBridge.
use super::{json, pack};
use aws_sdk_eventbridge::{primitives::DateTime, types::PutEventsRequestEntry};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::borrow::Cow;
use twinbox_core::{Message, PublishError, PublishErrorKind, Timestamp, draft, message};

/// Bytes of `DetailType`. EventBridge acknowledges and drops what has more.
const DETAIL_TYPE_BYTES_MAX: usize = 128;
/// Bytes of `Source`.
const SOURCE_BYTES_MAX: usize = 256;
/// Arrays and objects within each other in `Detail`, of which `Detail` itself is the first.
const DEPTH_MAX: usize = 1000;
/// From the year 0 to the year 9999, the years that RFC 3339 and so CloudEvents can write.
const TIMES: std::ops::Range<i64> = -62_167_219_200_000_000..253_402_300_800_000_000;

/// The extension that holds the application's own headers and those of Twinbox that travel: a JSON list of pairs, as text.
pub(crate) const HEADERS: &str = "twinboxheaders";

/// An event and its size as EventBridge counts it.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub(crate) entry: PutEventsRequestEntry,
    pub(crate) bytes: usize,
}

/// What is to be sent, or why this message never can be.
pub(crate) fn prepare(bus: &str, bytes_max: usize, message: &Message) -> Result<Prepared, PublishError> {
    let (source, detail_type) = (&message.source, &message.event_type);
    if source.is_empty() || source.len() > SOURCE_BYTES_MAX || source.starts_with("aws.") {
        return Err(refused("eventbridge.source"));
    }
    if detail_type.is_empty() || detail_type.len() > DETAIL_TYPE_BYTES_MAX {
        return Err(refused("eventbridge.detail_type"));
    }
    if !TIMES.contains(&message.time.as_micros()) {
        return Err(refused("eventbridge.time"));
    }
    if message.payload.len() > bytes_max {
        return Err(refused("eventbridge.too_large"));
    }
    let detail = detail(message)?;
    let bytes = pack::entry_bytes(source, detail_type, &detail, []);
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
    Ok(Prepared { entry, bytes })
}

fn refused(code: &str) -> PublishError {
    PublishError::new(PublishErrorKind::RefusedForGood, code)
}

/// The CloudEvent in JSON.
fn detail(message: &Message) -> Result<String, PublishError> {
    let mut detail = String::with_capacity(message.payload.len() + 512);
    let mut separator = '{';
    for (name, text) in message.attributes() {
        detail.push(separator);
        member(&mut detail, name, &quoted(&text));
        separator = ',';
    }
    let headers: Vec<_> = message.headers.iter().filter(|(name, _)| draft::travels(name)).collect();
    if !headers.is_empty() {
        detail.push(',');
        member(&mut detail, HEADERS, &quoted(&json_of(&headers)));
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
    serde_json::to_string(texts).expect("texts can be written as JSON")
}

fn data(message: &Message) -> Result<(&'static str, Cow<'_, str>), PublishError> {
    if !is_json(&message.content_type) {
        return Ok(("data_base64", quoted(&STANDARD.encode(&message.payload)).into()));
    }
    match json::check(&message.payload, DEPTH_MAX - 1) {
        Ok(text) => Ok(("data", text.into())),
        Err(defect) => Err(refused(defect.kind.code()).with_source(defect)),
    }
}

/// `application/json`, `text/json` or `…+json`, with or without parameters.
pub(crate) fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type.ends_with("/json") || media_type.ends_with("+json")
}

fn date_time(time: Timestamp) -> DateTime {
    let micros = time.as_micros();
    let nanos = u32::try_from(micros.rem_euclid(1_000_000) * 1000).unwrap_or_default();
    DateTime::from_secs_and_nanos(micros.div_euclid(1_000_000), nanos)
}

/// X-Ray's form of a W3C trace parent. None for what is no valid one.
fn trace_header(traceparent: &str) -> Option<String> {
    if !message::is_traceparent(traceparent) {
        return None;
    }
    let (trace, parent, flags) = (&traceparent[3..35], &traceparent[36..52], &traceparent[53..55]);
    let zeros = |text: &str| text.bytes().all(|b| b == b'0');
    if zeros(trace) || zeros(parent) {
        return None;
    }
    let sampled = u8::from_str_radix(flags, 16).ok()? & 1;
    let (epoch, unique) = trace.split_at(8);
    Some(format!("Root=1-{epoch}-{unique};Parent={parent};Sampled={sampled}"))
}

#[cfg(test)]
mod tests;
