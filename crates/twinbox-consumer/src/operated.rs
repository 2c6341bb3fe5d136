//! What operators do to a consumer from outside: they hold it back, and send its dead letters back to work.
use crate::{
    Outcome,
    attempt::{Once, Unfinished, finish, run, store_error},
    handler::Handler,
    shared::Shared,
    start::{Runtime, given_back},
    worker::DRAIN_MAX,
};
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use twinbox_core::{PartitionedLog, crash, retry};
use twinbox_sql::{
    Dialect, Disposition, HEARTBEAT, HandlerError,
    inbox::{Claimed, Redriven},
};

/// How often it is looked whether they have.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the database may take to say so.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Dead letters that are tried beside each other.
const REDRIVEN_AT_ONCE: u32 = 8;
/// How much longer than its time-out an attempt may be unheard of.
const LEASE_MARGIN: Duration = Duration::from_secs(30);

/// Takes note of whether the consumer is held back, and says that it runs. While the database is away it stays as it was.
pub(crate) async fn look<DB: Dialect, S>(shared: &Shared<DB, S>) {
    let consumer = &*shared.group.subscription.consumer;
    let looked = tokio::time::timeout(LOOK_MAX, shared.store.consumer_runs(consumer)).await;
    if let Ok(Ok(paused)) = looked {
        note(shared, paused);
    }
}

/// The same for ever.
pub(crate) async fn keep_looking<DB: Dialect, S>(shared: &Shared<DB, S>) {
    let consumer = &*shared.group.subscription.consumer;
    let mut beat_at = Instant::now() + HEARTBEAT;
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        if Instant::now() >= beat_at {
            beat_at = Instant::now() + HEARTBEAT;
            look(shared).await;
        } else if let Ok(paused) = shared.store.consumer_paused(consumer).await {
            note(shared, paused);
        }
    }
}

fn note<DB: Dialect, S>(shared: &Shared<DB, S>, reason: Option<String>) {
    let consumer = &*shared.group.subscription.consumer;
    let changed = shared
        .paused
        .send_if_modified(|paused| std::mem::replace(paused, reason.is_some()) != reason.is_some());
    match reason {
        Some(reason) if changed => tracing::warn!(consumer, reason, "the consumer is held back by hand"),
        None if changed => tracing::info!(consumer, "the consumer is held back no more"),
        _ => {}
    }
}

/// Tries dead letters again whose turn it is, until `over`; then those under way finish.
pub(crate) async fn redrive<DB: Dialect, S: Send + Sync + 'static>(
    shared: &Arc<Shared<DB, S>>,
    over: &CancellationToken,
) {
    let mut running = JoinSet::new();
    while let Some(taken) = over.run_until_cancelled(take(shared)).await {
        let log = shared.log();
        for redriven in taken {
            if let Some(log) = &log {
                if line_up(shared, &**log, &redriven).await {
                    continue;
                }
                // The others come again with it, and nothing later of their keys before.
                break;
            }
            let shared = shared.clone();
            running.spawn(async move { one(&shared, redriven).await });
        }
        let ended = async { while running.join_next().await.is_some() {} };
        if over.run_until_cancelled(ended).await.is_none() {
            break;
        }
    }
    let drained = async { while running.join_next().await.is_some() {} };
    // What is not done by then is tried again when its lease ends.
    let _ = tokio::time::timeout(DRAIN_MAX, drained).await;
}

/// Parks a dead letter in the order of its key. False: the database refused or is away.
async fn line_up<DB: Dialect, S>(
    shared: &Shared<DB, S>,
    log: &dyn PartitionedLog,
    redriven: &Redriven,
) -> bool {
    let (consumer, message) = (&*shared.group.subscription.consumer, &redriven.letter.message);
    let parked = shared.store.park_letter(consumer, redriven, log.partition_of(message)).await;
    match &parked {
        Ok(_) => tracing::info!(message_id = %message.message_id(), "a dead letter waits for its turn"),
        Err(error) => {
            let cause = error as &dyn std::error::Error;
            tracing::warn!(error = cause, "a dead letter cannot be parked, its turn comes again");
        }
    }
    parked.is_ok()
}

/// Waits for dead letters whose turn it is. While the database is away there are none.
async fn take<DB: Dialect, S>(shared: &Shared<DB, S>) -> Vec<Redriven> {
    let consumer = &*shared.group.subscription.consumer;
    let timeout =
        shared.group.handlers.iter().map(|handler| handler.policy.timeout).max().unwrap_or_default();
    let lease = timeout.saturating_add(LEASE_MARGIN);
    loop {
        let held = *shared.paused.borrow();
        if !held && shared.store.has_redriven(consumer).await.unwrap_or(false) {
            let is_ordered = shared.group.subscription.ordered;
            let taken = shared.store.take_redriven(consumer, is_ordered, REDRIVEN_AT_ONCE, lease).await;
            let mut taken = taken.unwrap_or_default();
            taken.sort_unstable_by_key(|redriven| redriven.letter.id);
            if !taken.is_empty() {
                return taken;
            }
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

async fn one<DB: Dialect, S: Send + Sync + 'static>(shared: &Shared<DB, S>, redriven: Redriven) {
    let message = &redriven.letter.message;
    let outcome = match shared.handler(&message.event_type) {
        Some(handler) if !message.is_redacted() => {
            let Some(_turn) = shared.turn(&shared.stop, handler.event_type).await else {
                return give_back(shared, &redriven).await;
            };
            let running = shared.progress.begin();
            let outcome = attempt(&shared.runtime(&shared.stop, None), handler, &redriven).await;
            running.end(&outcome);
            if let Outcome::Retried { counted: false, .. } | Outcome::Unavailable = outcome {
                give_back(shared, &redriven).await;
            }
            outcome
        }
        found => {
            let error =
                if found.is_some() { "its payload was redacted" } else { "there is no handler for its type" };
            let _ = shared.store.letter_failed(&redriven.letter, error, None).await;
            Outcome::DeadLettered { error: error.to_owned() }
        }
    };
    shared.note(message, &outcome);
}

/// It was nobody's fault, and is no try.
async fn give_back<DB: Dialect, S>(shared: &Shared<DB, S>, redriven: &Redriven) {
    let _ = shared.store.give_back(redriven, LOOK_INTERVAL).await;
}

/// One attempt at a dead letter. What becomes of it is on record with it, and its source is not asked.
async fn attempt<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    handler: &Handler<DB, S>,
    redriven: &Redriven,
) -> Outcome {
    let (store, policy, letter) = (runtime.store, handler.policy, &redriven.letter);
    let Ok(_beside_others) = runtime.unless_stopped(store.alone().read()).await else { return given_back() };
    crash::point("consumer.before_redrive");
    let mut attempt = match store.claim_letter(policy.consumer, redriven).await {
        Ok(Claimed::Open(attempt)) => attempt,
        Ok(Claimed::Duplicate(_)) => return Outcome::Duplicate,
        Err(error) => return store_error(&error).in_a_second(),
    };
    let result = run(runtime, handler, &mut attempt, &[&letter.message]).await;
    let result = result.unwrap_or_else(|undecodable| Err(HandlerError::reject(undecodable)));
    crash::point("consumer.before_redrive_commit");
    let error = match finish(attempt, result).await {
        Ok(()) => return Outcome::Handled,
        // If it did not commit, the letter is there, and its turn comes again.
        Err(Unfinished::InDoubt(error)) => return Once::AtOnce(error).in_a_second(),
        Err(Unfinished::Failed(error)) => error,
    };
    if error.is_contention() || error.is_outage() {
        return Once::AtOnce(error.to_string()).in_a_second();
    }
    let text = error.to_string();
    let tries = error.disposition() != Disposition::Reject && redriven.attempts_left > 0;
    let again = tries.then(|| policy.retry.delay(1, retry::random()));
    match store.letter_failed(letter, &text, again).await {
        Ok(()) => Outcome::DeadLettered { error: text },
        Err(error) => store_error(&error).in_a_second(),
    }
}
