//! The starts of handlers that this process has recorded in the database and not ended there.
//!
//! A start that stays on record looks like a crash to the next process, see
//! [`crash_guard`](crate::crash_guard). So a process that survives an attempt ends its start, also when the
//! database was away at the time.
use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use twinbox_core::{MessageId, backoff::Backoff, task_name::TaskName};
use twinbox_sql::{Dialect, Inbox};

/// Starts that are ended in one transaction.
const ENDED_TOGETHER_MAX: usize = 200;

/// The starts of one consumer that are on record, or may be.
#[derive(Default)]
pub(crate) struct Starts {
    /// Messages whose handlers run.
    running: Mutex<HashSet<MessageId>>,
    /// Messages whose handlers have ended, but the database was away.
    unwritten: Arc<Mutex<BTreeSet<MessageId>>>,
}

impl Starts {
    /// Adds messages whose start was recorded.
    pub(crate) fn add(&self, messages: impl IntoIterator<Item = MessageId>) {
        lock(&self.running).extend(messages);
    }

    /// Removes messages whose attempt has ended.
    pub(crate) fn remove(&self, messages: &[MessageId]) {
        lock(&self.running).retain(|id| !messages.contains(id));
    }

    /// Removes and returns the starts among `messages`, whose attempts were aborted.
    pub(crate) fn take_of(&self, messages: &HashSet<MessageId>) -> Vec<MessageId> {
        lock(&self.running).extract_if(|id| messages.contains(id)).collect()
    }

    /// Removes and returns all starts, whose attempts were aborted.
    pub(crate) fn take_all(&self) -> Vec<MessageId> {
        lock(&self.running).drain().collect()
    }

    /// Ends starts on record. While the database is away this goes on in the background, so that an attempt
    /// which this process has survived does not count as a crash.
    pub(crate) async fn end<DB: Dialect>(&self, inbox: &Inbox<DB>, mut messages: Vec<MessageId>) {
        messages.sort_unstable();
        if inbox.end_starts(&messages).await.is_err() {
            self.end_later(inbox, messages);
        }
    }

    /// Ends starts on record in the background. One spawned future ends all of them, however long the
    /// database is away.
    pub(crate) fn end_later<DB: Dialect>(&self, inbox: &Inbox<DB>, messages: Vec<MessageId>) {
        let unwritten = self.unwritten.clone();
        let is_first = {
            let mut unwritten = lock(&unwritten);
            let was_empty = unwritten.is_empty();
            unwritten.extend(messages);
            was_empty && !unwritten.is_empty()
        };
        if !is_first {
            return;
        }
        let inbox = inbox.clone();
        tokio::spawn(TaskName::EndStarts.of(async move {
            let mut backoff = Backoff::new();
            while !inbox.is_closed() {
                tokio::time::sleep(backoff.pause()).await;
                let next = Vec::from_iter(lock(&unwritten).iter().copied().take(ENDED_TOGETHER_MAX));
                if inbox.end_starts(&next).await.is_ok() {
                    backoff.reset();
                    let mut unwritten = lock(&unwritten);
                    unwritten.retain(|id| !next.contains(id));
                    if unwritten.is_empty() {
                        break;
                    }
                }
            }
        }));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
