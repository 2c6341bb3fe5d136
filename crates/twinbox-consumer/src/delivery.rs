//! The input of a handler.
use std::ops::Deref;
use twinbox_core::{DecodeError, Draft, Event, InvalidDraft, Message, MessageId};

/// An event as a handler receives it, together with the message that carries it. Dereferences to the event.
///
/// A handler is a plain function, so a test calls it with [`Delivery::of`]:
///
/// ```
/// use twinbox_consumer::Delivery;
/// use twinbox_core::{Event, InvalidDraft};
///
/// fn first_delivery<E: Event>(event: E) -> Result<Delivery<E>, InvalidDraft> {
///     let delivery = Delivery::of(event)?;
///     assert_eq!(delivery.attempt(), 1);
///     assert_eq!(delivery.message().event_type, E::TYPE);
///     Ok(delivery)
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Delivery<E> {
    message: Message,
    attempt: u32,
    event: E,
}

impl<E> Delivery<E> {
    /// Returns the message id, which is the same in every delivery of the message.
    pub fn id(&self) -> MessageId {
        self.message.message_id()
    }

    /// Returns the number of this attempt: one more than the failures on record.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the message: the envelope and the decoded payload.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Returns the event without its message.
    pub fn into_event(self) -> E {
        self.event
    }
}

impl<E: Event> Delivery<E> {
    /// Makes a first delivery of `event`, for a test that calls a handler as a function.
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
