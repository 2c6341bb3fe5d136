//! What a test says of the next calls.
use super::http;

/// How one call is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// As the service would.
    Ok,
    /// Each entry that has a code here fails with it; the others are taken.
    Entries(Vec<Option<&'static str>>),
    /// Throttled, with the seconds of `Retry-After` if there are any. Nothing is taken.
    Throttle(Option<u64>),
    /// This status with an empty body. Nothing is taken.
    Status(u16),
    /// This status and this error code. Nothing is taken.
    Error(u16, &'static str),
    /// The signature is refused by a service whose clock shows another year. Nothing is taken.
    OtherClock,
    /// No answer, until the client gives up. Nothing is taken.
    Hang,
    /// The connection is closed without an answer. Everything is taken.
    Cut,
    /// Half an answer, and then the connection is closed. Everything is taken.
    Truncated,
    /// An answer that comes byte by byte and takes minutes. Everything is taken.
    Drip,
    /// One result less than there were entries. Everything is taken.
    WrongCount,
    /// Success, with a body that is no JSON. Everything is taken.
    Malformed,
}

impl Answer {
    /// Whether what the call asks for is done.
    pub(super) fn takes(&self) -> bool {
        match self {
            Self::Throttle(_) | Self::Status(_) | Self::Error(..) | Self::OtherClock | Self::Hang => false,
            Self::Ok | Self::Entries(_) | Self::WrongCount | Self::Malformed => true,
            Self::Cut | Self::Truncated | Self::Drip => true,
        }
    }

    /// Why this entry of the call fails.
    pub(super) fn code(&self, at: usize) -> Option<&'static str> {
        match self {
            Self::Entries(codes) => codes.get(at).copied().flatten(),
            _ => None,
        }
    }

    /// The answer to a call that would have been answered with `usual`.
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
