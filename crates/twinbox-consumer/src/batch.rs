//! Handlers of batches: many messages in one transaction.
//!
//! A batch that fails is rolled back, and its messages are handled one by one. So each gets the outcome that
//! it would have had alone.
use crate::{
    attempt::{AttemptError, finish, run_handler},
    context::Context,
    duplicate::end_duplicate,
    handler::Handler,
    keep_alive::keep_alive,
    outcome::DeliveryOutcome,
    runtime::Runtime,
};
use std::collections::{BTreeSet, HashSet};
use twinbox_core::{Message, MessageId, ReceivedMessage};
use twinbox_sql::{Dialect, Inbox, inbox::BatchClaim};

impl<DB: Dialect, S: Send + Sync + 'static> Runtime<DB, S> {
    /// Processes the deliveries of a batch and settles each of them.
    pub(crate) async fn process_and_settle_batch(&self, received: Vec<ReceivedMessage>) {
        let messages: Vec<Message> = received.iter().map(|one| one.message.clone()).collect();
        let settles: Vec<_> = received.iter().map(|one| &*one.settle).collect();
        let redelivered = received.iter().any(|one| one.redelivered);
        let outcomes = keep_alive(&settles, self.process_batch(&messages, redelivered)).await;
        let settled = received.into_iter().zip(&messages).zip(outcomes);
        let settled = settled.map(|((one, message), outcome)| self.settle(one.settle, message, outcome));
        futures::future::join_all(settled).await;
    }

    async fn process_batch(&self, messages: &[Message], redelivered: bool) -> Vec<DeliveryOutcome> {
        if let Some(handler) = self.group.handler(&messages[0].event_type) {
            let Some(_permits) = self.handler_permits(&self.stop, handler.event_type).await else {
                return messages.iter().map(|_| DeliveryOutcome::shutdown()).collect();
            };
            match attempt_batch(&self.context(&self.stop, None), handler, messages, redelivered).await {
                Ok(outcomes) => return outcomes,
                Err(BatchError::Undecided) => {}
                Err(BatchError::Failed(error)) => {
                    tracing::warn!(
                        consumer = handler.policy.consumer,
                        event_type = handler.event_type,
                        messages = messages.len(),
                        error,
                        "the batch failed and is rolled back: its messages are handled one by one"
                    );
                    self.stats.count_failed_batch(error);
                }
            }
        }
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            outcomes.push(self.process(&self.stop, None, message, None, redelivered).await);
        }
        outcomes
    }
}

/// The reason why the messages of a batch are handled one by one.
enum BatchError {
    /// The handler did not run, or its commit is in doubt. The inbox decides for each message.
    Undecided,
    /// The handler failed, or the database refused its transaction.
    Failed(String),
}

/// Records the starts of redelivered messages and attempts the batch.
async fn attempt_batch<DB: Dialect, S>(
    context: &Context<'_, DB, S>,
    handler: &Handler<DB, S>,
    messages: &[Message],
    redelivered: bool,
) -> Result<Vec<DeliveryOutcome>, BatchError> {
    let (inbox, handler_lock) = (context.inbox, context.store.engine().handler_lock());
    let Ok(_shared) = context.unless_stopped(handler_lock.read()).await else {
        return Err(BatchError::Undecided);
    };
    if !redelivered {
        return attempt_batch_once(context, handler, messages, redelivered).await;
    }
    let ids = Vec::from_iter(messages.iter().map(Message::message_id).collect::<BTreeSet<_>>());
    let Ok(started) = inbox.record_starts(&ids).await else {
        // Some starts may be on record, although the response was lost.
        context.starts.end_later(inbox, ids);
        return Err(BatchError::Undecided);
    };
    context.starts.add(started.iter().copied());
    let not_started = ids.iter().filter(|id| !started.contains(id));
    let outcomes = match has_open_start(inbox, not_started).await {
        true => Err(BatchError::Undecided),
        false => attempt_batch_once(context, handler, messages, redelivered).await,
    };
    let mut started = Vec::from_iter(started);
    context.starts.remove(&started);
    if let Ok(outcomes) = &outcomes {
        // The handler's transaction has ended their starts.
        let handled =
            messages.iter().zip(outcomes).filter(|(_, outcome)| **outcome == DeliveryOutcome::Handled);
        let handled = HashSet::<_>::from_iter(handled.map(|(message, _)| message.message_id()));
        started.retain(|id| !handled.contains(id));
    }
    if !started.is_empty() {
        context.starts.end(inbox, started).await;
    }
    outcomes
}

/// Returns whether one of these messages has a start that has not ended, so that it must run alone.
async fn has_open_start<DB: Dialect>(inbox: &Inbox<DB>, messages: impl Iterator<Item = &MessageId>) -> bool {
    for id in messages {
        if inbox.open_starts(*id).await.is_ok_and(|open| open > 0) {
            return true;
        }
    }
    false
}

/// Claims the messages and runs the handler on the new ones, in one transaction.
async fn attempt_batch_once<DB: Dialect, S>(
    context: &Context<'_, DB, S>,
    handler: &Handler<DB, S>,
    messages: &[Message],
    redelivered: bool,
) -> Result<Vec<DeliveryOutcome>, BatchError> {
    let claimed =
        context.inbox.claim_batch(context.terms(handler.policy.timeout), messages, redelivered).await;
    let BatchClaim { attempt, duplicates } = claimed.map_err(|_| BatchError::Undecided)?;
    let mut outcomes = vec![DeliveryOutcome::Duplicate; messages.len()];
    if let Some(mut attempt) = attempt {
        let claimed = attempt.claimed().to_vec();
        let new: Vec<&Message> = claimed.iter().map(|&n| &messages[n]).collect();
        let result = run_handler(context, handler, &mut attempt, &new).await;
        match finish(attempt, result).await {
            Ok(()) => {}
            Err(AttemptError::InDoubt(_)) => return Err(BatchError::Undecided),
            Err(AttemptError::Handler(error))
                if error.is_contention() && !error.is_elsewhere() || error.is_outage() =>
            {
                return Err(BatchError::Undecided);
            }
            Err(error) => return Err(BatchError::Failed(error.into_handler_error().to_string())),
        }
        for n in claimed {
            context.lost_sessions.remove(messages[n].message_id());
            outcomes[n] = DeliveryOutcome::Handled;
        }
    }
    for (n, earlier) in duplicates {
        let outcome = end_duplicate(context, &messages[n], &earlier).await;
        outcomes[n] = outcome.unwrap_or_else(DeliveryOutcome::from);
    }
    Ok(outcomes)
}
