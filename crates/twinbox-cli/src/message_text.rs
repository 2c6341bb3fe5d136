//! A message as text.
use crate::output::plain;
use serde_json::Value;
use twinbox_core::{Message, message::header};

/// The longest payload that is shown, in characters.
const PAYLOAD_MAX: usize = 4000;

/// The envelope and the payload of a message, for a person.
pub(crate) fn message_text(message: &Message) -> String {
    let mut text = String::new();
    for (name, value) in message.attributes() {
        text += &format!("  {name}: {}\n", plain(&value).replace('\n', " "));
    }
    text += &format!("  messageid: {}\n", message.message_id());
    for (name, value) in &message.headers {
        text += &format!("  header {}: {}\n", plain(name), plain(value));
    }
    match message.header(header::CODEC) {
        Some(codec) if !message.is_redacted() => {
            let (bytes, codec) = (message.payload.len(), plain(codec));
            text + &format!("({bytes} bytes of {codec}; --payload-keys decrypts what `AesGcm` has encrypted)")
        }
        _ => text + &payload_text(&message.payload),
    }
}

/// A payload for a person.
pub(crate) fn payload_text(payload: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(payload).ok();
    let payload = match (json, std::str::from_utf8(payload)) {
        (Some(json), _) => serde_json::to_string_pretty(&json).unwrap_or_default(),
        (None, Ok(text)) => text.to_owned(),
        (None, Err(_)) => format!("({} bytes of binary data)", payload.len()),
    };
    let cut: String = payload.chars().take(PAYLOAD_MAX).collect();
    let more = if cut.len() < payload.len() { "\n…" } else { "" };
    plain(&cut) + more
}
