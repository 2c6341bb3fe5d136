//! Giving a message up.
use crate::{
    context::Context,
    outcome::{DeliveryOutcome, RepeatAtOnce},
};
use twinbox_core::{Message, crash};
use twinbox_sql::{Dialect, inbox::DeadReason};

/// Writes a message to the dead letters, with a claim that makes its later copies duplicates. Beyond the
/// [bounds](crate::dead_letter_guard) of dead letters it writes nothing, and the message is delivered again.
pub(crate) async fn dead_letter<DB: Dialect, S>(
    context: &Context<'_, DB, S>,
    message: &Message,
    reason: DeadReason,
    error: &str,
    attempts: u32,
) -> Result<DeliveryOutcome, RepeatAtOnce> {
    let inbox = context.inbox;
    match context.dead_letters.delay(inbox, message, reason).await {
        Ok(None) => {}
        Ok(Some(delay)) => {
            let error = format!("there are too many dead letters to add one now: {error}");
            return Ok(DeliveryOutcome::Retried { delay, counted: false, error });
        }
        Err(error) => return DeliveryOutcome::from_store_error(&error),
    }
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
