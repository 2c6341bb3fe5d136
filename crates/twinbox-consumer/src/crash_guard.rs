//! Finds messages whose handler ends the process, by an abort or by using all memory.
//!
//! From the second delivery on, a start is committed before the handler runs. It ends when the result of the
//! attempt is committed. A start that has not ended points to a crash. Its message then runs alone in its
//! process: no other message can be the cause, and no other attempt is interrupted by the next crash. After
//! [`Policy::crash_limit`] crashes of this kind the message is a dead letter.
//!
//! The delivery count of a broker cannot replace this: it also counts deliveries that no handler has seen.
use crate::{context::Context, dead_letter::dead_letter, outcome::DeliveryOutcome, policy::Policy};
use std::time::Duration;
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};
use twinbox_core::{Message, MessageId, crash};
use twinbox_sql::{Dialect, Error, inbox::DeadReason};

/// How long a message that has to run alone waits for the handlers that run. No other handler of the process
/// begins meanwhile, so one that takes for hours must not be waited for.
const LONE_WAIT_MAX: Duration = Duration::from_secs(30);
/// When the message is tried again.
const LONE_DELAY: Duration = Duration::from_secs(60);

/// The permission to run a handler. Dropping it lets others run.
pub(crate) struct Start<'a> {
    _shared: Option<RwLockReadGuard<'a, ()>>,
    exclusive: Option<RwLockWriteGuard<'a, ()>>,
    /// Whether the database has a record of the start, which must be ended.
    pub(crate) is_recorded: bool,
}

impl Start<'_> {
    /// Whether no other handler of the process runs meanwhile.
    pub(crate) fn is_alone(&self) -> bool {
        self.exclusive.is_some()
    }
}

/// Waits until the handler may run on the message, and records the start if needed.
///
/// # Errors
/// The outcome of the delivery, if the handler must not run.
pub(crate) async fn start<'a, DB: Dialect, S>(
    context: &Context<'a, DB, S>,
    policy: &Policy,
    message: &Message,
    redelivered: bool,
) -> Result<Start<'a>, DeliveryOutcome> {
    let (inbox, id) = (context.inbox, message.message_id());
    let handler_lock = context.store.engine().handler_lock();
    let shared = context.unless_stopped(handler_lock.read()).await?;
    if !redelivered {
        return Ok(Start { _shared: Some(shared), exclusive: None, is_recorded: false });
    }
    let is_recorded = record(context, id, inbox.record_start(id)).await?;
    // No record and no open start: the message is settled, and the claim will find that.
    if is_recorded
        || inbox
            .open_starts(id)
            .await
            .map_err(|error| DeliveryOutcome::from_store_error_or_redeliver(&error))?
            == 0
    {
        return Ok(Start { _shared: Some(shared), exclusive: None, is_recorded });
    }
    drop(shared);
    let alone = tokio::time::timeout(LONE_WAIT_MAX, handler_lock.write());
    let Ok(exclusive) = context.unless_stopped(alone).await? else {
        let error = format!(
            "it may have ended the process before, so it has to run alone, and another handler did not end \
             within {LONE_WAIT_MAX:?}"
        );
        return Err(DeliveryOutcome::Retried { delay: LONE_DELAY, counted: false, error });
    };
    let open_starts = inbox
        .open_starts(id)
        .await
        .map_err(|error| DeliveryOutcome::from_store_error_or_redeliver(&error))?;
    if open_starts > policy.crash_limit {
        let crashes = open_starts - 1;
        let error =
            format!("the process crashed {crashes} times while the handler ran on this message alone");
        let outcome = dead_letter(context, message, DeadReason::Crashed, &error, 0).await;
        return Err(outcome.unwrap_or_else(DeliveryOutcome::from));
    }
    tracing::warn!(
        consumer = policy.consumer,
        message_id = %id,
        open_starts,
        "an earlier start of the message has not ended and may have been a crash: it runs alone"
    );
    let lone_start = async { inbox.record_lone_start(id).await.map(|()| true) };
    let is_recorded = open_starts > 0 && record(context, id, lone_start).await?;
    Ok(Start { _shared: None, exclusive: Some(exclusive), is_recorded })
}

/// Remembers a start that was recorded. After an error the start may be on record as well, so it is ended
/// later.
async fn record<DB: Dialect, S>(
    context: &Context<'_, DB, S>,
    id: MessageId,
    record: impl Future<Output = Result<bool, Error>>,
) -> Result<bool, DeliveryOutcome> {
    match record.await {
        Ok(is_recorded) => {
            if is_recorded {
                context.starts.add([id]);
                crash::point("consumer.after_start");
            }
            Ok(is_recorded)
        }
        Err(error) => {
            if !error.is_contention() {
                context.starts.end_later(context.inbox, vec![id]);
            }
            Err(DeliveryOutcome::from_store_error_or_redeliver(&error))
        }
    }
}
