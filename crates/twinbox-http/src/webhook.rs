//! Verifies webhooks and receives each one once.
//!
//! [`Inbound`] is the layer of a route. It verifies the signature, writes a receipt in the handler's
//! transaction, and answers a repeated webhook without running the handler.
//!
//! [`Verifier::verify`] checks the signature alone: over the body as it was received, before it is parsed,
//! and the headers. The [`Signature`] that it returns is safe for removing duplicates, because only the owner
//! of a secret can make it.
mod custom;
mod endpoint;
mod inbound;
mod receive;
mod scheme;
mod secret;
mod signature;
mod standard;
mod stripe;
mod verifier;

pub use custom::CustomScheme;
pub use inbound::{Inbound, InboundService};
pub use scheme::Scheme;
pub use secret::{InvalidSecret, Secret};
pub use signature::{Signature, VerificationError};
pub use verifier::Verifier;
