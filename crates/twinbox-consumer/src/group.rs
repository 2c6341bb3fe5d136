//! The handlers of one consumer, and the rules they must agree on.
use crate::{
    error::{Error, ErrorKind},
    handler::Handler,
    policy::DeliveryOrder,
};
use std::{collections::BTreeMap, time::Duration};
use twinbox_core::{Subscription, limits};
use twinbox_sql::Dialect;

/// The handlers of one consumer. They share its claims, its order and its source.
pub(crate) struct Group<DB: Dialect, S> {
    pub(crate) subscription: Subscription,
    pub(crate) handlers: Vec<Handler<DB, S>>,
}

/// Groups handlers by consumer.
///
/// # Errors
/// The handlers contradict each other, or there are none.
pub(crate) fn group_handlers<DB: Dialect, S>(
    handlers: Vec<Handler<DB, S>>,
) -> Result<Vec<Group<DB, S>>, Error> {
    if handlers.is_empty() {
        return Err(refused("no handler is registered: add one with `.handler::<…>()`"));
    }
    let mut groups: BTreeMap<&'static str, Group<DB, S>> = BTreeMap::new();
    for handler in handlers {
        let consumer = handler.policy.consumer;
        if consumer.is_empty() || consumer.len() > limits::NAME_BYTES_MAX {
            return Err(refused(format!("the consumer name {consumer:?} must have 1 to 120 bytes")));
        }
        groups.entry(consumer).or_insert_with(|| Group::new(&handler)).add(handler)?;
    }
    Ok(groups.into_values().collect())
}

impl<DB: Dialect, S> Group<DB, S> {
    /// An empty group for the consumer of `handler`.
    fn new(handler: &Handler<DB, S>) -> Self {
        let subscription = Subscription {
            consumer: handler.policy.consumer.to_owned(),
            types: Vec::new(),
            concurrency: 0,
            is_ordered: handler.policy.order == DeliveryOrder::Key,
        };
        Self { subscription, handlers: Vec::new() }
    }

    fn add(&mut self, handler: Handler<DB, S>) -> Result<(), Error> {
        let Subscription { consumer, types, concurrency, is_ordered } = &mut self.subscription;
        let event_type = handler.event_type;
        if types.iter().any(|known| known == event_type) {
            return Err(refused(format!("two handlers of the consumer {consumer:?} take {event_type:?}")));
        }
        if *is_ordered != (handler.policy.order == DeliveryOrder::Key) {
            return Err(refused(format!("the handlers of the consumer {consumer:?} disagree on `order`")));
        }
        if *is_ordered && !handler.has_key {
            return Err(refused(format!(
                "the consumer {consumer:?} needs the order of keys, but its event {event_type:?} has no key: \
                 write `key = FIELD` in its `#[event(…)]`, or `order = \"none\"` at its handler"
            )));
        }
        types.push(event_type.to_owned());
        types.sort();
        // Each handler has a share of its own, so that a slow one leaves room for the others.
        *concurrency = concurrency.saturating_add(handler.in_flight_max());
        self.handlers.push(handler);
        Ok(())
    }

    /// Returns the handler of an event type.
    pub(crate) fn handler(&self, event_type: &str) -> Option<&Handler<DB, S>> {
        self.handlers.iter().find(|handler| handler.event_type == event_type)
    }

    /// Checks that every handler can run under a lease on partitions.
    ///
    /// # Errors
    /// A handler takes batches, or asks for a time-out longer than the lease.
    pub(crate) fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        self.handlers.iter().try_for_each(|handler| handler.check_lease(lease))
    }
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Configuration, message)
}
