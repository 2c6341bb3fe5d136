//! Giving a message up.
use crate::outcome::{DeliveryOutcome, RepeatAtOnce};
use twinbox_core::{Message, crash};
use twinbox_sql::{Dialect, Inbox, inbox::DeadReason};

/// Writes a message to the dead letters, with a claim that makes its later copies duplicates.
pub(crate) async fn dead_letter<DB: Dialect>(
    inbox: &Inbox<DB>,
    message: &Message,
    reason: DeadReason,
    error: &str,
    attempts: u32,
) -> Result<DeliveryOutcome, RepeatAtOnce> {
    match inbox.dead_letter(message, reason, error, attempts).await {
        Ok(true) => {
            tracing::warn!(
                consumer = inbox.consumer(),
                message_id = %message.message_id(),
                event_type = message.event_type,
                reason = reason.as_str(),
                attempts,
                error,
                "the message is a dead letter"
            );
            crash::point("consumer.after_dead_letter");
            Ok(DeliveryOutcome::DeadLettered { error: error.to_owned() })
        }
        Ok(false) => Ok(DeliveryOutcome::Duplicate),
        Err(error) => DeliveryOutcome::from_store_error(&error),
    }
}
