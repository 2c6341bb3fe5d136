//! The error that ends a consumer.
use std::{error::Error as StdError, fmt};
use twinbox_core::BoxError;

/// The part of the setup that has to change before a consumer can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The handlers, names or options contradict each other.
    Configuration,
    /// The transport is not set up as the consumer needs it.
    Source,
    /// The tables or the log of the store cannot be used as they are.
    Store,
}

/// The reason why a consumer stopped by itself.
///
/// It always needs a person: outages of database and transport do not stop a consumer. The message says what
/// the consumer was doing; [`source`](StdError::source) is the error of the store or the transport, so print
/// the chain.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<BoxError>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    pub(crate) fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Returns the part of the setup that has to change.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
