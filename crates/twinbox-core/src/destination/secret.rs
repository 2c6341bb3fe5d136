//! The secret of a destination.
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt;

/// The secret of a destination: 32 random bytes, which the store keeps for its relays.
///
/// A message id is no secret, so anybody could use one as a name at the broker, such as the name by which the
/// broker drops duplicates. A name with a [tag](Self::tag) of this secret comes from a relay of the
/// destination. `Debug` does not print the bytes.
#[derive(Clone)]
pub struct DestinationSecret {
    bytes: [u8; 32],
    /// With the secret taken in, so that a tag costs two blocks of SHA-256 less.
    mac: Hmac<Sha256>,
}

impl DestinationSecret {
    /// Creates a secret from its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let mac = Hmac::new_from_slice(&bytes).expect("HMAC accepts keys of any length");
        Self { bytes, mac }
    }

    /// Makes a new secret: for a destination that has none yet, or for a publisher without a store.
    ///
    /// # Errors
    /// The operating system has no randomness.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self::from_bytes(bytes))
    }

    /// Returns the bytes, for the store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// Returns HMAC-SHA-256 (RFC 2104) of `parts` one after another. The caller keeps them apart: all but the
    /// last have a fixed length, or a separator that they do not hold.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.mac.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    /// Returns the secret for one purpose, such as `nats-msg-id/1 events`. It tells nothing about this one.
    #[must_use]
    pub fn for_purpose(&self, purpose: &str) -> Self {
        Self::from_bytes(self.tag(&[purpose.as_bytes()]))
    }
}

impl fmt::Debug for DestinationSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DestinationSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 4231, test case 2, with the key filled up with zeros to the length of a secret: HMAC does it too.
    #[test]
    fn a_tag_is_hmac_sha_256() {
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let tag = DestinationSecret::from_bytes(key).tag(&[b"what do ya want ", b"for nothing?"]);
        assert_eq!(hex(&tag), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn purposes_have_different_secrets_and_none_is_printed() {
        let secret = DestinationSecret::random().unwrap();
        let other = DestinationSecret::random().unwrap();
        let all = [&secret, &other, &secret.for_purpose("a"), &secret.for_purpose("b")];
        let bytes = std::collections::HashSet::<_>::from_iter(all.map(|secret| *secret.as_bytes()));
        assert_eq!(bytes.len(), all.len());
        assert_eq!(secret.for_purpose("a").as_bytes(), secret.for_purpose("a").as_bytes());
        assert_eq!(format!("{secret:?}"), "DestinationSecret(…)");
    }
}
