//! Verifies the signatures of webhooks.
#[cfg(test)]
mod tests;

use super::{
    scheme::Scheme,
    secret::Secret,
    signature::{Signature, SignatureHeaders, VerificationError},
    standard, stripe,
};
use std::time::Duration;

const TOLERANCE: Duration = Duration::from_secs(300);
/// The length of HMAC-SHA-256.
const SIGNATURE_BYTES: usize = 32;

/// Verifies the webhooks of one endpoint.
///
/// ```
/// use twinbox_http::webhook::{Scheme, Secret, VerificationError, Verifier};
///
/// let secret = Secret::from_base64("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// let verifier = Verifier::new(Scheme::Standard, [secret.clone()]);
///
/// let (body, now) = (b"{\"type\":\"refund.succeeded\"}", 1_790_000_000);
/// let headers = secret.sign(Scheme::Standard, "msg_1", now, body);
/// let values = |name: &str| {
///     headers.iter().filter(|(header, _)| *header == name).map(|(_, value)| value.as_bytes()).collect()
/// };
///
/// assert_eq!(verifier.verify(values, body, now)?.id.as_deref(), Some("msg_1"));
/// assert_eq!(verifier.verify(values, b"{}", now), Err(VerificationError::WrongSignature));
/// assert_eq!(verifier.verify(values, body, now + 301), Err(VerificationError::OutOfTime));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Verifier {
    scheme: Scheme,
    secrets: Vec<Secret>,
    tolerance: Duration,
}

impl Verifier {
    /// Creates a verifier that accepts any of the `secrets`. While a sender changes its secret, give the old
    /// and the new one.
    ///
    /// # Panics
    /// `secrets` is empty.
    pub fn new(scheme: Scheme, secrets: impl IntoIterator<Item = Secret>) -> Self {
        let secrets = Vec::from_iter(secrets);
        assert!(!secrets.is_empty(), "nothing can be verified without a secret");
        Self { scheme, secrets, tolerance: TOLERANCE }
    }

    /// Sets how far the time of a signature may be from now, in both directions. The default is 5 minutes.
    #[must_use]
    pub fn tolerance(self, tolerance: Duration) -> Self {
        Self { tolerance, ..self }
    }

    pub(super) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Verifies the signature of a webhook over its headers and `body`.
    ///
    /// `header` returns all values of the header with a lower-case name. `now_s` is the time in seconds since
    /// 1970. All secrets are compared with all signatures, in a time that does not depend on which of them
    /// match.
    ///
    /// # Errors
    /// A header is malformed, the time of the signature is too far from now, or no secret matches.
    pub fn verify<'h>(
        &self,
        header: impl Fn(&str) -> Vec<&'h [u8]>,
        body: &[u8],
        now_s: u64,
    ) -> Result<Signature, VerificationError> {
        self.verify_body(self.verify_headers(header, now_s)?, body)
    }

    /// Returns what the headers claim.
    ///
    /// # Errors
    /// No body can make it true: a header is malformed, the time is too far from now, or no signature is as
    /// long as one is.
    pub(super) fn verify_headers<'h>(
        &self,
        header: impl Fn(&str) -> Vec<&'h [u8]>,
        now_s: u64,
    ) -> Result<SignatureHeaders, VerificationError> {
        let only = |name: &str| match header(name)[..] {
            [one] => std::str::from_utf8(one).map_err(|_| VerificationError::Malformed),
            _ => Err(VerificationError::Malformed),
        };
        let headers = match (self.scheme, self.scheme.as_custom()) {
            (_, Some(custom)) => custom.parse(only)?,
            (Scheme::Stripe, None) => stripe::parse(only)?,
            (_, None) => standard::parse(only)?,
        };
        if headers.signed_at_s.is_some_and(|at| at.abs_diff(now_s) > self.tolerance.as_secs()) {
            return Err(VerificationError::OutOfTime);
        }
        if !headers.signatures.iter().any(|signature| signature.len() == SIGNATURE_BYTES) {
            return Err(VerificationError::WrongSignature);
        }
        Ok(headers)
    }

    pub(super) fn verify_body(
        &self,
        headers: SignatureHeaders,
        body: &[u8],
    ) -> Result<Signature, VerificationError> {
        let secret_index = self.matching_secret(&headers, body).ok_or(VerificationError::WrongSignature)?;
        Ok(Signature { id: headers.id, signed_at_s: headers.signed_at_s, secret_index })
    }

    /// Computes one digest for each secret: the sender chooses how many signatures there are.
    fn matching_secret(&self, headers: &SignatureHeaders, body: &[u8]) -> Option<usize> {
        let mut found = None;
        for (n, secret) in self.secrets.iter().enumerate() {
            let expected = secret.expected_mac(&[headers.prefix.as_bytes(), body]);
            for signature in &headers.signatures {
                found = found.or(expected.matches(signature).then_some(n));
            }
        }
        found
    }
}
