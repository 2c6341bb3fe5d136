//! The responses that a test chooses.
use crate::http;

/// How a fake of an AWS service responds to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The fake responds as the real service does.
    Ok,
    /// Each entry with a code fails with that code. The others are taken.
    Entries(Vec<Option<&'static str>>),
    /// The fake returns a throttling error, with `Retry-After` in seconds if it is given. No entry is taken.
    Throttle(Option<u64>),
    /// The fake responds with this status and an empty body. No entry is taken.
    Status(u16),
    /// The fake responds with this status and this error code. No entry is taken.
    Error(u16, &'static str),
    /// The fake refuses the signature, with a `Date` of another year. No entry is taken.
    OtherClock,
    /// The fake does not respond until the client gives up. No entry is taken.
    Hang,
    /// The connection closes without a response. All entries are taken.
    Cut,
    /// The connection closes after half of the response. All entries are taken.
    Truncated,
    /// The response comes byte by byte and takes minutes. All entries are taken.
    Drip,
    /// The fake returns one result less than there were entries. All entries are taken.
    WrongCount,
    /// The fake reports success with a body that is not JSON. All entries are taken.
    Malformed,
}

impl Answer {
    /// Returns whether the call takes effect.
    pub(super) fn takes(&self) -> bool {
        match self {
            Self::Throttle(_) | Self::Status(_) | Self::Error(..) | Self::OtherClock | Self::Hang => false,
            Self::Ok | Self::Entries(_) | Self::WrongCount | Self::Malformed => true,
            Self::Cut | Self::Truncated | Self::Drip => true,
        }
    }

    /// Returns the error code of this entry, if it fails.
    pub(super) fn code(&self, at: usize) -> Option<&'static str> {
        match self {
            Self::Entries(codes) => codes.get(at).copied().flatten(),
            _ => None,
        }
    }

    /// Returns the response to send, where the service would send `usual`.
    pub(super) fn reply(&self, usual: http::Reply) -> http::Reply {
        match self {
            Self::Ok | Self::Entries(_) | Self::WrongCount => usual,
            Self::Throttle(None) => http::Reply::error(400, "ThrottlingException"),
            Self::Throttle(Some(seconds)) => {
                http::Reply::error(400, "ThrottlingException").header("Retry-After", seconds)
            }
            Self::Status(status) => http::Reply::empty(*status),
            Self::Error(status, code) => http::Reply::error(*status, code),
            Self::OtherClock => http::Reply::error(403, "InvalidSignatureException")
                .header("Date", &"Thu, 01 Jan 2015 00:00:00 GMT"),
            Self::Hang => usual.sent(http::Manner::Never),
            Self::Cut => usual.sent(http::Manner::Cut),
            Self::Truncated => usual.sent(http::Manner::Half),
            Self::Drip => usual.sent(http::Manner::Drip),
            Self::Malformed => usual.body("<html>this is no JSON</html>"),
        }
    }
}
