//! Consuming.
use crate::{
    Nats,
    connect::{Link, Use},
    consumer,
    partition::StreamLog,
    pull::{Pull, unavailable},
    settle::{self, Delivery},
    stream,
    wire::{self, Place},
};
use async_nats::{Message, jetstream};
use futures::StreamExt as _;
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;
use twinbox_core::{
    BoxError, BoxFuture, Horizon, PartitionedLog, Received, Source, SourceError, Subscription, Transport,
};

impl Transport for Nats {
    /// Opens a connection of the subscription's own and creates its durable consumer if it is missing. A
    /// consumer that exists is never changed. An ordered subscription is refused: see [`open_log`](Self::open_log).
    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Source>, SourceError>> {
        Box::pin(async {
            let link = self.consuming().await?;
            consumer::provision(&link, &self.options, subscription).await?;
            let stream = &self.options.stream;
            let horizon = match stream::info(&link, stream).await {
                Ok(info) => stream::horizon(&info),
                Err(_) if link.denials.any() => Horizon::Unlimited {
                    because: format!("its user may not ask how old the messages of `{stream}` may be"),
                },
                Err(error) => return Err(error.into()),
            };
            let consumer = &subscription.consumer;
            let pull = Pull::open(Arc::new(link), consumer::durable(consumer), consumer.clone()).await?;
            tracing::info!(consumer, "subscribed");
            Ok(Box::new(PullSource { pull, horizon }) as _)
        })
    }

    /// Opens a connection of the consumer's own, for an ordered subscription. A stream with more partitions than
    /// [`partitions`](crate::NatsOptions::partitions) says is refused, because nobody would read them.
    fn open_log<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Option<Box<dyn PartitionedLog>>, SourceError>> {
        Box::pin(async {
            if !subscription.ordered {
                return Ok(None);
            }
            let log = StreamLog::open(self.consuming().await?, subscription).await?;
            Ok(Some(Box::new(log) as _))
        })
    }
}

impl Nats {
    async fn consuming(&self) -> Result<Link, SourceError> {
        let link = Link::open(&self.options, Use::Consume).await?;
        if self.options.create_stream.is_some() {
            link.prepare_stream().await?;
        }
        Ok(link)
    }
}

struct PullSource {
    pull: Pull,
    horizon: Horizon,
}

impl Source for PullSource {
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<Received>, SourceError>> {
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

    fn horizon(&self) -> Horizon {
        self.horizon.clone()
    }

    /// What was delivered and not returned goes back at once.
    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            let limit = self.pull.link.options.request_timeout;
            match timeout(limit, self.give_back()).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(unavailable("the connection to NATS has ended").with_source(error)),
                Err(_) => Err(unavailable("NATS did not confirm in time that the consumer was let go")),
            }
        })
    }
}

impl PullSource {
    async fn give_back(&mut self) -> Result<(), BoxError> {
        let Pull { deliveries, link, .. } = &mut self.pull;
        deliveries.unsubscribe().await?;
        while let Some(message) = deliveries.next().await {
            if let Some(reply) = message.reply {
                link.client.publish(reply, settle::again(Duration::ZERO)).await?;
            }
        }
        Ok(link.client.flush().await?)
    }

    /// A message without a place in JetStream was sent to our inbox by somebody else, and is none of ours.
    fn received(&mut self, message: Message) -> Option<Received> {
        let link = &self.pull.link;
        let message = jetstream::Message { message, context: link.jetstream.clone() };
        let info = message.info().ok()?;
        self.pull.lag = Some(info.pending);
        let (decoded, defect) = read(&message, &info, &self.pull.label);
        Some(Received {
            message: decoded,
            defect,
            redelivered: info.delivered > 1,
            settle: Box::new(Delivery {
                link: link.clone(),
                reply: message.reply.clone()?,
                ack_wait: link.options.ack_wait,
            }),
        })
    }
}

/// The message of a delivery, or as much of it as could be read and why not more.
pub(crate) fn read(
    message: &jetstream::Message,
    info: &jetstream::message::Info<'_>,
    consumer: &str,
) -> (twinbox_core::Message, Option<String>) {
    let place = Place::of(info.stream, info.stream_sequence, info.published.unix_timestamp_nanos());
    let (decoded, defect) = wire::decode(message.headers.as_ref(), &message.payload, place);
    if let Some(defect) = &defect {
        tracing::warn!(consumer, sequence = place.sequence, defect, "unreadable message");
    }
    (decoded, defect)
}
