//! Sends the requests of effects.
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{Request, Response as HttpResponse};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::{
    io,
    task::{Context, Poll},
    time::Duration,
};
use tower::Service;
use twinbox_core::endpoint::{Endpoint, PlainRefused, Protection};
use twinbox_effects::{Response, SendError};

/// The most bytes of a response that are read. The connection of a longer one is not used again.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Returns how requests to a URL are protected. Those to no host are never sent.
///
/// # Errors
/// They would leave this machine without TLS, and that is not allowed.
pub(crate) fn protection(url: &str, allow_plain: bool) -> Result<Protection, PlainRefused> {
    match Endpoint::of_url(url) {
        Some(endpoint) => endpoint.allow_plain(allow_plain).protection("write `https://`"),
        None => Ok(Protection::Local),
    }
}

/// Sends requests over HTTP or HTTPS, with the certificates of the system. It follows no redirect, uses no
/// proxy and never tries again by itself.
#[derive(Clone)]
pub(crate) struct HttpsService(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl HttpsService {
    /// Creates a service.
    ///
    /// # Errors
    /// The certificates of the system cannot be read.
    pub(crate) fn new() -> io::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_MAX));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())?
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build(connector);
        Ok(Self(client))
    }
}

impl Service<Request<Bytes>> for HttpsService {
    type Response = Response;
    type Error = SendError;
    type Future = BoxFuture<'static, Result<Response, SendError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let sent = self.0.request(request.map(Full::new));
        Box::pin(async {
            let response = sent.await.map_err(|error| {
                if error.is_connect() { SendError::not_sent(error) } else { SendError::maybe_sent(error) }
            })?;
            Ok(read(response).await)
        })
    }
}

/// Reads as much of the body as is kept. The head tells what became of the request, so a body that breaks off
/// is no error.
async fn read(response: HttpResponse<hyper::body::Incoming>) -> Response {
    let (head, mut rest) = response.into_parts();
    let mut body = BytesMut::new();
    while body.len() < RESPONSE_BYTES_MAX {
        let Some(Ok(frame)) = rest.frame().await else { break };
        let part = frame.into_data().unwrap_or_default();
        body.extend_from_slice(&part[..part.len().min(RESPONSE_BYTES_MAX - body.len())]);
    }
    Response { status: head.status.as_u16(), headers: head.headers, body: body.freeze() }
}
