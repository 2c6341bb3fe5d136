//! CloudEvents in binary mode: attributes in `ce-` headers, percent-encoded; the payload is the data.
use async_nats::{HeaderMap, HeaderName, HeaderValue, header};
use bytes::Bytes;
use std::{borrow::Cow, collections::HashMap, fmt::Write as _, str::FromStr as _};
use twinbox_core::{
    Message, MessageId, Timestamp, draft,
    message::{attribute as a, header as own},
};

use crate::subject;

/// Known attributes, so that no name is built for each message.
static NAMES: [(&str, HeaderName); 13] = [
    (a::SPEC_VERSION, HeaderName::from_static("ce-specversion")),
    (a::ID, HeaderName::from_static("ce-id")),
    (a::SOURCE, HeaderName::from_static("ce-source")),
    (a::TYPE, HeaderName::from_static("ce-type")),
    (a::VERSION, HeaderName::from_static("ce-dataversion")),
    (a::TIME, HeaderName::from_static("ce-time")),
    (a::CONTENT_TYPE, HeaderName::from_static("ce-datacontenttype")),
    (a::KEY, HeaderName::from_static("ce-partitionkey")),
    (a::SUBJECT, HeaderName::from_static("ce-subject")),
    (a::SEQUENCE, HeaderName::from_static("ce-sequence")),
    (a::CORRELATION_ID, HeaderName::from_static("ce-correlationid")),
    (a::CAUSATION_ID, HeaderName::from_static("ce-causationid")),
    (a::TRACEPARENT, HeaderName::from_static("ce-traceparent")),
];

/// A header that cannot stand on the wire.
#[derive(Debug, PartialEq)]
pub(crate) struct InvalidHeader;

/// The headers of a message. Reserved names among its own that do not travel, which only a producer that bypasses
/// the store can have written, are left out.
pub(crate) fn encode(message: &Message, id: MessageId) -> Result<HeaderMap, InvalidHeader> {
    let mut headers = HeaderMap::new();
    let msg_id = match message.header(own::REPLAY) {
        Some(token) => value(&format!("{id}.r{token}"))?,
        None => HeaderValue::from(id.to_string()),
    };
    headers.insert(header::NATS_MESSAGE_ID, msg_id);
    for (attribute, text) in message.attributes() {
        headers.insert(name_of(attribute)?, HeaderValue::from(percent_encode(text)));
    }
    for (name, text) in message.headers.iter().filter(|(name, _)| draft::travels(name)) {
        headers.append(name_from(name)?, value(text)?);
    }
    Ok(headers)
}

fn name_of(attribute: &str) -> Result<HeaderName, InvalidHeader> {
    match NAMES.iter().find(|(known, _)| *known == attribute) {
        Some((_, name)) => Ok(name.clone()),
        None => name_from(&format!("ce-{attribute}")),
    }
}

fn name_from(text: &str) -> Result<HeaderName, InvalidHeader> {
    if text.is_empty() {
        return Err(InvalidHeader);
    }
    HeaderName::from_str(text).map_err(|_| InvalidHeader)
}

fn value(text: &str) -> Result<HeaderValue, InvalidHeader> {
    HeaderValue::from_str(text).map_err(|_| InvalidHeader)
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && byte != b'"' && byte != b'%'
}

/// What comes out has no line break, so that no header value can panic on it.
fn percent_encode(text: Cow<'_, str>) -> String {
    if text.bytes().fold(true, |plain, byte| plain & is_plain(byte)) {
        return text.into_owned();
    }
    let mut encoded = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a String takes whatever is written to it");
        }
    }
    encoded
}

/// None for what is no UTF-8 once decoded. A `%` without two digits behind it stands for itself.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let byte = match rest {
            [b'%', high, low, ..] => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &rest[3..] } else { tail };
    }
    String::from_utf8(decoded).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|n| u8::try_from(n).ok())
}

/// Where a message lies in JetStream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) stream: &'a str,
    pub(crate) sequence: u64,
    pub(crate) stored: Timestamp,
}

impl<'a> Place<'a> {
    pub(crate) fn of(stream: &'a str, sequence: u64, stored_nanos: i128) -> Self {
        let stored = Timestamp::from_micros(i64::try_from(stored_nanos / 1000).unwrap_or_default());
        Self { stream, sequence, stored }
    }
}

/// The message, or as much of it as could be read and why not more.
pub(crate) fn decode(
    headers: Option<&HeaderMap>,
    payload: &Bytes,
    place: Place<'_>,
) -> (Message, Option<String>) {
    let none = HeaderMap::new();
    let headers = headers.unwrap_or(&none);
    match read(headers, payload.clone()) {
        Ok(message) => (message, None),
        Err(defect) => (stand_in(headers, payload, place), Some(defect)),
    }
}

fn read(headers: &HeaderMap, payload: Bytes) -> Result<Message, String> {
    let mut attributes = HashMap::new();
    for (name, values) in headers.iter() {
        let Some(attribute) = AsRef::<str>::as_ref(name).strip_prefix("ce-") else { continue };
        if let Some(value) = values.first() {
            let value = percent_decode(value.as_str());
            let value = value.ok_or_else(|| format!("the header `ce-{attribute}` is not UTF-8"))?;
            attributes.insert(attribute, value);
        }
    }
    if let Some(traceparent) = headers.get(a::TRACEPARENT) {
        attributes.entry(a::TRACEPARENT).or_insert_with(|| traceparent.to_string());
    }
    let message =
        Message::from_attributes(|name| attributes.get(name).cloned(), own_headers(headers), payload);
    let message = message.map_err(|e| e.to_string())?;
    message.check_limits()?;
    Ok(message)
}

/// The headers that travel, sorted by name, because the client does not keep their order.
fn own_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let each = headers.iter().flat_map(|(name, values)| {
        let name: &str = name.as_ref();
        values.iter().map(move |value| (name, value.as_str()))
    });
    let own = each.filter(|(name, _)| draft::travels(name));
    let mut own = Vec::from_iter(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    own.sort_by(|x, y| x.0.cmp(&y.0));
    own
}

fn stand_in(headers: &HeaderMap, payload: &Bytes, place: Place<'_>) -> Message {
    // A stream that is made again counts anew.
    let id = format!("{}@{}", place.sequence, place.stored.as_micros());
    let source = format!("nats:{}", place.stream);
    let mut message = Message::unreadable(id, source, place.stored, payload.clone());
    if let Some(event_type) = headers.get("ce-type").map(HeaderValue::as_str).filter(|t| subject::is_type(t))
    {
        event_type.clone_into(&mut message.event_type);
    }
    message.headers = own_headers(headers);
    if message.check_limits().is_err() {
        message.headers.clear();
    }
    message
}

#[cfg(test)]
mod tests;
