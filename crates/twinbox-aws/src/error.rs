//! The error of invalid options.
use std::fmt;

/// The kind of an [`Error`] of AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option has an invalid value. Nothing was sent.
    InvalidOptions,
}

/// The error of an EventBridge bus or an SQS queue that cannot be set up.
///
/// Later failures are a [`PublishError`](twinbox_core::PublishError) or a
/// [`SourceError`](twinbox_core::SourceError).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

impl Error {
    pub(crate) fn invalid(option: &str, problem: &str) -> Self {
        Self { kind: ErrorKind::InvalidOptions, text: format!("the option `{option}` {problem}") }
    }

    /// Returns the kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns a short stable code to store and to count.
    pub fn code(&self) -> &str {
        match self.kind {
            ErrorKind::InvalidOptions => "aws.options",
        }
    }

    /// Returns whether a retry may succeed without a change by a person.
    pub fn is_transient(&self) -> bool {
        match self.kind {
            ErrorKind::InvalidOptions => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
