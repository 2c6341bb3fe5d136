//! The states of parked messages.
use std::time::Duration;
use twinbox_core::{Message, lanes::Item};

/// The state of a parked message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParkedState {
    /// The message waits this long for another attempt. Later messages of its key wait behind it.
    Waiting(Duration),
    /// The message is a dead letter. Later messages of its key go on.
    Dead,
    /// The message is a dead letter. Later messages of its key wait until an operator decides.
    DeadHoldingKey,
    /// The message is a dead letter. No more messages are handed out until an operator decides.
    Blocking,
}

impl ParkedState {
    /// The word in the table.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Waiting(_) => "waiting",
            Self::Dead | Self::DeadHoldingKey => "dead",
            Self::Blocking => "blocking",
        }
    }

    pub(super) fn delay(self) -> Duration {
        if let Self::Waiting(delay) = self { delay } else { Duration::ZERO }
    }
}

/// A message, or a delivery with its message, that a queue can park.
pub trait Parkable: Item + Send + 'static {
    /// Returns the message that is parked.
    fn message(&self) -> &Message;
    /// Creates the item again from a message that was parked.
    fn resumed(message: Box<Message>) -> Self;
}

impl Parkable for Box<Message> {
    fn message(&self) -> &Message {
        self
    }

    fn resumed(message: Box<Message>) -> Self {
        message
    }
}
