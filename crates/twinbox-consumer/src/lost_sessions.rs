//! Sessions that a message has lost while the database answered.
//!
//! A lost session is nobody's fault once. A message that loses each of its sessions, because its statement
//! ends the server's process or a watchdog ends what takes too long, would come again for ever, and one that
//! ends the server's process ends the sessions of everybody.
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use twinbox_core::MessageId;

/// How many sessions a message may lose in one process. Each more is a failure.
const UNCOUNTED_MAX: u32 = 3;
/// How many messages are remembered. Beyond, all are forgotten.
const MESSAGES_MAX: usize = 10_000;

/// How many sessions each message has lost.
#[derive(Default)]
pub(crate) struct LostSessions(Mutex<HashMap<MessageId, u32>>);

impl LostSessions {
    /// Adds one to those of a message. Returns how many it has lost, or none if that is a failure.
    pub(crate) fn add(&self, message: MessageId) -> Option<u32> {
        let mut lost = self.lock();
        if lost.len() >= MESSAGES_MAX && !lost.contains_key(&message) {
            lost.clear();
        }
        let of_message = lost.entry(message).or_default();
        *of_message = of_message.saturating_add(1);
        Some(*of_message).filter(|lost| *lost <= UNCOUNTED_MAX)
    }

    /// Whether a message has lost so many that each more is a failure.
    pub(crate) fn are_many(&self, message: MessageId) -> bool {
        self.lock().get(&message).is_some_and(|lost| *lost > UNCOUNTED_MAX)
    }

    /// Forgets a message that has come to its end.
    pub(crate) fn remove(&self, message: MessageId) {
        self.lock().remove(&message);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MessageId, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(n: usize) -> MessageId {
        MessageId::of("shop", "orders.placed", &n.to_string())
    }

    #[test]
    fn a_message_that_loses_one_session_after_another_fails_in_the_end() {
        let (sessions, [one, other]) = (LostSessions::default(), [1, 2].map(message));
        let lost = [(); 5].map(|()| sessions.add(one));
        assert_eq!(lost, [Some(1), Some(2), Some(3), None, None]);
        assert!(sessions.are_many(one) && !sessions.are_many(other));
        assert_eq!(sessions.add(other), Some(1));
        sessions.remove(one);
        assert_eq!(sessions.add(one), Some(1));
    }

    #[test]
    fn the_messages_are_bounded() {
        let sessions = LostSessions::default();
        for n in 0..3 * MESSAGES_MAX {
            sessions.add(message(n));
            assert!(sessions.lock().len() <= MESSAGES_MAX);
        }
    }
}
