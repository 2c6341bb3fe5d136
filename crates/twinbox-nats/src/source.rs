//! Consuming from the stream.
use crate::{
    broker::{Nats, SYSTEM},
    connect::{Connection, Purpose},
    consumer,
    error::source_unavailable,
    partitioned::StreamLog,
    pull::PullConsumer,
    settle::{self, AckHandle},
    stream, wire,
};
use async_nats::{Message, jetstream};
use futures::StreamExt as _;
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;
use twinbox_core::{
    BoxError, BoxFuture, MaxAge, PartitionedLog, ReceivedMessage, Source, SourceError, Subscription,
    Transport,
};

impl Transport for Nats {
    fn system(&self) -> &'static str {
        SYSTEM
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
            let stream = &self.options.stream;
            // First, because a durable would keep a wrong prefix.
            let max_age = match stream::check_for_consumer(&connection).await {
                Ok(info) => stream::delivery_age(&info),
                Err(_) if connection.denied.any() => MaxAge::Unlimited {
                    reason: format!(
                        "the NATS user may not read how long the stream `{stream}` keeps messages"
                    ),
                },
                Err(error) => return Err(error.into()),
            };
            consumer::provision(&connection, subscription).await?;
            let consumer = &subscription.consumer;
            let durable = consumer::durable_name(consumer);
            let pull = PullConsumer::open(Arc::new(connection), durable, consumer.clone()).await?;
            tracing::info!(consumer, "subscribed");
            Ok(Box::new(PullSource { pull, max_age }) as _)
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
            stream::prepare(&connection).await?;
        }
        Ok(connection)
    }
}

struct PullSource {
    pull: PullConsumer,
    max_age: MaxAge,
}

impl Source for PullSource {
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<ReceivedMessage>, SourceError>> {
        Box::pin(async move {
            loop {
                let messages = self.pull.next(max).await?;
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
    async fn give_back(&mut self) -> Result<(), BoxError> {
        let PullConsumer { deliveries, connection, .. } = &mut self.pull;
        deliveries.unsubscribe().await?;
        while let Some(message) = deliveries.next().await {
            if let Some(reply) = message.reply {
                connection.client.publish(reply, settle::nak_body(Duration::ZERO)).await?;
            }
        }
        Ok(connection.client.flush().await?)
    }

    /// Returns a delivery. None: another client sent the message to the inbox, and it does not come from the
    /// stream.
    fn received(&mut self, message: Message) -> Option<ReceivedMessage> {
        let connection = &self.pull.connection;
        let message = jetstream::Message { message, context: connection.jetstream.clone() };
        let info = message.info().ok()?;
        self.pull.lag = Some(info.pending);
        let (decoded, defect) = wire::decode_delivery(&message, &info, &self.pull.label);
        Some(ReceivedMessage {
            message: decoded,
            defect,
            redelivered: info.delivered > 1,
            settle: Box::new(AckHandle {
                connection: connection.clone(),
                reply: message.reply.clone()?,
                ack_wait: connection.options.ack_wait,
            }),
        })
    }
}
