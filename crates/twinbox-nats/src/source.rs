//! Consuming.
use crate::{
    Nats,
    connect::{Link, Use},
    consumer,
    settle::{self, Delivery},
    wire::{self, Place},
};
use async_nats::{Message, StatusCode, Subject, Subscriber, jetstream};
use futures::{FutureExt as _, StreamExt as _};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;
use twinbox_core::{
    BoxError, BoxFuture, Received, Source, SourceError, SourceErrorKind, Subscription, Timestamp, Transport,
};

/// How often the server says that it still holds the request for messages.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long a request for messages stays with the server.
const PULL_EXPIRES: Duration = Duration::from_secs(10);
/// Silences of two heartbeats after which the consumer is asked for.
const SILENCES_MAX: u32 = 2;
/// The most deliveries that are asked for at a time.
const PULL_MAX: usize = 1024;

const ENDED: &str = "the connection to NATS has ended";

impl Transport for Nats {
    /// Opens a connection of the subscription's own and creates its durable consumer if it is missing. A
    /// consumer that exists is never changed. An ordered subscription is refused.
    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Source>, SourceError>> {
        Box::pin(async {
            let link = Link::open(&self.options, Use::Consume).await?;
            if self.options.create_stream.is_some() {
                link.prepare_stream().await?;
            }
            consumer::provision(&link, &self.options, subscription).await?;
            let inbox = Subject::from(link.client.new_inbox());
            let deliveries = link
                .client
                .subscribe(inbox.clone())
                .await
                .map_err(|e| SourceError::new(SourceErrorKind::Unavailable, ENDED).with_source(e))?;
            tracing::info!(consumer = subscription.consumer, "subscribed");
            Ok(Box::new(PullSource {
                nats: self.clone(),
                consumer: subscription.consumer.clone(),
                link: Arc::new(link),
                inbox,
                deliveries,
                asked: 0,
                silences: 0,
            }) as _)
        })
    }
}

/// Asks for as many messages as it may return, one request at a time, so that none waits here while its
/// time to be acknowledged runs.
struct PullSource {
    nats: Nats,
    consumer: String,
    link: Arc<Link>,
    inbox: Subject,
    deliveries: Subscriber,
    /// What the server may still deliver to the last request.
    asked: usize,
    /// Silences since the server was last heard.
    silences: u32,
}

impl Source for PullSource {
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<Received>, SourceError>> {
        Box::pin(async move {
            let max = max.clamp(1, PULL_MAX);
            loop {
                if self.asked == 0 {
                    self.ask(max).await?;
                }
                let Ok(next) = timeout(2 * HEARTBEAT, self.deliveries.next()).await else {
                    self.silence().await?;
                    continue;
                };
                let Some(message) = next else {
                    return Err(unavailable(ENDED));
                };
                if let Some(first) = self.take(message)? {
                    return Ok(self.with_those_at_hand(first, max));
                }
            }
        })
    }

    /// What was delivered and not returned goes back at once.
    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            let limit = self.nats.options.request_timeout;
            match timeout(limit, self.give_back()).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(unavailable(ENDED).with_source(error)),
                Err(_) => Err(unavailable("NATS did not confirm in time that the consumer was let go")),
            }
        })
    }
}

impl PullSource {
    async fn give_back(&mut self) -> Result<(), BoxError> {
        self.deliveries.unsubscribe().await?;
        while let Some(message) = self.deliveries.next().await {
            if let Some(reply) = message.reply {
                self.link.client.publish(reply, settle::again(Duration::ZERO)).await?;
            }
        }
        Ok(self.link.client.flush().await?)
    }

    async fn ask(&mut self, max: usize) -> Result<(), SourceError> {
        let options = &self.nats.options;
        let subject =
            format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", options.stream, consumer::durable(&self.consumer));
        let request = format!(
            "{{\"batch\":{max},\"expires\":{},\"idle_heartbeat\":{}}}",
            PULL_EXPIRES.as_nanos(),
            HEARTBEAT.as_nanos()
        );
        // Before the wait: a request that is dropped half-way looks like one that the server lost.
        self.asked = max;
        let sent = self.link.client.publish_with_reply(subject, self.inbox.clone(), request.into()).await;
        sent.map_err(|e| unavailable(ENDED).with_source(e))
    }

    /// Neither a message nor a heartbeat came. Once may be the network; then the consumer is asked for, and
    /// if it is there the request is made again.
    async fn silence(&mut self) -> Result<(), SourceError> {
        self.silences += 1;
        tracing::warn!(consumer = self.consumer, silences = self.silences, "NATS is silent");
        if self.silences >= SILENCES_MAX {
            let there = consumer::info(&self.link, &self.nats.options, &self.consumer).await;
            there.map_err(|e| unavailable(e.to_string()).with_source(e))?;
            self.silences = 0;
        }
        self.asked = 0;
        Ok(())
    }

    /// A delivery, or nothing if the message is about the request itself.
    fn take(&mut self, message: Message) -> Result<Option<Received>, SourceError> {
        self.silences = 0;
        match message.status {
            None | Some(StatusCode::OK) => {
                self.asked = self.asked.saturating_sub(1);
                Ok(self.received(message))
            }
            Some(StatusCode::IDLE_HEARTBEAT) => Ok(None),
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                self.asked = 0;
                Ok(None)
            }
            Some(status) => {
                let why = match (status, message.description.as_deref()) {
                    (_, Some("Consumer Deleted")) => "was deleted".to_owned(),
                    (StatusCode::NO_RESPONDERS, _) => "is not there".to_owned(),
                    _ => format!("cannot deliver (status {})", status.as_u16()),
                };
                tracing::warn!(consumer = self.consumer, %why, "the consumer cannot go on");
                Err(unavailable(format!("the consumer `{}` {why}", self.consumer)))
            }
        }
    }

    /// A message without a place in JetStream was sent to our inbox by somebody else, and is none of ours.
    fn received(&self, message: Message) -> Option<Received> {
        let message = jetstream::Message { message, context: self.link.jetstream.clone() };
        let info = message.info().ok()?;
        let stored = i64::try_from(info.published.unix_timestamp_nanos() / 1000).unwrap_or_default();
        let stored = Timestamp::from_micros(stored);
        let place = Place { stream: info.stream, sequence: info.stream_sequence, stored };
        let (decoded, defect) = wire::decode(message.headers.as_ref(), &message.payload, place);
        if let Some(defect) = &defect {
            tracing::warn!(consumer = self.consumer, sequence = place.sequence, defect, "unreadable message");
        }
        Some(Received {
            message: decoded,
            defect,
            redelivered: info.delivered > 1,
            settle: Box::new(Delivery {
                link: self.link.clone(),
                reply: message.reply.clone()?,
                ack_wait: self.nats.options.ack_wait,
            }),
        })
    }

    /// No wait in here: what was taken is returned. A fault that shows behind it shows again when the next
    /// call asks for more.
    fn with_those_at_hand(&mut self, first: Received, max: usize) -> Vec<Received> {
        let mut received = vec![first];
        while received.len() < max {
            let Some(Some(message)) = self.deliveries.next().now_or_never() else { break };
            match self.take(message) {
                Ok(more) => received.extend(more),
                Err(_) => {
                    self.asked = 0;
                    break;
                }
            }
        }
        received
    }
}

fn unavailable(what: impl Into<String>) -> SourceError {
    SourceError::new(SourceErrorKind::Unavailable, what)
}
