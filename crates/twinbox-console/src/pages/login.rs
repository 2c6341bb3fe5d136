//! Logging in with a token, and out.
use crate::{
    access::{Identity, SESSION_COOKIE, session_of},
    app::Gate,
    failure::{Failure, Reply},
    hosts,
};
use askama::Template;
use axum::{
    Extension, Form,
    extract::{ConnectInfo, Query},
    http::{HeaderMap, HeaderValue, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use std::{net::SocketAddr, sync::Arc};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Next {
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Token {
    token: String,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "login.html")]
struct Page {
    next: String,
    problem: Option<&'static str>,
}

/// A path of the console. Anything else leads to the overview.
fn local(next: Option<String>) -> String {
    let is_local = |next: &String| {
        next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n', '\t'])
    };
    next.filter(is_local).unwrap_or_else(|| "/".to_owned())
}

pub(crate) async fn form(Query(Next { next }): Query<Next>) -> Reply {
    Ok(Html(Page { next: local(next), problem: None }.render()?))
}

pub(crate) async fn log_in(
    Extension(gate): Extension<Arc<Gate>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Form(Token { token, next }): Form<Token>,
) -> Result<Response, Failure> {
    let Identity::Tokens(tokens) = &gate.access.identity else {
        return Err(Failure::not_found("Nobody logs in here."));
    };
    if let Some(wait) = gate.throttle.wait(peer.ip()) {
        let seconds = wait.as_secs().max(1);
        return Err(Failure::too_many(format!("Too many wrong tokens: wait {seconds} s.")));
    }
    let Some(principal) = tokens.find(&token) else {
        gate.throttle.count(peer.ip());
        tracing::warn!(peer = %peer.ip(), "somebody tried a wrong token at the console");
        let page = Page { next: local(next), problem: Some("This token is not known.") };
        return Ok(Html(page.render()?).into_response());
    };
    let Some(id) = gate.sessions.begin(principal.clone()) else {
        return Err(Failure::too_many("The machine gives no random numbers: try again."));
    };
    let cookie =
        format!("{SESSION_COOKIE}={id}; Path=/; HttpOnly; SameSite=Strict{}", secure(&headers, peer));
    Ok(([(header::SET_COOKIE, value(&cookie))], Redirect::to(&local(next))).into_response())
}

pub(crate) async fn log_out(
    Extension(gate): Extension<Arc<Gate>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    if let Some(id) = session_of(&headers) {
        gate.sessions.end(id);
    }
    let cookie =
        format!("{SESSION_COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{}", secure(&headers, peer));
    ([(header::SET_COOKIE, value(&cookie))], Redirect::to("/login")).into_response()
}

/// A browser elsewhere gets a session over TLS alone.
fn secure(headers: &HeaderMap, peer: SocketAddr) -> &'static str {
    if hosts::is_from_here(headers, peer.ip()) { "" } else { "; Secure" }
}

fn value(cookie: &str) -> HeaderValue {
    HeaderValue::from_str(cookie).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_the_console_alone() {
        for (next, to) in [
            ("/keys?key=a", "/keys?key=a"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("https://evil.example", "/"),
            ("javascript:alert(1)", "/"),
            ("/a\r\nX: y", "/"),
            ("", "/"),
        ] {
            assert_eq!(local(Some(next.to_owned())), to);
        }
    }
}
