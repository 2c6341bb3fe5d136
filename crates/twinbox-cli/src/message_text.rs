//! A message as text.
use crate::output::plain;
use twinbox_core::{Message, message::header};
use twinbox_ops::wording::payload;

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
        _ => text + &payload(&message.payload),
    }
}
