//! Publishing in the order of sending, so that messages of a key need not wait for each other.
//!
//! A task sends what the relay hands out: many messages as a batch ("fast ingest", NATS ADR-50), which the
//! server stores in order and acknowledges together, and few messages one by one, which is quicker for them.
//! A message that may have been sent before goes alone if the stream has replicas. In a batch the server
//! acknowledges it when it has the first copy, also if only the leader has that one, so it can be lost with
//! the leader. Alone it is acknowledged when the replicas have it.
//!
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
    ordered::{
        queue::{Addressed, Queue},
        sender::Sender,
    },
    publish::{self, Encoded},
    signer::Signer,
    stream,
};
use async_nats::jetstream::stream::Info;
use std::{sync::Arc, time::Duration};
use tokio::{sync::Mutex, task::JoinHandle, time::Instant};
use twinbox_core::{
    BoxFuture, PublishError, Publisher,
    destination::{Acknowledgements, Outgoing, SendOrder},
    task_name::TaskName,
};

/// Publishes to a stream that takes batches. Dropping it ends its task and its connection, and discards what
/// they still hold.
pub(crate) struct OrderedPublisher {
    nats: Nats,
    signer: Arc<Signer>,
    link: Mutex<Link>,
}

/// A connection with the task that sends over it.
struct Link {
    connection: Arc<Connection>,
    /// Whether the stream has replicas.
    is_replicated: bool,
    queue: Arc<Queue>,
    sending: JoinHandle<()>,
}

impl Link {
    fn new(connection: Arc<Connection>, info: &Info) -> Self {
        let queue = Arc::new(Queue::default());
        let sender = Sender::new(connection.clone(), queue.clone());
        let is_replicated = stream::is_replicated(info);
        Self {
            connection,
            is_replicated,
            queue,
            sending: tokio::spawn(TaskName::NatsSender.of(sender.run())),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.sending.abort();
        self.queue.close();
    }
}

impl OrderedPublisher {
    pub(crate) fn new(nats: Nats, signer: Arc<Signer>, connection: Arc<Connection>, info: &Info) -> Self {
        Self { nats, signer, link: Mutex::new(Link::new(connection, info)) }
    }
}

impl Publisher for OrderedPublisher {
    fn order(&self) -> SendOrder {
        SendOrder::Ordered
    }

    fn send<'a>(&'a mut self, batch: &'a [Outgoing<'a>]) -> BoxFuture<'a, Acknowledgements> {
        let (nats, signer, link) = (&self.nats, &self.signer, self.link.get_mut());
        let encoded = batch.iter().map(|outgoing| Addressed {
            key: outgoing.message.key.as_deref(),
            goes_alone: link.is_replicated && outgoing.may_be_repeated,
            encoded: Encoded::new(nats, signer, outgoing),
        });
        let send_by = Instant::now() + nats.options.publish_timeout;
        let results: Acknowledgements = Box::pin(link.queue.push(encoded, send_by));
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
            match publish::check(&self.nats, &self.signer, &link.connection).await? {
                (Some(new), info) => *link = Link::new(new, &info),
                (None, info) => link.is_replicated = stream::is_replicated(&info),
            }
            Ok(())
        })
    }
}
