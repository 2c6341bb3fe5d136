//! Deletions and changes of visibility, in batches of what is at hand.
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
use twinbox_core::{BoxFuture, Settle, SourceError, SourceErrorKind};

/// Entries that one request takes.
const BATCH_MAX: usize = 10;
/// The longest time of a request until SQS counts by it.
const REQUEST_MARGIN: Duration = Duration::from_secs(5);
/// Requests of one kind that are under way at a time.
const REQUESTS_MAX: usize = 8;

type Settled = Result<(), SourceError>;

struct Order {
    receipt: String,
    /// No later than SQS gave it out, from when its own limit counts.
    received_at: Instant,
    /// None: it is done with, and deleted.
    hidden_for: Option<Duration>,
    /// Nobody waits for that of a delivery that was dropped.
    answer: oneshot::Sender<Settled>,
}

/// Where deliveries of one source are settled. What is ordered is sent although the source is gone.
pub(crate) struct Desk {
    deletions: mpsc::UnboundedSender<Order>,
    changes: mpsc::UnboundedSender<Order>,
    visibility: Duration,
}

impl Desk {
    pub(crate) fn open(client: &Client, queue_url: &str, visibility: Duration) -> Arc<Self> {
        let start = || {
            let (orders, ordered) = mpsc::unbounded_channel();
            tokio::spawn(carry_out(client.clone(), queue_url.to_owned(), ordered));
            orders
        };
        Arc::new(Self { deletions: start(), changes: start(), visibility })
    }

    fn order(
        &self,
        receipt: String,
        received_at: Instant,
        hidden_for: Option<Duration>,
    ) -> oneshot::Receiver<Settled> {
        let (answer, answered) = oneshot::channel();
        let orders = if hidden_for.is_some() { &self.changes } else { &self.deletions };
        // Nobody there: the answer is dropped, which says so.
        let _ = orders.send(Order { receipt, received_at, hidden_for, answer });
        answered
    }
}

/// Ends with the last of those who order.
async fn carry_out(client: Client, queue_url: String, mut ordered: mpsc::UnboundedReceiver<Order>) {
    let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let mut batch = Vec::with_capacity(BATCH_MAX);
        if ordered.recv_many(&mut batch, BATCH_MAX).await == 0 {
            return;
        }
        let (client, queue_url) = (client.clone(), queue_url.clone());
        tokio::spawn(async move {
            settle(&client, &queue_url, batch).await;
            drop(permit);
        });
    }
}

/// Each entry of a request that was taken as a whole succeeds or fails by itself.
async fn settle(client: &Client, queue_url: &str, batch: Vec<Order>) {
    let confirmed = if batch[0].hidden_for.is_some() {
        change(client, queue_url, &batch).await
    } else {
        delete(client, queue_url, &batch).await
    };
    for (n, order) in batch.into_iter().enumerate() {
        let answer = match &confirmed {
            Ok(entries) => {
                entries.get(&n.to_string()).cloned().unwrap_or(Err("nothing was said of it".into()))
            }
            Err(error) => Err(error.to_string()),
        };
        let _ = order.answer.send(answer.map_err(not_confirmed));
    }
}

/// What was said of each entry, by its id.
type Confirmed = HashMap<String, Result<(), String>>;

async fn delete(client: &Client, queue_url: &str, batch: &[Order]) -> Result<Confirmed, SourceError> {
    let entries = batch.iter().enumerate().map(|(n, order)| {
        let entry =
            DeleteMessageBatchRequestEntry::builder().id(n.to_string()).receipt_handle(&order.receipt);
        entry.build().expect("it has all that is required")
    });
    let request = client.delete_message_batch().queue_url(queue_url).set_entries(Some(entries.collect()));
    let answer = request.send().await.map_err(|e| classify::of_request("deleting from the queue", e))?;
    Ok(confirmed(answer.successful().iter().map(|entry| &entry.id), answer.failed()))
}

async fn change(client: &Client, queue_url: &str, batch: &[Order]) -> Result<Confirmed, SourceError> {
    let entries = batch.iter().enumerate().map(|(n, order)| {
        let entry = ChangeMessageVisibilityBatchRequestEntry::builder()
            .id(n.to_string())
            .receipt_handle(&order.receipt)
            .visibility_timeout(still_hidden(
                order.hidden_for.unwrap_or_default(),
                order.received_at.elapsed(),
            ));
        entry.build().expect("it has all that is required")
    });
    let request =
        client.change_message_visibility_batch().queue_url(queue_url).set_entries(Some(entries.collect()));
    let answer = request.send().await.map_err(|e| classify::of_request("hiding a delivery", e))?;
    Ok(confirmed(answer.successful().iter().map(|entry| &entry.id), answer.failed()))
}

fn confirmed<'a>(
    successful: impl Iterator<Item = &'a String>,
    failed: &[BatchResultErrorEntry],
) -> Confirmed {
    let failed = failed.iter().map(|entry| {
        let why = format!("{}: {}", entry.code, entry.message().unwrap_or_default());
        (entry.id.clone(), Err(why))
    });
    successful.map(|id| (id.clone(), Ok(()))).chain(failed).collect()
}

/// How long a delivery may be hidden from now on, in whole seconds. SQS counts its limit from the receive, and refuses
/// whatever ends beyond it: the delivery would then be shown as soon as it was to be before.
fn still_hidden(asked: Duration, since_receive: Duration) -> i32 {
    let left = VISIBILITY_MAX.saturating_sub(since_receive).saturating_sub(REQUEST_MARGIN);
    match seconds(asked) {
        seconds if Duration::from_secs(seconds.unsigned_abs().into()) <= left => seconds,
        _ => i32::try_from(left.as_secs()).unwrap_or(i32::MAX),
    }
}

/// Whole seconds, never earlier.
pub(crate) fn seconds(duration: Duration) -> i32 {
    let duration = duration.min(VISIBILITY_MAX);
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

fn not_confirmed(why: impl Into<String>) -> SourceError {
    SourceError::new(SourceErrorKind::NotConfirmed, format!("SQS did not confirm it: {}", why.into()))
}

/// One delivery. Dropped without being settled, it is shown again at once.
pub(crate) struct Delivery {
    desk: Arc<Desk>,
    /// None: it is settled.
    receipt: Option<String>,
    received_at: Instant,
}

impl Delivery {
    /// `received_at`: when it was asked for, or later, but not after SQS gave it out.
    pub(crate) fn new(desk: Arc<Desk>, receipt: String, received_at: Instant) -> Self {
        Self { desk, receipt: Some(receipt), received_at }
    }

    fn settle(&mut self, hidden_for: Option<Duration>) -> BoxFuture<'static, Settled> {
        let ordered = self.receipt.take();
        let ordered = ordered.map(|receipt| self.desk.order(receipt, self.received_at, hidden_for));
        Box::pin(answer(ordered))
    }
}

async fn answer(ordered: Option<oneshot::Receiver<Settled>>) -> Settled {
    match ordered {
        Some(ordered) => ordered.await.unwrap_or_else(|_| Err(not_confirmed("this process stops"))),
        None => Ok(()),
    }
}

impl Settle for Delivery {
    fn ack(mut self: Box<Self>) -> BoxFuture<'static, Settled> {
        self.settle(None)
    }

    fn nak(mut self: Box<Self>, delay: Duration) -> BoxFuture<'static, Settled> {
        self.settle(Some(delay))
    }

    fn progress(&self) -> BoxFuture<'_, Settled> {
        let receipt = self.receipt.clone();
        let ordered =
            receipt.map(|receipt| self.desk.order(receipt, self.received_at, Some(self.desk.visibility)));
        Box::pin(answer(ordered))
    }

    fn progress_interval(&self) -> Option<Duration> {
        Some(self.desk.visibility / 3)
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        drop(self.settle(Some(Duration::ZERO)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_rounded_up() {
        for (millis, expected) in [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (u64::MAX, 43_200)] {
            assert_eq!(seconds(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn nothing_is_hidden_beyond_twelve_hours_from_the_receive() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        for (asked, since_receive, expected) in [
            (Duration::from_millis(1), Duration::ZERO, 1),
            (hours(1), hours(1), 3600),
            (hours(12), Duration::ZERO, 43_195),
            (hours(24), hours(2), 35_995),
            (hours(1), hours(11), 3595),
            (hours(1), hours(13), 0),
            (Duration::ZERO, hours(13), 0),
        ] {
            assert_eq!(still_hidden(asked, since_receive), expected, "{asked:?} {since_receive:?}");
        }
    }
}
