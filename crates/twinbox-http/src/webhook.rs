//! Webhooks that come in: who has sent one, and which one it is.
//!
//! [`Inbound`] is the layer of a route: it verifies the signature, keeps a receipt in the handler's transaction, and
//! answers a webhook that comes again without running anything.
//!
//! [`Verifier::verify`] looks at what was signed: the body as it came, before anybody parses it, and the headers. What it
//! answers with is safe to remove duplicates by, because a stranger cannot change it without breaking the signature.
mod inbound;
mod secret;
mod standard;
mod stripe;
#[cfg(test)]
mod tests;

pub use inbound::{Inbound, InboundService};
pub use secret::{InvalidSecret, Secret};

use std::{fmt, time::Duration};

/// How far a webhook's time may be from the receiver's, unless one says otherwise.
const TOLERANCE: Duration = Duration::from_secs(300);
/// Signatures that are looked at. Senders use one for each secret that is in force.
const SIGNATURES_MAX: usize = 16;

/// How a sender signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// [Standard Webhooks](https://www.standardwebhooks.com) 1.0, symmetric: the headers `webhook-id`,
    /// `webhook-timestamp` and `webhook-signature`.
    Standard,
    /// As Stripe does: the header `stripe-signature` with a time and signatures in hexadecimal.
    Stripe,
}

impl Scheme {
    /// Where the body has an id that each try of a webhook shares, as a JSON pointer. None: the headers have it.
    const fn id_in_body(self) -> Option<&'static str> {
        match self {
            Self::Standard => None,
            // Tries of one event may differ in other members.
            Self::Stripe => Some("/id"),
        }
    }
}

/// Verifies webhooks of one endpoint.
#[derive(Debug, Clone)]
pub struct Verifier {
    scheme: Scheme,
    secrets: Vec<Secret>,
    tolerance: Duration,
}

/// A webhook that was signed with one of the secrets, and in time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The id that the sender signed with it. None: the scheme has none outside of the body.
    pub id: Option<String>,
    /// When it was signed, in seconds since 1970.
    pub signed_at: u64,
    /// Which of the secrets it was signed with, by their order.
    pub secret: usize,
}

/// Why a webhook was refused. What it says is for the log, and nothing for the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refused {
    /// A header is missing, there twice, or not as the scheme says.
    Malformed,
    /// It was signed too long ago, or in the future: a copy that somebody kept, or clocks that differ.
    OutOfTime,
    /// No secret fits: not from there, or changed on its way.
    WrongSignature,
}

impl Verifier {
    /// With every secret that is in force: while one takes the place of another, both.
    ///
    /// # Panics
    /// There is no secret.
    pub fn new(scheme: Scheme, secrets: impl IntoIterator<Item = Secret>) -> Self {
        let secrets = Vec::from_iter(secrets);
        assert!(!secrets.is_empty(), "nothing can be verified without a secret");
        Self { scheme, secrets, tolerance: TOLERANCE }
    }

    /// How far the time in a webhook may be from `now`, in both directions. Default: 5 minutes.
    #[must_use]
    pub fn tolerance(self, tolerance: Duration) -> Self {
        Self { tolerance, ..self }
    }

    /// Verifies, the time first. `header` answers with all values of a header by its lower-case name; `now`: seconds since
    /// 1970. Every secret is tried with every signature, in a time that does not tell which fits.
    ///
    /// # Errors
    /// It is not from there, not in time, or not as the scheme says.
    pub fn verify<'h>(
        &self,
        header: impl Fn(&str) -> Vec<&'h [u8]>,
        body: &[u8],
        now: u64,
    ) -> Result<Verified, Refused> {
        let only = |name: &str| match header(name)[..] {
            [one] => std::str::from_utf8(one).map_err(|_| Refused::Malformed),
            _ => Err(Refused::Malformed),
        };
        let signed = match self.scheme {
            Scheme::Standard => standard::read(only)?,
            Scheme::Stripe => stripe::read(only)?,
        };
        // First, because it costs nothing: a stranger's old copy is not digested.
        if signed.at.abs_diff(now) > self.tolerance.as_secs() {
            return Err(Refused::OutOfTime);
        }
        let secret = self.signed_with(&signed, body).ok_or(Refused::WrongSignature)?;
        Ok(Verified { id: signed.id, signed_at: signed.at, secret })
    }

    /// The body is digested once for each secret, however many signatures there are.
    fn signed_with(&self, signed: &Signed, body: &[u8]) -> Option<usize> {
        let mut found = None;
        for (n, secret) in self.secrets.iter().enumerate() {
            let expected = secret.signature(&[signed.prefix.as_bytes(), body]);
            for signature in &signed.signatures {
                found = found.or(expected.is(signature).then_some(n));
            }
        }
        found
    }
}

/// What the headers say.
struct Signed {
    id: Option<String>,
    at: u64,
    /// What was signed before the body.
    prefix: String,
    signatures: Vec<Vec<u8>>,
}

/// A time in its one spelling, so that nobody can write a signed time otherwise.
fn seconds(text: &str) -> Result<u64, Refused> {
    let at: u64 = text.parse().map_err(|_| Refused::Malformed)?;
    if at.to_string() == text { Ok(at) } else { Err(Refused::Malformed) }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "a header of the signature is missing, there twice, or malformed",
            Self::OutOfTime => "it was signed too long ago, or in the future",
            Self::WrongSignature => "no secret fits its signature",
        })
    }
}

impl std::error::Error for Refused {}
