//! The wire format: a CloudEvent in binary mode. Attributes are percent-encoded `ce-` headers, the payload is
//! the data.
use crate::{
    ack_subject::Place, deliveries::Delivery, header_block::Headers, replay_mark::ReplayKeys, signer::Signer,
    subject::StoredSubject,
};
use async_nats::{HeaderMap, HeaderName, HeaderValue, header};
use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use std::{borrow::Cow, collections::HashMap, str::FromStr as _, sync::LazyLock};
use twinbox_core::{
    Message, Timestamp,
    destination::Outgoing,
    draft, limits,
    message::{attribute as a, header as own},
};

/// The header names of the known attributes, built once instead of for each message.
static HEADER_NAMES: [(&str, HeaderName); 14] = [
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
    (a::TRACESTATE, HeaderName::from_static("ce-tracestate")),
];

/// A map with room for the headers of a message. A clone of it takes one allocation, where a new map grows
/// three times. The client has no way to ask for room, but a map that it deserializes gets room for each
/// entry, and entries may repeat. This one has no value: [`encode`] replaces it.
static ROOM_FOR_HEADERS: LazyLock<HeaderMap> = LazyLock::new(|| {
    const ROOM: usize = 14;
    let entries = vec![r#""ce-specversion":[]"#; ROOM].join(",");
    serde_json::from_str(&format!("{{{entries}}}")).unwrap_or_default()
});

/// The prefix of an attribute's header.
const PREFIX: &str = "ce-";

/// The ASCII characters that are escaped in an attribute's header, as CloudEvents requires. Bytes beyond
/// ASCII are always escaped.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// The most bytes that are kept of the payload of a message that cannot be read: the stream has all of it.
const UNREADABLE_BYTES_MAX: usize = 4 * 1024;

/// A header that NATS cannot transport.
#[derive(Debug, PartialEq)]
pub(crate) struct InvalidHeader;

/// Returns the headers of a message. Its own headers with reserved names are left out, unless they travel:
/// only a producer that bypasses the store can have written the others.
pub(crate) fn encode(outgoing: &Outgoing<'_>, signer: &Signer) -> Result<HeaderMap, InvalidHeader> {
    let message = outgoing.message;
    let mut headers = ROOM_FOR_HEADERS.clone();
    headers.insert(header::NATS_MESSAGE_ID, HeaderValue::from(signer.name(outgoing)));
    for (attribute, text) in message.attributes() {
        headers.insert(attribute_name(attribute)?, HeaderValue::from(percent_encode(text)));
    }
    for (name, text) in message.headers.iter().filter(|(name, _)| draft::is_transported(name)) {
        headers.append(name_from(name)?, value_from(text)?);
    }
    signer.sign(message, &mut headers);
    Ok(headers)
}

fn attribute_name(attribute: &str) -> Result<HeaderName, InvalidHeader> {
    match HEADER_NAMES.iter().find(|(known, _)| *known == attribute) {
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

fn value_from(text: &str) -> Result<HeaderValue, InvalidHeader> {
    HeaderValue::from_str(text).map_err(|_| InvalidHeader)
}

/// Encodes an attribute. The result has no line break, on which `HeaderValue::from` would panic.
fn percent_encode(text: Cow<'_, str>) -> String {
    let encoded: Cow<'_, str> = utf8_percent_encode(&text, ESCAPED).into();
    // Only an unchanged text keeps its length; a borrowed result may also be a single escape.
    if encoded.len() != text.len() {
        return encoded.into_owned();
    }
    text.into_owned()
}

/// Where the stream stores a message: the identity of a message that cannot be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) stream: &'a str,
    pub(crate) sequence: u64,
    pub(crate) stored_at: Timestamp,
}

impl<'a> Origin<'a> {
    pub(crate) fn new(stream: &'a str, sequence: u64, stored_nanos: i128) -> Self {
        let stored_at = Timestamp::from_micros(i64::try_from(stored_nanos / 1000).unwrap_or_default());
        Self { stream, sequence, stored_at }
    }
}

/// Decodes a delivery to `consumer`. Logs and returns the defect of a message that cannot be read. `keys`:
/// those that sign replays.
pub(crate) fn decode_delivery(
    delivery: &Delivery,
    place: &Place<'_>,
    subject: &StoredSubject<'_>,
    keys: &ReplayKeys,
    consumer: &str,
) -> (Message, Option<String>) {
    let origin = Origin::new(place.stream, place.stream_sequence, place.stored_nanos);
    let (mut decoded, defect) = decode_stored(subject, &delivery.headers, &delivery.payload, origin);
    if decoded.reprocess_target().is_some() && !is_signed(delivery, keys) {
        tracing::warn!(
            consumer,
            sequence = origin.sequence,
            message_id = %decoded.message_id(),
            "the mark of a replay does not count: no relay that this stream names has signed it"
        );
        decoded.remove_replay_headers();
    }
    if let Some(defect) = &defect {
        tracing::warn!(consumer, sequence = origin.sequence, defect, "unreadable message");
    }
    (decoded, defect)
}

fn is_signed(delivery: &Delivery, keys: &ReplayKeys) -> bool {
    matches!(&delivery.headers, Headers::Read(headers) if keys.verify(headers, &delivery.payload))
}

/// Decodes a message, and compares its time with that of its storage. What reads the message again at a
/// checkpoint has to do the same: a message with a defect has another identity.
pub(crate) fn decode_stored(
    subject: &StoredSubject<'_>,
    headers: &Headers,
    payload: &Bytes,
    origin: Origin<'_>,
) -> (Message, Option<String>) {
    let (decoded, defect) = decode(subject, headers, payload, origin);
    if let (None, Err(ahead), Headers::Read(headers)) =
        (&defect, decoded.check_time(origin.stored_at), headers)
    {
        let substitute = unreadable(subject, headers, payload, origin);
        return (substitute, Some(with_place(ahead, payload, origin)));
    }
    (decoded, defect)
}

/// Decodes a message. Returns with a defect the parts of a message that could be read.
fn decode(
    subject: &StoredSubject<'_>,
    headers: &Headers,
    payload: &Bytes,
    origin: Origin<'_>,
) -> (Message, Option<String>) {
    match headers {
        Headers::Read(headers) => match read(subject, headers, payload.clone()) {
            Ok(message) => (message, None),
            Err(defect) => {
                (unreadable(subject, headers, payload, origin), Some(with_place(defect, payload, origin)))
            }
        },
        Headers::Unreadable { block, defect } => {
            let mut message = unreadable(subject, &HeaderMap::new(), payload, origin);
            message.headers.push((own::BLOCK.to_owned(), hex_within_bounds(block)));
            (message, Some(with_place((*defect).to_owned(), payload, origin)))
        }
    }
}

/// Says behind a defect where the whole payload is, if only its beginning is kept.
fn with_place(defect: String, payload: &Bytes, Origin { stream, sequence, .. }: Origin<'_>) -> String {
    match payload.len() {
        ..=UNREADABLE_BYTES_MAX => defect,
        whole => format!(
            "{defect}; of its {whole} bytes the first {UNREADABLE_BYTES_MAX} are kept, and message \
             {sequence} of the stream `{stream}` has all"
        ),
    }
}

fn read(subject: &StoredSubject<'_>, headers: &HeaderMap, payload: Bytes) -> Result<Message, String> {
    let mut named = Vec::from_iter(
        headers
            .iter()
            .filter_map(|(name, values)| Some((AsRef::<str>::as_ref(name), values.first()?.as_str()))),
    );
    // Of names that differ in case alone, the one in lower case comes first.
    named.sort_unstable_by(|x, y| y.0.cmp(x.0));
    let mut attributes = HashMap::new();
    for (name, value) in named {
        let Some(attribute) = attribute_of(name) else { continue };
        let value = percent_decode_str(value).decode_utf8();
        let value = value.map_err(|_| format!("the header `ce-{attribute}` is not UTF-8"))?;
        attributes.entry(attribute).or_insert(value.into_owned());
    }
    if !attributes.contains_key(a::TRACEPARENT) {
        let plain = [a::TRACEPARENT, a::TRACESTATE]
            .map(|name| Some((Cow::Borrowed(name), headers.get(name)?.to_string())));
        attributes.extend(plain.into_iter().flatten());
    }
    let message =
        Message::from_attributes(|name| attributes.get(name).cloned(), own_headers(headers), payload);
    let message = message.map_err(|e| e.to_string())?;
    message.check_limits()?;
    subject.check(&message)?;
    Ok(message)
}

/// Returns the attribute of a header's name, which is written in any case.
fn attribute_of(name: &str) -> Option<Cow<'_, str>> {
    let (prefix, attribute) = name.split_at_checked(PREFIX.len())?;
    if !prefix.eq_ignore_ascii_case(PREFIX) {
        return None;
    }
    let is_lower = !attribute.bytes().any(|b| b.is_ascii_uppercase());
    Some(if is_lower { attribute.into() } else { attribute.to_ascii_lowercase().into() })
}

/// Returns the headers that travel, sorted by name: the client does not keep their order.
fn own_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let each = headers.iter().flat_map(|(name, values)| {
        let name: &str = name.as_ref();
        values.iter().map(move |value| (name, value.as_str()))
    });
    let own = each.filter(|(name, _)| draft::is_transported(name));
    let mut own = Vec::from_iter(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    own.sort_by(|x, y| x.0.cmp(&y.0));
    own
}

/// Returns a substitute for a message that cannot be read, with the type of its subject, the beginning of its
/// payload, and its headers if those are valid.
fn unreadable(
    subject: &StoredSubject<'_>,
    headers: &HeaderMap,
    payload: &Bytes,
    origin: Origin<'_>,
) -> Message {
    // With the time, because a stream that is created again starts at sequence 1.
    let id = format!("{}@{}", origin.sequence, origin.stored_at.as_micros());
    let source = format!("nats:{}", origin.stream);
    let mut message = Message::placeholder(id, source, origin.stored_at, payload.clone());
    message.cut_payload(UNREADABLE_BYTES_MAX);
    if let Some(event_type) = subject.event_type() {
        event_type.clone_into(&mut message.event_type);
    }
    message.headers.extend(own_headers(headers));
    message.remove_replay_headers();
    if message.check_limits().is_err() {
        message.headers.retain(|(name, _)| name == own::CUT);
    }
    message
}

/// Returns as many bytes of a header block as a header may hold, beside the one of a payload that is cut.
fn hex_within_bounds(block: &[u8]) -> String {
    const CUT_BYTES_MAX: usize = own::CUT.len() + 20;
    let most = (limits::HEADERS_BYTES_MAX - own::BLOCK.len() - CUT_BYTES_MAX) / 2;
    block.iter().take(most).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
