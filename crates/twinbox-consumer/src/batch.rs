//! Attempts at many messages in one transaction.
use crate::{
    Outcome,
    attempt::{Unfinished, finish, run},
    conflict,
    handler::Handler,
    keep_alive::keep_alive,
    shared::Shared,
    start::{Runtime, given_back},
};
use std::collections::{BTreeSet, HashSet};
use twinbox_core::{Message, MessageId, Received};
use twinbox_sql::{Dialect, inbox::ClaimedBatch};

impl<DB: Dialect, S: Send + Sync + 'static> Shared<DB, S> {
    /// Handles them and settles each.
    pub(crate) async fn batch(&self, received: Vec<Received>) {
        let messages: Vec<Message> = received.iter().map(|one| one.message.clone()).collect();
        let settles: Vec<_> = received.iter().map(|one| &*one.settle).collect();
        let redelivered = received.iter().any(|one| one.redelivered);
        let outcomes = keep_alive(&settles, self.batch_outcomes(&messages, redelivered)).await;
        let settling = received.into_iter().zip(&messages).zip(outcomes);
        let settling = settling.map(|((one, message), outcome)| self.settle(one.settle, message, outcome));
        futures::future::join_all(settling).await;
    }

    /// In one transaction, or, if that fails, one by one.
    async fn batch_outcomes(&self, messages: &[Message], redelivered: bool) -> Vec<Outcome> {
        if let Some(handler) = self.handler(&messages[0].event_type) {
            let Some(_turn) = self.turn(&self.stop, handler.event_type).await else {
                return messages.iter().map(|_| given_back()).collect();
            };
            let outcomes =
                process_batch(&self.runtime(&self.stop, None), handler, messages, redelivered).await;
            match outcomes {
                Ok(outcomes) => return outcomes,
                Err(Alone::NotTried) => {}
                Err(Alone::Failed(error)) => {
                    tracing::warn!(
                        consumer = handler.policy.consumer,
                        event_type = handler.event_type,
                        messages = messages.len(),
                        error,
                        "the batch failed and is rolled back: its messages are handled one by one"
                    );
                    self.progress.batch_failed(error);
                }
            }
        }
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            outcomes.push(self.outcome(&self.stop, None, message, None, redelivered).await);
        }
        outcomes
    }
}

/// Why the messages of a batch are to be handled one by one.
enum Alone {
    /// The handler did not run, or nobody knows what became of it: the store will tell of each.
    NotTried,
    /// The handler failed, or what it wrote could not be committed.
    Failed(String),
}

async fn process_batch<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    handler: &Handler<DB, S>,
    messages: &[Message],
    redelivered: bool,
) -> Result<Vec<Outcome>, Alone> {
    let (store, consumer) = (runtime.store, handler.policy.consumer);
    let Ok(_beside_others) = runtime.unless_stopped(store.alone().read()).await else {
        return Err(Alone::NotTried);
    };
    if !redelivered {
        return together(runtime, handler, messages, redelivered).await;
    }
    let ids = Vec::from_iter(messages.iter().map(Message::message_id).collect::<BTreeSet<_>>());
    let Ok(started) = store.record_starts(consumer, &ids).await else {
        // Some may be on record although no answer came.
        runtime.end_later(consumer, ids);
        return Err(Alone::NotTried);
    };
    runtime.open.began(started.iter().copied());
    let others = ids.iter().filter(|id| !started.contains(id));
    let outcomes = match any_open(runtime, consumer, others).await {
        true => Err(Alone::NotTried),
        false => together(runtime, handler, messages, redelivered).await,
    };
    let mut started = Vec::from_iter(started);
    runtime.open.ended(&started);
    if let Ok(outcomes) = &outcomes {
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
) -> Result<Vec<Outcome>, Alone> {
    let (store, consumer) = (runtime.store, handler.policy.consumer);
    let claimed = store.claim_batch(consumer, messages, redelivered).await;
    let ClaimedBatch { attempt, duplicates } = claimed.map_err(|_| Alone::NotTried)?;
    let mut outcomes = vec![Outcome::Duplicate; messages.len()];
    if let Some(mut attempt) = attempt {
        let claimed = attempt.claimed().to_vec();
        let fresh: Vec<&Message> = claimed.iter().map(|&n| &messages[n]).collect();
        let result = match run(runtime, handler, &mut attempt, &fresh).await {
            Ok(result) => result,
            Err(undecodable) => {
                attempt.rollback().await;
                return Err(Alone::Failed(undecodable));
            }
        };
        match finish(attempt, result).await {
            Ok(()) => {}
            Err(Unfinished::Failed(error)) if !error.is_contention() && !error.is_outage() => {
                return Err(Alone::Failed(error.to_string()));
            }
            Err(_) => return Err(Alone::NotTried),
        }
        for n in claimed {
            outcomes[n] = Outcome::Handled;
        }
    }
    for (n, earlier) in duplicates {
        outcomes[n] = conflict::duplicate(runtime, consumer, &messages[n], &earlier).await.in_a_second();
    }
    Ok(outcomes)
}
