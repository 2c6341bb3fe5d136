//! The messages between the relay and the task that sends them.
use super::{
    keys::Keys,
    results::{Answer, Answers, Results},
};
use crate::publish::{Encoded, unavailable};
use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::Notify, time::Instant};
use twinbox_core::{PublishError, PublishErrorKind};

/// A message that is handed to the queue, by its key.
pub(super) struct Addressed<'a> {
    pub(super) key: Option<&'a str>,
    /// Whether it must not be part of a batch.
    pub(super) goes_alone: bool,
    /// Why NATS can never transport it, if so.
    pub(super) encoded: Result<Encoded, PublishError>,
}

/// A message that is to be sent.
pub(super) struct Item {
    pub(super) encoded: Encoded,
    pub(super) goes_alone: bool,
    pub(super) send_by: Instant,
    pub(super) answer: Answer,
}

#[derive(Default)]
pub(super) struct Queue {
    /// Locked before the keys.
    items: Mutex<VecDeque<Item>>,
    keys: Arc<Keys>,
    filled: Notify,
    hasher: RandomState,
}

impl Queue {
    fn items(&self) -> MutexGuard<'_, VecDeque<Item>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds messages in their order, except those of keys with a failure.
    pub(super) fn push<'a>(
        &self,
        messages: impl Iterator<Item = Addressed<'a>>,
        send_by: Instant,
    ) -> Results {
        let (mut items, mut keys, mut answers) = (self.items(), self.keys.lock(), Answers::new());
        for Addressed { key, goes_alone, encoded } in messages {
            let key = key.map(|key| self.hasher.hash_one(key));
            key.inspect(|key| keys.note_sent(*key));
            let answer = answers.next(key);
            match encoded {
                _ if keys.is_broken(key) => answer.send(Err(behind_failure())),
                Err(error) => {
                    keys.break_key(key);
                    answer.send(Err(error));
                }
                Ok(encoded) => items.push_back(Item { encoded, goes_alone, send_by, answer }),
            }
        }
        drop((items, keys));
        self.filled.notify_one();
        answers.into_results(self.keys.clone())
    }

    pub(super) fn len(&self) -> usize {
        self.items().len()
    }

    /// Whether the first message must not be part of a batch.
    pub(super) fn goes_alone(&self) -> bool {
        self.items().front().is_some_and(|item| item.goes_alone)
    }

    /// Takes the first message, unless it is too late for it, or it does not fit.
    pub(super) fn pop_if(&self, fits: impl FnOnce(&Item) -> bool) -> Option<Item> {
        let now = Instant::now();
        self.items().pop_front_if(|item| item.send_by >= now && fits(item))
    }

    /// Waits until messages were added since the last call.
    pub(super) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Answers messages that have failed, and those `behind` them. Those of their keys in the queue are
    /// behind them too.
    pub(super) fn fail(
        &self,
        failed: impl IntoIterator<Item = (Answer, PublishError)>,
        behind: impl IntoIterator<Item = Answer>,
    ) {
        let (mut items, mut keys) = (self.items(), self.keys.lock());
        let behind = behind.into_iter().map(|answer| (answer, behind_failure()));
        for (answer, error) in behind.chain(failed) {
            keys.break_key(answer.key);
            answer.send(Err(error));
        }
        let (behind, rest): (VecDeque<_>, _) =
            std::mem::take(&mut *items).into_iter().partition(|item| keys.is_broken(item.answer.key));
        *items = rest;
        behind.into_iter().for_each(|item| item.answer.send(Err(behind_failure())));
    }

    /// Fails if it is too late to send the first message.
    pub(super) fn fail_late(&self) {
        let late = self.items().pop_front_if(|item| item.send_by < Instant::now());
        if let Some(late) = late {
            let error = PublishError::new(PublishErrorKind::Unanswered, "nats.stalled");
            self.fail([(late.answer, error)], []);
        }
    }

    /// Gives up what is not sent yet: the publisher is dropped.
    pub(super) fn close(&self) {
        let items = std::mem::take(&mut *self.items());
        items.into_iter().for_each(|item| item.answer.send(Err(unavailable("nats.not_sent"))));
    }
}

fn behind_failure() -> PublishError {
    PublishError::new(PublishErrorKind::BehindFailure, "nats.behind_failure")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::in_doubt;
    use async_nats::HeaderMap;
    use bytes::Bytes;
    use futures::{FutureExt as _, StreamExt as _};
    use std::time::Duration;

    /// Fewer than a task of tokio may take without a pause.
    const RESULTS: usize = 50;

    fn push(queue: &Queue, messages: usize) -> Results {
        let encoded = || Encoded {
            subject: "s".into(),
            headers: HeaderMap::new(),
            payload: Bytes::new(),
            may_be_repeated: false,
        };
        let one = |_| Addressed { key: Some("one key"), goes_alone: false, encoded: Ok(encoded()) };
        let messages = (0..messages).map(one);
        queue.push(messages, Instant::now() + Duration::from_secs(60))
    }

    fn kind(results: &mut Results) -> PublishErrorKind {
        let (_, result) = results.next().now_or_never().expect("it is there").expect("not the last one");
        result.unwrap_err().kind()
    }

    /// Else a later message would be stored before the one that has failed.
    #[tokio::test]
    async fn a_key_stays_broken_until_the_relay_has_all_its_results() {
        let queue = Queue::default();
        let mut first = push(&queue, RESULTS);
        let failed = queue.pop_if(|_| true).unwrap().answer;
        queue.fail([(failed, in_doubt())], []);
        for _ in 0..RESULTS {
            let mut early = push(&queue, 1);
            assert_eq!(kind(&mut early), PublishErrorKind::BehindFailure);
            kind(&mut first);
        }
        assert!(first.next().await.is_none());
        drop(push(&queue, 1));
        assert_eq!(queue.len(), 1);
    }
}
