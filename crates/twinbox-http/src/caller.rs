//! The owner of a key.
use axum::http::request::Parts;

/// Identifies the caller; keys are scoped to a caller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// The tenant whose data the request is about. Empty in a service with one tenant.
    pub tenant: String,
    /// The name of the caller, which stays the same when credentials change: not a token, not an API key.
    pub principal: String,
}

impl Caller {
    /// Treats all requests as requests of one caller, for a service with a single client program.
    ///
    /// Do not use it for data of several people. A person who sends another person's key would get the other
    /// response. Two people who choose the same key would get a mismatch.
    pub fn single(_: &Parts) -> Self {
        Self::default()
    }
}
