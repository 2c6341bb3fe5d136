use std::ops::Deref;
use twinbox_core::{DecodeError, Draft, Event, InvalidDraft, Message, MessageId};

/// An event as it arrived. Dereferences to the event.
#[derive(Debug, Clone)]
pub struct Delivery<E> {
    message: Message,
    attempt: u32,
    event: E,
}

impl<E> Delivery<E> {
    /// The identity of the message: the same in every delivery of it.
    pub fn id(&self) -> MessageId {
        self.message.message_id()
    }

    /// Which attempt this is, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The message with its envelope and its payload.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The event alone.
    pub fn into_event(self) -> E {
        self.event
    }
}

impl<E: Event> Delivery<E> {
    /// A first delivery of `event`, for calling a handler as the function that it is.
    ///
    /// # Errors
    /// The event cannot be written as JSON.
    pub fn of(event: E) -> Result<Self, InvalidDraft> {
        let message = Draft::of(&event)?.into_message("test");
        Ok(Self { message, attempt: 1, event })
    }

    pub(crate) fn decode(message: &Message, attempt: u32) -> Result<Self, DecodeError> {
        let event = E::decode(message.version, &message.payload)?;
        Ok(Self { message: message.clone(), attempt, event })
    }
}

impl<E> Deref for Delivery<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.event
    }
}

impl<E> AsRef<Message> for Delivery<E> {
    fn as_ref(&self) -> &Message {
        &self.message
    }
}
