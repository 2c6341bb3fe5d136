//! Invalid drafts, and checks of single fields.
use crate::{boxed::BoxError, limits};
use std::{error::Error, fmt};

/// The reason why a draft cannot be published. Nothing was written.
#[derive(Debug)]
#[non_exhaustive]
pub enum InvalidDraft {
    /// A field is longer than its bound in [`limits`].
    TooLong {
        /// The name of the field.
        field: &'static str,
        /// The length of the field in bytes.
        bytes: usize,
        /// The bound in bytes.
        max: usize,
    },
    /// There are more headers than [`limits::HEADERS_MAX`].
    TooManyHeaders {
        /// The number of headers.
        count: usize,
    },
    /// A field contains characters that a broker or a database cannot carry.
    Malformed {
        /// The name of the field.
        field: &'static str,
        /// What is wrong with the field.
        problem: &'static str,
    },
    /// The event could not be written as JSON.
    Encode(BoxError),
}

impl fmt::Display for InvalidDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { field, bytes, max } => {
                write!(f, "`{field}` has {bytes} bytes, more than the limit of {max}")
            }
            Self::TooManyHeaders { count } => {
                write!(f, "the message has {count} headers, more than the limit of {}", limits::HEADERS_MAX)
            }
            Self::Malformed { field, problem } => write!(f, "`{field}` {problem}"),
            Self::Encode(_) => f.write_str("the event cannot be written as JSON"),
        }
    }
}

impl Error for InvalidDraft {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Encode(error) => Some(error.as_ref()),
            Self::TooLong { .. } | Self::TooManyHeaders { .. } | Self::Malformed { .. } => None,
        }
    }
}

pub(super) fn malformed(field: &'static str, problem: &'static str) -> InvalidDraft {
    InvalidDraft::Malformed { field, problem }
}

pub(super) fn check_length(field: &'static str, bytes: usize, max: usize) -> Result<(), InvalidDraft> {
    if bytes > max { Err(InvalidDraft::TooLong { field, bytes, max }) } else { Ok(()) }
}

/// Checks an optional text: its length, and that it has no control character.
pub(super) fn check_text(field: &'static str, text: Option<&str>, max: usize) -> Result<(), InvalidDraft> {
    let Some(text) = text else { return Ok(()) };
    check_length(field, text.len(), max)?;
    check_characters(field, text)
}

pub(super) fn check_characters(field: &'static str, text: &str) -> Result<(), InvalidDraft> {
    if text.chars().any(char::is_control) {
        return Err(malformed(field, "holds a control character"));
    }
    Ok(())
}
