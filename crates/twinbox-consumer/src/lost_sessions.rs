//! Sessions that a message has lost.
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

/// How many sessions a message has lost.
#[derive(Default)]
struct Lost {
    /// While the database answered.
    alone: u32,
    /// With the database, which was away for longer.
    with_database: u32,
    /// The last one is a failure, which the database could not be told.
    is_unrecorded: bool,
}

/// How many sessions each message has lost.
#[derive(Default)]
pub(crate) struct LostSessions(Mutex<HashMap<MessageId, Lost>>);

impl LostSessions {
    /// Adds one to those that a message has lost while the database answered. Returns how many these are, or
    /// none if that is a failure.
    pub(crate) fn add(&self, message: MessageId) -> Option<u32> {
        let alone = self.change(message, |lost| &mut lost.alone);
        Some(alone).filter(|lost| *lost <= UNCOUNTED_MAX)
    }

    /// Adds one to those that a message has lost with the database. Of many each is a failure.
    pub(crate) fn add_with_database(&self, message: MessageId) {
        if self.change(message, |lost| &mut lost.with_database) > UNCOUNTED_MAX
            && let Some(lost) = self.lock().get_mut(&message)
        {
            lost.is_unrecorded = true;
        }
    }

    fn change(&self, message: MessageId, which: impl Fn(&mut Lost) -> &mut u32) -> u32 {
        let mut all = self.lock();
        if all.len() >= MESSAGES_MAX && !all.contains_key(&message) {
            all.clear();
        }
        let number = which(all.entry(message).or_default());
        *number = number.saturating_add(1);
        *number
    }

    /// Whether a message has lost so many that each more is a failure.
    pub(crate) fn are_many(&self, message: MessageId) -> bool {
        self.lock().get(&message).is_some_and(|lost| lost.alone > UNCOUNTED_MAX)
    }

    /// Whether the last attempt of a message failed, and the database has not been told.
    pub(crate) fn has_unrecorded(&self, message: MessageId) -> bool {
        self.lock().get(&message).is_some_and(|lost| lost.is_unrecorded)
    }

    /// Notes that the database has been told.
    pub(crate) fn end_unrecorded(&self, message: MessageId) {
        if let Some(lost) = self.lock().get_mut(&message) {
            lost.is_unrecorded = false;
        }
    }

    /// Forgets a message that has come to its end.
    pub(crate) fn remove(&self, message: MessageId) {
        self.lock().remove(&message);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MessageId, Lost>> {
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
    fn those_that_are_lost_with_the_database_count_for_themselves() {
        let (sessions, one) = (LostSessions::default(), message(1));
        let many = [(); 4].map(|()| {
            sessions.add_with_database(one);
            sessions.has_unrecorded(one)
        });
        assert_eq!(many, [false, false, false, true]);
        sessions.end_unrecorded(one);
        assert!(!sessions.has_unrecorded(one) && !sessions.are_many(one));
        sessions.add_with_database(one);
        assert!(sessions.has_unrecorded(one));
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
