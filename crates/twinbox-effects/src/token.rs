//! The ids of effects, and their keys for vendors.
use sha2::{Digest as _, Sha256};
use twinbox_core::id::derive;
use uuid::Uuid;

/// Derives the id of the effect that `source_id` has of this kind.
pub fn effect_id(source_id: Uuid, kind: &str) -> Uuid {
    derive("effect/1", &[source_id.as_bytes(), kind.as_bytes()])
}

/// Derives the key that a vendor gets. Each try of a generation sends the same key.
pub fn effect_token(source_id: Uuid, kind: &str, generation: u32) -> Uuid {
    derive("token/1", &[source_id.as_bytes(), kind.as_bytes(), &generation.to_be_bytes()])
}

/// How a vendor takes keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFormat {
    /// A UUID of 36 characters.
    Uuid36,
    /// 64 hexadecimal digits: the SHA-256 of the UUID's 16 bytes.
    Hex64,
    /// That many letters and digits, at most 43: the SHA-256 of the UUID's 16 bytes as a number of base 62.
    Base62(u8),
}

impl KeyFormat {
    /// Writes a token in this format.
    pub fn format(self, token: Uuid) -> String {
        const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let mut hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        match self {
            Self::Uuid36 => token.to_string(),
            Self::Hex64 => twinbox_sql::engine::hex(&hash),
            Self::Base62(length) => {
                let mut digit = || {
                    let mut rest = 0_usize;
                    for byte in &mut hash {
                        let value = rest << 8 | usize::from(*byte);
                        *byte = u8::try_from(value / 62).unwrap_or_default();
                        rest = value % 62;
                    }
                    char::from(DIGITS[rest])
                };
                (0..length.min(43)).map(|_| digit()).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The public vectors. A change of one would send every open effect again under another key. R69, D29
    #[test]
    fn vectors() {
        let source: Uuid = "992c554d-b0bd-8009-81ff-5941f658e6f1".parse().unwrap();
        let token = effect_token(source, "email.welcome", 0);
        assert_eq!(effect_id(source, "email.welcome").to_string(), "b79a1385-c6b7-825b-b3b1-a650bc0a8b0e");
        assert_eq!(token.to_string(), "8fab8f2d-ba4a-8238-82eb-f38b755ef067");
        assert_eq!(
            effect_token(source, "email.welcome", 1).to_string(),
            "6f93b6f6-f3a4-847e-807e-1a6ac8f57b1a"
        );
        assert_eq!(KeyFormat::Uuid36.format(token), token.to_string());
        assert_eq!(
            KeyFormat::Hex64.format(token),
            "77aa21d4118908bf9e926bd5b0668dd0819f9ecd68976a28d6e65cb3de26de9f"
        );
        assert_eq!(KeyFormat::Base62(30).format(token), "zhqNY6U0qPuIgxYKpcgVPtlyFpLDW5");
        assert_eq!(KeyFormat::Base62(200).format(token).len(), 43);
    }
}
