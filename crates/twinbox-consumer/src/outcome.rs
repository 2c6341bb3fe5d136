//! The result of a delivery, and the error after which an attempt is repeated at once.
use std::time::Duration;
use twinbox_sql::{Error, ErrorKind};

/// The result of one delivery. It decides between ack and nak.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliveryOutcome {
    /// The handler ran and its transaction committed. The delivery is acknowledged.
    Handled,
    /// The inbox has a claim of an earlier delivery, so no handler ran. The delivery is acknowledged.
    Duplicate,
    /// The attempt failed and was rolled back. The message is delivered again.
    Retried {
        /// The shortest time until the next delivery.
        delay: Duration,
        /// Whether the attempt counts towards the policy's attempts.
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
    /// Another process owns the partition by now, or the database server restarted. Nothing was written, and
    /// the message is delivered again, to the owner.
    NotOwned,
}

/// Labels of outcomes in metrics and spans.
pub(crate) const LABELS: [&str; 9] = [
    "handled",
    "duplicate",
    "failed",
    "retried_uncounted",
    "redacted",
    "dead_lettered",
    "unavailable",
    "passed_by",
    "not_owned",
];

/// The delay after contention where an attempt is not repeated at once.
const CONTENTION_DELAY: Duration = Duration::from_secs(1);

/// The delay after the store refused to record an outcome.
const REFUSED_DELAY: Duration = Duration::from_secs(10);

impl DeliveryOutcome {
    /// The outcome of a delivery that still waited for its turn when the process began to shut down.
    pub(crate) fn shutdown() -> Self {
        let error = "the process is shutting down".to_owned();
        Self::Retried { delay: Duration::ZERO, counted: false, error }
    }

    /// Turns a failure of the store outside of the handler into an outcome. It never counts as an attempt,
    /// because it says nothing about the message.
    ///
    /// # Errors
    /// The store met contention, or a commit is in doubt: the attempt may be repeated at once.
    pub(crate) fn on_store_error(error: &Error) -> Result<Self, Contention> {
        let cause = error as &dyn std::error::Error;
        if error.is_contention() || error.kind() == ErrorKind::CommitUnknown {
            return Err(Contention(error.to_string()));
        }
        if error.kind() == ErrorKind::LeaseLost {
            return Ok(Self::NotOwned);
        }
        if error.is_transient() {
            tracing::warn!(error = cause, "the database is not available");
            return Ok(Self::Unavailable);
        }
        tracing::error!(error = cause, "the store refused to record the outcome, the message comes again");
        Ok(Self::Retried { delay: REFUSED_DELAY, counted: false, error: error.to_string() })
    }

    /// Turns a failure of the store into an outcome, where nothing is repeated at once: after contention the
    /// message comes again.
    pub(crate) fn of_store_error(error: &Error) -> Self {
        Self::on_store_error(error).unwrap_or_else(Self::from)
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

/// Another transaction was in the way, or the response to COMMIT was lost. The attempt may be repeated at
/// once, and does not count.
pub(crate) struct Contention(pub(crate) String);

/// The outcome where an attempt is not repeated at once.
impl From<Contention> for DeliveryOutcome {
    fn from(Contention(error): Contention) -> Self {
        Self::Retried { delay: CONTENTION_DELAY, counted: false, error }
    }
}
