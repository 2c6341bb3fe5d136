//! The error of a setting.
use std::fmt;

/// A setting of access that is not safe, or that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessError(pub(super) String);

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AccessError {}
