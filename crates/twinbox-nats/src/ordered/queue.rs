//! The messages between the relay and the task that sends them.
use super::results::{Answer, Answers, Results};
use crate::publish::{Encoded, unavailable};
use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::Notify, time::Instant};
use twinbox_core::{PublishError, PublishErrorKind};

/// A message that is to be sent.
pub(super) struct Item {
    pub(super) encoded: Encoded,
    pub(super) send_by: Instant,
    pub(super) answer: Answer,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Notify,
    hasher: RandomState,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// The keys with results that the relay has not taken yet, those to come included.
    keys: HashMap<u64, Key>,
}

#[derive(Default)]
struct Key {
    unheard: usize,
    /// A message has failed. Later ones fail too until the relay has taken all results.
    is_broken: bool,
}

impl State {
    fn break_key(&mut self, key: Option<u64>) {
        if let Some(key) = key.and_then(|key| self.keys.get_mut(&key)) {
            key.is_broken = true;
        }
    }

    fn is_broken(&self, key: Option<u64>) -> bool {
        key.and_then(|key| self.keys.get(&key)).is_some_and(|key| key.is_broken)
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds messages in their order, except those of keys with a failure.
    pub(super) fn push<'a>(
        self: &Arc<Self>,
        messages: impl Iterator<Item = (Option<&'a str>, Result<Encoded, PublishError>)>,
        send_by: Instant,
    ) -> Results {
        let (mut state, mut answers) = (self.state(), Answers::new());
        for (key, encoded) in messages {
            let key = key.map(|key| self.hasher.hash_one(key));
            if let Some(key) = key {
                state.keys.entry(key).or_default().unheard += 1;
            }
            let answer = answers.next(key);
            match encoded {
                _ if state.is_broken(key) => answer.send(Err(behind_failure())),
                Err(error) => {
                    state.break_key(key);
                    answer.send(Err(error));
                }
                Ok(encoded) => state.items.push_back(Item { encoded, send_by, answer }),
            }
        }
        drop(state);
        self.filled.notify_one();
        answers.into_results(self.clone())
    }

    /// Notes that the relay has taken results of messages with these keys.
    pub(super) fn note_heard(&self, keys: impl Iterator<Item = u64>) {
        let state = &mut self.state().keys;
        for at in keys {
            if let Some(key) = state.get_mut(&at) {
                key.unheard -= 1;
                if key.unheard == 0 {
                    state.remove(&at);
                }
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.state().items.len()
    }

    /// Takes the first message, unless it is too late for it, or it does not fit.
    pub(super) fn pop_if(&self, fits: impl FnOnce(&Item) -> bool) -> Option<Item> {
        let now = Instant::now();
        self.state().items.pop_front_if(|item| item.send_by >= now && fits(item))
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
        let mut state = self.state();
        let behind = behind.into_iter().map(|answer| (answer, behind_failure()));
        for (answer, error) in behind.chain(failed) {
            state.break_key(answer.key);
            answer.send(Err(error));
        }
        let (behind, rest): (VecDeque<_>, _) =
            std::mem::take(&mut state.items).into_iter().partition(|item| state.is_broken(item.answer.key));
        state.items = rest;
        behind.into_iter().for_each(|item| item.answer.send(Err(behind_failure())));
    }

    /// Fails if it is too late to send the first message.
    pub(super) fn fail_late(&self) {
        let late = self.state().items.pop_front_if(|item| item.send_by < Instant::now());
        if let Some(late) = late {
            let error = PublishError::new(PublishErrorKind::Unanswered, "nats.stalled");
            self.fail([(late.answer, error)], []);
        }
    }

    /// Gives up what is not sent yet: the publisher is dropped.
    pub(super) fn close(&self) {
        let items = std::mem::take(&mut self.state().items);
        items.into_iter().for_each(|item| item.answer.send(Err(unavailable("nats.not_sent"))));
    }
}

fn behind_failure() -> PublishError {
    PublishError::new(PublishErrorKind::BehindFailure, "nats.behind_failure")
}

pub(super) fn in_doubt() -> PublishError {
    PublishError::new(PublishErrorKind::InDoubt, "nats.disconnected")
}
