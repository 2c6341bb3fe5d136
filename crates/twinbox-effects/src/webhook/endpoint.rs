//! The endpoints that get webhooks.
use super::secret::SigningSecret;
use std::fmt;
use twinbox_core::{BoxError, BoxFuture};

/// Where the webhooks of one receiver go.
///
/// `Debug` prints neither the URL nor the secrets: the path of a URL may be a secret too.
#[derive(Clone)]
#[must_use]
pub struct Endpoint {
    pub(super) url: String,
    pub(super) secrets: Vec<SigningSecret>,
    pub(super) is_disabled: bool,
}

impl Endpoint {
    /// Creates an endpoint whose webhooks are signed with `secret`.
    pub fn new(url: impl Into<String>, secret: SigningSecret) -> Self {
        Self { url: url.into(), secrets: vec![secret], is_disabled: false }
    }

    /// Signs with a second secret too, while the receiver changes from the one to the other.
    pub fn second_secret(mut self, secret: SigningSecret) -> Self {
        self.secrets.truncate(1);
        self.secrets.push(secret);
        self
    }

    /// Says that nothing is sent to this endpoint. Its effects fail.
    pub fn disabled(self, is_disabled: bool) -> Self {
        Self { is_disabled, ..self }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("is_disabled", &self.is_disabled).finish_non_exhaustive()
    }
}

/// The endpoints of an application, such as a table of it.
pub trait Endpoints: Send + Sync + 'static {
    /// Finds the endpoint with an id. It is asked before each send, so a changed URL or secret counts at
    /// once.
    ///
    /// # Errors
    /// It could not be found out. The send counts as failed, and is tried again.
    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Endpoint>, BoxError>>;

    /// Disables an endpoint that has answered `410 Gone`. The effect fails in any case.
    ///
    /// # Errors
    /// It could not be disabled, which is logged. The next webhook for it asks again.
    fn disable<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), BoxError>>;
}
