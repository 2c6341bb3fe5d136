//! Publishing to the bus.
use super::{
    batching::{self, Item, Limits},
    broker::EventBridge,
    connect::{BusPresence, Connection},
    request::{Batch, PendingEvent},
    wire::{self, EncodedEntry},
};
use std::{
    future::ready,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{
    sync::{Mutex, Semaphore, oneshot},
    task::JoinSet,
    time::Instant,
};
use twinbox_core::{
    BoxFuture, Destination, PublishError, PublishErrorKind, Publisher,
    destination::{
        Acknowledgement, Acknowledgements, DestinationCheck, DestinationSecret, Outgoing, Receipt,
        acknowledgements,
    },
    task_name::TaskName,
};

/// The most requests of one publisher at a time.
const REQUESTS_MAX: usize = 32;

impl Destination for EventBridge {
    fn system(&self) -> &'static str {
        "aws_eventbridge"
    }

    fn id(&self) -> &str {
        &self.options.id
    }

    /// Loads credentials and checks the bus, within the request time-out.
    ///
    /// A missing bus, and credentials that may not describe the bus, are a wrong configuration: EventBridge
    /// would acknowledge events and drop them. EventBridge has no names for events, so it takes no secret.
    fn connect<'a>(
        &'a self,
        _: &'a DestinationSecret,
    ) -> BoxFuture<'a, Result<Box<dyn Publisher>, PublishError>> {
        Box::pin(async {
            let connection = Connection::open(&self.options).await?;
            Ok(Box::new(BusPublisher {
                bus: self.clone(),
                connection: Mutex::new(connection),
                permits: Arc::new(Semaphore::new(REQUESTS_MAX)),
                requests: JoinSet::new(),
            }) as _)
        })
    }

    /// Checks the bus, as [`connect`](Self::connect) does.
    fn check(&self) -> BoxFuture<'_, Result<DestinationCheck, PublishError>> {
        Box::pin(async {
            Connection::open(&self.options).await?;
            let protection = self.options.client.protection().ok();
            let warnings = protection.and_then(|protection| protection.warning());
            Ok(DestinationCheck::new(self.options.publish_timeout).warnings(Vec::from_iter(warnings)))
        })
    }
}

/// Owns its client and its requests. Dropping the publisher ends both; messages without a response are in
/// doubt.
struct BusPublisher {
    bus: EventBridge,
    connection: Mutex<Connection>,
    permits: Arc<Semaphore>,
    requests: JoinSet<()>,
}

impl Publisher for BusPublisher {
    fn send<'a>(&'a mut self, batch: &'a [Outgoing<'a>]) -> BoxFuture<'a, Acknowledgements> {
        Box::pin(async move {
            let options = &self.bus.options;
            let deadline = Instant::now() + options.publish_timeout;
            while self.requests.try_join_next().is_some() {}
            let connection = self.connection.get_mut();
            let presence = connection.bus_presence(options);
            let mut each: Vec<Acknowledgement> = Vec::with_capacity(batch.len());
            let (mut events, mut items) = (Vec::new(), Vec::new());
            for Outgoing { message, .. } in batch {
                let encoded = wire::encode(&options.bus, options.request_bytes_max, message);
                each.push(match (encoded, &presence) {
                    (Err(refused), _) => Box::pin(ready(Err(refused))),
                    (Ok(_), Err(error)) => Box::pin(ready(Err(copy_of(error)))),
                    (Ok(EncodedEntry { entry, bytes }), Ok(presence)) => {
                        let (result, received) = oneshot::channel();
                        events.push(PendingEvent { entry, result });
                        items.push(Item { bytes, key: message.key.as_deref() });
                        acknowledgement(received, presence.clone(), deadline)
                    }
                });
            }
            let limits = Limits { entries: options.request_entries_max, bytes: options.request_bytes_max };
            let shared = Arc::new(Batch {
                client: connection.client.clone(),
                deadline,
                permits: self.permits.clone(),
                stopped: OnceLock::new(),
            });
            let mut events = events.into_iter();
            for range in batching::split(&items, limits) {
                let request = events.by_ref().take(range.len()).collect();
                self.requests.spawn(TaskName::EventBridgeRequest.of(shared.clone().send(request)));
            }
            acknowledgements(each)
        })
    }

    /// The time from the call of `send` to the last result.
    fn timeout(&self) -> Duration {
        self.bus.options.publish_timeout
    }

    /// Loads credentials and checks the bus over a new connection, which replaces the present one.
    fn health(&self) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async {
            let fresh = Connection::open(&self.bus.options).await?;
            *self.connection.lock().await = fresh;
            Ok(())
        })
    }
}

fn acknowledgement(
    received: oneshot::Receiver<Result<Receipt, PublishError>>,
    presence: BusPresence,
    deadline: Instant,
) -> Acknowledgement {
    Box::pin(async move {
        let aborted = || PublishError::new(PublishErrorKind::InDoubt, "eventbridge.aborted");
        let receipt = received.await.unwrap_or_else(|_| Err(aborted()))?;
        presence.confirm_by(deadline).await?;
        Ok(receipt)
    })
}

/// Copies an error for another message, without its source, which cannot be cloned.
fn copy_of(error: &PublishError) -> PublishError {
    let copy = PublishError::new(error.kind(), error.code());
    match error.retry_after() {
        Some(wait) => copy.with_retry_after(wait),
        None => copy,
    }
}
