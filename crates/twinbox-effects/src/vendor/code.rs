//! The taxonomy of errors.
use std::{fmt, str::FromStr};

/// The code of an error of a vendor's call, the same for every vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The vendor does not accept the request.
    Validation,
    /// The vendor does not accept the credentials.
    Auth,
    /// The key was used for another request.
    PayloadMismatch,
    /// An earlier try with this key is under way.
    InProgress,
    /// Too many calls.
    RateLimited,
    /// No answer in time.
    Timeout,
    /// The vendor is not there, or says that it cannot work.
    Unavailable,
    /// The circuit breaker is open, and nothing was sent.
    CircuitOpen,
    /// The connection failed.
    Transient,
    /// An earlier try had done it.
    Duplicate,
    /// Nobody knows whether the vendor acted, and another try would not tell.
    Indeterminate,
    /// The vendor may have forgotten the key, so another try could act twice.
    KeyExpired,
}

impl ErrorCode {
    const ALL: [Self; 12] = [
        Self::Validation,
        Self::Auth,
        Self::PayloadMismatch,
        Self::InProgress,
        Self::RateLimited,
        Self::Timeout,
        Self::Unavailable,
        Self::CircuitOpen,
        Self::Transient,
        Self::Duplicate,
        Self::Indeterminate,
        Self::KeyExpired,
    ];

    /// Returns the code as logs, rows and problem documents show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validation => "VALIDATION.rejected",
            Self::Auth => "AUTH.refused",
            Self::PayloadMismatch => "CONFLICT.idempotency.payload_mismatch",
            Self::InProgress => "CONFLICT.idempotency.in_progress",
            Self::RateLimited => "RATE_LIMIT.exceeded",
            Self::Timeout => "DEPENDENCY.timeout",
            Self::Unavailable => "DEPENDENCY.unavailable",
            Self::CircuitOpen => "DEPENDENCY.circuit_open",
            Self::Transient => "TRANSIENT.connection",
            Self::Duplicate => "PROVIDER.duplicate",
            Self::Indeterminate => "PROVIDER.indeterminate",
            Self::KeyExpired => "PROVIDER.key_expired",
        }
    }

    /// Returns whether the same request may be tried again by a program.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::InProgress
            | Self::RateLimited
            | Self::Timeout
            | Self::Unavailable
            | Self::CircuitOpen
            | Self::Transient => true,
            Self::Validation
            | Self::Auth
            | Self::PayloadMismatch
            | Self::Duplicate
            | Self::Indeterminate
            | Self::KeyExpired => false,
        }
    }

    /// Returns what a caller should do.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Validation => "fix the request",
            Self::Auth => "renew the credentials, or ask for the permission",
            Self::PayloadMismatch => "make a new key for a new operation",
            Self::RateLimited => "wait, and try again",
            Self::InProgress | Self::Timeout | Self::Unavailable | Self::CircuitOpen | Self::Transient => {
                "try again later"
            }
            Self::Duplicate => "show the result that is there",
            Self::Indeterminate | Self::KeyExpired => "look at the vendor what was done",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reads the text of [`as_str`](ErrorCode::as_str).
impl FromStr for ErrorCode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|code| code.as_str() == text)
            .ok_or_else(|| format!("no error code {text:?}"))
    }
}
