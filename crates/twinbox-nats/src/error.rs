//! The error of this crate, and its conversion to the errors of relays and consumers.
use crate::classify;
use async_nats::jetstream;
use std::fmt;
use twinbox_core::{BoxError, PublishError, PublishErrorKind, SourceError, SourceErrorKind};

/// The kind of an [`Error`] of NATS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option has an invalid value. Nothing was sent.
    InvalidOptions,
    /// The server cannot be reached, does not respond, or lacks resources for now. A retry may succeed.
    Unavailable,
    /// The stream or the consumer does not exist.
    Missing,
    /// The server is too old, or the stream or the consumer on it is configured differently. Nothing that
    /// existed was changed.
    Mismatch,
    /// The server refused the request. [`Error::code`] holds the reason.
    Refused,
}

/// The error of an operation on NATS.
///
/// Neither the text nor the code contains words of a server or of the client library, which can hold
/// credentials. Those words are in [`source`](std::error::Error::source).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    code: String,
    text: String,
    source: Option<BoxError>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, code: impl Into<String>, text: impl Into<String>) -> Self {
        Self { kind, code: code.into(), text: text.into(), source: None }
    }

    pub(crate) fn invalid(option: &str, problem: &str) -> Self {
        Self::new(ErrorKind::InvalidOptions, "nats.options", format!("the option `{option}` {problem}"))
    }

    pub(crate) fn mismatch(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Mismatch, "nats.mismatch", text)
    }

    /// Converts the error response of JetStream to a request about `subject`, such as "the stream `EVENTS`".
    pub(crate) fn jetstream(subject: impl fmt::Display, error: jetstream::Error) -> Self {
        use jetstream::ErrorCode as C;
        let kind = match (error.error_code(), classify::kind_of(&error)) {
            (C::STREAM_NOT_FOUND | C::CONSUMER_NOT_FOUND, _) => ErrorKind::Missing,
            (_, PublishErrorKind::Unavailable) => ErrorKind::Unavailable,
            _ => ErrorKind::Refused,
        };
        let code = classify::code_of(&error);
        let problem = match error.error_code() {
            C::STREAM_NOT_FOUND => "the stream does not exist",
            C::CONSUMER_NOT_FOUND => "the consumer does not exist",
            _ => "JetStream refused the request",
        };
        Self::new(kind, code.clone(), format!("{subject}: {problem} ({code})")).with_source(error)
    }

    pub(crate) fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Returns the kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns a short stable code to store and to count, such as `nats.timeout`. JetStream's error 10059 has
    /// the code `nats.10059`.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns whether a retry may succeed without a change by a person.
    ///
    /// A missing stream counts as transient: another program may create it later, or again after the server
    /// lost it.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Missing)
    }

    /// Converts to a source error of `kind`, which takes over the text, so that a printed chain repeats none.
    pub(crate) fn into_source_error(self, kind: SourceErrorKind) -> SourceError {
        let error = SourceError::new(kind, self.text);
        match self.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

impl From<Error> for PublishError {
    fn from(error: Error) -> Self {
        let kind = if error.is_transient() {
            PublishErrorKind::Unavailable
        } else {
            PublishErrorKind::Misconfigured
        };
        Self::new(kind, error.code.clone()).with_source(error)
    }
}

impl From<Error> for SourceError {
    fn from(error: Error) -> Self {
        let kind =
            if error.is_transient() { SourceErrorKind::Unavailable } else { SourceErrorKind::Misconfigured };
        error.into_source_error(kind)
    }
}

/// A source error that a new subscription may cure.
pub(crate) fn source_unavailable(text: impl Into<String>) -> SourceError {
    SourceError::new(SourceErrorKind::Unavailable, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn a_source_error_repeats_no_text_in_its_chain() {
        let error = Error::new(ErrorKind::Unavailable, "nats.io", "NATS cannot be reached");
        let error = SourceError::from(error.with_source("connection refused"));
        assert_eq!(error.kind(), SourceErrorKind::Unavailable);
        let cause = error.source().unwrap();
        assert_eq!(
            (error.to_string(), cause.to_string()),
            ("NATS cannot be reached".to_owned(), "connection refused".to_owned())
        );
        assert!(cause.source().is_none());
        assert!(SourceError::from(Error::mismatch("x")).source().is_none());
    }
}
