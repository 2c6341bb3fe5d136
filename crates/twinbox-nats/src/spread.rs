//! Publishing to several streams, over a connection for each.
use futures::{StreamExt as _, future::join_all, stream};
use std::time::Duration;
use twinbox_core::{
    BoxFuture, PublishError, Publisher,
    destination::{Acknowledgements, Outgoing, SendOrder},
    id,
};

/// Sends each message to the stream of its partition, so that a key stays in one. If one stream is away, so
/// is the destination.
pub(crate) struct SpreadPublisher {
    partitions: u32,
    /// Of each stream, by its number.
    publishers: Vec<Box<dyn Publisher>>,
}

impl SpreadPublisher {
    pub(crate) fn new(partitions: u32, publishers: Vec<Box<dyn Publisher>>) -> Self {
        Self { partitions, publishers }
    }

    /// Returns the messages of each stream, with their places in the batch.
    fn split<'a>(&self, batch: &'a [Outgoing<'a>]) -> Vec<(Vec<usize>, Vec<Outgoing<'a>>)> {
        let mut split = vec![(Vec::new(), Vec::new()); self.publishers.len()];
        for (place, outgoing) in batch.iter().enumerate() {
            let message = outgoing.message;
            let partition = id::partition(message.key.as_deref(), message.message_id(), self.partitions);
            let (places, messages) = &mut split[partition as usize % self.publishers.len()];
            places.push(place);
            messages.push(*outgoing);
        }
        split
    }
}

impl Publisher for SpreadPublisher {
    fn order(&self) -> SendOrder {
        let is_ordered = self.publishers.iter().all(|publisher| publisher.order() == SendOrder::Ordered);
        if is_ordered { SendOrder::Ordered } else { SendOrder::PerMessage }
    }

    fn send<'a>(&'a mut self, batch: &'a [Outgoing<'a>]) -> BoxFuture<'a, Acknowledgements> {
        Box::pin(async move {
            let split = self.split(batch);
            let of_each = self.publishers.iter_mut().zip(split).filter(|(_, (places, _))| !places.is_empty());
            let sent = of_each.map(async |(publisher, (places, messages))| {
                let results = publisher.send(&messages).await;
                results.map(move |(place, result)| (places[place], result)).boxed()
            });
            Box::pin(stream::select_all(join_all(sent).await)) as Acknowledgements
        })
    }

    fn timeout(&self) -> Duration {
        self.publishers.iter().map(|publisher| publisher.timeout()).max().unwrap_or_default()
    }

    fn health(&self) -> BoxFuture<'_, Result<(), PublishError>> {
        let of_each = join_all(self.publishers.iter().map(|publisher| publisher.health()));
        Box::pin(async { of_each.await.into_iter().collect() })
    }
}
