//! One partition of a broker's log: the messages of one key go one after another, keys go beside each other.
//!
//! The checkpoint of a partition holds the sequence up to which all messages are settled. A message that
//! fails for too long [in place](crate::in_place) is parked in the database with the later messages of its
//! key. So the checkpoint moves on, and other keys continue.
use crate::{
    in_place::InPlace,
    outcome::DeliveryOutcome,
    partition_stop::PartitionStop,
    runtime::{OUTAGE_DELAY, Runtime},
};
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tracing::Instrument as _;
use twinbox_core::{
    Checkpoint, Message, MessageId, PartitionMessage, PartitionReader, SourceError,
    lanes::{Budget, Entry, Item},
    task_name::TaskName,
};
use twinbox_log::parking::{Owner, Parkable, ParkedState, Queue};
use twinbox_sql::{Dialect, Error, ErrorKind, Fence};

/// Messages that were received and are not settled.
const WINDOW_MAX: usize = 256;
/// Messages after a takeover that may be redeliveries: the last owner can have settled and not written,
/// settled out of order, and received one window each.
const REDELIVERED_MAX: usize = 3 * WINDOW_MAX;
/// Bytes of messages that were received and are not settled, at which no more are received.
const WINDOW_BYTES: usize = 8 * 1024 * 1024;
/// How long the last writes may take when the partition is released.
const LAST_WRITES_MAX: Duration = Duration::from_secs(5);
/// How often the checkpoint is written.
const TICK: Duration = Duration::from_millis(250);

/// How the reading of a partition ended.
pub(crate) enum PartitionEnd {
    /// The partition was released, or was not taken.
    Released,
    /// Another process owns the partition. This process writes nothing more.
    Lost,
    /// The broker failed.
    Failed(SourceError),
}

/// A received message.
struct Delivered {
    message: Box<Message>,
    /// Why the message cannot be read, if so. It becomes a dead letter, outside of the order of its key.
    defect: Option<String>,
}

impl Item for Delivered {
    fn key(&self) -> Option<&str> {
        if self.defect.is_none() { self.message.key.as_deref() } else { None }
    }

    fn bytes(&self) -> usize {
        self.message.bytes()
    }
}

impl Parkable for Delivered {
    fn message(&self) -> &Message {
        &self.message
    }

    fn resumed(message: Box<Message>) -> Self {
        Self { message, defect: None }
    }
}

/// A processed message with its outcome.
struct Processed {
    entry: Entry<Delivered>,
    outcome: DeliveryOutcome,
}

/// The reading of one partition that this process owns.
pub(crate) struct Partition<DB: Dialect, S> {
    runtime: Arc<Runtime<DB, S>>,
    fence: Fence,
    reader: Box<dyn PartitionReader>,
    stop: PartitionStop,
    queue: Queue<DB, Delivered, u64>,
    /// The last checkpoint that was to be written. The reader may not know its message any more when a write
    /// that failed is repeated.
    checkpoint: Checkpoint,
    /// The sequence of the checkpoint in the database.
    written_sequence: u64,
    /// The number of settled messages when the checkpoint was written.
    settles_written: u64,
    in_place: InPlace,
    in_flight: HashSet<MessageId>,
    deliveries: JoinSet<Processed>,
    received: usize,
}

impl<DB: Dialect, S: Send + Sync + 'static> Partition<DB, S> {
    pub(crate) fn new(
        runtime: Arc<Runtime<DB, S>>,
        fence: Fence,
        reader: Box<dyn PartitionReader>,
        stop: PartitionStop,
    ) -> Self {
        runtime.stats.count_overtaken(reader.has_gap());
        let (log, written_sequence) = (reader.log().to_owned(), reader.start_sequence());
        let owner = Owner::Partition { consumer: runtime.consumer().to_owned(), fence };
        let queue = Queue::new(&runtime.store, owner, written_sequence, true);
        let in_place = InPlace::new(runtime.lease);
        Self {
            runtime,
            fence,
            reader,
            stop,
            queue,
            checkpoint: Checkpoint { log, ..Checkpoint::default() },
            written_sequence,
            settles_written: 0,
            in_place,
            in_flight: HashSet::new(),
            deliveries: JoinSet::new(),
            received: 0,
        }
    }

    /// Reads and processes messages until the partition is released or lost, or the broker fails.
    pub(crate) async fn run(mut self) -> PartitionEnd {
        if let Some(end) = self.read_parked_bytes().await {
            return end;
        }
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stop = self.stop.clone();
        let failed = loop {
            let now = Instant::now();
            self.queue.start(now);
            let due = self.queue.due(now).unwrap_or(now + TICK);
            self.start_ready();
            let room = self.room();
            tokio::select! {
                biased;
                () = self.stop.lost.cancelled() => return self.end_lost().await,
                () = self.stop.release.cancelled() => break None,
                _ = tick.tick() => {
                    if stop.unless_heard(self.tick()).await == Some(false) {
                        return self.end_lost().await;
                    }
                }
                Some(processed) = self.deliveries.join_next() => {
                    self.settle(processed.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())));
                    if self.unwritten() >= WINDOW_MAX
                        && stop.unless_heard(self.write_checkpoint()).await == Some(false)
                    {
                        return self.end_lost().await;
                    }
                }
                parked = self.queue.finished() => match parked {
                    Err(error) if error.kind() == ErrorKind::LeaseLost => return self.end_lost().await,
                    Err(error) => warn_not_parked(&error),
                    Ok(()) => {}
                },
                received = self.reader.receive(room), if room > 0 => match received {
                    Ok(received) => received.into_iter().for_each(|next| self.accept(next)),
                    Err(error) => break Some(error),
                },
                () = tokio::time::sleep_until(due.into()) => {}
            }
        };
        self.stop.release.cancel();
        let is_owner = self.drain_and_release().await;
        match failed {
            Some(error) => PartitionEnd::Failed(error),
            None if is_owner => PartitionEnd::Released,
            None => PartitionEnd::Lost,
        }
    }

    /// Reads once how many bytes are parked; the queue counts from then on. Waits while the database is away.
    async fn read_parked_bytes(&mut self) -> Option<PartitionEnd> {
        let stop = self.stop.clone();
        loop {
            match stop.unless_heard(self.queue.load_bytes()).await {
                Some(Ok(())) => return None,
                None => {}
                Some(Err(error)) => {
                    let cause = &error as &dyn std::error::Error;
                    tracing::warn!(error = cause, "the parked messages of a partition cannot be read");
                }
            }
            tokio::select! {
                () = self.stop.lost.cancelled() => return Some(PartitionEnd::Lost),
                () = self.stop.release.cancelled() => {
                    release(&self.runtime, self.fence).await;
                    return Some(PartitionEnd::Released);
                }
                () = tokio::time::sleep(OUTAGE_DELAY) => {}
            }
        }
    }

    /// Returns how many more messages may be received. None before the queue has read the parked messages,
    /// because those come before messages that are read again.
    fn room(&self) -> usize {
        match self.queue.open_bytes() < WINDOW_BYTES && self.queue.has_room() {
            true => WINDOW_MAX.saturating_sub(self.queue.open()),
            false => 0,
        }
    }

    fn accept(&mut self, PartitionMessage { sequence, mut message, defect }: PartitionMessage) {
        self.received += 1;
        // The key as the database stores it: parked messages are compared by the stored key.
        if let Some(key) = message.key.as_mut().filter(|key| key.contains('\0')) {
            *key = twinbox_sql::stored_text(key).into_owned();
        }
        let redelivered = self.fence.epoch > 1 && self.received <= REDELIVERED_MAX;
        let delivered = Delivered { message: Box::new(message), defect };
        self.queue.push(delivered, sequence, redelivered);
    }

    /// Starts every message whose turn it is.
    fn start_ready(&mut self) {
        for entry in self.queue.take(Budget::messages(usize::MAX)) {
            let (runtime, stop, fence) = (self.runtime.clone(), self.stop.release.clone(), self.fence);
            self.in_flight.insert(entry.message.message.message_id());
            let span = runtime.span(std::iter::once(&*entry.message.message));
            let delivery = async move {
                let Delivered { message, defect } = &entry.message;
                let outcome = match stop.is_cancelled() {
                    true => DeliveryOutcome::shutdown(),
                    false => {
                        let redelivered = entry.ticket.may_be_repeated;
                        runtime.process(&stop, Some(fence.into()), message, defect.clone(), redelivered).await
                    }
                };
                runtime.report(message, &outcome);
                Processed { entry, outcome }
            };
            self.deliveries.spawn(TaskName::OrderedDelivery.of(delivery.instrument(span)));
        }
    }

    /// Settles, retries or parks a processed message.
    fn settle(&mut self, Processed { entry, outcome }: Processed) {
        let id = entry.message.message.message_id();
        self.in_flight.remove(&id);
        let (delay, counted) = match outcome {
            DeliveryOutcome::Retried { delay, counted, .. } => (delay, counted),
            DeliveryOutcome::Unavailable => (OUTAGE_DELAY, false),
            DeliveryOutcome::NotOwned => return self.stop.lost.cancel(),
            _ => {
                self.in_place.remove(&id);
                return self.queue.settle(entry.ticket);
            }
        };
        if self.stop.release.is_cancelled() {
            return;
        }
        let is_too_long = self.in_place.is_too_long(id, delay, counted, Instant::now());
        let is_parked = entry.ticket.parked().is_some();
        // An outage of the database says nothing about the message, and nothing can be parked. A row has no
        // place for a defect: a handler would run on what could not be read.
        let may_be_parked = outcome != DeliveryOutcome::Unavailable && entry.message.defect.is_none();
        if may_be_parked && (is_parked || is_too_long) {
            self.in_place.remove(&id);
            self.park(entry, delay);
        } else {
            self.queue.retry(entry, delay, counted);
        }
    }

    fn park(&mut self, entry: Entry<Delivered>, delay: Duration) {
        if entry.ticket.parked().is_none() {
            tracing::info!(
                message_id = %entry.message.message.message_id(),
                partition = self.fence.partition,
                "the message keeps failing and is parked with the later messages of its key"
            );
        }
        let attempts = entry.ticket.attempt;
        self.queue.park(entry, ParkedState::Waiting(delay), attempts, "");
    }

    /// Returns how many messages were settled after the checkpoint was written.
    fn unwritten(&self) -> usize {
        usize::try_from(self.queue.settle_count() - self.settles_written).unwrap_or(usize::MAX)
    }

    /// Records the lag and writes the checkpoint. Returns false if another process owns the partition.
    async fn tick(&mut self) -> bool {
        self.runtime.stats.set_lag(self.fence.partition, self.reader.lag());
        self.write_checkpoint().await
    }

    /// Writes the checkpoint if it has moved. Returns false if another process owns the partition.
    async fn write_checkpoint(&mut self) -> bool {
        if self.queue.open() == 0
            && let Some(sequence) = self.reader.received_up_to()
        {
            self.queue.end_window(sequence.max(*self.queue.settled()));
        }
        let sequence = *self.queue.settled();
        if sequence == self.written_sequence {
            return true;
        }
        if sequence != self.checkpoint.sequence {
            self.checkpoint.message = self.reader.message_at(sequence);
            self.checkpoint.sequence = sequence;
        }
        match self.runtime.partition_leases.settle(self.fence, &self.checkpoint).await {
            Ok(true) => {
                (self.written_sequence, self.settles_written) = (sequence, self.queue.settle_count());
                self.reader.settled(sequence).await;
                true
            }
            Ok(false) => false,
            Err(error) => {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(error = cause, "the checkpoint of a partition was not written");
                true
            }
        }
    }

    /// Waits for the deliveries in flight, writes the checkpoint and releases the partition. Returns false if
    /// another process owns the partition, or the database did not respond in time.
    async fn drain_and_release(&mut self) -> bool {
        let drain_max = self.runtime.drain;
        let drained = async {
            while let Some(processed) = self.deliveries.join_next().await {
                self.settle(processed.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())));
            }
        };
        tokio::select! {
            biased;
            () = drained => {}
            () = tokio::time::sleep(drain_max) => {
                let partition = self.fence.partition;
                tracing::warn!(partition, "deliveries were not drained in time, they come again");
            }
        }
        let last_writes = async {
            self.abort_deliveries().await;
            if let Err(error) = self.queue.finish().await {
                warn_not_parked(&error);
            }
            let is_owner = self.tick().await;
            if is_owner {
                release(&self.runtime, self.fence).await;
            }
            is_owner
        };
        let is_owner = tokio::time::timeout(LAST_WRITES_MAX, last_writes).await.unwrap_or(false);
        self.runtime.stats.set_lag(self.fence.partition, None);
        is_owner
    }

    async fn end_lost(mut self) -> PartitionEnd {
        tracing::warn!(partition = self.fence.partition, "another process has taken the partition over");
        let _ = tokio::time::timeout(LAST_WRITES_MAX, self.abort_deliveries()).await;
        self.runtime.stats.set_lag(self.fence.partition, None);
        PartitionEnd::Lost
    }

    /// Aborts the deliveries in flight and ends their starts, because this process has survived them.
    async fn abort_deliveries(&mut self) {
        self.deliveries.shutdown().await;
        let started = self.runtime.starts.take_of(&self.in_flight);
        if !started.is_empty() {
            self.runtime.starts.end(&self.runtime.inbox, started).await;
        }
    }
}

fn warn_not_parked(error: &Error) {
    let cause = error as &dyn std::error::Error;
    tracing::warn!(error = cause, "parked messages cannot be written or read");
}

/// Ends the lease on a partition, so that another process can take it at once.
pub(crate) async fn release<DB: Dialect, S>(runtime: &Runtime<DB, S>, fence: Fence) {
    if let Err(error) = runtime.partition_leases.release(fence).await {
        let cause = &error as &dyn std::error::Error;
        tracing::debug!(error = cause, "a partition was not released, its lease ends in its time");
    }
}
