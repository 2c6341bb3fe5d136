//! Messages that end the process they are handled in.
//!
//! From its second delivery on, the start on a message is committed before its handler runs, and ends with it. A
//! message with a start that is not known to have ended runs alone, so that no other is blamed for it and none goes
//! down with it; when processes have died so [`Policy::crash_limit`] times it is given up. How often a broker has
//! delivered it proves nothing: that counts deliveries that no handler ever saw.
use crate::{
    Outcome, Policy,
    attempt::{Once, bury, store_error},
};
use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};
use tokio_util::sync::CancellationToken;
use twinbox_core::{Message, MessageId, crash, reconnect::Reconnect};
use twinbox_sql::{ClaimFence, Dialect, Error, Store, inbox::DeadReason};

/// Starts that end in one transaction.
const ENDED_AT_ONCE_MAX: usize = 200;

/// What the attempts of a consumer have in common.
pub(crate) struct Runtime<'a, DB: Dialect, S> {
    pub(crate) store: &'a Store<DB>,
    pub(crate) state: &'a S,
    pub(crate) stop: &'a CancellationToken,
    pub(crate) open: &'a OpenStarts,
    /// Claims are made behind it.
    pub(crate) fence: Option<ClaimFence>,
}

/// The starts of this process that are or may be on record.
#[derive(Default)]
pub(crate) struct OpenStarts {
    /// Their handlers run.
    open: Mutex<HashSet<MessageId>>,
    /// They have ended, and the database was not there to be told.
    owed: Arc<Mutex<BTreeSet<MessageId>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenStarts {
    pub(crate) fn began(&self, messages: impl IntoIterator<Item = MessageId>) {
        locked(&self.open).extend(messages);
    }

    pub(crate) fn ended(&self, messages: &[MessageId]) {
        locked(&self.open).retain(|id| !messages.contains(id));
    }

    /// Those among these deliveries, which were given up in the middle.
    pub(crate) fn take_of(&self, messages: &HashSet<MessageId>) -> Vec<MessageId> {
        locked(&self.open).extract_if(|id| messages.contains(id)).collect()
    }

    /// Those of deliveries that were given up in the middle: this process has survived them.
    pub(crate) fn take(&self) -> Vec<MessageId> {
        locked(&self.open).drain().collect()
    }
}

/// Leave to run a handler, until it is dropped.
pub(crate) struct Start<'a> {
    _beside_others: Option<RwLockReadGuard<'a, ()>>,
    alone: Option<RwLockWriteGuard<'a, ()>>,
    pub(crate) on_record: bool,
}

impl Start<'_> {
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.is_some()
    }
}

/// Waits until the message may run. An error: it may not, and this is what becomes of it.
pub(crate) async fn start<'a, DB: Dialect, S>(
    runtime: &Runtime<'a, DB, S>,
    policy: &Policy,
    message: &Message,
    redelivered: bool,
) -> Result<Start<'a>, Once> {
    let (store, consumer, id) = (runtime.store, policy.consumer, message.message_id());
    let beside = runtime.unless_stopped(store.alone().read()).await?;
    if !redelivered {
        return Ok(Start { _beside_others: Some(beside), alone: None, on_record: false });
    }
    let on_record = runtime.recorded(consumer, id, store.record_start(consumer, id)).await?;
    // Without a start on record it is done with, which the claim will tell.
    if on_record || store.open_starts(consumer, id).await? == 0 {
        return Ok(Start { _beside_others: Some(beside), alone: None, on_record });
    }
    drop(beside);
    let alone = runtime.unless_stopped(store.alone().write()).await?;
    let open = store.open_starts(consumer, id).await?;
    if open > policy.crash_limit {
        let error =
            format!("processes died {} times while its handler ran, with nothing beside it", open - 1);
        return Err(bury(store, consumer, message, DeadReason::Crashed, &error, 0).await);
    }
    tracing::warn!(consumer, message_id = %id, open, "a start of its handler has not ended: it runs alone");
    let lone = async { store.record_lone_start(consumer, id).await.map(|()| true) };
    let on_record = open > 0 && runtime.recorded(consumer, id, lone).await?;
    Ok(Start { _beside_others: None, alone: Some(alone), on_record })
}

impl<DB: Dialect, S> Runtime<'_, DB, S> {
    /// How long a handler may hold the fence.
    pub(crate) fn lease(&self) -> Duration {
        match self.fence {
            Some(ClaimFence::Partition(fence)) => fence.lease,
            Some(ClaimFence::Run(_)) | None => Duration::MAX,
        }
    }

    pub(crate) async fn unless_stopped<T>(&self, waited_for: impl Future<Output = T>) -> Result<T, Once> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Once::Done(given_back())),
            turn = waited_for => Ok(turn),
        }
    }

    /// What may have been written although no answer came has ended as well.
    async fn recorded(
        &self,
        consumer: &'static str,
        id: MessageId,
        record: impl Future<Output = Result<bool, Error>>,
    ) -> Result<bool, Once> {
        match record.await {
            Ok(on_record) => {
                if on_record {
                    self.open.began([id]);
                    crash::point("consumer.after_start");
                }
                Ok(on_record)
            }
            Err(error) => {
                if !error.is_contention() {
                    self.end_later(consumer, vec![id]);
                }
                Err(store_error(&error))
            }
        }
    }

    /// Ends starts with nothing to tell of them. While the database is away, in the background: what this process has
    /// survived is not to count when others die.
    pub(crate) async fn end(&self, consumer: &str, mut messages: Vec<MessageId>) {
        messages.sort_unstable();
        if self.store.end_starts(consumer, &messages).await.is_err() {
            self.end_later(consumer, messages);
        }
    }

    /// One task for all of them, however long the database is away.
    pub(crate) fn end_later(&self, consumer: &str, messages: Vec<MessageId>) {
        let owed = self.open.owed.clone();
        let first = {
            let mut owed = locked(&owed);
            let first = owed.is_empty();
            owed.extend(messages);
            first && !owed.is_empty()
        };
        if !first {
            return;
        }
        let (store, consumer) = (self.store.clone(), consumer.to_owned());
        tokio::spawn(async move {
            let mut reconnect = Reconnect::new();
            while !store.pool().is_closed() {
                tokio::time::sleep(reconnect.pause()).await;
                let some = Vec::from_iter(locked(&owed).iter().copied().take(ENDED_AT_ONCE_MAX));
                if store.end_starts(&consumer, &some).await.is_ok() {
                    reconnect.reset();
                    let mut owed = locked(&owed);
                    owed.retain(|id| !some.contains(id));
                    if owed.is_empty() {
                        break;
                    }
                }
            }
        });
    }
}

/// What becomes of a delivery that waited for its turn when the process was asked to stop.
pub(crate) fn given_back() -> Outcome {
    Outcome::Retried { delay: Duration::ZERO, counted: false, error: "this process stops".to_owned() }
}

impl From<Error> for Once {
    fn from(error: Error) -> Self {
        store_error(&error)
    }
}
