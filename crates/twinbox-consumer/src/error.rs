use std::{error::Error as StdError, fmt};
use twinbox_core::BoxError;

/// Why a consumer stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Handlers, names or options contradict each other.
    Configuration,
    /// The transport is not set up as asked.
    Source,
    /// The store is not fit to be used.
    Store,
}

/// Why a consumer stopped by itself. Outages do not stop it; what needs a person does.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    what: String,
    source: Option<BoxError>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    /// What has to change.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

impl From<twinbox_core::SourceError> for Error {
    fn from(e: twinbox_core::SourceError) -> Self {
        Self { kind: ErrorKind::Source, what: e.to_string(), source: Some(e.into()) }
    }
}

impl From<twinbox_sql::Error> for Error {
    fn from(e: twinbox_sql::Error) -> Self {
        Self { kind: ErrorKind::Store, what: e.to_string(), source: Some(e.into()) }
    }
}
