//! Consuming.
use super::{
    Sqs, SqsOptions, classify,
    options::{name_of, region_of},
    settle::{Delivery, Desk, seconds},
    wire::{self, Place},
};
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::{
    Client,
    config::{StalledStreamProtectionConfig, retry::RetryConfig},
    types::{Message, MessageSystemAttributeName as Attribute, QueueAttributeName},
};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::{
    task::{JoinError, JoinSet},
    time::Instant,
};
use twinbox_core::{
    BoxFuture, Horizon, Received, Source, SourceError, SourceErrorKind, Subscription, Timestamp, Transport,
};

/// Messages of one request.
const BATCH_MAX: usize = 10;
/// Requests for messages that are under way at a time, when each brings all that it may.
const REQUESTS_MAX: usize = 8;
/// For how long EventBridge tries to bring an event to a queue, unless its rule says less.
const DELIVERY_MAX: Duration = Duration::from_secs(24 * 3600);
/// How often a request is sent again by the SDK. What it asked for twice is hidden, and comes again.
const ATTEMPTS_MAX: u32 = 3;

impl Transport for Sqs {
    /// Asks for the queue of the consumer, with a client of the subscription's own. An ordered subscription is refused:
    /// a standard queue keeps no order.
    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Source>, SourceError>> {
        Box::pin(async {
            let consumer = &subscription.consumer;
            let misconfigured = |what| SourceError::new(SourceErrorKind::Misconfigured, what);
            if subscription.ordered {
                return Err(misconfigured(format!(
                    "the consumer `{consumer}` asks for the order of keys, which SQS does not keep: write \
                     `order = \"none\"` and compare `sequence`, or read from NATS or the log"
                )));
            }
            let Some(url) = self.options.queues.get(consumer) else {
                return Err(misconfigured(format!(
                    "the consumer `{consumer}` has no queue: name it with `SqsOptions::queue`"
                )));
            };
            let client = client(&self.options, url).await?;
            let horizon = look(&client, consumer, url).await?;
            let shared = Shared {
                desk: Desk::open(&client, url, self.options.visibility),
                client,
                queue_url: url.clone(),
                visibility: self.options.visibility,
                wait: self.options.wait,
            };
            Ok(Box::new(QueueSource {
                shared: Arc::new(shared),
                horizon,
                requests: JoinSet::new(),
                asked: 0,
                is_full: false,
                at_hand: VecDeque::new(),
            }) as _)
        })
    }
}

async fn client(options: &SqsOptions, queue_url: &str) -> Result<Client, SourceError> {
    let environment = options.environment.load(region_of(queue_url)).await;
    if environment.region().is_none() {
        let what = "no region is known: set `SqsOptions::region` or AWS_REGION";
        return Err(SourceError::new(SourceErrorKind::Misconfigured, what));
    }
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(options.connect_timeout)
        .operation_attempt_timeout(options.request_timeout + options.wait);
    let config = aws_sdk_sqs::config::Builder::from(&environment)
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS_MAX))
        .timeout_config(timeouts.build())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    Ok(Client::from_conf(config.build()))
}

/// Whether the queue is there, for how long it keeps messages, and whether it gives them up by itself.
async fn look(client: &Client, consumer: &str, queue_url: &str) -> Result<Horizon, SourceError> {
    let asked = client
        .get_queue_attributes()
        .queue_url(queue_url)
        .attribute_names(QueueAttributeName::MessageRetentionPeriod)
        .attribute_names(QueueAttributeName::RedrivePolicy);
    let what = format!("asking for the queue of the consumer `{consumer}`, {queue_url}");
    let found = asked.send().await.map_err(|e| classify::of_request(&what, e))?;
    let attribute = |name| found.attributes().and_then(|found| found.get(&name));
    if let Some(policy) = attribute(QueueAttributeName::RedrivePolicy) {
        tracing::warn!(
            consumer,
            queue_url,
            policy,
            "the queue gives messages up by how often they were delivered, also while a database is away: let the \
             consumer do so, or allow many"
        );
    }
    tracing::info!(consumer, queue_url, "subscribed");
    let kept = attribute(QueueAttributeName::MessageRetentionPeriod).and_then(|seconds| seconds.parse().ok());
    let queue = name_of(queue_url);
    let Some(kept) = kept.map(Duration::from_secs) else {
        let because = format!("the queue `{queue}` does not say for how long it keeps messages");
        return Ok(Horizon::Unlimited { because });
    };
    let because = format!(
        "the queue `{queue}` keeps messages for {kept:?} (MessageRetentionPeriod), and EventBridge may take \
         {DELIVERY_MAX:?} until one is there"
    );
    Ok(Horizon::Within { age: kept.saturating_add(DELIVERY_MAX), because })
}

struct Shared {
    client: Client,
    queue_url: String,
    desk: Arc<Desk>,
    visibility: Duration,
    wait: Duration,
}

type Answer = (usize, Result<Vec<Received>, SourceError>);

/// Asks for no more messages than it may return, because those that wait are hidden from others.
struct QueueSource {
    shared: Arc<Shared>,
    horizon: Horizon,
    requests: JoinSet<Answer>,
    /// Messages that the requests under way may bring.
    asked: usize,
    /// The last request brought all that it might: there is more.
    is_full: bool,
    at_hand: VecDeque<Received>,
}

impl Source for QueueSource {
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<Received>, SourceError>> {
        Box::pin(async move {
            let max = max.max(1);
            while self.at_hand.is_empty() {
                self.ask(max);
                let answer = self.requests.join_next().await;
                self.take(answer)?;
                while let Some(answer) = self.requests.try_join_next() {
                    self.take(Some(answer))?;
                }
            }
            Ok(self.at_hand.drain(..max.min(self.at_hand.len())).collect())
        })
    }

    fn horizon(&self) -> Horizon {
        self.horizon.clone()
    }

    /// Waits for the requests under way, and shows at once what they bring.
    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            while let Some(answer) = self.requests.join_next().await {
                self.take(Some(answer))?;
            }
            let shown = self.at_hand.drain(..).map(|received| received.settle.nak(Duration::ZERO));
            futures::future::try_join_all(shown).await.map(drop)
        })
    }
}

impl QueueSource {
    fn ask(&mut self, max: usize) {
        let requests_max = if self.is_full { REQUESTS_MAX } else { 1 };
        while self.requests.len() < requests_max && self.asked < max {
            let count = (max - self.asked).min(BATCH_MAX);
            self.asked += count;
            let shared = self.shared.clone();
            self.requests.spawn(async move { (count, shared.receive(count).await) });
        }
    }

    fn take(&mut self, answer: Option<Result<Answer, JoinError>>) -> Result<(), SourceError> {
        let Some(answer) = answer else { return Ok(()) };
        let (count, came) = answer.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
        self.asked -= count;
        let came = came?;
        self.is_full = came.len() == count;
        self.at_hand.extend(came);
        Ok(())
    }
}

impl Shared {
    async fn receive(&self, count: usize) -> Result<Vec<Received>, SourceError> {
        let asked = self
            .client
            .receive_message()
            .queue_url(&self.queue_url)
            .max_number_of_messages(i32::try_from(count).unwrap_or(i32::MAX))
            .wait_time_seconds(seconds(self.wait))
            .visibility_timeout(seconds(self.visibility))
            .message_system_attribute_names(Attribute::ApproximateReceiveCount)
            .message_system_attribute_names(Attribute::SentTimestamp);
        let asked_at = Instant::now();
        let answer = asked.send().await;
        let answer = answer.map_err(|e| classify::of_request("receiving from the queue", e))?;
        Ok(answer
            .messages
            .unwrap_or_default()
            .into_iter()
            .filter_map(|m| self.received(m, asked_at))
            .collect())
    }

    /// A message without a receipt cannot be settled, and will be delivered again.
    fn received(&self, message: Message, asked_at: Instant) -> Option<Received> {
        let number = |attribute| message.attributes()?.get(&attribute)?.parse::<i64>().ok();
        let sent = number(Attribute::SentTimestamp).unwrap_or_default().saturating_mul(1000);
        let place = Place {
            queue: name_of(&self.queue_url),
            id: message.message_id().unwrap_or_default(),
            sent: Timestamp::from_micros(sent),
        };
        let (decoded, defect) = wire::decode(message.body().unwrap_or_default(), place);
        if let Some(defect) = &defect {
            tracing::warn!(queue = place.queue, id = place.id, defect, "unreadable message");
        }
        Some(Received {
            message: decoded,
            defect,
            redelivered: number(Attribute::ApproximateReceiveCount) != Some(1),
            settle: Box::new(Delivery::new(self.desk.clone(), message.receipt_handle?, asked_at)),
        })
    }
}
