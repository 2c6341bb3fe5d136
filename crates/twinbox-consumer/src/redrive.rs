//! Dead letters that an operator redrives.
//!
//! A consumer that keeps the order of a broker's keys parks them, where they wait for their turn. Any other
//! consumer attempts them at once, beside new deliveries.
use crate::{
    attempt::{AttemptError, DATABASE_AWAY, finish, run_handler},
    context::Context,
    handler::Handler,
    outcome::{DeliveryOutcome, RepeatAtOnce},
    runtime::Runtime,
};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use twinbox_core::{PartitionedLog, crash, retry, task_name::TaskName};
use twinbox_sql::{
    Dialect, Disposition, ErrorKind, Inbox,
    inbox::{InboxClaim, Redrive, StoredDeadLetter},
};

/// How often the database is asked for redriven dead letters, and the delay of one that could not run.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Dead letters that are attempted beside each other.
const CONCURRENCY: u32 = 8;
/// How much longer than the time-out of an attempt its lease is.
const LEASE_MARGIN: Duration = Duration::from_secs(30);

/// Attempts or parks redriven dead letters until `stop`. Then it waits for the attempts in flight.
pub(crate) async fn run<DB: Dialect, S: Send + Sync + 'static>(
    runtime: &Arc<Runtime<DB, S>>,
    stop: &CancellationToken,
) {
    let mut attempts = JoinSet::new();
    while let Some(taken) = stop.run_until_cancelled(take(runtime)).await {
        let log = runtime.partitioned_log();
        for redrive in taken {
            // A message that is cut has no turn: it is refused at once.
            if let Some(log) = log.as_ref().filter(|_| !redrive.dead_letter.message.is_cut()) {
                if park(runtime, &**log, &redrive).await {
                    continue;
                }
                // All that were taken come again, and later ones of the same key not before them.
                break;
            }
            let runtime = runtime.clone();
            attempts.spawn(TaskName::RedriveAttempt.of(async move { redrive_one(&runtime, redrive).await }));
        }
        let ended = async { while attempts.join_next().await.is_some() {} };
        if stop.run_until_cancelled(ended).await.is_none() {
            break;
        }
    }
    let drained = async { while attempts.join_next().await.is_some() {} };
    // The rest is attempted again when its lease ends.
    let _ = tokio::time::timeout(runtime.drain, drained).await;
}

/// Waits for redriven dead letters and takes them under a lease. While the database is away there are none.
async fn take<DB: Dialect, S>(runtime: &Runtime<DB, S>) -> Vec<Redrive> {
    let timeouts = runtime.group.handlers.iter().map(|handler| handler.policy.timeout);
    let lease = timeouts.max().unwrap_or_default().saturating_add(LEASE_MARGIN);
    let is_ordered = runtime.group.subscription.is_ordered;
    loop {
        let is_paused = *runtime.is_paused.borrow();
        if !is_paused && runtime.inbox.has_due_redrive().await.unwrap_or(false) {
            let taken = runtime.inbox.take_redrives(is_ordered, CONCURRENCY, lease).await;
            let mut taken = taken.unwrap_or_default();
            taken.sort_unstable_by_key(|redrive| redrive.dead_letter.id);
            if !taken.is_empty() {
                return taken;
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Parks a dead letter in the order of its key. Returns false if the database refused or is away.
async fn park<DB: Dialect, S>(runtime: &Runtime<DB, S>, log: &dyn PartitionedLog, redrive: &Redrive) -> bool {
    let message = &redrive.dead_letter.message;
    let partition = log.partition_of(message);
    let parked = runtime.inbox.park_redrive(redrive, partition).await;
    let message_id = message.message_id();
    match &parked {
        Ok(_) => tracing::info!(%message_id, "the redriven dead letter is parked until its turn"),
        Err(error) => {
            let cause = error as &dyn std::error::Error;
            tracing::warn!(%message_id, error = cause, "a redriven dead letter was not parked yet");
        }
    }
    parked.is_ok()
}

async fn redrive_one<DB: Dialect, S: Send + Sync + 'static>(runtime: &Runtime<DB, S>, redrive: Redrive) {
    let message = &redrive.dead_letter.message;
    let outcome = match runtime.group.handler(&message.event_type) {
        Some(handler) if !message.is_redacted() && !message.is_cut() => {
            let Some(_permits) = runtime.handler_permits(&runtime.stop, handler.event_type).await else {
                return give_back(runtime, &redrive).await;
            };
            let timer = runtime.stats.begin_delivery();
            let outcome = attempt(&runtime.context(&runtime.stop, None), handler, &redrive).await;
            timer.end(&outcome);
            if let DeliveryOutcome::Retried { counted: false, .. } | DeliveryOutcome::Unavailable = outcome {
                give_back(runtime, &redrive).await;
            }
            outcome
        }
        handler => {
            let error = match handler {
                _ if message.is_cut() => refusal_of_cut(&redrive.dead_letter.error),
                Some(_) => "its payload was redacted".to_owned(),
                None => "there is no handler for its type".to_owned(),
            };
            let _ = runtime.inbox.record_failed_redrive(&redrive.dead_letter, &error, None).await;
            DeliveryOutcome::DeadLettered { error }
        }
    };
    runtime.report(message, &outcome);
}

/// Returns the error of a redriven dead letter that has only the beginning of its payload. It keeps the error
/// from before, which says where the whole message is.
fn refusal_of_cut(before: &str) -> String {
    const REFUSAL: &str = "not redriven, because only the beginning of its payload is kept: ";
    format!("{REFUSAL}{}", before.strip_prefix(REFUSAL).unwrap_or(before))
}

/// Returns a dead letter to the database, without counting an attempt.
async fn give_back<DB: Dialect, S>(runtime: &Runtime<DB, S>, redrive: &Redrive) {
    let _ = runtime.inbox.give_back_redrive(redrive, POLL_INTERVAL).await;
}

/// Makes one attempt at a dead letter. A failure is recorded with the dead letter; no source is involved.
async fn attempt<DB: Dialect, S>(
    context: &Context<'_, DB, S>,
    handler: &Handler<DB, S>,
    redrive: &Redrive,
) -> DeliveryOutcome {
    let (inbox, policy, dead_letter) = (context.inbox, handler.policy, &redrive.dead_letter);
    let id = dead_letter.message.message_id();
    if context.lost_sessions.has_unrecorded(id) {
        let outcome = record_failure(inbox, dead_letter, DATABASE_AWAY.to_owned(), None).await;
        if matches!(outcome, DeliveryOutcome::DeadLettered { .. }) {
            context.lost_sessions.remove(id);
        }
        return outcome;
    }
    let handler_lock = context.store.engine().handler_lock();
    let _shared = match context.unless_stopped(handler_lock.read()).await {
        Ok(shared) => shared,
        Err(outcome) => return outcome,
    };
    crash::point("consumer.before_redrive");
    let mut attempt = match inbox.claim_redrive(context.terms(policy.timeout), redrive).await {
        Ok(InboxClaim::Open(attempt)) => attempt,
        Ok(InboxClaim::Duplicate(_)) => return DeliveryOutcome::Duplicate,
        Err(error) if error.kind() == ErrorKind::PartlyCommitted => {
            return record_failure(inbox, dead_letter, error.to_string(), None).await;
        }
        Err(error) => return DeliveryOutcome::from_store_error_or_redeliver(&error),
    };
    let result = run_handler(context, handler, &mut attempt, &[&dead_letter.message]).await;
    crash::point("consumer.before_redrive_commit");
    let error = match finish(attempt, result).await {
        Ok(()) => {
            context.lost_sessions.remove(id);
            return DeliveryOutcome::Handled;
        }
        // Without a commit the dead letter still exists, and is taken again.
        Err(AttemptError::InDoubt(error)) if context.lost_sessions.add(id).is_some() => {
            return RepeatAtOnce(error.to_string()).into();
        }
        Err(error) => error.into_handler_error(),
    };
    let may_pass = if error.is_outage() && !context.store.is_reachable().await {
        context.lost_sessions.add_with_database(id);
        true
    } else if error.is_outage() {
        context.lost_sessions.add(id).is_some()
    } else {
        error.is_contention() && !error.is_elsewhere()
    };
    if may_pass {
        return RepeatAtOnce(error.to_string()).into();
    }
    let text = error.to_string();
    let is_retried = error.disposition() != Disposition::Reject && redrive.attempts_left > 0;
    let delay = is_retried.then(|| policy.retry.delay(1, retry::random()));
    record_failure(inbox, dead_letter, text, delay).await
}

async fn record_failure<DB: Dialect>(
    inbox: &Inbox<DB>,
    dead_letter: &StoredDeadLetter,
    error: String,
    retry_after: Option<Duration>,
) -> DeliveryOutcome {
    match inbox.record_failed_redrive(dead_letter, &error, retry_after).await {
        Ok(()) => DeliveryOutcome::DeadLettered { error },
        Err(error) => DeliveryOutcome::from_store_error_or_redeliver(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_the_error_however_often_it_is_made() {
        let refusal = refusal_of_cut("7 has all");
        assert!(refusal.starts_with("not redriven, ") && refusal.ends_with(": 7 has all"), "{refusal}");
        assert_eq!(refusal_of_cut(&refusal), refusal);
    }
}
