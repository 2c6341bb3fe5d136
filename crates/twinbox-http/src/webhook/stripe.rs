//! The header of Stripe's webhooks.
use super::{
    custom::decode_hex,
    signature::{SIGNATURES_MAX, SignatureHeaders, VerificationError, parse_seconds},
};

/// `header` returns the only value of a header.
pub(super) fn parse<'h>(
    header: impl Fn(&str) -> Result<&'h str, VerificationError>,
) -> Result<SignatureHeaders, VerificationError> {
    let (mut timestamp, mut signatures) = (None, Vec::new());
    for part in header("stripe-signature")?.split(',') {
        match part.split_once('=').ok_or(VerificationError::Malformed)? {
            ("t", time) if timestamp.is_none() => timestamp = Some(time),
            ("t", _) => return Err(VerificationError::Malformed),
            ("v1", signature) if signatures.len() < SIGNATURES_MAX => {
                signatures.extend(decode_hex(signature));
            }
            _ => {}
        }
    }
    let timestamp = timestamp.ok_or(VerificationError::Malformed)?;
    let signed_at_s = parse_seconds(timestamp)?;
    Ok(SignatureHeaders {
        id: None,
        signed_at_s: Some(signed_at_s),
        prefix: format!("{timestamp}."),
        signatures,
    })
}
