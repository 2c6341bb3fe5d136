//! One delivery, from the claim to what is to become of it.
use crate::{
    conflict,
    handler::{Handler, Run},
    start::{Runtime, start},
};
use futures::FutureExt as _;
use std::{panic::AssertUnwindSafe, time::Duration};
use twinbox_core::{DecodeError, Message, crash, retry};
use twinbox_sql::{
    Dialect, Disposition as D, Error, ErrorKind, HandlerError, Store,
    inbox::{Attempt, Claimed, DeadReason},
};

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler ran and its transaction committed.
    Handled,
    /// It was done with before: nothing ran.
    Duplicate,
    /// The attempt failed; the message comes again.
    Retried {
        /// Not before this.
        delay: Duration,
        /// Whether it counts towards the policy's attempts.
        counted: bool,
        /// What the handler said.
        error: String,
    },
    /// Its payload was blanked: nothing ran, and it is done with.
    Redacted,
    /// It is sent again for another consumer: nothing ran, and it is done with.
    PassedBy,
    /// Given up, and kept with its error.
    DeadLettered {
        /// The last error.
        error: String,
    },
    /// The database is away; nothing is known and nothing is counted.
    Unavailable,
    /// Its partition is another process's by now, or the server started anew: nothing ran here, and the owner runs it.
    NotOwned,
}

/// How often a deadlock, a serialization failure or a lost answer to COMMIT is tried again at once.
const AT_ONCE_MAX: u32 = 5;

/// How soon a message comes again of which the store cannot keep what became of it.
const REFUSED_DELAY: Duration = Duration::from_secs(10);

/// The longest delay: a handler may ask for one that no clock can count.
const DELAY_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Attempts at one message until there is something to tell its source.
pub(crate) async fn process<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    handler: &Handler<DB, S>,
    message: &Message,
    redelivered: bool,
) -> Outcome {
    let (store, consumer) = (runtime.store, handler.policy.consumer);
    if message.is_redacted() {
        return redacted(store, consumer, message).await;
    }
    let start = match start(runtime, &handler.policy, message, redelivered).await {
        Ok(start) => start,
        Err(instead) => return instead.in_a_second(),
    };
    // Nobody else runs meanwhile.
    let at_once_max = if start.is_alone() { 0 } else { AT_ONCE_MAX };
    let outcome = attempts(runtime, handler, message, redelivered, at_once_max).await;
    let untold = matches!(
        outcome,
        Outcome::Duplicate
            | Outcome::Unavailable
            | Outcome::NotOwned
            | Outcome::Retried { counted: false, .. }
    );
    if start.on_record {
        runtime.open.ended(&[message.message_id()]);
        if untold {
            runtime.end(consumer, vec![message.message_id()]).await;
        }
    }
    outcome
}

async fn attempts<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    handler: &Handler<DB, S>,
    message: &Message,
    mut redelivered: bool,
    at_once_max: u32,
) -> Outcome {
    let mut at_once = 0;
    loop {
        match once(runtime, handler, message, redelivered).await {
            Once::Done(outcome) => return outcome,
            Once::AtOnce(error) if at_once < at_once_max => {
                at_once += 1;
                redelivered = true;
                tracing::debug!(consumer = handler.policy.consumer, %error, at_once, "trying again at once");
                tokio::time::sleep(Duration::from_millis(10 << at_once).mul_f64(retry::random())).await;
            }
            Once::AtOnce(error) => {
                let delay = handler.policy.retry.delay(1, retry::random());
                return Outcome::Retried { delay, counted: false, error };
            }
        }
    }
}

pub(crate) enum Once {
    Done(Outcome),
    /// Nobody's fault: try again without counting.
    AtOnce(String),
}

impl Once {
    /// Where nothing is tried at once.
    pub(crate) fn in_a_second(self) -> Outcome {
        match self {
            Self::Done(outcome) => outcome,
            Self::AtOnce(error) => Outcome::Retried { delay: Duration::from_secs(1), counted: false, error },
        }
    }
}

impl From<Outcome> for Once {
    fn from(outcome: Outcome) -> Self {
        Self::Done(outcome)
    }
}

async fn once<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    handler: &Handler<DB, S>,
    message: &Message,
    redelivered: bool,
) -> Once {
    let (store, consumer) = (runtime.store, handler.policy.consumer);
    crash::point("consumer.before_claim");
    let mut attempt = match store.claim_behind(runtime.fence, consumer, message, redelivered).await {
        Ok(Claimed::Open(attempt)) => attempt,
        Ok(Claimed::Duplicate(earlier)) => {
            return conflict::duplicate(runtime, consumer, message, &earlier).await;
        }
        Err(error) if error.kind() == ErrorKind::Forgotten => {
            return bury(store, consumer, message, DeadReason::InDoubt, &error.to_string(), 0).await;
        }
        Err(error) => return store_error(&error),
    };
    crash::point("consumer.after_claim");
    let failed = attempt.number() - 1;
    if handler.policy.gives_up(failed) {
        // Its last failure was counted, and the process died before it was buried.
        attempt.rollback().await;
        return bury(store, consumer, message, DeadReason::Exhausted, "its attempts ran out", failed).await;
    }
    let number = attempt.number();
    let result = match run(runtime, handler, &mut attempt, &[message]).await {
        Ok(result) => result,
        Err(error) => {
            attempt.rollback().await;
            return bury(store, consumer, message, DeadReason::Undecodable, &error, failed).await;
        }
    };
    crash::point("consumer.before_commit");
    match finish(attempt, result).await {
        Ok(()) => {
            crash::point("consumer.after_commit");
            Outcome::Handled.into()
        }
        Err(Unfinished::InDoubt(error)) => Once::AtOnce(error),
        Err(Unfinished::Failed(error)) => failure(store, handler, message, number, &error).await,
    }
}

/// Claims the message and runs the handler, and leaves its transaction open.
pub(crate) async fn unfinished<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    handler: &Handler<DB, S>,
    message: &Message,
) -> Result<Attempt<DB>, String> {
    let store = runtime.store;
    let mut attempt = match store.claim(handler.policy.consumer, message, false).await {
        Ok(Claimed::Open(attempt)) => attempt,
        Ok(Claimed::Duplicate(_)) => return Err("it was handled before".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    let error = match run(runtime, handler, &mut attempt, &[message]).await {
        Ok(Ok(())) => return Ok(attempt),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error,
    };
    attempt.rollback().await;
    Err(error)
}

/// Runs the handler within its time. The outer error: the message cannot be read.
pub(crate) async fn run<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    handler: &Handler<DB, S>,
    attempt: &mut Attempt<DB>,
    messages: &[&Message],
) -> Result<Result<(), HandlerError>, String> {
    let (store, state, number) = (runtime.store, runtime.state, attempt.number());
    // Its transaction would keep a successor out.
    let timeout = handler.policy.timeout.min(runtime.lease());
    let work = async {
        let plain = messages.iter().map(|message| store.decode(message)).collect::<Result<Vec<_>, _>>()?;
        match &handler.run {
            Run::Each(run) => Ok(run(state, &mut attempt.tx(), &plain[0], number)?.await),
            Run::Batch(run) => {
                let plain: Vec<&Message> = plain.iter().map(AsRef::as_ref).collect();
                Ok(run(state, &mut attempt.batch_tx(), &plain, number)?.await)
            }
        }
    };
    // Decoding and reading the message is the application's code as well, so its panics are caught here too.
    let work = twinbox_sql::handled(AssertUnwindSafe(work).catch_unwind());
    match tokio::time::timeout(timeout, work).await {
        Ok(Ok(result)) => result.map_err(|e: DecodeError| e.to_string()),
        Ok(Err(panic)) => Ok(Err(HandlerError::from(format!("the handler panicked: {}", words(&*panic))))),
        Err(_) => Ok(Err(HandlerError::from(format!("the handler took longer than {timeout:?}")))),
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without words")
}

pub(crate) enum Unfinished {
    /// COMMIT was not answered: the claim will tell.
    InDoubt(String),
    Failed(HandlerError),
}

/// Commits or rolls back, and by the error of either says what has failed.
pub(crate) async fn finish<DB: Dialect>(
    mut attempt: Attempt<DB>,
    result: Result<(), HandlerError>,
) -> Result<(), Unfinished> {
    match result {
        Ok(()) => attempt.commit().await.map_err(|e| match e.kind() {
            ErrorKind::CommitUnknown => Unfinished::InDoubt(e.to_string()),
            _ => Unfinished::Failed(e.into()),
        }),
        Err(mut error) => {
            // Something else that the handler needs is away, perhaps for good.
            if error.is_outage() && attempt.answers().await {
                error = error.of_something_else();
            }
            attempt.rollback().await;
            Err(Unfinished::Failed(error))
        }
    }
}

async fn failure<DB: Dialect, S>(
    store: &Store<DB>,
    handler: &Handler<DB, S>,
    message: &Message,
    number: u32,
    error: &HandlerError,
) -> Once {
    let (policy, text) = (handler.policy, error.to_string());
    if error.is_contention() {
        return Once::AtOnce(text);
    }
    if error.is_outage() && !store.answers().await {
        return Outcome::Unavailable.into();
    }
    if error.is_outage() {
        // It lost its connection alone. That is no reason to let others wait.
        let delay = policy.retry.delay(1, retry::random());
        return Outcome::Retried { delay, counted: false, error: text }.into();
    }
    if error.disposition() == D::Reject {
        return bury(store, policy.consumer, message, DeadReason::Rejected, &text, number).await;
    }
    let failures = match store.record_failure(policy.consumer, message, &text).await {
        Ok(failures) => failures,
        Err(error) => return store_error(&error),
    };
    crash::point("consumer.after_failure");
    if policy.gives_up(failures) {
        return bury(store, policy.consumer, message, DeadReason::Exhausted, &text, failures).await;
    }
    let delay = match error.disposition() {
        D::RetryAfter(delay) => delay,
        _ => policy.retry.delay(failures, retry::random()),
    };
    Outcome::Retried { delay: delay.min(DELAY_MAX), counted: true, error: text }.into()
}

/// Dead-letters a message that no handler will get.
pub(crate) async fn give_up<DB: Dialect>(
    store: &Store<DB>,
    consumer: &str,
    message: &Message,
    reason: DeadReason,
    error: &str,
) -> Outcome {
    bury(store, consumer, message, reason, error, 0).await.in_a_second()
}

/// What becomes of a message whose payload was blanked. The inbox is not asked: it may know it with its payload.
pub(crate) async fn redacted<DB: Dialect>(store: &Store<DB>, consumer: &str, message: &Message) -> Outcome {
    match store.forget(consumer, message).await {
        Ok(()) => {
            tracing::info!(
                consumer,
                message_id = %message.message_id(),
                event_type = message.event_type,
                "the payload was redacted: acknowledged without running a handler"
            );
            Outcome::Redacted
        }
        Err(error) => store_error(&error).in_a_second(),
    }
}

pub(crate) async fn bury<DB: Dialect>(
    store: &Store<DB>,
    consumer: &str,
    message: &Message,
    reason: DeadReason,
    error: &str,
    attempts: u32,
) -> Once {
    match store.dead_letter(consumer, message, reason, error, attempts).await {
        Ok(true) => {
            tracing::warn!(
                consumer,
                message_id = %message.message_id(),
                event_type = message.event_type,
                reason = reason.as_str(),
                attempts,
                error,
                "dead letter"
            );
            crash::point("consumer.after_dead_letter");
            Outcome::DeadLettered { error: error.to_owned() }.into()
        }
        Ok(false) => Outcome::Duplicate.into(),
        Err(error) => store_error(&error),
    }
}

/// The store failed outside the handler, which says nothing about the message unless the database is there
/// and refuses to write it down.
pub(crate) fn store_error(error: &Error) -> Once {
    let cause = error as &dyn std::error::Error;
    if error.is_contention() || error.kind() == ErrorKind::CommitUnknown {
        return Once::AtOnce(error.to_string());
    }
    if error.kind() == ErrorKind::LeaseLost {
        return Outcome::NotOwned.into();
    }
    if error.is_transient() {
        tracing::warn!(error = cause, "the database is away");
        return Outcome::Unavailable.into();
    }
    tracing::error!(error = cause, "the store cannot keep what became of a message; it comes again");
    Outcome::Retried { delay: REFUSED_DELAY, counted: false, error: error.to_string() }.into()
}
