use std::{fmt, time::Duration};
use twinbox_core::PublishError;
use twinbox_sql::ErrorKind;

/// The reason why a relay stopped or started over.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The destination failed.
    Destination(PublishError),
    /// The store failed.
    Store(twinbox_sql::Error),
    /// Another relay owns the destination.
    OwnedByAnother,
    /// The lease is too short for the destination's publish time-out. Nothing could ever be sent.
    LeaseTooShort {
        /// The lease.
        lease: Duration,
        /// How long a sent message may stay without a response.
        timeout: Duration,
    },
}

impl Error {
    /// Returns whether starting over may help without any change by a person.
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
                "a lease of {lease:?} is too short for a destination that may take {timeout:?} to respond: \
                 make the lease {:?} or longer",
                *timeout * 2
            ),
        }
    }
}

/// `Destination` and `Store` are transparent: their text is the text of the error inside, and so is their
/// source.
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
