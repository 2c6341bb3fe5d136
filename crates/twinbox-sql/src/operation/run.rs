//! An operation in one call.
use super::{Answer, AnswerBody, Begun, OperationKey, OperationPolicy};
use crate::{Dialect, Error, ErrorKind, HandlerError, HandlerResult, Store, Tx};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;
use twinbox_core::Fingerprinted;

/// What an operation returned, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It ran, and everything is written.
    Committed(T),
    /// It ran before, and this was returned then. Nothing ran now.
    Duplicate(T),
}

impl<T> Outcome<T> {
    /// What it returned.
    pub fn into_inner(self) -> T {
        match self {
            Self::Committed(value) | Self::Duplicate(value) => value,
        }
    }
}

/// Why an operation has no outcome.
#[derive(Debug)]
#[non_exhaustive]
pub enum OperationError {
    /// The key was used for another request. Nothing ran.
    Mismatch,
    /// Another is doing it, for longer than was waited. Nothing ran: ask again with the same key.
    InFlight,
    /// The principal has as many keys as [`OperationPolicy::live_max`] says. Nothing ran.
    TooMany,
    /// It failed. What it wrote is undone, and its key is free.
    Failed(HandlerError),
    /// The database refused or is away, or the request or what was returned is no JSON. Nothing is written; of
    /// [`ErrorKind::CommitUnknown`] it is not known, and asking again tells.
    Store(Error),
}

impl<DB: Dialect> Store<DB> {
    /// Runs `run` once for `key`, in a transaction that commits what it wrote together with the key and what it
    /// returned. Asked again with the same key and the same `request`, it returns that again and runs nothing.
    ///
    /// An error undoes everything and leaves the key free, so that it can be tried again. A process that dies has done
    /// all of it or nothing.
    ///
    /// # Errors
    /// [`OperationError`]
    pub async fn operation<R, T, F>(
        &self,
        key: &OperationKey,
        request: &R,
        policy: &OperationPolicy,
        run: F,
    ) -> Result<Outcome<T>, OperationError>
    where
        R: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(&mut Tx<'_, DB>) -> HandlerResult<T>,
    {
        let body = serde_json::to_vec(request).map_err(json)?;
        let request = Fingerprinted { context: &[], body: &body, excluded: &[] };
        let mut operation = match self.begin_operation(key, request, policy).await? {
            Begun::Open(operation) => operation,
            Begun::Known(answer) => return stored(&answer).map(Outcome::Duplicate),
            Begun::Mismatch => return Err(OperationError::Mismatch),
            Begun::InFlight => return Err(OperationError::InFlight),
            Begun::TooMany => return Err(OperationError::TooMany),
        };
        let value = match run(&mut operation.tx()).await {
            Ok(value) => value,
            Err(error) => {
                operation.abandon().await;
                return Err(OperationError::Failed(error));
            }
        };
        let answer = match serde_json::to_vec(&value) {
            Ok(body) => Answer { body: AnswerBody::Inline(body), ..Answer::default() },
            Err(error) => {
                operation.abandon().await;
                return Err(json(error).into());
            }
        };
        match operation.commit(&answer).await {
            Ok(()) => Ok(Outcome::Committed(value)),
            Err(error) if error.kind() == ErrorKind::CommitUnknown => {
                match self.find_operation(key, request).await {
                    Ok(Some(found)) if found == answer => Ok(Outcome::Committed(value)),
                    _ => Err(error.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn stored<T: DeserializeOwned>(answer: &Answer) -> Result<T, OperationError> {
    let AnswerBody::Inline(body) = &answer.body else {
        return Err(
            Error::new(ErrorKind::Configuration, "the key belongs to an operation of another kind").into()
        );
    };
    serde_json::from_slice(body).map_err(|e| json(e).into())
}

fn json(error: serde_json::Error) -> Error {
    Error::new(
        ErrorKind::Configuration,
        "the request or the outcome of an operation is not what JSON can hold",
    )
    .with_source(error)
}

impl From<Error> for OperationError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch => f.write_str("the key was used for another request"),
            Self::InFlight => f.write_str("another is at the operation: ask again with the same key"),
            Self::TooMany => {
                f.write_str("the principal has as many keys as it may have: ask again when some have expired")
            }
            Self::Failed(error) => write!(f, "the operation failed: {error}"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OperationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => error.source(),
            _ => None,
        }
    }
}
