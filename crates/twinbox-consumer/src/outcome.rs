//! The result of a delivery, and the result of an attempt that may be repeated at once.
use std::time::Duration;
use twinbox_sql::{Error, ErrorKind};

/// The result of one delivery. It decides whether the delivery is acknowledged or comes again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliveryOutcome {
    /// The handler ran and its transaction committed. The delivery is acknowledged.
    Handled,
    /// The inbox has a claim of an earlier delivery, so no handler ran. The delivery is acknowledged.
    Duplicate,
    /// The attempt failed and was rolled back. The message is delivered again.
    Retried {
        /// The minimum delay before the next delivery.
        delay: Duration,
        /// Whether the attempt counts towards the attempts that the policy allows.
        counted: bool,
        /// The error with its causes.
        error: String,
    },
    /// The payload was [redacted](twinbox_core::Message::is_redacted). No handler ran, and the delivery is
    /// acknowledged.
    Redacted,
    /// The message is a replay for another consumer. No handler ran, and the delivery is acknowledged.
    OtherConsumer,
    /// The message became a dead letter. The delivery is acknowledged.
    DeadLettered {
        /// The last error with its causes.
        error: String,
    },
    /// The database is not available. Nothing is counted, and the message is delivered again.
    Unavailable,
    /// This process does not own the partition any more, or must take it again because the database server
    /// was restarted. Nothing was written, and the message is delivered again to the owner.
    NotOwned,
}

/// Labels of outcomes in metrics and spans, in the order of [`DeliveryOutcome::label_index`].
pub(crate) const LABELS: [&str; 9] = [
    "handled",
    "duplicate",
    "failed",
    "retried_uncounted",
    "redacted",
    "dead_lettered",
    "unavailable",
    "other_consumer",
    "not_owned",
];

/// The delay of the next delivery after contention.
const CONTENTION_DELAY: Duration = Duration::from_secs(1);

/// The delay of the next delivery after the store failed for another reason.
const REFUSED_DELAY: Duration = Duration::from_secs(10);

impl DeliveryOutcome {
    /// The outcome of a delivery that was still waiting for its turn when the process began to shut down.
    pub(crate) fn shutdown() -> Self {
        let error = "the process is shutting down".to_owned();
        Self::Retried { delay: Duration::ZERO, counted: false, error }
    }

    /// Turns a failure of the store outside of the handler into an outcome. It never counts as an attempt,
    /// because it says nothing about the message.
    ///
    /// # Errors
    /// The store met contention, or a commit is in doubt: the attempt may be repeated at once.
    pub(crate) fn from_store_error(error: &Error) -> Result<Self, RepeatAtOnce> {
        let cause = error as &dyn std::error::Error;
        if error.is_contention() || error.kind() == ErrorKind::CommitUnknown {
            return Err(RepeatAtOnce(error.to_string()));
        }
        if error.kind() == ErrorKind::LeaseLost {
            return Ok(Self::NotOwned);
        }
        if error.is_transient() {
            tracing::warn!(error = cause, "the database is not available");
            return Ok(Self::Unavailable);
        }
        tracing::error!(error = cause, "the store failed, the message is delivered again");
        Ok(Self::Retried { delay: REFUSED_DELAY, counted: false, error: error.to_string() })
    }

    /// Turns a failure of the store into an outcome. After contention the message is delivered again.
    pub(crate) fn from_store_error_or_redeliver(error: &Error) -> Self {
        Self::from_store_error(error).unwrap_or_else(Self::from)
    }

    /// Returns the label of the outcome in metrics and spans.
    pub(crate) fn label(&self) -> &'static str {
        LABELS[self.label_index()]
    }

    /// Returns the index of the label in [`LABELS`].
    pub(crate) fn label_index(&self) -> usize {
        match self {
            Self::Handled => 0,
            Self::Duplicate => 1,
            Self::Retried { counted: true, .. } => 2,
            Self::Retried { counted: false, .. } => 3,
            Self::Redacted => 4,
            Self::DeadLettered { .. } => 5,
            Self::Unavailable => 6,
            Self::OtherConsumer => 7,
            Self::NotOwned => 8,
        }
    }
}

/// The attempt may be repeated at once and does not count: another transaction conflicted with it, or the
/// response to COMMIT was lost.
pub(crate) struct RepeatAtOnce(pub(crate) String);

/// The outcome of an attempt that may be repeated at once, but is not.
impl From<RepeatAtOnce> for DeliveryOutcome {
    fn from(RepeatAtOnce(error): RepeatAtOnce) -> Self {
        Self::Retried { delay: CONTENTION_DELAY, counted: false, error }
    }
}
