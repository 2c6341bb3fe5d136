//! Consuming from the stream.
use crate::{
    ack_subject,
    broker::{Nats, SYSTEM},
    connect::{Connection, Purpose},
    consumer,
    deliveries::{Deliveries, Delivery},
    error::source_unavailable,
    merged::MergedSource,
    partitioned::StreamLog,
    pull::PullConsumer,
    replay_mark::ReplayKeys,
    server_answers::{AnswerFilter, copied_streams},
    settle::{self, AckHandle},
    stream,
    subject::StoredSubject,
    wire,
};
use async_nats::Subject;
use bytes::Bytes;
use futures::{FutureExt as _, TryFutureExt as _};
use std::{mem, sync::Arc, time::Duration};
use tokio::time::timeout;
use twinbox_core::{
    BoxError, BoxFuture, MaxAge, PartitionedLog, ReceivedMessage, Source, SourceError, Subscription,
    Transport,
};

impl Transport for Nats {
    fn system(&self) -> &'static str {
        SYSTEM
    }

    fn address(&self) -> Option<String> {
        Some(self.options.address().to_string())
    }

    /// Opens a connection for this subscription and creates its durable consumer if it is missing.
    ///
    /// An existing consumer is never changed, and none is created on a stream that can hold no subject below
    /// the prefix. An ordered subscription is refused: see [`open_log`](Self::open_log).
    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Source>, SourceError>> {
        Box::pin(async {
            let connection = self.open_for_consumer().await?;
            let deliveries = Arc::new(Deliveries::open(&connection).await?);
            let streams = Vec::from_iter(connection.each_stream().into_iter().map(Arc::new));
            let names = Vec::from_iter(streams.iter().map(|stream| stream.options.stream.clone()));
            let (number, subscription) = (streams.len(), subscription.clone());
            let open = move |stream: usize| {
                let (stream, deliveries) = (streams[stream].clone(), deliveries.clone());
                let opened = PullSource::open(stream, deliveries, subscription.clone(), names.clone());
                opened.map_ok(|source| Box::new(source) as _).boxed()
            };
            MergedSource::open(number, Box::new(open)).await
        })
    }

    /// Opens a connection for an ordered subscription.
    ///
    /// A stream with more partitions than [`partitions`](crate::NatsOptions::partitions) is refused: no
    /// process would read the partitions beyond.
    fn open_log<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Option<Box<dyn PartitionedLog>>, SourceError>> {
        Box::pin(async {
            if !subscription.is_ordered {
                return Ok(None);
            }
            let log = StreamLog::open(self.open_for_consumer().await?, subscription).await?;
            Ok(Some(Box::new(log) as _))
        })
    }
}

impl Nats {
    async fn open_for_consumer(&self) -> Result<Connection, SourceError> {
        let connection = Connection::open(&self.options, Purpose::Consume).await?;
        if self.options.create_stream.is_some() {
            for of_stream in connection.each_stream() {
                stream::prepare(&of_stream).await?;
            }
        }
        Ok(connection)
    }
}

struct PullSource {
    pull: PullConsumer,
    max_age: MaxAge,
    answers: AnswerFilter,
    /// The subjects for the acks of answers that were dropped. A field, because a caller may drop and repeat
    /// its wait.
    dropped: Vec<Subject>,
}

impl Source for PullSource {
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<ReceivedMessage>, SourceError>> {
        Box::pin(async move {
            loop {
                // A call that was dropped may have left answers of the server without an acknowledgement.
                self.ack_dropped().await?;
                self.pull.fill(max).await?;
                self.drop_answers();
                self.ack_dropped().await?;
                let messages = self.pull.return_taken(max);
                let received = Vec::from_iter(messages.into_iter().filter_map(|m| self.received(m)));
                if !received.is_empty() {
                    return Ok(received);
                }
            }
        })
    }

    fn lag(&self) -> Option<u64> {
        self.pull.lag
    }

    fn max_age(&self) -> MaxAge {
        self.max_age.clone()
    }

    /// Naks the deliveries that were not returned by `receive`, so that the server redelivers them at once.
    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            let limit = self.pull.connection.options.request_timeout;
            match timeout(limit, self.give_back()).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => {
                    Err(source_unavailable("the connection to NATS has ended").with_source(error))
                }
                Err(_) => {
                    Err(source_unavailable("closing the source: NATS did not confirm the last naks in time"))
                }
            }
        })
    }
}

impl PullSource {
    /// Creates the durable consumer of a stream if it is missing, and subscribes to it. `streams` are the
    /// names of all streams of the destination.
    async fn open(
        connection: Arc<Connection>,
        deliveries: Arc<Deliveries>,
        subscription: Subscription,
        mut streams: Vec<String>,
    ) -> Result<Self, SourceError> {
        let stream = &connection.options.stream;
        // First, because a durable would keep a wrong prefix.
        let (max_age, keys) = match stream::check_for_consumer(&connection).await {
            Ok(info) => {
                streams.extend(copied_streams(&info));
                (stream::delivery_age(&info), ReplayKeys::of(&info.config.metadata))
            }
            Err(_) if connection.denied.any() => {
                let reason =
                    format!("the NATS user may not read how long the stream `{stream}` keeps messages");
                (MaxAge::Unlimited { reason }, ReplayKeys::default())
            }
            Err(error) => return Err(error.into()),
        };
        consumer::provision(&connection, &subscription).await?;
        let consumer = &subscription.consumer;
        let durable = consumer::durable_name(consumer);
        let pull = PullConsumer::open(connection, deliveries, durable, consumer.clone(), keys).await?;
        tracing::info!(consumer, "subscribed");
        let answers = AnswerFilter::new(streams, consumer);
        Ok(Self { pull, max_age, answers, dropped: Vec::new() })
    }

    /// Removes answers of the server from the deliveries that are taken, so that they take no place of other
    /// deliveries in the consumer.
    fn drop_answers(&mut self) {
        let is_dropped = |delivery: &Delivery| {
            ack_subject::place(&delivery.reply).is_some() && self.answers.drops(delivery)
        };
        self.dropped.extend(self.pull.remove(is_dropped).into_iter().map(|delivery| delivery.reply));
        if let Some(place) = self.dropped.last().and_then(|reply| ack_subject::place(reply)) {
            self.pull.lag = Some(place.pending);
        }
    }

    /// Acknowledges the answers that were dropped, without a confirmation: one that comes again is dropped
    /// again. Cancel safe.
    async fn ack_dropped(&mut self) -> Result<(), SourceError> {
        while let Some(reply) = self.dropped.last() {
            let acked = self.pull.connection.client.publish(reply.clone(), Bytes::from_static(b"+ACK")).await;
            acked.map_err(|e| source_unavailable("the connection to NATS has ended").with_source(e))?;
            self.dropped.pop();
        }
        Ok(())
    }

    async fn give_back(&mut self) -> Result<(), BoxError> {
        let unreturned = self.pull.take_unreturned();
        let client = &self.pull.connection.client;
        for reply in mem::take(&mut self.dropped) {
            client.publish(reply, Bytes::from_static(b"+ACK")).await?;
        }
        for delivery in unreturned {
            client.publish(delivery.reply, settle::nak_body(Duration::ZERO)).await?;
        }
        Ok(client.flush().await?)
    }

    /// Returns a delivery. None: it does not come from the stream.
    fn received(&mut self, delivery: Delivery) -> Option<ReceivedMessage> {
        let place = ack_subject::place(&delivery.reply)?;
        self.pull.lag = Some(place.pending);
        let connection = self.pull.connection.clone();
        let subject = StoredSubject::unordered(&delivery.subject, &connection.options.prefix);
        let (message, defect) =
            wire::decode_delivery(&delivery, &place, &subject, &self.pull.keys, &self.pull.label);
        let redelivered = place.deliveries > 1;
        let ack_wait = connection.options.ack_wait;
        let settle = Box::new(AckHandle { connection, reply: delivery.reply, ack_wait });
        Some(ReceivedMessage { message, defect, redelivered, settle })
    }
}
