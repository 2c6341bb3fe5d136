//! Errors of sources.
use crate::boxed::BoxError;
use std::{error::Error, fmt};

/// The kind of a source error, which decides whether another try can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The source is not available now. Try again.
    Unavailable,
    /// Another process owns the source or the partition. Try again.
    OwnedByAnother,
    /// The source is not configured as its options require. An operator must change one of them.
    Misconfigured,
    /// The source did not confirm an acknowledgement.
    NotConfirmed,
}

/// The error of a source of deliveries.
#[derive(Debug)]
pub struct SourceError {
    kind: SourceErrorKind,
    what: String,
    source: Option<BoxError>,
}

impl SourceError {
    /// Creates a source error of a kind. `what` says what was being done and, for an operator, what to
    /// change.
    pub fn new(kind: SourceErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    /// Adds the error that caused this one.
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Returns the kind of this error.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// Returns whether another subscribe may work without a change by an operator.
    pub fn is_transient(&self) -> bool {
        self.kind != SourceErrorKind::Misconfigured
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
