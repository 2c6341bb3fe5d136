//! Schemes with one signature over the body, and perhaps a time.
use super::signature::{SignatureHeaders, VerificationError, parse_seconds};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// GitHub: the header with its delivery id is not signed.
pub(super) const GITHUB: CustomScheme = CustomScheme::hex("x-hub-signature-256").prefix("sha256=");
/// Shopify: the headers with its ids are not signed.
pub(super) const SHOPIFY: CustomScheme = CustomScheme::base64("x-shopify-hmac-sha256");

/// How a sender without a scheme of its own signs: HMAC-SHA256 over the body, in one header.
///
/// Header names are in lower case.
///
/// ```
/// use twinbox_http::webhook::{CustomScheme, Scheme};
///
/// // Slack signs `v0:<time>:<body>`.
/// const SLACK: CustomScheme = CustomScheme::hex("x-slack-signature")
///     .prefix("v0=")
///     .timestamp("x-slack-request-timestamp", "v0:", ":")
///     .id_in_body("/event_id");
/// let scheme = Scheme::Custom(SLACK);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct CustomScheme {
    header: &'static str,
    is_base64: bool,
    prefix: &'static str,
    timestamp: Option<SignedTime>,
    pub(super) id_in_body: Option<&'static str>,
}

/// A time that is signed before the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SignedTime {
    header: &'static str,
    before: &'static str,
    after: &'static str,
}

impl CustomScheme {
    /// Creates a scheme with a hexadecimal signature in a header.
    ///
    /// # Panics
    /// The name has upper-case letters.
    pub const fn hex(header: &'static str) -> Self {
        assert_lower_case(header);
        Self { header, is_base64: false, prefix: "", timestamp: None, id_in_body: None }
    }

    /// Creates a scheme with a signature in base64 in a header.
    ///
    /// # Panics
    /// The name has upper-case letters.
    pub const fn base64(header: &'static str) -> Self {
        Self { is_base64: true, ..Self::hex(header) }
    }

    /// Sets the text before the signature, such as `sha256=`.
    pub const fn prefix(self, prefix: &'static str) -> Self {
        Self { prefix, ..self }
    }

    /// Sets the header with the time in seconds since 1970, which is signed before the body, with the texts
    /// around it. A time that is not signed would protect from nothing.
    ///
    /// # Panics
    /// The name has upper-case letters.
    pub const fn timestamp(self, header: &'static str, before: &'static str, after: &'static str) -> Self {
        assert_lower_case(header);
        Self { timestamp: Some(SignedTime { header, before, after }), ..self }
    }

    /// Sets where the body has the webhook's id, as a JSON pointer. Without it webhooks are told apart by the
    /// digest of their body.
    pub const fn id_in_body(self, pointer: &'static str) -> Self {
        Self { id_in_body: Some(pointer), ..self }
    }

    /// `header` returns the only value of a header.
    pub(super) fn parse<'h>(
        &self,
        header: impl Fn(&str) -> Result<&'h str, VerificationError>,
    ) -> Result<SignatureHeaders, VerificationError> {
        let signature = header(self.header)?.strip_prefix(self.prefix).ok_or(VerificationError::Malformed)?;
        let decoded = if self.is_base64 { STANDARD.decode(signature).ok() } else { decode_hex(signature) };
        let (mut signed_at_s, mut prefix) = (None, String::new());
        if let Some(time) = &self.timestamp {
            let text = header(time.header)?;
            signed_at_s = Some(parse_seconds(text)?);
            prefix = format!("{}{text}{}", time.before, time.after);
        }
        Ok(SignatureHeaders { id: None, signed_at_s, prefix, signatures: decoded.into_iter().collect() })
    }

    /// The headers of a sender. `mac` signs the body after a text.
    pub(super) fn sign(
        &self,
        signed_at_s: u64,
        mac: impl FnOnce(String) -> Vec<u8>,
    ) -> Vec<(&'static str, String)> {
        let time = self.timestamp.map(|time| (time, format!("{}{signed_at_s}{}", time.before, time.after)));
        let mac = mac(time.as_ref().map(|(_, text)| text.clone()).unwrap_or_default());
        let signature = if self.is_base64 { STANDARD.encode(mac) } else { encode_hex(&mac) };
        let mut headers = vec![(self.header, format!("{}{signature}", self.prefix))];
        headers.extend(time.map(|(time, _)| (time.header, signed_at_s.to_string())));
        headers
    }
}

const fn assert_lower_case(header: &str) {
    let (bytes, mut at) = (header.as_bytes(), 0);
    while at < bytes.len() {
        assert!(!bytes[at].is_ascii_uppercase(), "the name of a header is in lower case");
        at += 1;
    }
}

pub(super) fn encode_hex(bytes: &[u8]) -> String {
    String::from_iter(bytes.iter().map(|byte| format!("{byte:02x}")))
}

pub(super) fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    if digits.len() % 2 == 1 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}
