//! How webhooks are signed.

/// How a sender signs its webhooks, and where it puts the signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// [Standard Webhooks](https://www.standardwebhooks.com) 1.0, symmetric: the headers `webhook-id`,
    /// `webhook-timestamp` and `webhook-signature`.
    Standard,
    /// Stripe: the header `stripe-signature` with a time and hexadecimal signatures.
    Stripe,
}

impl Scheme {
    /// A JSON pointer to the id in the body that all deliveries of a webhook share. `None`: the id is in the
    /// headers.
    pub(super) const fn id_in_body(self) -> Option<&'static str> {
        match self {
            Self::Standard => None,
            // Deliveries of one event may differ in other members.
            Self::Stripe => Some("/id"),
        }
    }
}
