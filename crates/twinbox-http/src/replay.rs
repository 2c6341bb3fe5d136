//! Converts responses to their stored form, and replays them.
use crate::{call::Call, decision::Decision, headers, metrics, problem::Problem, render::ResultRef};
use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody as _},
    http::{HeaderMap, HeaderValue, Response, StatusCode, header, request::Parts},
};
use http_body_util::{BodyExt as _, Limited};
use tokio::time::timeout;
use twinbox_sql::{
    Dialect,
    operation::{OperationResponse, ResponseBody},
};

impl<DB: Dialect> Call<DB> {
    /// Returns the stored form of a response, and the response itself.
    ///
    /// # Errors
    /// The body ended with an error.
    pub(crate) async fn to_stored(
        &self,
        response: Response<Body>,
        decision: Decision,
    ) -> Result<(OperationResponse, Response<Body>), BoxError> {
        let (parts, body) = response.into_parts();
        let bytes_max = self.settings.response_bytes_max;
        let upper = body.size_hint().upper();
        let is_short = self.settings.stores_bodies && upper.is_some_and(|bytes| bytes <= bytes_max as u64);
        let (inline, body) =
            if is_short || upper == Some(0) { read(body, bytes_max).await? } else { (None, body) };
        let reference = || parts.extensions.get::<ResultRef>().map(|ResultRef(name)| name.clone());
        let stored_body = match inline {
            Some(bytes) => ResponseBody::Inline(bytes.to_vec()),
            None => reference().map_or(ResponseBody::Omitted, ResponseBody::Reference),
        };
        let headers = headers::encode(&parts.headers, &self.settings.added_headers);
        let is_failure = decision == Decision::RejectAndStore;
        let stored =
            OperationResponse { code: parts.status.as_u16(), headers, body: stored_body, is_failure };
        Ok((stored, Response::from_parts(parts, body)))
    }

    /// Replays a stored response. `parts` is the repeated request, for rendering a body that was not stored.
    pub(crate) async fn replay(&self, stored: OperationResponse, parts: Option<Parts>) -> Response<Body> {
        let headers = headers::decode(&stored.headers, &self.settings.added_headers);
        let (Some(headers), Ok(status)) = (headers, StatusCode::from_u16(stored.code)) else {
            tracing::error!(scope = self.scope, "a stored response cannot be decoded");
            return self.refuse(&Problem::Failed);
        };
        self.count(&metrics::RESPONSES_REPLAYED);
        self.log_outcome("replayed", status, None);
        let mut response = match stored.body {
            ResponseBody::Inline(body) => with_headers(Response::new(Body::from(body)), &headers),
            ResponseBody::Reference(name) => match self.render_result(ResultRef(name), parts).await {
                Some(Ok(rendered)) => with_headers(rendered, &without_body_headers(headers)),
                Some(Err(problem)) => return self.refuse(&problem),
                None => omitted(headers),
            },
            _ => omitted(headers),
        };
        *response.status_mut() = status;
        response.headers_mut().insert(headers::STATUS, HeaderValue::from_static("replayed"));
        response
    }

    async fn render_result(
        &self,
        name: ResultRef,
        parts: Option<Parts>,
    ) -> Option<Result<Response<Body>, Problem>> {
        let rendering = (self.settings.render.as_ref()?)(name, parts?);
        let rendered = timeout(self.settings.handler_timeout, rendering).await;
        Some(rendered.map_err(|_| Problem::TimedOut))
    }
}

/// Reads a body, and returns its bytes, unless trailers follow them, which are not stored.
async fn read(body: Body, bytes_max: usize) -> Result<(Option<Bytes>, Body), BoxError> {
    let collected = Limited::new(body, bytes_max).collect().await?;
    // A body of known length would be sent without them.
    if collected.trailers().is_some_and(|trailers| !trailers.is_empty()) {
        return Ok((None, Body::new(collected)));
    }
    let bytes = collected.to_bytes();
    Ok((Some(bytes.clone()), Body::from(bytes)))
}

/// Adds the stored headers that the response does not have.
fn with_headers(mut response: Response<Body>, stored: &HeaderMap) -> Response<Body> {
    let own = response.headers().clone();
    for (name, value) in stored.iter().filter(|(name, _)| !own.contains_key(*name)) {
        response.headers_mut().append(name, value.clone());
    }
    response
}

fn omitted(headers: HeaderMap) -> Response<Body> {
    let mut response = with_headers(Response::new(Body::empty()), &without_body_headers(headers));
    response.headers_mut().insert(headers::BODY, HeaderValue::from_static("omitted"));
    response
}

/// Removes the headers that describe the body, for a body that is not the stored one.
fn without_body_headers(mut headers: HeaderMap) -> HeaderMap {
    for name in [header::CONTENT_TYPE, header::CONTENT_LANGUAGE, header::CONTENT_ENCODING, header::ETAG] {
        headers.remove(name);
    }
    headers
}
