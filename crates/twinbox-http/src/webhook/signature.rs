//! Signatures: as a request claims them, and as they were verified.
use std::fmt;

/// Signatures of one webhook that are checked. Senders sign once with each secret that is in force.
pub(super) const SIGNATURES_MAX: usize = 16;

/// The id, the time and the secret of a verified webhook's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signature {
    /// The id that the signature covers. `None` if the scheme has no id outside of the body.
    pub id: Option<String>,
    /// When the webhook was signed, in seconds since 1970. `None` if the scheme signs no time: a recorded
    /// copy is then refused only as long as its receipt is kept.
    pub signed_at_s: Option<u64>,
    /// The index of the matching secret in the list that the verifier was created with.
    pub secret_index: usize,
}

/// The reason why a webhook could not be verified. It is for the log: the sender must not learn it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VerificationError {
    /// A header is missing, repeated, or not as the scheme requires.
    Malformed,
    /// The time of the signature is too far from now: a recorded copy, or clocks that differ.
    OutOfTime,
    /// No secret of the verifier matches the signature: another party signed the webhook, or it was changed
    /// in transit.
    WrongSignature,
}

/// The signatures in the headers of a request, not verified.
pub(super) struct SignatureHeaders {
    pub(super) id: Option<String>,
    pub(super) signed_at_s: Option<u64>,
    /// The signed bytes before the body.
    pub(super) prefix: String,
    pub(super) signatures: Vec<Vec<u8>>,
}

/// Parses a time in seconds. Only the usual spelling is accepted, so that a signed time has one form.
pub(super) fn parse_seconds(text: &str) -> Result<u64, VerificationError> {
    let seconds: u64 = text.parse().map_err(|_| VerificationError::Malformed)?;
    if seconds.to_string() == text { Ok(seconds) } else { Err(VerificationError::Malformed) }
}

impl fmt::Display for VerificationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "a header of the signature is missing, repeated or malformed",
            Self::OutOfTime => "the time of the signature is too far in the past or in the future",
            Self::WrongSignature => "no secret matches the signature",
        })
    }
}

impl std::error::Error for VerificationError {}
