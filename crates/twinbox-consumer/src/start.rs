//! Messages that end the process they are handled in.
//!
//! From its second delivery on, the start on a message is committed before its handler runs, and ends with it. A
//! message with a start that is not known to have ended runs alone, so that no other is blamed for it and none goes
//! down with it; when processes have died so [`Policy::crash_limit`] times it is given up. How often a broker has
//! delivered it proves nothing: that counts deliveries that no handler ever saw.
use crate::{
    Policy,
    attempt::{Once, Runtime, bury, store_error},
};
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};
use twinbox_core::{Message, MessageId, crash, reconnect::Reconnect};
use twinbox_sql::{Dialect, Store, inbox::DeadReason};

/// Leave to run a handler, until it is dropped.
pub(crate) struct Start<'a> {
    _beside_others: Option<RwLockReadGuard<'a, ()>>,
    _alone: Option<RwLockWriteGuard<'a, ()>>,
    pub(crate) on_record: bool,
}

/// Waits until the message may run. An error: it may not, and this is what becomes of it.
pub(crate) async fn start<'a, DB: Dialect, S>(
    runtime: &Runtime<'a, DB, S>,
    policy: &Policy,
    message: &Message,
    redelivered: bool,
) -> Result<Start<'a>, Once> {
    let (store, consumer, id) = (runtime.store, policy.consumer, message.message_id());
    let beside = runtime.alone.read().await;
    let on_record = redelivered && store.record_start(consumer, id).await?;
    // Without a start on record it is done with, which the claim will tell.
    if on_record || !redelivered || store.open_starts(consumer, id).await? == 0 {
        crash::point("consumer.after_start");
        return Ok(Start { _beside_others: Some(beside), _alone: None, on_record });
    }
    drop(beside);
    let alone = runtime.alone.write().await;
    let open = store.open_starts(consumer, id).await?;
    if open > policy.crash_limit {
        let error =
            format!("processes died {} times while its handler ran, with nothing beside it", open - 1);
        return Err(bury(store, consumer, message, DeadReason::Crashed, &error, 0).await);
    }
    tracing::warn!(consumer, message_id = %id, open, "a start of its handler has not ended: it runs alone");
    if open > 0 {
        store.record_lone_start(consumer, id).await?;
    }
    crash::point("consumer.after_start");
    Ok(Start { _beside_others: None, _alone: Some(alone), on_record: open > 0 })
}

/// Ends starts with nothing to tell of them. While the database is away, in the background: what this process has
/// survived is not to count when others die.
pub(crate) async fn end<DB: Dialect>(store: &Store<DB>, consumer: &'static str, messages: Vec<MessageId>) {
    let Err(error) = store.end_starts(consumer, &messages).await else { return };
    tracing::debug!(
        consumer,
        error = &error as &dyn std::error::Error,
        "starts have ended and are on record"
    );
    let store = store.clone();
    tokio::spawn(async move {
        let mut reconnect = Reconnect::new();
        while !store.pool().is_closed() {
            tokio::time::sleep(reconnect.pause()).await;
            if store.end_starts(consumer, &messages).await.is_ok() {
                break;
            }
        }
    });
}

impl From<twinbox_sql::Error> for Once {
    fn from(error: twinbox_sql::Error) -> Self {
        store_error(&error)
    }
}
