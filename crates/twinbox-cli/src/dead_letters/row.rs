//! Dead letters as they are printed and written as JSON.
use crate::output::{Column, brief, counted, counted_or_more, plain};
use serde::Serialize;
use twinbox_ops::dead_letters::{DeadLetter, DeadLetterGroup, DeadLetterId};

/// A group of dead letters with the same cause: owner, event type, reason and error.
#[derive(Serialize)]
pub(crate) struct GroupRow {
    fingerprint: String,
    /// The consumer or the destination.
    owner: String,
    owner_kind: &'static str,
    event_type: String,
    reason: String,
    error: String,
    dead_letters: u64,
    /// Whether there may be more: the count ends there.
    has_more: bool,
    redriven: u64,
    first_given_up_at: String,
    last_given_up_at: String,
    newest: String,
}

impl GroupRow {
    pub(crate) fn render(&self) -> String {
        let redriven = match self.redriven {
            0 => String::new(),
            count => format!(", {count} being retried"),
        };
        format!(
            "group {}  {} of the {} {}{redriven}\n  {}, {}: {}\n  {} to {}, the newest is {}",
            self.fingerprint,
            counted_or_more(self.dead_letters, self.has_more, "dead letter"),
            self.owner_kind,
            plain(&self.owner),
            self.event_type,
            self.reason,
            brief(&plain(&self.error)),
            brief(&self.first_given_up_at),
            brief(&self.last_given_up_at),
            self.newest
        )
    }
}

impl From<&DeadLetterGroup> for GroupRow {
    fn from(group: &DeadLetterGroup) -> Self {
        let newest = &group.newest;
        Self {
            fingerprint: group.fingerprint.clone(),
            owner: newest.owner.clone(),
            owner_kind: owner_kind(&newest.id),
            event_type: newest.event_type.clone(),
            reason: newest.reason.clone(),
            error: newest.error.clone(),
            dead_letters: group.dead_letters,
            has_more: group.has_more,
            redriven: group.redriven,
            first_given_up_at: group.first_given_up_at.to_string(),
            last_given_up_at: group.last_given_up_at.to_string(),
            newest: newest.id.to_string(),
        }
    }
}

fn owner_kind(id: &DeadLetterId) -> &'static str {
    match id {
        DeadLetterId::OfConsumer(_) => "consumer",
        DeadLetterId::OfDestination(..) => "destination",
    }
}

#[derive(Serialize)]
pub(crate) struct DeadLetterRow {
    id: String,
    /// The consumer or the destination.
    owner: String,
    owner_kind: &'static str,
    fingerprint: String,
    message_id: String,
    event_id: String,
    source: String,
    event_type: String,
    key: Option<String>,
    reason: String,
    error: String,
    attempts: u32,
    time: String,
    given_up_at: String,
    redriven: bool,
}

impl DeadLetterRow {
    pub(crate) const COLUMNS: [Column; 6] = [
        ("id", "id"),
        ("owner", "owner"),
        ("type", "event_type"),
        ("key", "key"),
        ("error", "error"),
        ("given up", "given_up_at"),
    ];

    /// Returns a text of several lines for a person.
    pub(crate) fn render(&self) -> String {
        format!(
            "Dead letter {} of the {} {}, group {}\n{} after {}: {}\ngiven up at {}{}",
            self.id,
            self.owner_kind,
            plain(&self.owner),
            self.fingerprint,
            self.reason,
            counted(u64::from(self.attempts), "attempt"),
            plain(&self.error),
            self.given_up_at,
            if self.redriven { ", being retried" } else { "" },
        )
    }
}

impl From<&DeadLetter> for DeadLetterRow {
    fn from(dead_letter: &DeadLetter) -> Self {
        Self {
            id: dead_letter.id.to_string(),
            owner: dead_letter.owner.clone(),
            owner_kind: owner_kind(&dead_letter.id),
            fingerprint: dead_letter.fingerprint.clone(),
            message_id: dead_letter.message_id.to_string(),
            event_id: dead_letter.event_id.clone(),
            source: dead_letter.source.clone(),
            event_type: dead_letter.event_type.clone(),
            key: dead_letter.key.clone(),
            reason: dead_letter.reason.clone(),
            error: dead_letter.error.clone(),
            attempts: dead_letter.attempts,
            time: dead_letter.time.to_string(),
            given_up_at: dead_letter.given_up_at.to_string(),
            redriven: dead_letter.is_redriven,
        }
    }
}
