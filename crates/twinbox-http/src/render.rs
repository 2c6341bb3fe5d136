//! Responses that are rendered again because their body is not stored.
use axum::{
    body::Body,
    http::{Response, request::Parts},
};
use futures::future::BoxFuture;

/// Names the result of a request, so that its response can be rendered again.
///
/// A handler puts it into the extensions of a response whose body is too large to store. The name is stored
/// with the key; [`Idempotency::render`](crate::Idempotency::render) gets it back on a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultRef(pub String);

pub(crate) type Render = dyn Fn(ResultRef, Parts) -> BoxFuture<'static, Response<Body>> + Send + Sync;
