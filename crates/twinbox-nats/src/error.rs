//! What can go wrong with a server, a stream or a consumer.
use crate::classify;
use async_nats::jetstream;
use std::fmt;
use twinbox_core::{BoxError, PublishError, PublishErrorKind, SourceError, SourceErrorKind};

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option cannot be right. Nothing was sent.
    InvalidOptions,
    /// No connection, no answer, or the server lacks resources now. Worth another try.
    Unavailable,
    /// The stream or consumer does not exist.
    Missing,
    /// The server is too old, or the stream or consumer is set up differently from what was asked for.
    /// Nothing that existed was changed.
    Mismatch,
    /// The server refused. The code says why.
    Refused,
}

/// An operation on NATS that failed.
///
/// Neither its text nor its code contains words of a server or of the client library, which can hold
/// credentials. Those are in [`source`](std::error::Error::source).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    code: String,
    what: String,
    source: Option<BoxError>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, code: impl Into<String>, what: impl Into<String>) -> Self {
        Self { kind, code: code.into(), what: what.into(), source: None }
    }

    pub(crate) fn invalid(option: &str, problem: &str) -> Self {
        Self::new(ErrorKind::InvalidOptions, "nats.options", format!("the option `{option}` {problem}"))
    }

    pub(crate) fn mismatch(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Mismatch, "nats.mismatch", what)
    }

    /// JetStream answered a request with an error.
    pub(crate) fn answered(what: impl fmt::Display, error: jetstream::Error) -> Self {
        use jetstream::ErrorCode as C;
        let kind = match (error.error_code(), classify::verdict(&error)) {
            (C::STREAM_NOT_FOUND | C::CONSUMER_NOT_FOUND, _) => ErrorKind::Missing,
            (_, PublishErrorKind::Unavailable) => ErrorKind::Unavailable,
            _ => ErrorKind::Refused,
        };
        let code = classify::code(&error);
        let why = match error.error_code() {
            C::STREAM_NOT_FOUND => "the stream does not exist",
            C::CONSUMER_NOT_FOUND => "the consumer does not exist",
            _ => "JetStream refused",
        };
        Self::new(kind, code.clone(), format!("{what}: {why} ({code})")).with_source(error)
    }

    pub(crate) fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// A short stable code, fit to be stored and counted: `nats.timeout`, or `nats.10059` for a JetStream
    /// error of that number.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Whether the same may work later without anybody's doing.
    ///
    /// A stream that is missing counts: whoever creates it may come up later, or create it again after the
    /// server lost it.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Missing)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
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
        Self::new(kind, error.what.clone()).with_source(error)
    }
}
