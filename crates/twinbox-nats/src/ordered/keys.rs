//! The keys of messages on their way, and which of them have a failure.
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The keys with results that the relay has not taken yet, those to come included, by their hash.
#[derive(Default)]
pub(super) struct Keys(Mutex<HashMap<u64, Key>>);

#[derive(Default)]
struct Key {
    unheard: usize,
    /// A message has failed. Later ones fail too until the relay has taken all results.
    is_broken: bool,
}

/// The keys, locked.
pub(super) struct KeysGuard<'a>(MutexGuard<'a, HashMap<u64, Key>>);

impl Keys {
    pub(super) fn lock(&self) -> KeysGuard<'_> {
        KeysGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KeysGuard<'_> {
    /// Notes that there will be another result of a key.
    pub(super) fn note_sent(&mut self, key: u64) {
        self.0.entry(key).or_default().unheard += 1;
    }

    /// Notes that the relay has taken results of these keys.
    pub(super) fn note_heard(&mut self, keys: impl Iterator<Item = u64>) {
        for at in keys {
            if let Some(key) = self.0.get_mut(&at) {
                key.unheard -= 1;
                if key.unheard == 0 {
                    self.0.remove(&at);
                }
            }
        }
    }

    pub(super) fn break_key(&mut self, key: Option<u64>) {
        if let Some(key) = key.and_then(|key| self.0.get_mut(&key)) {
            key.is_broken = true;
        }
    }

    pub(super) fn is_broken(&self, key: Option<u64>) -> bool {
        key.and_then(|key| self.0.get(&key)).is_some_and(|key| key.is_broken)
    }
}
