use super::Scheme;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{
    Hmac, KeyInit as _, Mac as _,
    digest::{CtOutput, Output},
};
use sha2::Sha256;
use std::fmt;

/// What the standard allows: fewer can be guessed, more bring nothing.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// What a sender and its receiver know. Never printed.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// The secret is empty, too short, too long, or not base64 behind `whsec_`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidSecret;

impl Secret {
    /// `whsec_` and base64, as Standard Webhooks writes it.
    ///
    /// # Errors
    /// It is not base64 of 24 to 64 bytes.
    pub fn encoded(secret: &str) -> Result<Self, InvalidSecret> {
        let encoded = secret.strip_prefix("whsec_").unwrap_or(secret);
        Self::bytes(STANDARD.decode(encoded).map_err(|_| InvalidSecret)?)
    }

    /// The bytes themselves; of Stripe, those of the whole text `whsec_…`.
    ///
    /// # Errors
    /// There are not 24 to 64.
    pub fn bytes(secret: impl Into<Vec<u8>>) -> Result<Self, InvalidSecret> {
        let secret = secret.into();
        if BYTES.contains(&secret.len()) { Ok(Self(secret)) } else { Err(InvalidSecret) }
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        #[cfg(test)]
        MACS.with(|macs| macs.set(macs.get() + 1));
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        parts.iter().for_each(|part| mac.update(part));
        mac
    }

    /// The headers with which a sender signs `body` at a time in seconds since 1970: for tests of a route.
    pub fn sign(&self, scheme: Scheme, id: &str, at: u64, body: &[u8]) -> Vec<(&'static str, String)> {
        let mac = |prefix: String| self.mac(&[prefix.as_bytes(), body]).finalize().into_bytes();
        match scheme {
            Scheme::Standard => {
                let signature = STANDARD.encode(mac(format!("{id}.{at}.")));
                let [id, at] = [("webhook-id", id.to_owned()), ("webhook-timestamp", at.to_string())];
                vec![id, at, ("webhook-signature", format!("v1,{signature}"))]
            }
            Scheme::Stripe => {
                let signature = mac(format!("{at}."));
                let signature = String::from_iter(signature.iter().map(|byte| format!("{byte:02x}")));
                vec![("stripe-signature", format!("t={at},v1={signature}"))]
            }
        }
    }

    pub(super) fn signature(&self, parts: &[&[u8]]) -> Signature {
        Signature(self.mac(parts).finalize())
    }
}

/// What a sender who knows the secret signs with.
pub(super) struct Signature(CtOutput<Hmac<Sha256>>);

impl Signature {
    /// In a time that does not depend on where they differ.
    pub(super) fn is(&self, other: &[u8]) -> bool {
        Output::<Hmac<Sha256>>::try_from(other).is_ok_and(|other| self.0 == CtOutput::new(other))
    }
}

#[cfg(test)]
thread_local! {
    /// How often something was digested.
    pub(super) static MACS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for InvalidSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a webhook secret has {} to {} bytes, in base64 behind `whsec_`",
            BYTES.start(),
            BYTES.end()
        )
    }
}

impl std::error::Error for InvalidSecret {}
