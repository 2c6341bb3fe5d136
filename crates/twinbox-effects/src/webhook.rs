//! Webhooks that go out: signed, ten tries over three to four days, and never to an address inside your
//! network.
//!
//! A webhook is an effect of the kind `webhook.<type>:<endpoint>`, planned like any other. The
//! [`WebhookVendor`] of a [`Dispatcher`](crate::Dispatcher) signs it and sends it to its endpoint through a
//! [`GuardedService`].
//!
//! ```no_run
//! use twinbox_core::{BoxError, BoxFuture};
//! use twinbox_effects::{
//!     Dispatcher,
//!     webhook::{self, Egress, Endpoint, Endpoints, GuardedService, SigningSecret, WebhookVendor},
//! };
//!
//! struct Customers;
//!
//! impl Endpoints for Customers {
//!     fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Endpoint>, BoxError>> {
//!         Box::pin(async move {
//!             // From a table of the application.
//!             let secret = SigningSecret::from_base64("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
//!             Ok((id == "ep_42").then(|| Endpoint::new("https://example.com/hooks", secret)))
//!         })
//!     }
//!
//!     fn disable<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
//!         Box::pin(async { Ok(()) })
//!     }
//! }
//!
//! # fn run<DB: twinbox_sql::Dialect>(store: twinbox_sql::Store<DB>) -> Result<(), BoxError> {
//! let service = GuardedService::new(reqwest::Client::builder(), Egress::new())?;
//! let webhooks = WebhookVendor::new(Customers, service);
//! let dispatcher = Dispatcher::new(&store).vendor_with(webhooks, webhook::options());
//! # Ok(())
//! # }
//! ```
mod egress;
mod endpoint;
mod guarded;
mod network;
mod schedule;
mod secret;
mod sender;

pub use egress::{Egress, EgressError};
pub use endpoint::{Endpoint, Endpoints};
pub use guarded::GuardedService;
pub use network::{InvalidNetwork, Network};
pub use schedule::{SCHEDULE, options};
pub use secret::{InvalidSigningSecret, SigningSecret};
pub use sender::{WEBHOOK_VENDOR, WebhookVendor};
