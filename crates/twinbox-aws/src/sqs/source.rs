//! Consuming from a queue.
use super::{
    broker::Sqs,
    classify, connect,
    options::queue_name,
    settle::{AckHandle, Settler, whole_seconds},
    wire::{self, Origin},
};
use aws_sdk_sqs::{
    Client,
    types::{Message, MessageSystemAttributeName as Attribute},
};
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    task::{JoinError, JoinSet},
    time::Instant,
};
use twinbox_core::{
    BoxFuture, MaxAge, ReceivedMessage, Source, SourceError, SourceErrorKind, Subscription, Timestamp,
    Transport, task_name::TaskName,
};

/// The most messages of one request.
const BATCH_MAX: usize = 10;
/// The most requests at a time, while each returns as many messages as it may.
const REQUESTS_MAX: usize = 8;

impl Transport for Sqs {
    fn system(&self) -> &'static str {
        "aws_sqs"
    }

    /// Checks the queue of the consumer, with a client for this subscription.
    ///
    /// An ordered subscription is refused: a standard queue keeps no order.
    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Source>, SourceError>> {
        Box::pin(async {
            let consumer = &subscription.consumer;
            let misconfigured = |text| SourceError::new(SourceErrorKind::Misconfigured, text);
            if subscription.is_ordered {
                return Err(misconfigured(format!(
                    "the consumer `{consumer}` needs the order of keys, which SQS does not keep: write \
                     `order = \"none\"` and compare `sequence`, or read from NATS or the log"
                )));
            }
            let Some(url) = self.options.queues.get(consumer) else {
                return Err(misconfigured(format!(
                    "the consumer `{consumer}` has no queue: name it with `SqsOptions::queue`"
                )));
            };
            let client = connect::client(&self.options, url).await?;
            let max_age = connect::check_queue(&client, consumer, url).await?;
            let visibility_timeout = self.options.visibility_timeout;
            let queue = Queue {
                settler: Settler::start(&client, url, visibility_timeout),
                client,
                url: url.clone(),
                visibility_timeout,
                wait_time: self.options.wait_time,
            };
            Ok(Box::new(QueueSource {
                queue: Arc::new(queue),
                max_age,
                requests: JoinSet::new(),
                requested: 0,
                has_more: false,
                buffered: VecDeque::new(),
            }) as _)
        })
    }
}

/// A queue with its client, shared by the requests of one source.
struct Queue {
    client: Client,
    url: String,
    settler: Arc<Settler>,
    visibility_timeout: Duration,
    wait_time: Duration,
}

/// The number of requested messages, and the result of the request.
type Response = (usize, Result<Vec<ReceivedMessage>, SourceError>);

/// Requests no more messages than its caller takes, because a buffered message is hidden from other
/// processes.
struct QueueSource {
    queue: Arc<Queue>,
    max_age: MaxAge,
    requests: JoinSet<Response>,
    /// The most messages that the requests in flight can return.
    requested: usize,
    /// Whether the last request returned as many messages as it could, so that the queue holds more.
    has_more: bool,
    buffered: VecDeque<ReceivedMessage>,
}

impl Source for QueueSource {
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<ReceivedMessage>, SourceError>> {
        Box::pin(async move {
            let max = max.max(1);
            while self.buffered.is_empty() {
                self.start_requests(max);
                let response = self.requests.join_next().await;
                self.accept(response)?;
                while let Some(response) = self.requests.try_join_next() {
                    self.accept(Some(response))?;
                }
            }
            Ok(self.buffered.drain(..max.min(self.buffered.len())).collect())
        })
    }

    fn max_age(&self) -> MaxAge {
        self.max_age.clone()
    }

    /// Waits for the requests in flight and naks their messages, so that the queue redelivers them at once.
    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            while let Some(response) = self.requests.join_next().await {
                self.accept(Some(response))?;
            }
            let naks = self.buffered.drain(..).map(|received| received.settle.nak(Duration::ZERO));
            futures::future::try_join_all(naks).await.map(drop)
        })
    }
}

impl QueueSource {
    fn start_requests(&mut self, max: usize) {
        let requests_max = if self.has_more { REQUESTS_MAX } else { 1 };
        while self.requests.len() < requests_max && self.requested < max {
            let count = (max - self.requested).min(BATCH_MAX);
            self.requested += count;
            let queue = self.queue.clone();
            self.requests.spawn(TaskName::SqsReceive.of(async move { (count, queue.receive(count).await) }));
        }
    }

    fn accept(&mut self, response: Option<Result<Response, JoinError>>) -> Result<(), SourceError> {
        let Some(response) = response else { return Ok(()) };
        let (count, received) = response.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
        self.requested -= count;
        let received = received?;
        self.has_more = received.len() == count;
        self.buffered.extend(received);
        Ok(())
    }
}

impl Queue {
    async fn receive(&self, count: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        let request = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(i32::try_from(count).unwrap_or(i32::MAX))
            .wait_time_seconds(whole_seconds(self.wait_time))
            .visibility_timeout(whole_seconds(self.visibility_timeout))
            .message_system_attribute_names(Attribute::ApproximateReceiveCount)
            .message_system_attribute_names(Attribute::SentTimestamp);
        let requested_at = Instant::now();
        let response = request.send().await;
        let response = response.map_err(|e| classify::of_request("receiving from the queue", e))?;
        let messages = response.messages.unwrap_or_default().into_iter();
        Ok(messages.filter_map(|message| self.received(message, requested_at)).collect())
    }

    /// Returns a delivery. None: the message has no receipt, so it cannot be settled and will be redelivered.
    fn received(&self, message: Message, requested_at: Instant) -> Option<ReceivedMessage> {
        let number = |attribute| message.attributes()?.get(&attribute)?.parse::<i64>().ok();
        let sent_at = number(Attribute::SentTimestamp).map_or_else(now_micros, |ms| ms.saturating_mul(1000));
        let origin = Origin {
            queue: queue_name(&self.url),
            message_id: message.message_id().unwrap_or_default(),
            sent_at: Timestamp::from_micros(sent_at),
        };
        let (decoded, defect) = wire::decode(message.body().unwrap_or_default(), origin);
        if let Some(defect) = &defect {
            tracing::warn!(queue = origin.queue, id = origin.message_id, defect, "unreadable message");
        }
        Some(ReceivedMessage {
            message: decoded,
            defect,
            redelivered: number(Attribute::ApproximateReceiveCount) != Some(1),
            settle: Box::new(AckHandle::new(self.settler.clone(), message.receipt_handle?, requested_at)),
        })
    }
}

/// For a server that does not tell when a message was sent.
fn now_micros() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
}
