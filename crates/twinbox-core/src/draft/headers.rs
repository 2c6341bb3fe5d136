//! The headers of a draft: their bounds, and the names that an application may use.
use super::invalid::{InvalidDraft, check_characters, check_length, malformed};
use crate::{limits, message::header as h};

/// Returns whether a header with this name belongs to a broker or to the envelope.
pub fn is_reserved(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["nats-", "ce-", "twinbox-"].iter().any(|prefix| name.starts_with(prefix))
        || ["traceparent", "tracestate", "content-type"].contains(&name.as_str())
}

/// Returns whether destinations publish, and sources deliver, a header with this name.
pub fn is_transported(name: &str) -> bool {
    !is_reserved(name) || [h::CODEC, h::CONTENT_TYPE, h::REDACTED, h::REPLAY, h::REPLAY_FOR].contains(&name)
}

/// Checks the headers of an application.
pub(super) fn check(headers: &[(String, String)]) -> Result<(), InvalidDraft> {
    check_bounds(headers)?;
    for (name, value) in headers {
        check_length("header name", name.len(), limits::HEADER_NAME_BYTES_MAX)?;
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            return Err(malformed("header name", "must be letters, digits, `-` and `_`"));
        }
        if is_reserved(name) {
            return Err(malformed(
                "header name",
                "is reserved: `nats-`, `ce-`, `twinbox-`, `traceparent`, `tracestate`, `content-type`",
            ));
        }
        check_characters("header value", value)?;
    }
    Ok(())
}

/// Checks the number of headers and their bytes.
pub(super) fn check_bounds(headers: &[(String, String)]) -> Result<(), InvalidDraft> {
    if headers.len() > limits::HEADERS_MAX {
        return Err(InvalidDraft::TooManyHeaders { count: headers.len() });
    }
    let bytes = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    check_length("headers", bytes, limits::HEADERS_BYTES_MAX)
}
