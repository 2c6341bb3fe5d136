use super::{Refused, SIGNATURES_MAX, Signed, seconds};

pub(super) fn read<'h>(only: impl Fn(&str) -> Result<&'h str, Refused>) -> Result<Signed, Refused> {
    let (mut timestamp, mut signatures) = (None, Vec::new());
    for part in only("stripe-signature")?.split(',') {
        match part.split_once('=').ok_or(Refused::Malformed)? {
            ("t", time) if timestamp.is_none() => timestamp = Some(time),
            ("t", _) => return Err(Refused::Malformed),
            ("v1", signature) if signatures.len() < SIGNATURES_MAX => signatures.extend(bytes(signature)),
            _ => {}
        }
    }
    let timestamp = timestamp.ok_or(Refused::Malformed)?;
    Ok(Signed { id: None, at: seconds(timestamp)?, prefix: format!("{timestamp}."), signatures })
}

/// Of hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    if digits.len() % 2 == 1 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}
