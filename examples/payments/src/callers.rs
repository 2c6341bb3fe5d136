//! Authenticates callers.
use axum::{
    extract::Request,
    http::{StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use twinbox::http::Caller;

/// Each token with its principal. A principal keeps its idempotency keys when its token changes.
const TOKENS: [(&str, &str); 3] = [("alice-1", "alice"), ("alice-2", "alice"), ("bob-1", "bob")];

pub(crate) async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer "));
    let Some((_, name)) = TOKENS.iter().find(|(known, _)| Some(*known) == token) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let caller = Caller { tenant: "demo".to_owned(), principal: (*name).to_owned() };
    request.extensions_mut().insert(caller);
    next.run(request).await
}

pub(crate) fn of(parts: &Parts) -> Caller {
    parts.extensions.get().cloned().expect("the authentication layer refuses requests without a caller")
}
