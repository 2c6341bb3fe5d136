//! The path of one delivery through the database: start, claim, handler, commit.
//!
//! [`process`](crate::process) comes before it and settles the delivery with its outcome. Top to bottom:
//!
//! 1. [`attempt`] waits for the permission to start and repeats [`attempt_once`] after contention.
//! 2. [`attempt_once`] begins the transaction with the claim, runs the handler in it, and commits.
//! 3. [`run_handler`] decodes the message and runs the handler within its time-out.
//! 4. [`finish`] commits or rolls back.
//! 5. [`handler_failed`] decides between another delivery and a dead letter.
use crate::{
    context::Context,
    crash_guard,
    dead_letter::dead_letter,
    duplicate::end_duplicate,
    handler::{Handler, Run},
    outcome::{DeliveryOutcome, RepeatAtOnce},
    trace::handler_span,
};
use futures::FutureExt as _;
use std::{any::Any, panic::AssertUnwindSafe, time::Duration};
use tracing::Instrument as _;
use twinbox_core::{DecodeError, Message, crash, retry};
use twinbox_sql::{
    Dialect, Disposition, ErrorKind, HandlerError, Inbox,
    inbox::{Attempt, DeadReason, InboxClaim},
};

/// How often an attempt is repeated at once after contention.
const REPEATS_MAX: u32 = 5;

/// The failure of an attempt during which the database went away, as it did in those before. It is recorded
/// when the message comes again.
pub(crate) const DATABASE_AWAY: &str = "the database went away during the attempt, and during those before";

/// The longest delay. A handler may ask for one that no clock can represent.
const DELAY_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The reason why an attempt was rolled back.
pub(crate) enum AttemptError {
    /// The message cannot be decoded. Its handler did not run.
    Undecodable(DecodeError),
    /// The handler failed, or the database refused its transaction.
    Handler(HandlerError),
    /// The response to COMMIT was lost. Only the claim shows whether the transaction committed.
    InDoubt(twinbox_sql::Error),
}

impl AttemptError {
    /// Returns the error as a handler's own. An undecodable message is rejected, because it stays
    /// undecodable.
    pub(crate) fn into_handler_error(self) -> HandlerError {
        match self {
            Self::Undecodable(error) => HandlerError::reject(error),
            Self::Handler(error) => error,
            Self::InDoubt(error) => error.into(),
        }
    }
}

impl From<DecodeError> for AttemptError {
    fn from(error: DecodeError) -> Self {
        Self::Undecodable(error)
    }
}

/// Handles one message. Attempts are repeated at once after contention; any other result is returned.
pub(crate) async fn attempt<DB: Dialect, S>(
    context: &Context<'_, DB, S>,
    handler: &Handler<DB, S>,
    message: &Message,
    redelivered: bool,
) -> DeliveryOutcome {
    if message.is_redacted() {
        return end_redacted(context.inbox, message).await;
    }
    if context.lost_sessions.has_unrecorded(message.message_id()) {
        if let Err(error) = context.inbox.record_failure(message, DATABASE_AWAY).await {
            return DeliveryOutcome::from_store_error_or_redeliver(&error);
        }
        context.lost_sessions.end_unrecorded(message.message_id());
    }
    let start = match crash_guard::start(context, &handler.policy, message, redelivered).await {
        Ok(start) => start,
        Err(outcome) => return outcome,
    };
    // While a message runs alone, every other handler of the process waits.
    let repeats_max = if start.is_alone() { 0 } else { REPEATS_MAX };
    let outcome = repeat_after_contention(context, handler, message, redelivered, repeats_max).await;
    if matches!(
        outcome,
        DeliveryOutcome::Handled | DeliveryOutcome::Duplicate | DeliveryOutcome::DeadLettered { .. }
    ) {
        context.lost_sessions.remove(message.message_id());
    }
    if start.is_recorded {
        context.starts.remove(&[message.message_id()]);
        // All other outcomes end the start in the transaction that records them.
        if matches!(
            outcome,
            DeliveryOutcome::Duplicate
                | DeliveryOutcome::Unavailable
                | DeliveryOutcome::NotOwned
                | DeliveryOutcome::Retried { counted: false, .. }
        ) {
            context.starts.end(context.inbox, vec![message.message_id()]).await;
        }
    }
    outcome
}

async fn repeat_after_contention<DB: Dialect, S>(
    context: &Context<'_, DB, S>,
    handler: &Handler<DB, S>,
    message: &Message,
    mut redelivered: bool,
    repeats_max: u32,
) -> DeliveryOutcome {
    let mut repeats = 0;
    loop {
        let is_last = repeats == REPEATS_MAX;
        match attempt_once(context, handler, message, redelivered, is_last).await {
            Ok(outcome) => return outcome,
            Err(RepeatAtOnce(error)) if repeats < repeats_max => {
                repeats += 1;
                redelivered = true;
                tracing::debug!(consumer = handler.policy.consumer, error, repeats, "repeating the attempt");
                tokio::time::sleep(Duration::from_millis(10 << repeats).mul_f64(retry::random())).await;
            }
            // The next delivery finds out whether the last commit happened.
            Err(RepeatAtOnce(error)) if context.lost_sessions.are_many(message.message_id()) => {
                return match context.inbox.record_failure(message, &error).await {
                    Ok(failures) => {
                        let delay = handler.policy.retry.delay(failures, retry::random()).min(DELAY_MAX);
                        DeliveryOutcome::Retried { delay, counted: true, error }
                    }
                    Err(error) => DeliveryOutcome::from_store_error_or_redeliver(&error),
                };
            }
            Err(RepeatAtOnce(error)) => {
                let delay = handler.policy.retry.delay(1, retry::random());
                return DeliveryOutcome::Retried { delay, counted: false, error };
            }
        }
    }
}

/// `is_last`: contention of others has been repeated as often as it is, and counts.
async fn attempt_once<DB: Dialect, S>(
    context: &Context<'_, DB, S>,
    handler: &Handler<DB, S>,
    message: &Message,
    redelivered: bool,
    is_last: bool,
) -> Result<DeliveryOutcome, RepeatAtOnce> {
    let inbox = context.inbox;
    crash::point("consumer.before_claim");
    let mut attempt = match inbox.claim_on(context.terms(handler.policy.timeout), message, redelivered).await
    {
        Ok(InboxClaim::Open(attempt)) => attempt,
        Ok(InboxClaim::Duplicate(earlier)) => {
            return end_duplicate(context, message, &earlier).await;
        }
        Err(error) if matches!(error.kind(), ErrorKind::Forgotten | ErrorKind::PartlyCommitted) => {
            return dead_letter(context, message, DeadReason::InDoubt, &error.to_string(), 0).await;
        }
        Err(error) => return DeliveryOutcome::from_store_error(&error),
    };
    crash::point("consumer.after_claim");
    let number = attempt.number();
    let failures = number - 1;
    if handler.policy.gives_up(failures) {
        // A process crashed between recording the last failure and writing the dead letter.
        attempt.rollback().await;
        let error = "no attempts are left";
        return dead_letter(context, message, DeadReason::Exhausted, error, failures).await;
    }
    let result = run_handler(context, handler, &mut attempt, &[message]).await;
    crash::point("consumer.before_commit");
    match finish(attempt, result).await {
        Ok(()) => {
            crash::point("consumer.after_commit");
            Ok(DeliveryOutcome::Handled)
        }
        Err(AttemptError::InDoubt(error)) => {
            match context.store.is_reachable().await {
                true => drop(context.lost_sessions.add(message.message_id())),
                false => context.lost_sessions.add_with_database(message.message_id()),
            }
            Err(RepeatAtOnce(error.to_string()))
        }
        Err(AttemptError::Undecodable(error)) => {
            let error = HandlerError::reject(error).to_string();
            dead_letter(context, message, DeadReason::Undecodable, &error, failures).await
        }
        Err(AttemptError::Handler(error)) if error.is_contention() && !(is_last && error.is_elsewhere()) => {
            Err(RepeatAtOnce(error.to_string()))
        }
        Err(AttemptError::Handler(error)) => handler_failed(context, handler, message, number, &error).await,
    }
}

/// Decodes the messages and runs the handler within its time-out, in the open transaction of `attempt`.
pub(crate) async fn run_handler<DB: Dialect, S>(
    context: &Context<'_, DB, S>,
    handler: &Handler<DB, S>,
    attempt: &mut Attempt<DB>,
    messages: &[&Message],
) -> Result<(), AttemptError> {
    let (store, state, number) = (context.store, context.state, attempt.number());
    let timeout = context.handler_timeout(handler.policy.timeout);
    let span = handler_span(context.inbox.consumer(), messages);
    let work = async {
        let plain = messages.iter().map(|message| store.decode(message)).collect::<Result<Vec<_>, _>>()?;
        let result = match &handler.run {
            Run::Each(run) => run(state, &mut attempt.tx(), &plain[0], number)?.await,
            Run::Batch(run) => {
                let plain: Vec<&Message> = plain.iter().map(AsRef::as_ref).collect();
                run(state, &mut attempt.batch_tx(), &plain, number)?.await
            }
        };
        result.map_err(|error| AttemptError::Handler(error.into_text()))
    };
    // Decoding, showing an error and dropping run code of the application too, so their panics are caught as
    // well.
    let work = AssertUnwindSafe(work.instrument(span)).catch_unwind();
    let mut work = Box::pin(twinbox_sql::run_handler(work));
    let error = match tokio::time::timeout(timeout, work.as_mut()).await {
        Ok(Ok(result)) => return result,
        Ok(Err(panic)) => format!("the handler panicked: {}", panic_message(&*panic)),
        Err(_) => match std::panic::catch_unwind(AssertUnwindSafe(|| drop(work))) {
            Ok(()) => format!("the handler took longer than {timeout:?}"),
            Err(panic) => format!(
                "the handler took longer than {timeout:?}, and panicked when it was stopped: {}",
                panic_message(&*panic)
            ),
        },
    };
    Err(AttemptError::Handler(error.into()))
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

/// Commits the transaction of an attempt if the handler succeeded, and rolls it back if not.
pub(crate) async fn finish<DB: Dialect>(
    mut attempt: Attempt<DB>,
    result: Result<(), AttemptError>,
) -> Result<(), AttemptError> {
    let mut error = match result {
        Ok(()) => {
            return attempt.commit().await.map_err(|error| match error.kind() {
                ErrorKind::CommitUnknown => AttemptError::InDoubt(error),
                _ => AttemptError::Handler(error.into()),
            });
        }
        Err(error) => error,
    };
    // Our database responds, so the handler met the outage of another system, or our transaction is whole, so
    // it met a lock of another connection. Those may never end.
    if let AttemptError::Handler(mut elsewhere) = error {
        if elsewhere.is_outage() && attempt.is_reachable().await {
            elsewhere = elsewhere.without_outage();
        } else if elsewhere.is_contention() && attempt.is_whole().await {
            elsewhere = elsewhere.elsewhere();
        }
        error = AttemptError::Handler(elsewhere);
    }
    attempt.rollback().await;
    Err(error)
}

/// Decides what follows an error of the handler: another delivery, or a dead letter.
async fn handler_failed<DB: Dialect, S>(
    context: &Context<'_, DB, S>,
    handler: &Handler<DB, S>,
    message: &Message,
    number: u32,
    error: &HandlerError,
) -> Result<DeliveryOutcome, RepeatAtOnce> {
    let (inbox, policy, text) = (context.inbox, handler.policy, error.to_string());
    if error.is_outage() && !context.store.is_reachable().await {
        context.lost_sessions.add_with_database(message.message_id());
        return Ok(DeliveryOutcome::Unavailable);
    }
    // Only the connection of this attempt was lost. Other deliveries need not wait.
    if error.is_outage()
        && let Some(lost) = context.lost_sessions.add(message.message_id())
    {
        let delay = policy.retry.delay(lost, retry::random());
        tracing::info!(consumer = policy.consumer, error = text, lost, "an attempt lost its session");
        return Ok(DeliveryOutcome::Retried { delay, counted: false, error: text });
    }
    if error.disposition() == Disposition::Reject {
        return dead_letter(context, message, DeadReason::Rejected, &text, number).await;
    }
    let failures = match inbox.record_failure(message, &text).await {
        Ok(failures) => failures,
        Err(error) => return DeliveryOutcome::from_store_error(&error),
    };
    crash::point("consumer.after_failure");
    if policy.gives_up(failures) {
        return dead_letter(context, message, DeadReason::Exhausted, &text, failures).await;
    }
    let delay = match error.disposition() {
        Disposition::RetryAfter(delay) => delay,
        _ => policy.retry.delay(failures, retry::random()),
    };
    Ok(DeliveryOutcome::Retried { delay: delay.min(DELAY_MAX), counted: true, error: text })
}

/// Ends the delivery of a message whose payload was redacted. It reads no claim: the inbox may have the hash
/// of the payload as it was before.
pub(crate) async fn end_redacted<DB: Dialect>(inbox: &Inbox<DB>, message: &Message) -> DeliveryOutcome {
    match inbox.forget_failures(message).await {
        Ok(()) => {
            tracing::info!(
                consumer = inbox.consumer(),
                message_id = %message.message_id(),
                event_type = message.event_type,
                "the payload was redacted: the message is acknowledged without running a handler"
            );
            DeliveryOutcome::Redacted
        }
        Err(error) => DeliveryOutcome::from_store_error_or_redeliver(&error),
    }
}
