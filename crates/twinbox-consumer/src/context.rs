//! The parts of a consumer that an attempt uses.
use crate::{
    dead_letter_guard::DeadLetterGuard, lost_sessions::LostSessions, outcome::DeliveryOutcome, starts::Starts,
};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use twinbox_sql::{ClaimFence, ClaimTerms, Dialect, Inbox, Store};

/// The parts of a consumer that an attempt uses.
pub(crate) struct Context<'a, DB: Dialect, S> {
    pub(crate) store: &'a Store<DB>,
    /// The inbox of the consumer.
    pub(crate) inbox: &'a Inbox<DB>,
    pub(crate) state: &'a S,
    /// Ends the wait for a turn.
    pub(crate) stop: &'a CancellationToken,
    pub(crate) starts: &'a Starts,
    pub(crate) lost_sessions: &'a LostSessions,
    pub(crate) dead_letters: &'a DeadLetterGuard,
    /// The condition of each claim.
    pub(crate) fence: Option<ClaimFence>,
    /// When the delivery began to wait for its turn.
    pub(crate) waiting_since: Option<Instant>,
}

impl<DB: Dialect, S> Context<'_, DB, S> {
    /// How long a handler with this time-out may take: its transaction holds the fence of its partition, and
    /// a new owner waits for it.
    pub(crate) fn handler_timeout(&self, timeout: Duration) -> Duration {
        match self.fence {
            Some(ClaimFence::Partition(fence)) => timeout.min(fence.lease),
            Some(ClaimFence::ServerRun(_)) | None => timeout,
        }
    }

    /// The terms of a claim for a handler with this time-out.
    pub(crate) fn terms(&self, timeout: Duration) -> ClaimTerms {
        let handler_timeout = Some(self.handler_timeout(timeout));
        ClaimTerms { fence: self.fence, waiting_since: self.waiting_since, handler_timeout }
    }

    /// Waits for `turn`.
    ///
    /// # Errors
    /// The outcome of the delivery, if the process begins to shut down before.
    pub(crate) async fn unless_stopped<T>(
        &self,
        turn: impl Future<Output = T>,
    ) -> Result<T, DeliveryOutcome> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(DeliveryOutcome::shutdown()),
            turn = turn => Ok(turn),
        }
    }
}

/// Stands in for a running consumer, for single attempts by tests and tools.
#[derive(Default)]
pub(crate) struct NoConsumer {
    stop: CancellationToken,
    starts: Starts,
    lost_sessions: LostSessions,
    dead_letters: DeadLetterGuard,
}

impl NoConsumer {
    pub(crate) fn context<'a, DB: Dialect, S>(
        &'a self,
        store: &'a Store<DB>,
        inbox: &'a Inbox<DB>,
        state: &'a S,
    ) -> Context<'a, DB, S> {
        Context {
            store,
            inbox,
            state,
            stop: &self.stop,
            starts: &self.starts,
            lost_sessions: &self.lost_sessions,
            dead_letters: &self.dead_letters,
            fence: None,
            waiting_since: None,
        }
    }
}
