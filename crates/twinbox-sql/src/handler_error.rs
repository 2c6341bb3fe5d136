use crate::error::{is_contention, is_outage, sqlstate};
use std::{any::Any, error::Error as StdError, fmt, time::Duration};
use twinbox_core::BoxError;

/// What a handler returns.
pub type HandlerResult<T = ()> = Result<T, HandlerError>;

/// Why a handler did not finish, and what to do about it. Every error converts with `?` and means
/// "try again"; the exceptions are spelled out with [`reject`](Self::reject) and
/// [`retry_after`](Self::retry_after).
///
/// It is deliberately not a [`std::error::Error`]: that is what lets `?` take every error there is.
pub struct HandlerError {
    disposition: Disposition,
    sqlstate: Option<String>,
    outage: bool,
    source: BoxError,
}

/// What is to become of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disposition {
    /// Try again after the policy's delay.
    Retry,
    /// Try again after this delay.
    RetryAfter(Duration),
    /// Dead-letter it now.
    Reject,
}

impl HandlerError {
    /// This message will never succeed: dead-letter it now.
    pub fn reject(reason: impl Into<BoxError> + 'static) -> Self {
        Self { disposition: Disposition::Reject, ..Self::from(reason) }
    }

    /// Try again, not before `delay`.
    pub fn retry_after(delay: Duration, reason: impl Into<BoxError> + 'static) -> Self {
        Self { disposition: Disposition::RetryAfter(delay), ..Self::from(reason) }
    }

    /// The database's error code, however deep it lies: SQLSTATE, or SQLite's extended result code.
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }

    /// Deadlock, serialization failure, lock time-out, busy: nobody's fault, so not counted.
    pub fn is_contention(&self) -> bool {
        self.disposition == Disposition::Retry && self.sqlstate().is_some_and(is_contention)
    }

    /// The same, knowing that the database of the transaction is there: what is away is another one.
    #[doc(hidden)]
    pub fn of_something_else(self) -> Self {
        Self { outage: false, ..self }
    }

    /// The database went away: says nothing about the message, so not counted.
    pub fn is_outage(&self) -> bool {
        self.disposition == Disposition::Retry && self.outage
    }

    /// A key that exists already, in either database's words.
    pub fn is_unique_violation(&self) -> bool {
        matches!(self.sqlstate(), Some("23505" | "1555" | "2067"))
    }

    /// What is to become of the message.
    pub fn disposition(&self) -> Disposition {
        self.disposition
    }
}

impl<E: Into<BoxError> + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let hidden = inside_anyhow(&error);
        let source = error.into();
        let (sqlstate, outage) = hidden.unwrap_or_else(|| inspect(chain(source.as_ref())));
        Self { disposition: Disposition::Retry, sqlstate, outage, source }
    }
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&e| e.source())
}

fn inspect<'a>(mut chain: impl Iterator<Item = &'a (dyn StdError + 'static)>) -> (Option<String>, bool) {
    let found = chain.find_map(|e| e.downcast_ref::<sqlx::Error>());
    (found.and_then(sqlstate), found.is_some_and(is_outage))
}

/// An `anyhow::Error` turned into a `Box<dyn Error>` can no longer be downcast to the error it was made
/// of, so it is asked before.
fn inside_anyhow(error: &dyn Any) -> Option<(Option<String>, bool)> {
    #[cfg(feature = "anyhow")]
    if let Some(error) = error.downcast_ref::<anyhow::Error>() {
        return Some(inspect(error.chain()));
    }
    let _ = error;
    None
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.disposition, self.source)
    }
}

/// The error and what caused it, on one line.
impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in chain(self.source.as_ref()).enumerate() {
            let separator = if n == 0 { "" } else { ": " };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}
