//! The error of a relay.
use std::{fmt, time::Duration};
use twinbox_core::PublishError;
use twinbox_sql::ErrorKind;

/// The reason why a relay stopped or was restarted.
///
/// `Destination` and `Store` show the text of the error that they hold, and its source as theirs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The destination failed or cannot be reached.
    Destination(PublishError),
    /// The store of the outbox failed.
    Store(twinbox_sql::Error),
    /// Another relay owns the destination.
    OwnedByAnother,
    /// The destination's publish time-out is three quarters of the lease or more. The relay sends nothing
    /// that could arrive after the end of its lease, so it could never send.
    LeaseTooShort {
        /// The lease, as it was configured.
        lease: Duration,
        /// The publish time-out of the destination.
        timeout: Duration,
    },
}

impl Error {
    /// Returns whether a restart may help without a change by an operator.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Destination(e) => e.is_transient(),
            Self::Store(e) => e.is_transient(),
            Self::OwnedByAnother => true,
            Self::LeaseTooShort { .. } => false,
        }
    }

    pub(crate) fn is_destination_failure(&self) -> bool {
        matches!(self, Self::Destination(_))
    }

    pub(crate) fn is_lease_lost(&self) -> bool {
        matches!(self, Self::Store(e) if e.kind() == ErrorKind::LeaseLost)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destination(e) => e.fmt(f),
            Self::Store(e) => e.fmt(f),
            Self::OwnedByAnother => f.write_str("another relay owns the destination"),
            Self::LeaseTooShort { lease, timeout } => write!(
                f,
                "a lease of {lease:?} is too short for a destination with a publish time-out of {timeout:?}: \
                 make the lease {:?} or longer",
                *timeout * 2
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Destination(e) => e.source(),
            Self::Store(e) => e.source(),
            Self::OwnedByAnother | Self::LeaseTooShort { .. } => None,
        }
    }
}

impl From<PublishError> for Error {
    fn from(e: PublishError) -> Self {
        Self::Destination(e)
    }
}

impl From<twinbox_sql::Error> for Error {
    fn from(e: twinbox_sql::Error) -> Self {
        Self::Store(e)
    }
}
