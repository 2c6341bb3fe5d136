//! Publishing in the order of sending, so that messages of a key need not wait for each other.
//!
//! A task sends what the relay hands out: many messages as a batch ("fast ingest", NATS ADR-50), which the
//! server stores in order and acknowledges together, and few messages one by one, which is quicker for them.
//! After a failure nothing of the same key is sent before the relay knows the results of all that it has
//! handed out of that key.
mod batch;
mod keys;
mod queue;
mod results;
mod sender;

use crate::{
    broker::Nats,
    connect::Connection,
    ordered::{queue::Queue, sender::Sender},
    publish::{self, Encoded},
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Mutex, task::JoinHandle, time::Instant};
use twinbox_core::{
    BoxFuture, Message, PublishError, Publisher,
    destination::{Acknowledgements, SendOrder},
};

/// Publishes to a stream that takes batches. Dropping it ends its task and its connection, and discards what
/// they still hold.
pub(crate) struct OrderedPublisher {
    nats: Nats,
    link: Mutex<Link>,
}

/// A connection with the task that sends over it.
struct Link {
    connection: Arc<Connection>,
    queue: Arc<Queue>,
    sending: JoinHandle<()>,
}

impl Link {
    fn new(connection: Arc<Connection>) -> Self {
        let queue = Arc::new(Queue::default());
        let sender = Sender::new(connection.clone(), queue.clone());
        Self { connection, queue, sending: tokio::spawn(sender.run()) }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.sending.abort();
        self.queue.close();
    }
}

impl OrderedPublisher {
    pub(crate) fn new(nats: Nats, connection: Arc<Connection>) -> Self {
        Self { nats, link: Mutex::new(Link::new(connection)) }
    }
}

impl Publisher for OrderedPublisher {
    fn order(&self) -> SendOrder {
        SendOrder::Ordered
    }

    fn send<'a>(&'a mut self, batch: &'a [&'a Message]) -> BoxFuture<'a, Acknowledgements> {
        let encoded = batch.iter().map(|message| (message.key.as_deref(), Encoded::new(&self.nats, message)));
        let send_by = Instant::now() + self.nats.options.publish_timeout;
        let results: Acknowledgements = Box::pin(self.link.get_mut().queue.push(encoded, send_by));
        Box::pin(std::future::ready(results))
    }

    /// Applies twice: to the start of a send, and to the wait for an acknowledgement.
    fn timeout(&self) -> Duration {
        self.nats.options.publish_timeout
    }

    /// Checks the stream. Opens a new connection if the present one is lost or does not respond.
    fn health(&self) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async {
            let mut link = self.link.lock().await;
            if let Some(new) = publish::check(&self.nats, &link.connection).await? {
                *link = Link::new(new);
            }
            Ok(())
        })
    }
}
