//! How webhooks are signed.
use super::custom::{CustomScheme, GITHUB, SHOPIFY};

/// How a sender signs its webhooks, and where it puts the signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// [Standard Webhooks](https://www.standardwebhooks.com) 1.0, symmetric: the headers `webhook-id`,
    /// `webhook-timestamp` and `webhook-signature`.
    Standard,
    /// Stripe: the header `stripe-signature` with a time and hexadecimal signatures.
    Stripe,
    /// GitHub: the header `x-hub-signature-256`, over the body alone.
    ///
    /// Its headers with the delivery's id and the event's name are not signed. So webhooks are told apart by
    /// the digest of their body, and a handler should not trust the name alone.
    GitHub,
    /// Shopify: the header `x-shopify-hmac-sha256`, over the body alone. As for GitHub, no other header is
    /// signed. Use an endpoint for each topic.
    Shopify,
    /// Another sender.
    Custom(CustomScheme),
}

impl Scheme {
    /// A JSON pointer to the id in the body that all deliveries of a webhook share. `None`: the id is in the
    /// headers, or there is none.
    pub(super) const fn id_in_body(self) -> Option<&'static str> {
        match self {
            Self::Standard => None,
            // Deliveries of one event may differ in other members.
            Self::Stripe => Some("/id"),
            Self::GitHub | Self::Shopify => None,
            Self::Custom(scheme) => scheme.id_in_body,
        }
    }

    /// The scheme with one signature over the body, if it is such a one.
    pub(super) const fn as_custom(self) -> Option<CustomScheme> {
        match self {
            Self::Standard | Self::Stripe => None,
            Self::GitHub => Some(GITHUB),
            Self::Shopify => Some(SHOPIFY),
            Self::Custom(scheme) => Some(scheme),
        }
    }
}
