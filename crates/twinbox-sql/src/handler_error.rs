//! The error of a handler.
use crate::{
    error::{is_contention, is_outage},
    sqlstate::sqlstate,
};
use std::{any::Any, error::Error as StdError, fmt, time::Duration};
use twinbox_core::BoxError;

/// The result of a handler.
pub type HandlerResult<T = ()> = Result<T, HandlerError>;

/// The error of a handler, and what to do with the message. Every error converts with `?` and means "try
/// again". [`reject`](Self::reject) and [`retry_after`](Self::retry_after) mean something else.
///
/// It is deliberately not a [`std::error::Error`]: only so `?` can convert every error.
pub struct HandlerError {
    disposition: Disposition,
    sqlstate: Option<String>,
    outage: bool,
    /// The contention is of another connection or database.
    is_elsewhere: bool,
    source: BoxError,
}

/// What the runtime does with the message of a failed handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disposition {
    /// Try again after the policy's delay.
    Retry,
    /// Try again after this delay.
    RetryAfter(Duration),
    /// Make the message a dead letter now.
    Reject,
}

impl HandlerError {
    /// Rejects the message: it will never succeed, so it is dead-lettered now.
    pub fn reject(reason: impl Into<BoxError> + 'static) -> Self {
        Self { disposition: Disposition::Reject, ..Self::from(reason) }
    }

    /// Retries the message, not before `delay`.
    pub fn retry_after(delay: Duration, reason: impl Into<BoxError> + 'static) -> Self {
        Self { disposition: Disposition::RetryAfter(delay), ..Self::from(reason) }
    }

    /// Returns the error code of the database, from anywhere in the chain of sources: SQLSTATE, or SQLite's
    /// extended result code.
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }

    /// Returns whether the cause is contention: a deadlock, a serialization failure, a lock time-out, or a
    /// busy database. It is retried and not counted, unless another connection than the handler's met it
    /// again and again.
    pub fn is_contention(&self) -> bool {
        self.disposition == Disposition::Retry && self.sqlstate().is_some_and(is_contention)
    }

    /// Returns this error as text, with what was found in its sources. Nothing of the application runs when
    /// it is shown or dropped.
    #[doc(hidden)]
    pub fn into_text(self) -> Self {
        let text = self.to_string();
        Self { source: text.into(), ..self }
    }

    /// Returns this error without its mark as an outage: the database of the transaction
    /// answers, so another one is away.
    #[doc(hidden)]
    pub fn without_outage(self) -> Self {
        Self { outage: false, ..self }
    }

    /// Marks contention of another connection or database, which may never pass: the transaction of the
    /// handler is whole.
    #[doc(hidden)]
    pub fn elsewhere(self) -> Self {
        Self { is_elsewhere: true, ..self }
    }

    /// Whether it was marked so.
    #[doc(hidden)]
    pub fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    /// Returns whether the database is unavailable. The message is retried and not counted.
    pub fn is_outage(&self) -> bool {
        self.disposition == Disposition::Retry && self.outage
    }

    /// Returns whether an insert failed because a unique key exists already.
    pub fn is_unique_violation(&self) -> bool {
        matches!(self.sqlstate(), Some("23505" | "1555" | "2067"))
    }

    /// Returns what the runtime does with the message.
    pub fn disposition(&self) -> Disposition {
        self.disposition
    }
}

impl<E: Into<BoxError> + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let hidden = inside_anyhow(&error);
        let source = error.into();
        let (sqlstate, outage) = hidden.unwrap_or_else(|| inspect(chain(source.as_ref())));
        Self { disposition: Disposition::Retry, sqlstate, outage, is_elsewhere: false, source }
    }
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&e| e.source())
}

fn inspect<'a>(mut chain: impl Iterator<Item = &'a (dyn StdError + 'static)>) -> (Option<String>, bool) {
    let found = chain.find_map(|e| e.downcast_ref::<sqlx::Error>());
    let code = found.and_then(sqlstate);
    // The server ended the session because the handler left it idle: that is no outage.
    let was_idle = code.as_deref() == Some("25P03");
    (code, !was_idle && found.is_some_and(is_outage))
}

/// Looks into an `anyhow::Error` before it becomes a `Box<dyn Error>`, which can no longer be downcast.
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

/// The error and its sources, on one line.
impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in chain(self.source.as_ref()).enumerate() {
            let separator = if n == 0 { "" } else { ": " };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}
