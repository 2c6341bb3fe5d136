//! Settling of deliveries: deletions and changes of visibility, in batches.
use super::{classify, options::VISIBILITY_MAX};
use aws_sdk_sqs::{
    Client,
    types::{
        BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
    },
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::Instant,
};
use twinbox_core::{BoxFuture, Settle, SourceError, SourceErrorKind, task_name::TaskName};

/// The most entries of one request.
const BATCH_MAX: usize = 10;
/// The longest time from the computation of a visibility time-out until SQS applies it.
const REQUEST_MARGIN: Duration = Duration::from_secs(5);
/// The most requests of one kind at a time.
const REQUESTS_MAX: usize = 8;

type SettleResult = Result<(), SourceError>;

#[derive(Debug, Clone, Copy)]
enum Action {
    Delete,
    /// Hides the delivery for this time from now on. Zero: SQS redelivers it at once.
    Hide(Duration),
}

struct SettleRequest {
    receipt: String,
    /// Not later than SQS returned the delivery, from when SQS counts its limit.
    received_at: Instant,
    action: Action,
    /// The channel is closed if the delivery was dropped.
    result: oneshot::Sender<SettleResult>,
}

/// Sends the settle requests of one source. Requests are sent even after the source is gone.
pub(crate) struct Settler {
    deletions: mpsc::UnboundedSender<SettleRequest>,
    changes: mpsc::UnboundedSender<SettleRequest>,
    visibility_timeout: Duration,
}

impl Settler {
    pub(crate) fn start(client: &Client, queue_url: &str, visibility_timeout: Duration) -> Arc<Self> {
        let start = || {
            let (sender, requests) = mpsc::unbounded_channel();
            tokio::spawn(TaskName::SqsSettle.of(send_batches(
                client.clone(),
                queue_url.to_owned(),
                requests,
            )));
            sender
        };
        Arc::new(Self { deletions: start(), changes: start(), visibility_timeout })
    }

    fn request(
        &self,
        receipt: String,
        received_at: Instant,
        action: Action,
    ) -> oneshot::Receiver<SettleResult> {
        let (result, received) = oneshot::channel();
        let requests = match action {
            Action::Delete => &self.deletions,
            Action::Hide(_) => &self.changes,
        };
        // A closed channel drops the request, and with it the sender of the result.
        let _ = requests.send(SettleRequest { receipt, received_at, action, result });
        received
    }
}

/// Ends when every sender of the channel is gone.
async fn send_batches(
    client: Client,
    queue_url: String,
    mut requests: mpsc::UnboundedReceiver<SettleRequest>,
) {
    let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let mut batch = Vec::with_capacity(BATCH_MAX);
        if requests.recv_many(&mut batch, BATCH_MAX).await == 0 {
            return;
        }
        let (client, queue_url) = (client.clone(), queue_url.clone());
        tokio::spawn(TaskName::SqsSettle.of(async move {
            send_batch(&client, &queue_url, batch).await;
            drop(permit);
        }));
    }
}

/// Sends one batch and reports the result of each entry.
async fn send_batch(client: &Client, queue_url: &str, batch: Vec<SettleRequest>) {
    let confirmed = match batch[0].action {
        Action::Delete => delete(client, queue_url, &batch).await,
        Action::Hide(_) => change_visibility(client, queue_url, &batch).await,
    };
    match confirmed {
        Ok(mut results) => {
            for (n, request) in batch.into_iter().enumerate() {
                let missing = || Err(not_confirmed().with_source("the response has no result for the entry"));
                let _ = request.result.send(results.remove(&n.to_string()).unwrap_or_else(missing));
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            for request in batch {
                let _ = request.result.send(Err(not_confirmed().with_source(error.clone())));
            }
        }
    }
}

/// The result of each entry, by its id.
type Results = HashMap<String, SettleResult>;

async fn delete(client: &Client, queue_url: &str, batch: &[SettleRequest]) -> Result<Results, SourceError> {
    let entries = batch.iter().enumerate().map(|(n, request)| {
        let entry =
            DeleteMessageBatchRequestEntry::builder().id(n.to_string()).receipt_handle(&request.receipt);
        entry.build().expect("every required field is set")
    });
    let request = client.delete_message_batch().queue_url(queue_url).set_entries(Some(entries.collect()));
    let response = request.send().await.map_err(|e| classify::of_request("deleting from the queue", e))?;
    Ok(results(response.successful().iter().map(|entry| &entry.id), response.failed()))
}

async fn change_visibility(
    client: &Client,
    queue_url: &str,
    batch: &[SettleRequest],
) -> Result<Results, SourceError> {
    let entries = batch.iter().enumerate().map(|(n, request)| {
        let hidden_for = match request.action {
            Action::Delete => Duration::ZERO,
            Action::Hide(time) => time,
        };
        let entry = ChangeMessageVisibilityBatchRequestEntry::builder()
            .id(n.to_string())
            .receipt_handle(&request.receipt)
            .visibility_timeout(visibility_seconds(hidden_for, request.received_at.elapsed()));
        entry.build().expect("every required field is set")
    });
    let request =
        client.change_message_visibility_batch().queue_url(queue_url).set_entries(Some(entries.collect()));
    let response = request.send().await;
    let response = response.map_err(|e| classify::of_request("changing the visibility of a delivery", e))?;
    Ok(results(response.successful().iter().map(|entry| &entry.id), response.failed()))
}

fn results<'a>(successful: impl Iterator<Item = &'a String>, failed: &[BatchResultErrorEntry]) -> Results {
    let failed = failed.iter().map(|entry| {
        let words = format!("{}: {}", entry.code, entry.message().unwrap_or_default());
        (entry.id.clone(), Err(not_confirmed().with_source(words)))
    });
    successful.map(|id| (id.clone(), Ok(()))).chain(failed).collect()
}

/// Returns how long a delivery is hidden from now on, in whole seconds.
///
/// SQS counts its limit from the receive. It refuses a longer time, and the delivery would then become
/// visible as early as before the change.
fn visibility_seconds(hidden_for: Duration, since_receive: Duration) -> i32 {
    let left = VISIBILITY_MAX.saturating_sub(since_receive).saturating_sub(REQUEST_MARGIN);
    match whole_seconds(hidden_for) {
        seconds if Duration::from_secs(seconds.unsigned_abs().into()) <= left => seconds,
        _ => i32::try_from(left.as_secs()).unwrap_or(i32::MAX),
    }
}

/// Rounds up to whole seconds.
pub(crate) fn whole_seconds(duration: Duration) -> i32 {
    let duration = duration.min(VISIBILITY_MAX);
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

fn not_confirmed() -> SourceError {
    SourceError::new(SourceErrorKind::NotConfirmed, "SQS did not confirm the settling of a delivery")
}

/// Acks or naks one delivery. Dropped before either, it makes the delivery visible again at once.
pub(crate) struct AckHandle {
    settler: Arc<Settler>,
    /// None once the delivery is settled.
    receipt: Option<String>,
    received_at: Instant,
}

impl AckHandle {
    /// `received_at` is the time of the request for messages, or later, but not after SQS returned the
    /// delivery.
    pub(crate) fn new(settler: Arc<Settler>, receipt: String, received_at: Instant) -> Self {
        Self { settler, receipt: Some(receipt), received_at }
    }

    fn settle(&mut self, action: Action) -> BoxFuture<'static, SettleResult> {
        let receipt = self.receipt.take();
        let result = receipt.map(|receipt| self.settler.request(receipt, self.received_at, action));
        Box::pin(wait_for(result))
    }
}

async fn wait_for(result: Option<oneshot::Receiver<SettleResult>>) -> SettleResult {
    let stopped = |_| Err(not_confirmed().with_source("the runtime stops"));
    match result {
        Some(result) => result.await.unwrap_or_else(stopped),
        None => Ok(()),
    }
}

impl Settle for AckHandle {
    fn ack(mut self: Box<Self>) -> BoxFuture<'static, SettleResult> {
        self.settle(Action::Delete)
    }

    fn nak(mut self: Box<Self>, delay: Duration) -> BoxFuture<'static, SettleResult> {
        self.settle(Action::Hide(delay))
    }

    fn progress(&self) -> BoxFuture<'_, SettleResult> {
        let action = Action::Hide(self.settler.visibility_timeout);
        let result =
            self.receipt.clone().map(|receipt| self.settler.request(receipt, self.received_at, action));
        Box::pin(wait_for(result))
    }

    fn progress_interval(&self) -> Option<Duration> {
        Some(self.settler.visibility_timeout / 3)
    }
}

impl Drop for AckHandle {
    fn drop(&mut self) {
        drop(self.settle(Action::Hide(Duration::ZERO)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_rounded_up() {
        for (millis, expected) in [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (u64::MAX, 43_200)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn no_delivery_is_hidden_beyond_twelve_hours_from_the_receive() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        for (hidden_for, since_receive, expected) in [
            (Duration::from_millis(1), Duration::ZERO, 1),
            (hours(1), hours(1), 3600),
            (hours(12), Duration::ZERO, 43_195),
            (hours(24), hours(2), 35_995),
            (hours(1), hours(11), 3595),
            (hours(1), hours(13), 0),
            (Duration::ZERO, hours(13), 0),
        ] {
            let seconds = visibility_seconds(hidden_for, since_receive);
            assert_eq!(seconds, expected, "{hidden_for:?} {since_receive:?}");
        }
    }
}
