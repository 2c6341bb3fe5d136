//! What can be wrong before anything is sent.
use std::fmt;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option cannot be right. Nothing was sent.
    InvalidOptions,
}

/// An AWS destination that cannot be set up. What fails later is a
/// [`PublishError`](twinbox_core::PublishError).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    what: String,
}

impl Error {
    pub(crate) fn invalid(option: &str, problem: &str) -> Self {
        Self { kind: ErrorKind::InvalidOptions, what: format!("the option `{option}` {problem}") }
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// A short stable code, fit to be stored and counted.
    pub fn code(&self) -> &str {
        match self.kind {
            ErrorKind::InvalidOptions => "aws.options",
        }
    }

    /// Whether the same may work later without anybody's doing.
    pub fn is_transient(&self) -> bool {
        match self.kind {
            ErrorKind::InvalidOptions => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}
