use std::{fmt, time::Duration};
use twinbox_core::PublishError;
use twinbox_sql::ErrorKind;

/// Why a relay stopped, or started over.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The destination failed.
    Destination(PublishError),
    /// The store failed.
    Store(twinbox_sql::Error),
    /// Another relay owns the destination.
    OwnedByAnother,
    /// The lease is too short for what the destination may take for an answer: nothing could ever be sent.
    LeaseTooShort {
        /// The lease.
        lease: Duration,
        /// How long a message that was sent can stay without an answer.
        timeout: Duration,
    },
}

impl Error {
    /// Whether starting over may help without anybody's doing.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Destination(e) => e.is_transient(),
            Self::Store(e) => e.is_transient(),
            Self::OwnedByAnother => true,
            Self::LeaseTooShort { .. } => false,
        }
    }

    pub(crate) fn is_destination(&self) -> bool {
        matches!(self, Self::Destination(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destination(e) => e.fmt(f),
            Self::Store(e) if e.kind() == ErrorKind::LeaseLost => write!(f, "the lease was lost: {e}"),
            Self::Store(e) => write!(f, "the store failed: {e}"),
            Self::OwnedByAnother => f.write_str("another relay owns the destination"),
            Self::LeaseTooShort { lease, timeout } => write!(
                f,
                "a lease of {lease:?} is too short for a destination that may take {timeout:?} to answer: \
                 make it {:?} or longer",
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
