//! Sends requests with `reqwest`.
use super::{Response, SendError};
use bytes::{Bytes, BytesMut};
use http::Request;
use std::{
    task::{Context, Poll},
    time::Duration,
};
use tower::Service;
use twinbox_core::BoxFuture;

/// The most bytes of a response that are read. The connection of a longer one is not used again.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Sends requests with a [`reqwest::Client`].
#[derive(Debug, Clone)]
pub struct ReqwestService(reqwest::Client);

impl ReqwestService {
    /// Creates a service from the builder of a client, which chooses its TLS. Redirects and tries of
    /// reqwest's own are turned off: both would send a request again behind the dispatcher's back.
    ///
    /// # Errors
    /// The TLS of the client cannot be set up.
    pub fn new(builder: reqwest::ClientBuilder) -> Result<Self, reqwest::Error> {
        let builder = builder
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT_MAX);
        Ok(Self(builder.build()?))
    }
}

impl Service<Request<Bytes>> for ReqwestService {
    type Response = Response;
    type Error = SendError;
    type Future = BoxFuture<'static, Result<Response, SendError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        match reqwest::Request::try_from(request) {
            Ok(request) => self.execute(request),
            Err(error) => Box::pin(async { Err(SendError::not_sent(error.without_url())) }),
        }
    }
}

impl ReqwestService {
    pub(crate) fn execute(
        &self,
        request: reqwest::Request,
    ) -> BoxFuture<'static, Result<Response, SendError>> {
        let client = self.0.clone();
        Box::pin(async move {
            let mut response = client.execute(request).await.map_err(|error| {
                // Its URL may hold what only the vendor should see.
                let error = error.without_url();
                if error.is_connect() || error.is_builder() {
                    SendError::not_sent(error)
                } else {
                    SendError::maybe_sent(error)
                }
            })?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let mut body = BytesMut::new();
            while body.len() < RESPONSE_BYTES_MAX {
                // The head was read, which tells what became of the request.
                let Ok(Some(part)) = response.chunk().await else { break };
                body.extend_from_slice(&part[..part.len().min(RESPONSE_BYTES_MAX - body.len())]);
            }
            Ok(Response { status, headers, body: body.freeze() })
        })
    }
}
