//! Signs webhooks.
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::{error::Error, fmt, ops::RangeInclusive};

/// The lengths that Standard Webhooks allows. Shorter secrets can be guessed.
const BYTES: RangeInclusive<usize> = 24..=64;

/// The secret that you share with the owner of an endpoint. `Debug` does not print it.
#[derive(Clone)]
pub struct SigningSecret(Vec<u8>);

/// The error for a secret that does not have 24 to 64 bytes, or is not base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidSigningSecret;

impl SigningSecret {
    /// Decodes a secret from base64 with or without `whsec_` before it, the form of Standard Webhooks.
    ///
    /// # Errors
    /// The text is not base64 of 24 to 64 bytes.
    pub fn from_base64(secret: &str) -> Result<Self, InvalidSigningSecret> {
        let encoded = secret.strip_prefix("whsec_").unwrap_or(secret);
        Self::from_bytes(STANDARD.decode(encoded).map_err(|_| InvalidSigningSecret)?)
    }

    /// Creates a secret from its bytes.
    ///
    /// # Errors
    /// The secret does not have 24 to 64 bytes.
    pub fn from_bytes(secret: impl Into<Vec<u8>>) -> Result<Self, InvalidSigningSecret> {
        let secret = secret.into();
        if BYTES.contains(&secret.len()) { Ok(Self(secret)) } else { Err(InvalidSigningSecret) }
    }

    /// Returns one signature for the header `webhook-signature`. `id` has no dot.
    pub(super) fn sign(&self, id: &str, signed_at_s: u64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC accepts keys of any length");
        mac.update(format!("{id}.{signed_at_s}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(…)")
    }
}

impl fmt::Display for InvalidSigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = (BYTES.start(), BYTES.end());
        write!(f, "the secret of an endpoint must have {min} to {max} bytes, in base64 after `whsec_`")
    }
}

impl Error for InvalidSigningSecret {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published vector of Standard Webhooks, as its libraries test it. t28
    #[test]
    fn the_published_vector_is_signed() {
        let secret = SigningSecret::from_base64("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(format!("{secret:?}"), "SigningSecret(…)");
    }

    #[test]
    fn short_and_long_secrets_are_refused() {
        for refused in ["", "whsec_", "whsec_AAAA", "whsec_!", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS"] {
            assert!(SigningSecret::from_base64(refused).is_err(), "{refused}");
        }
        let is_fine = |bytes: usize| SigningSecret::from_bytes(vec![0; bytes]).is_ok();
        assert_eq!([23, 24, 64, 65].map(is_fine), [false, true, true, false]);
    }
}
