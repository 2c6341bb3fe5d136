//! A client that calls a vendor at once, in a request or a handler of your own.
//!
//! A [`Client`] makes one logical call of a vendor: a few tries within a budget of time, all with one
//! idempotency key. A circuit breaker for each operation and a rate gate spare a vendor in trouble. Where the
//! act must survive a crash, plan an effect instead; the [`Dispatcher`](crate::Dispatcher) uses the same
//! breakers.
//!
//! The order of the parts is: rate gate and circuit breaker, budget of retries, time-out of a try. After a
//! failure that another try can repair, the client waits, at least as long as `Retry-After` says.
//!
//! | item | purpose |
//! |---|---|
//! | [`ClientLayer`] | the settings, and a [`tower::Layer`] |
//! | [`Client`] | makes calls, and is a [`tower::Service`] |
//! | [`Call`] | the request, with its operation and its key |
//! | [`ClientError`] | code, hint, certainty, tries, and when to come again |
mod breaker;
mod call;
mod error;
mod guard;
mod layer;
mod next;
mod run;
mod settings;
#[cfg(test)]
mod tests;

pub use call::{Answer, Call, Try};
pub use error::ClientError;
pub(crate) use guard::{Guard, gate};
pub use layer::{Client, ClientLayer};
