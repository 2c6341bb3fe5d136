//! Attempts at many messages in one transaction.
use crate::{
    Outcome,
    attempt::{Runtime, finish, run},
    handler::Handler,
    start::end,
};
use twinbox_core::Message;
use twinbox_sql::Dialect;

/// None: it failed, and its messages are to be handled one by one.
pub(crate) async fn process_batch<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    handler: &Handler<DB, S>,
    messages: &[Message],
    redelivered: bool,
) -> Option<Vec<Outcome>> {
    let _beside_others = runtime.alone.read().await;
    let mut started = Vec::new();
    if redelivered {
        let ids: Vec<_> = messages.iter().map(Message::message_id).collect();
        started.extend(runtime.store.record_starts(handler.policy.consumer, &ids).await.ok()?);
    }
    // One that has a start on record already is not for a batch.
    let outcomes = match redelivered && started.len() < messages.len() {
        true => None,
        false => together(runtime, handler, messages, redelivered).await,
    };
    if outcomes.is_none() && redelivered {
        end(runtime.store, handler.policy.consumer, started).await;
    }
    outcomes
}

async fn together<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    handler: &Handler<DB, S>,
    messages: &[Message],
    redelivered: bool,
) -> Option<Vec<Outcome>> {
    let (store, consumer) = (runtime.store, handler.policy.consumer);
    let mut outcomes = vec![Outcome::Duplicate; messages.len()];
    let Some(mut attempt) = store.claim_batch(consumer, messages, redelivered).await.ok()? else {
        return Some(outcomes);
    };
    let claimed = attempt.claimed().to_vec();
    let fresh: Vec<&Message> = claimed.iter().map(|&n| &messages[n]).collect();
    let result = match run(store, runtime.state, handler, &mut attempt, &fresh).await {
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
