//! A transport that delivers every third message twice, as a broker may do at any time.
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use twinbox::seam::{
    BoxFuture, Transport,
    source::{ReceivedMessage, Settle, Source, SourceError, Subscription},
};

pub(crate) struct Unreliable<T> {
    inner: T,
    deliveries: Deliveries,
}

/// Counts deliveries, the repeated ones included.
#[derive(Clone, Default)]
pub(crate) struct Deliveries(Arc<AtomicU64>);

impl Deliveries {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl<T> Unreliable<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, deliveries: Deliveries::default() }
    }

    pub(crate) fn deliveries(&self) -> Deliveries {
        self.deliveries.clone()
    }
}

impl<T: Transport> Transport for Unreliable<T> {
    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Source>, SourceError>> {
        Box::pin(async move {
            let inner = self.inner.subscribe(subscription).await?;
            Ok(Box::new(Twice { inner, deliveries: self.deliveries.clone() }) as Box<dyn Source>)
        })
    }
}

struct Twice {
    inner: Box<dyn Source>,
    deliveries: Deliveries,
}

impl Source for Twice {
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<ReceivedMessage>, SourceError>> {
        Box::pin(async move {
            let mut received = Vec::new();
            for one in self.inner.receive(max).await? {
                if self.deliveries.0.fetch_add(1, Relaxed).is_multiple_of(3) {
                    self.deliveries.0.fetch_add(1, Relaxed);
                    received.push(copy(&one));
                }
                received.push(one);
            }
            Ok(received)
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        self.inner.close()
    }
}

fn copy(one: &ReceivedMessage) -> ReceivedMessage {
    ReceivedMessage {
        message: one.message.clone(),
        defect: one.defect.clone(),
        redelivered: true,
        settle: Box::new(Nobody),
    }
}

/// Nobody waits for the answer to a copy.
struct Nobody;

impl Settle for Nobody {
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }

    fn nak(self: Box<Self>, _: Duration) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }

    fn progress(&self) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }

    fn progress_interval(&self) -> Option<Duration> {
        None
    }
}
