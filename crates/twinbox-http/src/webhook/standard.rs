//! The headers of Standard Webhooks.
use super::signature::{SIGNATURES_MAX, SignatureHeaders, VerificationError, parse_seconds};
use base64::{Engine as _, engine::general_purpose::STANDARD};

const ID_BYTES_MAX: usize = 255;

/// `header` returns the only value of a header.
pub(super) fn parse<'h>(
    header: impl Fn(&str) -> Result<&'h str, VerificationError>,
) -> Result<SignatureHeaders, VerificationError> {
    let (id, timestamp) = (header("webhook-id")?, header("webhook-timestamp")?);
    // With a dot in the id, `a.1` at 2 would be signed like `a` at 1 with a body that begins with `2.`.
    let is_valid = |id: &str| {
        (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic() && b != b'.')
    };
    if !is_valid(id) {
        return Err(VerificationError::Malformed);
    }
    let signatures = header("webhook-signature")?.split(' ').filter_map(|one| one.strip_prefix("v1,"));
    let signatures = signatures.take(SIGNATURES_MAX).filter_map(|one| STANDARD.decode(one).ok()).collect();
    let prefix = format!("{id}.{timestamp}.");
    let signed_at_s = Some(parse_seconds(timestamp)?);
    Ok(SignatureHeaders { id: Some(id.to_owned()), signed_at_s, prefix, signatures })
}
