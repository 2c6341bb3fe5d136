//! Single attempts without a transport, for tests and tools.
use crate::{
    attempt::{attempt, run_handler},
    context::NoConsumer,
    handler::{EventHandler, Run},
    outcome::DeliveryOutcome,
};
use twinbox_core::Message;
use twinbox_sql::{
    Dialect, HandlerResult, Store,
    inbox::{Attempt, InboxClaim},
};

/// Makes one attempt at one message with the handler `H`, as [`Consumer::run`](crate::Consumer::run) does,
/// but without a transport: nothing is acknowledged. For tests and tools.
///
/// `redelivered` says that the message may have failed before. Only then its failures are read.
pub async fn deliver<DB: Dialect, S, H: EventHandler<DB, S>>(
    store: &Store<DB>,
    state: &S,
    message: &Message,
    redelivered: bool,
) -> DeliveryOutcome {
    let (handler, no_consumer) = (H::handler(), NoConsumer::default());
    // The same commit as in a running consumer.
    let inbox = store.inbox(handler.policy.consumer).keep_connections();
    attempt(&no_consumer.context(store, &inbox, state), &handler, message, redelivered).await
}

/// Claims the message, runs the handler `H`, and returns the transaction without its COMMIT. For the test
/// harness.
#[doc(hidden)]
pub async fn unfinished<DB: Dialect, S, H: EventHandler<DB, S>>(
    store: &Store<DB>,
    state: &S,
    message: &Message,
) -> Result<Attempt<DB>, String> {
    let handler = H::handler();
    let inbox = store.inbox(handler.policy.consumer);
    let mut attempt = match inbox.claim(message, false).await {
        Ok(InboxClaim::Open(attempt)) => attempt,
        Ok(InboxClaim::Duplicate(_)) => return Err("it was handled before".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    let no_consumer = NoConsumer::default();
    let context = no_consumer.context(store, &inbox, state);
    let result = run_handler(&context, &handler, &mut attempt, &[message]).await;
    match result {
        Ok(()) => Ok(attempt),
        Err(error) => {
            attempt.rollback().await;
            Err(error.into_handler_error().to_string())
        }
    }
}

/// Returns how many messages the handler `H` takes at most. For the test harness.
#[doc(hidden)]
pub fn batch_max<DB: Dialect, S, H: EventHandler<DB, S>>() -> usize {
    let handler = H::handler();
    if matches!(handler.run, Run::Batch(_)) { handler.policy.batch } else { 1 }
}

/// Runs the handler `H` in a transaction that other handlers use as well. Only a handler of batches takes
/// more than one message. For the test harness.
#[doc(hidden)]
pub async fn run_within<DB: Dialect, S, H: EventHandler<DB, S>>(
    store: &Store<DB>,
    state: &S,
    attempt: &mut Attempt<DB>,
    messages: &[&Message],
) -> HandlerResult {
    let (handler, no_consumer) = (H::handler(), NoConsumer::default());
    let inbox = store.inbox(handler.policy.consumer);
    attempt.deliver_another(handler.policy.consumer, messages[0]);
    run_handler(&no_consumer.context(store, &inbox, state), &handler, attempt, messages)
        .await
        .map_err(|error| error.into_handler_error())
}
