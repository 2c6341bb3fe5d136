//! The path of one delivery through a consumer: from the source to ack, nak or dead letter.
//!
//! 1. A loop receives the delivery: [`source_loop`](crate::source_loop), or [`partition`](crate::partition)
//!    for the order of keys on a broker.
//! 2. [`Runtime::process`] sorts out unreadable messages and replays.
//! 3. [`Runtime::handle`] finds the handler and waits for its permits.
//! 4. [`attempt`] runs the handler in a transaction. Its [`DeliveryOutcome`] is the only result from here on.
//! 5. [`Runtime::settle`] turns the outcome into ack or nak. A partition moves its checkpoint instead.
//!
//! [`batch`](crate::batch) takes the place of steps 2 to 4 for handlers of batches.
use crate::{
    attempt::{attempt, end_redacted},
    context::Context,
    dead_letter::dead_letter,
    keep_alive::keep_alive,
    outcome::DeliveryOutcome,
    runtime::{OUTAGE_DELAY, Runtime},
    trace,
};
use std::sync::atomic::Ordering::Relaxed;
use tokio_util::sync::CancellationToken;
use twinbox_core::{Message, ReceivedMessage, Settle, crash};
use twinbox_sql::{
    ClaimFence, Dialect,
    inbox::{DeadReason, Superseding},
};

impl<DB: Dialect, S: Send + Sync + 'static> Runtime<DB, S> {
    /// Processes a delivery of a source and settles it.
    pub(crate) async fn process_and_settle(&self, fence: Option<ClaimFence>, received: ReceivedMessage) {
        let ReceivedMessage { message, defect, redelivered, settle } = received;
        let outcome = self.process(&self.stop, fence, &message, defect, redelivered);
        let outcome = keep_alive(&[&*settle], outcome).await;
        self.settle(settle, &message, outcome).await;
    }

    /// Processes a delivery, when it is its turn. `stop` ends the wait for the turn, `fence` is the condition
    /// of the claim.
    pub(crate) async fn process(
        &self,
        stop: &CancellationToken,
        fence: Option<ClaimFence>,
        message: &Message,
        defect: Option<String>,
        redelivered: bool,
    ) -> DeliveryOutcome {
        let consumer = self.consumer();
        if let Some(defect) = defect {
            return self.dead_letter_unhandled(message, DeadReason::Undecodable, &defect).await;
        }
        let replay = match message.reprocess_target() {
            Some((addressee, _)) if addressee != consumer => return DeliveryOutcome::OtherConsumer,
            Some((_, replay)) => replay,
            None => return self.handle(stop, fence, message, redelivered).await,
        };
        let superseded = match self.inbox.supersede(message, replay).await {
            Ok(superseded) => superseded,
            Err(error) => return DeliveryOutcome::from_store_error_or_redeliver(&error),
        };
        let message_id = message.message_id();
        tracing::info!(consumer, %message_id, %replay, ?superseded, "a replay reprocesses the message");
        let outcome = self.handle(stop, fence, message, redelivered).await;
        if outcome != DeliveryOutcome::Duplicate || superseded != Superseding::Unclaimed {
            return outcome;
        }
        // An earlier delivery was in flight, and has committed its claim meanwhile.
        match self.inbox.supersede_late(message, replay).await {
            Ok(true) => self.handle(stop, fence, message, redelivered).await,
            Ok(false) => outcome,
            Err(error) => DeliveryOutcome::from_store_error_or_redeliver(&error),
        }
    }

    async fn handle(
        &self,
        stop: &CancellationToken,
        fence: Option<ClaimFence>,
        message: &Message,
        redelivered: bool,
    ) -> DeliveryOutcome {
        match self.group.handler(&message.event_type) {
            Some(handler) => {
                let turn = self.inbox.turn();
                let Some(_permits) = self.handler_permits(stop, handler.event_type).await else {
                    return DeliveryOutcome::shutdown();
                };
                let waiting_since = Some(turn.end());
                let context = Context { waiting_since, ..self.context(stop, fence) };
                let timer = self.stats.begin_delivery();
                let outcome = attempt(&context, handler, message, redelivered).await;
                timer.end(&outcome);
                outcome
            }
            None if message.is_redacted() => end_redacted(&self.inbox, message).await,
            None => {
                let error = format!("{} has no handler for {:?}", self.consumer(), message.event_type);
                self.dead_letter_unhandled(message, DeadReason::NoHandler, &error).await
            }
        }
    }

    async fn dead_letter_unhandled(
        &self,
        message: &Message,
        reason: DeadReason,
        error: &str,
    ) -> DeliveryOutcome {
        let outcome = dead_letter(&self.context(&self.stop, None), message, reason, error, 0).await;
        outcome.unwrap_or_else(DeliveryOutcome::from)
    }

    /// Reports the outcome and settles the delivery at its source: ack, or nak with a delay.
    pub(crate) async fn settle(&self, settle: Box<dyn Settle>, message: &Message, outcome: DeliveryOutcome) {
        self.report(message, &outcome);
        let settled = match outcome {
            DeliveryOutcome::Handled
            | DeliveryOutcome::Duplicate
            | DeliveryOutcome::Redacted
            | DeliveryOutcome::OtherConsumer
            | DeliveryOutcome::DeadLettered { .. } => {
                crash::point("consumer.before_ack");
                settle.ack().await
            }
            DeliveryOutcome::Retried { delay, .. } => settle.nak(delay).await,
            // Only after a restart of the server: deliveries of partitions are not settled here.
            DeliveryOutcome::NotOwned => {
                self.is_server_restarted.store(true, Relaxed);
                settle.nak(OUTAGE_DELAY).await
            }
            DeliveryOutcome::Unavailable => {
                self.is_database_away.store(true, Relaxed);
                settle.nak(OUTAGE_DELAY).await
            }
        };
        if let Err(error) = settled {
            let cause = &error as &dyn std::error::Error;
            let message_id = message.message_id();
            tracing::warn!(%message_id, error = cause, "ack or nak was not confirmed, it may come again");
        }
        crash::point("consumer.after_ack");
    }

    /// Counts, records and logs the outcome of a delivery.
    pub(crate) fn report(&self, message: &Message, outcome: &DeliveryOutcome) {
        self.stats.count(outcome);
        trace::record_outcome(outcome);
        let message_id = message.message_id();
        tracing::debug!(%message_id, ?outcome, "the delivery ended");
        if let DeliveryOutcome::Retried { delay, counted: true, error } = outcome {
            tracing::info!(%message_id, ?delay, error, "the attempt failed, the message comes again");
        }
    }
}
