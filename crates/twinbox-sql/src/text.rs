//! Text as columns hold it.
use std::borrow::Cow;
use twinbox_core::limits;

/// Removes NUL characters from a text, which Postgres does not store.
pub fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

/// Writes bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Cuts an error text to at most `ERROR_BYTES_MAX` bytes.
pub fn bounded(error: &str) -> String {
    // Cut twice: the replacement of a NUL is longer than a NUL, and text beyond the bound need not be
    // searched.
    let error = text(cut(error));
    cut(&error).to_owned()
}

fn cut(error: &str) -> &str {
    &error[..error.floor_char_boundary(limits::ERROR_BYTES_MAX)]
}

/// Reads headers from a JSON object. Of anything else: none.
pub fn read_headers(json: &str) -> Vec<(String, String)> {
    let headers: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).unwrap_or_default();
    let text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    headers.into_iter().map(|(name, value)| (name, text(value))).collect()
}

/// Writes headers as a JSON object. Returns `None` without headers.
pub fn headers(headers: &[(String, String)]) -> Option<String> {
    if headers.is_empty() {
        return None;
    }
    let object = headers.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    Some(serde_json::Value::Object(object).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_texts_are_cut_between_characters() {
        let long = "é".repeat(limits::ERROR_BYTES_MAX);
        assert_eq!(bounded(&long).len(), limits::ERROR_BYTES_MAX);
        assert_eq!(bounded(&format!("a{long}")).len(), limits::ERROR_BYTES_MAX - 1);
        assert_eq!(bounded("a\0b"), "a\u{fffd}b");
        assert!(bounded(&"\0".repeat(limits::ERROR_BYTES_MAX)).len() <= limits::ERROR_BYTES_MAX);
    }
}
