//! The error of a vendor's call.
use super::ErrorCode;
use std::{error::Error as StdError, fmt, time::Duration};
use twinbox_core::BoxError;

/// Whether the vendor acted, as far as an error tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// The request did not reach the vendor.
    NotSent,
    /// The vendor did nothing.
    NotApplied,
    /// The vendor may have acted.
    MaybeApplied,
}

/// The error of a vendor's call.
///
/// Its text is stored beside the effect. It must not hold credentials or personal data.
#[derive(Debug)]
pub struct VendorError {
    code: ErrorCode,
    certainty: Certainty,
    is_retryable: bool,
    retry_after: Option<Duration>,
    http_code: Option<u16>,
    what: String,
    source: Option<BoxError>,
}

impl VendorError {
    /// Creates an error of a request that did not reach the vendor. Another try may be made, if the code says
    /// so.
    pub fn not_sent(code: ErrorCode, what: impl Into<String>) -> Self {
        Self::new(code, Certainty::NotSent, what.into())
    }

    /// Creates an error of a vendor that did nothing. Another try may be made, if the code says so.
    pub fn not_applied(code: ErrorCode, what: impl Into<String>) -> Self {
        Self::new(code, Certainty::NotApplied, what.into())
    }

    /// Creates an error of a vendor that may have acted. Another try may be made, if the code says so and the
    /// profile of the vendor makes it safe.
    pub fn maybe_applied(code: ErrorCode, what: impl Into<String>) -> Self {
        Self::new(code, Certainty::MaybeApplied, what.into())
    }

    fn new(code: ErrorCode, certainty: Certainty, what: String) -> Self {
        let is_retryable = code.is_retryable();
        Self { code, certainty, is_retryable, retry_after: None, http_code: None, what, source: None }
    }

    /// Sets the earliest time of another try, from now.
    #[must_use]
    pub fn retry_after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..self }
    }

    /// Says whether another try can help, whatever the code says.
    #[must_use]
    pub fn retryable(self, is_retryable: bool) -> Self {
        Self { is_retryable, ..self }
    }

    /// Sets the status of the response.
    #[must_use]
    pub fn status(self, http_code: u16) -> Self {
        Self { http_code: Some(http_code), ..self }
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// The same error after an earlier try that may have acted.
    pub(crate) fn in_doubt(self) -> Self {
        Self { certainty: Certainty::MaybeApplied, ..self }
    }

    /// Returns the code.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// Returns what the error tells about the act.
    pub fn certainty(&self) -> Certainty {
        self.certainty
    }

    /// Returns whether another try can help.
    pub fn is_retryable(&self) -> bool {
        self.is_retryable
    }

    /// Returns the earliest time of another try, from when the error came.
    pub fn earliest_retry(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the status of the response.
    pub fn http_code(&self) -> Option<u16> {
        self.http_code
    }

    /// Whether the vendor is in trouble, so that its circuit breaker counts the error: no answer, no
    /// connection, or a failure of its own. A refusal is an answer, and too many calls are told by a rate
    /// gate.
    pub(crate) fn is_trouble(&self) -> bool {
        matches!(self.code, ErrorCode::Timeout | ErrorCode::Unavailable | ErrorCode::Transient)
    }
}

impl fmt::Display for VendorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)
    }
}

impl StdError for VendorError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
