//! The answer of a page that could not be made.
use askama::Template;
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use twinbox_ops::{Error, ErrorKind};

/// A page that could not be made.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    title: &'static str,
    text: String,
}

pub(crate) type Reply = Result<Html<String>, Failure>;

#[derive(Template)]
#[template(path = "failure.html")]
struct Page<'a> {
    title: &'a str,
    text: &'a str,
}

impl Failure {
    pub(crate) fn bad_request(text: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, title: "That cannot be read", text: text.into() }
    }

    pub(crate) fn not_found(text: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, title: "Not found", text: text.into() }
    }

    pub(crate) fn forbidden(text: impl Into<String>) -> Self {
        Self { status: StatusCode::FORBIDDEN, title: "Not allowed", text: text.into() }
    }

    pub(crate) fn too_many(text: impl Into<String>) -> Self {
        Self { status: StatusCode::TOO_MANY_REQUESTS, title: "Too many tries", text: text.into() }
    }

    pub(crate) fn late() -> Self {
        let text = "The database has not answered in time. This page tries again by itself.";
        Self { status: StatusCode::SERVICE_UNAVAILABLE, title: "The database is slow", text: text.to_owned() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (status, title) = match error.kind() {
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "Not found"),
            ErrorKind::Conflict => (StatusCode::CONFLICT, "It has changed"),
            ErrorKind::Configuration => (StatusCode::BAD_REQUEST, "That cannot be read"),
            _ if error.is_forbidden() => {
                let text = "The role of the database may not do this: `twinbox grants check` names the \
                            missing rights.";
                return Self { status: StatusCode::FORBIDDEN, title: "Not allowed", text: text.to_owned() };
            }
            _ => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a page could not read the database"
                );
                let text = "The database does not answer. This page tries again by itself.";
                let title = "The database is away";
                return Self { status: StatusCode::SERVICE_UNAVAILABLE, title, text: text.to_owned() };
            }
        };
        Self { status, title, text: error.to_string() }
    }
}

impl From<askama::Error> for Failure {
    fn from(error: askama::Error) -> Self {
        tracing::error!(error = &error as &dyn std::error::Error, "a page could not be written");
        let text = "The page could not be written.".to_owned();
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, title: "An error of the console", text }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let is_away = self.status == StatusCode::SERVICE_UNAVAILABLE;
        let page = Page { title: self.title, text: &self.text };
        let body = page.render().unwrap_or_else(|_| self.title.to_owned());
        let mut response = (self.status, Html(body)).into_response();
        if is_away {
            // Browsers without JavaScript load the page again.
            response.headers_mut().insert(header::REFRESH, HeaderValue::from_static("3"));
        }
        response
    }
}
