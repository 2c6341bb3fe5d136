//! Attempts at many messages in one transaction.
use crate::{
    Outcome,
    attempt::{finish, run, warn_of_another},
    handler::Handler,
    keep_alive::keep_alive,
    shared::Shared,
    start::{Runtime, given_back},
};
use std::collections::{BTreeSet, HashSet};
use twinbox_core::{Message, MessageId, Received};
use twinbox_sql::{Dialect, inbox::ClaimedBatch};

impl<DB: Dialect, S: Send + Sync + 'static> Shared<DB, S> {
    /// Handles them and settles each. Answers with how many.
    pub(crate) async fn batch(&self, received: Vec<Received>) -> usize {
        let messages: Vec<Message> = received.iter().map(|one| one.message.clone()).collect();
        let settles: Vec<_> = received.iter().map(|one| &*one.settle).collect();
        let redelivered = received.iter().any(|one| one.redelivered);
        let outcomes = keep_alive(&settles, self.batch_outcomes(&messages, redelivered)).await;
        let count = received.len();
        let settling = received.into_iter().zip(&messages).zip(outcomes);
        let settling = settling.map(|((one, message), outcome)| self.settle(one.settle, message, outcome));
        futures::future::join_all(settling).await;
        count
    }

    /// In one transaction, or, if that fails, one by one.
    async fn batch_outcomes(&self, messages: &[Message], redelivered: bool) -> Vec<Outcome> {
        if let Some(handler) = self.handler(&messages[0].event_type) {
            let Some(_turn) = self.turn(&self.stop, handler.event_type).await else {
                return messages.iter().map(|_| given_back()).collect();
            };
            let outcomes =
                process_batch(&self.runtime(&self.stop, None), handler, messages, redelivered).await;
            if let Some(outcomes) = outcomes {
                return outcomes;
            }
        }
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            outcomes.push(self.outcome(&self.stop, None, message, None, redelivered).await);
        }
        outcomes
    }
}

/// None: it failed, and its messages are to be handled one by one.
async fn process_batch<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    handler: &Handler<DB, S>,
    messages: &[Message],
    redelivered: bool,
) -> Option<Vec<Outcome>> {
    let (store, consumer) = (runtime.store, handler.policy.consumer);
    let _beside_others = runtime.unless_stopped(store.alone().read()).await.ok()?;
    if !redelivered {
        return together(runtime, handler, messages, redelivered).await;
    }
    let ids = Vec::from_iter(messages.iter().map(Message::message_id).collect::<BTreeSet<_>>());
    let Ok(started) = store.record_starts(consumer, &ids).await else {
        // Some may be on record although no answer came.
        runtime.end_later(consumer, ids);
        return None;
    };
    runtime.open.began(started.iter().copied());
    let others = ids.iter().filter(|id| !started.contains(id));
    let outcomes = match any_open(runtime, consumer, others).await {
        true => None,
        false => together(runtime, handler, messages, redelivered).await,
    };
    let mut started = Vec::from_iter(started);
    runtime.open.ended(&started);
    if let Some(outcomes) = &outcomes {
        let handled = messages.iter().zip(outcomes).filter(|(_, outcome)| **outcome == Outcome::Handled);
        let handled = HashSet::<_>::from_iter(handled.map(|(message, _)| message.message_id()));
        started.retain(|id| !handled.contains(id));
    }
    if !started.is_empty() {
        runtime.end(consumer, started).await;
    }
    outcomes
}

/// Whether one of them has a start on record that has not ended, and is to run alone. The others are done with.
async fn any_open<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    consumer: &str,
    messages: impl Iterator<Item = &MessageId>,
) -> bool {
    for id in messages {
        if runtime.store.open_starts(consumer, *id).await.is_ok_and(|open| open > 0) {
            return true;
        }
    }
    false
}

async fn together<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    handler: &Handler<DB, S>,
    messages: &[Message],
    redelivered: bool,
) -> Option<Vec<Outcome>> {
    let (store, consumer) = (runtime.store, handler.policy.consumer);
    let ClaimedBatch { attempt, duplicates } =
        store.claim_batch(consumer, messages, redelivered).await.ok()?;
    for (n, earlier) in &duplicates {
        warn_of_another(consumer, &messages[*n], earlier);
    }
    let mut outcomes = vec![Outcome::Duplicate; messages.len()];
    let Some(mut attempt) = attempt else { return Some(outcomes) };
    let claimed = attempt.claimed().to_vec();
    let fresh: Vec<&Message> = claimed.iter().map(|&n| &messages[n]).collect();
    let result = match run(runtime, handler, &mut attempt, &fresh).await {
        Ok(result) => result,
        Err(_) => {
            attempt.rollback().await;
            return None;
        }
    };
    finish(attempt, result).await.ok()?;
    for n in claimed {
        outcomes[n] = Outcome::Handled;
    }
    Some(outcomes)
}
