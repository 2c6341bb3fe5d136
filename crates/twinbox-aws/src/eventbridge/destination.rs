//! Publishing.
use super::{
    EventBridge,
    connect::{Link, Seen},
    entry::{self, Prepared},
    pack::{self, Bounds, Item},
    request::{Batch, Parcel},
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
    BoxFuture, Destination, Message, PublishError, PublishErrorKind, Publisher, destination::Acknowledgement,
};

/// Requests of one publisher that are under way at a time.
const REQUESTS_MAX: usize = 32;

impl Destination for EventBridge {
    fn id(&self) -> &str {
        &self.options.id
    }

    /// Loads credentials and asks for the bus, within the request time-out. A bus that does not exist, and
    /// credentials that may not ask for it, are a wrong setup: EventBridge would acknowledge and drop.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, PublishError>> {
        Box::pin(async {
            let link = Link::open(&self.options).await?;
            Ok(Box::new(BusPublisher {
                bridge: self.clone(),
                link: Mutex::new(link),
                permits: Arc::new(Semaphore::new(REQUESTS_MAX)),
                requests: JoinSet::new(),
            }) as _)
        })
    }
}

/// Owns its client and the requests under way. Dropping it ends both; what was not answered is in doubt.
struct BusPublisher {
    bridge: EventBridge,
    link: Mutex<Link>,
    permits: Arc<Semaphore>,
    requests: JoinSet<()>,
}

impl Publisher for BusPublisher {
    fn send<'a>(&'a mut self, batch: &'a [&'a Message]) -> BoxFuture<'a, Vec<Acknowledgement>> {
        Box::pin(async move {
            let options = &self.bridge.options;
            let deadline = Instant::now() + options.publish_timeout;
            while self.requests.try_join_next().is_some() {}
            let link = self.link.get_mut();
            let seen = link.look_again(options);
            let mut answers: Vec<Acknowledgement> = Vec::with_capacity(batch.len());
            let (mut parcels, mut items) = (Vec::new(), Vec::new());
            for message in batch {
                let prepared = entry::prepare(&options.bus, options.request_bytes_max, message);
                answers.push(match (prepared, &seen) {
                    (Err(refused), _) => Box::pin(ready(Err(refused))),
                    (Ok(_), Err(error)) => Box::pin(ready(Err(same(error)))),
                    (Ok(Prepared { entry, bytes }), Ok(seen)) => {
                        let (answer, answered) = oneshot::channel();
                        parcels.push(Parcel { entry, answer });
                        items.push(Item { bytes, key: message.key.as_deref() });
                        acknowledgement(answered, seen.clone(), deadline)
                    }
                });
            }
            let bounds = Bounds { entries: options.request_entries_max, bytes: options.request_bytes_max };
            let shared = Arc::new(Batch {
                client: link.client.clone(),
                deadline,
                permits: self.permits.clone(),
                halt: OnceLock::new(),
            });
            let mut parcels = parcels.into_iter();
            for run in pack::pack(&items, bounds) {
                let request = parcels.by_ref().take(run.len()).collect();
                self.requests.spawn(shared.clone().deliver(request));
            }
            answers
        })
    }

    /// From the call of `send` to the last answer.
    fn timeout(&self) -> Duration {
        self.bridge.options.publish_timeout
    }

    /// Loads credentials and asks for the bus over a connection of its own, which later messages take.
    fn health(&self) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async {
            let fresh = Link::open(&self.bridge.options).await?;
            *self.link.lock().await = fresh;
            Ok(())
        })
    }
}

fn acknowledgement(
    answered: oneshot::Receiver<Result<twinbox_core::destination::Receipt, PublishError>>,
    seen: Seen,
    deadline: Instant,
) -> Acknowledgement {
    Box::pin(async move {
        let aborted = || PublishError::new(PublishErrorKind::InDoubt, "eventbridge.aborted");
        let receipt = answered.await.unwrap_or_else(|_| Err(aborted()))?;
        seen.by(deadline).await?;
        Ok(receipt)
    })
}

/// One more of what a look at the bus said; what caused it stays with the first.
fn same(error: &PublishError) -> PublishError {
    let same = PublishError::new(error.kind(), error.code());
    match error.retry_after() {
        Some(wait) => same.with_retry_after(wait),
        None => same,
    }
}
