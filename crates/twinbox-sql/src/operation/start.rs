//! The result of asking for an operation.
use super::response::OperationResponse;

/// The result of beginning an operation under a key.
#[derive(Debug)]
pub enum OperationStart<T> {
    /// The key is free: run the operation.
    Open(T),
    /// The operation ran before, with this response.
    Completed(OperationResponse),
    /// The key was used for another request, or is about to be.
    Mismatch,
    /// A copy of the request is running, for longer than was waited.
    InFlight,
    /// The operation is refused, because the caller has as many idempotency keys as it may have.
    TooMany,
}

impl<T> OperationStart<T> {
    /// Converts the value in `Open`, as `Result::map` does.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> OperationStart<U> {
        match self {
            Self::Open(open) => OperationStart::Open(map(open)),
            Self::Completed(response) => OperationStart::Completed(response),
            Self::Mismatch => OperationStart::Mismatch,
            Self::InFlight => OperationStart::InFlight,
            Self::TooMany => OperationStart::TooMany,
        }
    }
}
