//! The secret that a sender and its receiver share.
use super::{custom::encode_hex, scheme::Scheme};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{
    Hmac, KeyInit as _, Mac as _,
    digest::{CtOutput, Output},
};
use sha2::Sha256;
use std::{fmt, ops::RangeInclusive};

/// The lengths that Standard Webhooks allows. Shorter secrets can be guessed.
const BYTES: RangeInclusive<usize> = 24..=64;

/// The secret that a sender of webhooks and its receiver share. `Debug` does not print it.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// The error for a webhook secret that does not have 24 to 64 bytes, or is not base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidSecret;

impl Secret {
    /// Decodes a secret from base64 with or without `whsec_` before it, the form of Standard Webhooks.
    ///
    /// # Errors
    /// The text is not base64 of 24 to 64 bytes.
    pub fn from_base64(secret: &str) -> Result<Self, InvalidSecret> {
        let encoded = secret.strip_prefix("whsec_").unwrap_or(secret);
        Self::from_bytes(STANDARD.decode(encoded).map_err(|_| InvalidSecret)?)
    }

    /// Creates a secret from its bytes. For Stripe they are the whole text `whsec_…`.
    ///
    /// # Errors
    /// The secret does not have 24 to 64 bytes.
    pub fn from_bytes(secret: impl Into<Vec<u8>>) -> Result<Self, InvalidSecret> {
        let secret = secret.into();
        if BYTES.contains(&secret.len()) { Ok(Self(secret)) } else { Err(InvalidSecret) }
    }

    fn hmac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        #[cfg(test)]
        MACS.with(|macs| macs.set(macs.get() + 1));
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC accepts keys of any length");
        parts.iter().for_each(|part| mac.update(part));
        mac
    }

    /// Signs `body` as a sender does, for tests of a route. Returns the headers.
    ///
    /// `signed_at_s` is the time in seconds since 1970. Only [`Scheme::Standard`] has an `id` in its headers.
    pub fn sign(
        &self,
        scheme: Scheme,
        id: &str,
        signed_at_s: u64,
        body: &[u8],
    ) -> Vec<(&'static str, String)> {
        let mac = |prefix: String| self.hmac(&[prefix.as_bytes(), body]).finalize().into_bytes();
        if let Some(custom) = scheme.as_custom() {
            return custom.sign(signed_at_s, |prefix| mac(prefix).to_vec());
        }
        match scheme {
            Scheme::Stripe => {
                let signature = encode_hex(&mac(format!("{signed_at_s}.")));
                vec![("stripe-signature", format!("t={signed_at_s},v1={signature}"))]
            }
            _ => {
                let signature = STANDARD.encode(mac(format!("{id}.{signed_at_s}.")));
                vec![
                    ("webhook-id", id.to_owned()),
                    ("webhook-timestamp", signed_at_s.to_string()),
                    ("webhook-signature", format!("v1,{signature}")),
                ]
            }
        }
    }

    pub(super) fn expected_mac(&self, parts: &[&[u8]]) -> ExpectedMac {
        ExpectedMac(self.hmac(parts).finalize())
    }
}

/// The signature that the owner of the secret makes.
pub(super) struct ExpectedMac(CtOutput<Hmac<Sha256>>);

impl ExpectedMac {
    /// Compares in constant time.
    pub(super) fn matches(&self, signature: &[u8]) -> bool {
        Output::<Hmac<Sha256>>::try_from(signature).is_ok_and(|other| self.0 == CtOutput::new(other))
    }
}

#[cfg(test)]
thread_local! {
    /// How many digests were computed.
    pub(super) static MACS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for InvalidSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = (BYTES.start(), BYTES.end());
        write!(f, "a webhook secret must have {min} to {max} bytes, in base64 after `whsec_`")
    }
}

impl std::error::Error for InvalidSecret {}
