//! Names and rules of CloudEvents in JSON that both services share.

/// The extension for headers: a string with a JSON list of `[name, value]` pairs.
pub(crate) const HEADERS_EXTENSION: &str = "twinboxheaders";

/// Returns whether a content type is `application/json`, `text/json` or `…+json`, with or without parameters.
pub(crate) fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type.ends_with("/json") || media_type.ends_with("+json")
}
