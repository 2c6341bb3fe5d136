//! The error of a client's call.
use super::call::Try;
use crate::vendor::{Certainty, ErrorCode, VendorError};
use std::{error::Error, fmt, time::Duration};

/// The error of a client's call, after its last try.
#[derive(Debug)]
pub struct ClientError {
    error: VendorError,
    attempts: u32,
    tries: Vec<Try>,
    is_safe: bool,
}

impl ClientError {
    pub(super) fn new(error: VendorError, attempts: u32, tries: Vec<Try>, is_safe: bool) -> Self {
        Self { error, attempts, tries, is_safe }
    }

    /// Returns the code.
    pub fn code(&self) -> ErrorCode {
        self.error.code()
    }

    /// Returns what a caller should do.
    pub fn hint(&self) -> &'static str {
        self.error.code().hint()
    }

    /// Returns what is known about the act, from all tries.
    pub fn certainty(&self) -> Certainty {
        self.error.certainty()
    }

    /// Returns whether the same call, with the same key, may be made again later: it can help, and the vendor
    /// does not act twice.
    pub fn is_retryable(&self) -> bool {
        self.error.is_retryable() && self.is_safe
    }

    /// Returns the earliest time of the next call, from now, if one is known. It was too long for the budget:
    /// keep it, and call again then. It is never shortened.
    pub fn retry_after(&self) -> Option<Duration> {
        self.error.earliest_retry()
    }

    /// Returns the number of tries. 0: nothing was sent.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the first tries, at most 32.
    pub fn tries(&self) -> &[Try] {
        &self.tries
    }

    /// Returns the error of the last try.
    pub fn last(&self) -> &VendorError {
        &self.error
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, attempts, .. } = self;
        write!(f, "{} after {attempts} tries: {error}", error.code())
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
