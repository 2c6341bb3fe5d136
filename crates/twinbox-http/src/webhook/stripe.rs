//! The header of Stripe's webhooks.
use super::signature::{SIGNATURES_MAX, SignatureHeaders, VerificationError, parse_seconds};

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
    Ok(SignatureHeaders { id: None, signed_at_s, prefix: format!("{timestamp}."), signatures })
}

fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    if digits.len() % 2 == 1 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}
