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
    /// Whether browsers without JavaScript load the page again.
    reloads: bool,
}

pub(crate) type Reply = Result<Html<String>, Failure>;

#[derive(Template)]
#[template(path = "failure.html")]
struct Page<'a> {
    title: &'a str,
    text: &'a str,
}

impl Failure {
    fn new(status: StatusCode, title: &'static str, text: impl Into<String>) -> Self {
        Self { status, title, text: text.into(), reloads: false }
    }

    pub(crate) fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "That cannot be read", text)
    }

    pub(crate) fn not_found(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "Not found", text)
    }

    pub(crate) fn forbidden(text: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Not allowed", text)
    }

    pub(crate) fn too_many(text: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "Too many tries", text)
    }

    pub(crate) fn sent_before() -> Self {
        let text = "This form was sent before, or it is old. The audit has what was done: to do it again, \
                    begin with a new preview.";
        Self::new(StatusCode::CONFLICT, "The form was sent already", text)
    }

    /// A page that took too long. Without JavaScript it does not load itself again: each time would be the
    /// same work.
    pub(crate) fn late() -> Self {
        let text = "The database has not answered in time. If this is a search, look for less.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "The database is slow", text)
    }

    /// A change that may have been made.
    pub(crate) fn in_doubt() -> Self {
        let text = "No answer came while the change was made. It may have been made: look at the audit, \
                    and at what it changes, before you repeat it.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "It may have been made", text)
    }

    /// The same failure before a change began.
    pub(crate) fn before_change(self) -> Self {
        match self.reloads {
            true => {
                let text = "The database does not answer, or refuses the login. Nothing was changed: \
                            go back, and repeat.";
                Self { text: text.to_owned(), reloads: false, ..self }
            }
            false => self,
        }
    }

    /// The same failure while a change was made.
    pub(crate) fn of_change(self) -> Self {
        if self.reloads { Self::in_doubt() } else { self }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (status, title) = match error.kind() {
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "Not found"),
            ErrorKind::Conflict => (StatusCode::CONFLICT, "It has changed"),
            ErrorKind::Configuration => (StatusCode::BAD_REQUEST, "That cannot be read"),
            ErrorKind::Detached => (StatusCode::CONFLICT, "It was detached"),
            _ if error.is_forbidden() => {
                let text = "The role of the database may not do this: `twinbox grants check` names the \
                            missing rights.";
                return Self::forbidden(text);
            }
            _ => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the database failed a request of the console"
                );
                if error.is_lock_timeout() {
                    let text = format!("{error}. This page tries again by itself.");
                    let locked = Self::new(StatusCode::SERVICE_UNAVAILABLE, "A table is locked", text);
                    return Self { reloads: true, ..locked };
                }
                if error.is_transient() {
                    let text = "The database does not answer, or refuses the login. \
                                This page tries again by itself.";
                    let away = Self::new(StatusCode::SERVICE_UNAVAILABLE, "The database is away", text);
                    return Self { reloads: true, ..away };
                }
                (StatusCode::INTERNAL_SERVER_ERROR, "The database is not as expected")
            }
        };
        Self::new(status, title, error.to_string())
    }
}

impl From<askama::Error> for Failure {
    fn from(error: askama::Error) -> Self {
        tracing::error!(error = &error as &dyn std::error::Error, "a page could not be written");
        let text = "The page could not be written.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "An error of the console", text)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let page = Page { title: self.title, text: &self.text };
        let body = page.render().unwrap_or_else(|_| self.title.to_owned());
        let mut response = (self.status, Html(body)).into_response();
        if self.reloads {
            response.headers_mut().insert(header::REFRESH, HeaderValue::from_static("3"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> Failure {
        Failure::from(Error::new(ErrorKind::CommitUnknown, "no answer"))
    }

    fn reloads(failure: Failure) -> bool {
        failure.into_response().headers().contains_key(header::REFRESH)
    }

    #[test]
    fn only_a_page_that_may_succeed_loads_itself_again() {
        assert!(reloads(away()));
        for failure in [Failure::late(), away().before_change(), away().of_change(), Failure::in_doubt()] {
            assert_eq!(failure.status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(!reloads(failure));
        }
        let newer = Failure::from(Error::new(ErrorKind::Schema, "a newer version made this"));
        assert_eq!(
            (newer.status, &*newer.text),
            (StatusCode::INTERNAL_SERVER_ERROR, "a newer version made this")
        );
        assert!(!reloads(newer));
    }

    #[test]
    fn a_change_says_whether_it_may_have_been_made() {
        assert!(away().before_change().text.contains("Nothing was changed"));
        assert!(away().of_change().text.contains("It may have been made"));
        let refused = || Failure::from(Error::new(ErrorKind::Conflict, "it is paused"));
        for failure in [refused().before_change(), refused().of_change()] {
            assert_eq!((failure.status, &*failure.text), (StatusCode::CONFLICT, "it is paused"));
        }
    }
}
