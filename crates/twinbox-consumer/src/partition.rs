//! One partition of a broker's log: keys beside each other, the messages of one key one after another.
//!
//! The place moves up to the first message that is not settled. A message that fails for longer than [`IN_PLACE_MAX`] is
//! parked in the database, and the later messages of its key behind it. So the place moves on, and other keys with it.
use crate::{Outcome, ordered::release, shared::Shared, start::given_back};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use twinbox_core::{
    Message, MessageId, PartitionReader, Place, Sequenced, SourceError,
    lanes::{Entry, Item, Room},
};
use twinbox_sql::{
    Dialect, Error, ErrorKind, Fence,
    parking::{Owner, Parkable, Parked, Queue},
};

/// Messages of a partition that are received and not settled.
const WINDOW_MAX: usize = 256;
/// What the owner before may have settled and not written, settled at once, and received.
const REDELIVERED_MAX: usize = 3 * WINDOW_MAX;
/// Bytes of them at which no more are received.
const WINDOW_BYTES: usize = 8 * 1024 * 1024;
/// How long the last writes may take when the partition is let go.
const LAST_WRITES_MAX: Duration = Duration::from_secs(5);
/// How long a message is tried again with its place held, before it is parked.
const IN_PLACE_MAX: Duration = Duration::from_secs(2);
/// The same of a message that fails for what others do to it, such as a lock that they hold: that says little about it.
const CONTENDED_MAX: Duration = Duration::from_secs(30);
/// How often the place is written.
const TICK: Duration = Duration::from_millis(250);
/// How soon a message is tried again that was not handled because the database was away.
const OUTAGE_DELAY: Duration = Duration::from_secs(1);
/// How long handlers under way may take after the partition is to be let go.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// How a process stops to read a partition.
pub(crate) enum Ended {
    /// It was let go in good order, or never taken.
    Released,
    /// It is another's: nothing is written any more.
    Lost,
    /// The broker failed.
    Failed(SourceError),
}

/// How it is told to.
#[derive(Clone, Default)]
pub(crate) struct Tokens {
    /// Let it go in good order.
    pub(crate) stop: CancellationToken,
    /// It is another's.
    pub(crate) lost: CancellationToken,
}

/// A message as it was received.
struct Delivered {
    message: Box<Message>,
    /// Why it cannot be read, if it cannot: a dead letter, which waits for none and holds none back.
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

struct Ran {
    entry: Entry<Delivered>,
    outcome: Outcome,
}

/// Since when a message has not gone on, and whether that was its own fault.
#[derive(Clone, Copy)]
struct Failing {
    since: Instant,
    counted: bool,
}

pub(crate) struct Partition<DB: Dialect, S> {
    shared: Arc<Shared<DB, S>>,
    fence: Fence,
    reader: Box<dyn PartitionReader>,
    tokens: Tokens,
    queue: Queue<DB, Delivered, u64>,
    log: String,
    written: u64,
    /// How many were settled when the place was written.
    settled_then: u64,
    failing: HashMap<MessageId, Failing>,
    under_way: HashSet<MessageId>,
    running: JoinSet<Ran>,
    received: usize,
}

impl<DB: Dialect, S: Send + Sync + 'static> Partition<DB, S> {
    pub(crate) fn new(
        shared: Arc<Shared<DB, S>>,
        fence: Fence,
        reader: Box<dyn PartitionReader>,
        tokens: Tokens,
    ) -> Self {
        shared.progress.opened(reader.was_overtaken());
        let (log, written) = (reader.log().to_owned(), reader.began_behind());
        let owner = Owner::Partition { consumer: shared.group.subscription.consumer.clone(), fence };
        let queue = Queue::new(&shared.store, owner, written, true);
        Self {
            shared,
            fence,
            reader,
            tokens,
            queue,
            log,
            written,
            settled_then: 0,
            failing: HashMap::new(),
            under_way: HashSet::new(),
            running: JoinSet::new(),
            received: 0,
        }
    }

    pub(crate) async fn run(mut self) -> Ended {
        if let Some(ended) = self.count_parked().await {
            return ended;
        }
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let failed = loop {
            let now = std::time::Instant::now();
            self.queue.start(now);
            let due = self.queue.due(now).unwrap_or(now + TICK);
            self.start_ready();
            let room = self.room();
            tokio::select! {
                biased;
                () = self.tokens.lost.cancelled() => return self.lost().await,
                () = self.tokens.stop.cancelled() => break None,
                _ = tick.tick() => {
                    if !self.tick().await {
                        return self.lost().await;
                    }
                }
                Some(ran) = self.running.join_next() => {
                    self.took(ran.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())));
                    if self.unwritten() >= WINDOW_MAX && !self.write_place().await {
                        return self.lost().await;
                    }
                }
                parked = self.queue.finished() => match parked {
                    Err(error) if error.kind() == ErrorKind::LeaseLost => return self.lost().await,
                    Err(error) => unparkable(&error),
                    Ok(()) => {}
                },
                received = self.reader.receive(room), if room > 0 => match received {
                    Ok(received) => received.into_iter().for_each(|next| self.accept(next)),
                    Err(error) => break Some(error),
                },
                () = tokio::time::sleep_until(due.into()) => {}
            }
        };
        self.tokens.stop.cancel();
        let drained = async {
            while let Some(ran) = self.running.join_next().await {
                self.took(ran.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())));
            }
        };
        tokio::select! {
            biased;
            () = drained => {}
            () = tokio::time::sleep(DRAIN_MAX) => {
                tracing::warn!(partition = self.fence.partition, "not done in time, the rest comes again");
            }
        }
        let last_writes = async {
            self.abandon().await;
            if let Err(error) = self.queue.finish().await {
                unparkable(&error);
            }
            let is_mine = self.tick().await;
            if is_mine {
                release(&self.shared, self.fence).await;
            }
            is_mine
        };
        let is_mine = tokio::time::timeout(LAST_WRITES_MAX, last_writes).await.unwrap_or(false);
        self.shared.progress.set_lag(self.fence.partition, None);
        match failed {
            Some(error) => Ended::Failed(error),
            None if is_mine => Ended::Released,
            None => Ended::Lost,
        }
    }

    /// How many bytes are parked is asked for once, and counted from then on.
    async fn count_parked(&mut self) -> Option<Ended> {
        loop {
            let asked = self.shared.store.parked_bytes(self.consumer(), self.fence.partition);
            match asked.await {
                Ok(bytes) => {
                    self.queue.holds_bytes(bytes);
                    return None;
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "the database is away");
                }
            }
            tokio::select! {
                () = self.tokens.lost.cancelled() => return Some(Ended::Lost),
                () = self.tokens.stop.cancelled() => {
                    release(&self.shared, self.fence).await;
                    return Some(Ended::Released);
                }
                () = tokio::time::sleep(OUTAGE_DELAY) => {}
            }
        }
    }

    /// How many more messages are received. None before the queue has looked at what is parked: that comes before what is
    /// read again.
    fn room(&self) -> usize {
        match self.queue.open_bytes() < WINDOW_BYTES && self.queue.has_room() {
            true => WINDOW_MAX.saturating_sub(self.queue.open()),
            false => 0,
        }
    }

    fn consumer(&self) -> &str {
        &self.shared.group.subscription.consumer
    }

    fn accept(&mut self, Sequenced { sequence, mut message, defect }: Sequenced) {
        self.received += 1;
        // As the database keeps it, by which those are told apart that wait behind others of their key.
        if let Some(key) = message.key.as_mut().filter(|key| key.contains('\0')) {
            *key = twinbox_sql::stored_text(key).into_owned();
        }
        let redelivered = self.fence.epoch > 1 && self.received <= REDELIVERED_MAX;
        let delivered = Delivered { message: Box::new(message), defect };
        self.queue.push(delivered, sequence, redelivered);
    }

    /// Starts whatever may go.
    fn start_ready(&mut self) {
        for entry in self.queue.take(Room::messages(usize::MAX)) {
            let (shared, stop, fence) = (self.shared.clone(), self.tokens.stop.clone(), self.fence);
            self.under_way.insert(entry.message.message.message_id());
            let span = shared.span(std::iter::once(&*entry.message.message));
            let attempt = async move {
                let Delivered { message, defect } = &entry.message;
                let outcome = match stop.is_cancelled() {
                    true => given_back(),
                    false => {
                        let again = entry.ticket.repeated;
                        shared.outcome(&stop, Some(fence.into()), message, defect.clone(), again).await
                    }
                };
                shared.note(message, &outcome);
                Ran { entry, outcome }
            };
            self.running.spawn(attempt.instrument(span));
        }
    }

    fn took(&mut self, Ran { entry, outcome }: Ran) {
        let id = entry.message.message.message_id();
        self.under_way.remove(&id);
        let (delay, counted) = match outcome {
            Outcome::Retried { delay, counted, .. } => (delay, counted),
            Outcome::Unavailable => (OUTAGE_DELAY, false),
            Outcome::NotOwned => return self.tokens.lost.cancel(),
            _ => {
                self.failing.remove(&id);
                return self.queue.settle(entry.ticket);
            }
        };
        if self.tokens.stop.is_cancelled() {
            return;
        }
        let fresh = Failing { since: Instant::now(), counted };
        let failing = self.failing.entry(id).or_insert(fresh);
        if counted && !failing.counted {
            *failing = fresh;
        }
        let in_place = if failing.counted { IN_PLACE_MAX } else { CONTENDED_MAX };
        // While the database is away nothing can be said of the message.
        let goes_on = outcome != Outcome::Unavailable;
        let is_parked = entry.ticket.parked().is_some();
        if goes_on && (is_parked || failing.since.elapsed().saturating_add(delay) > in_place) {
            self.failing.remove(&id);
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
                "the message keeps failing: it is parked with those of its key, and others go on"
            );
        }
        let attempts = entry.ticket.attempt;
        self.queue.park(entry, Parked::Waiting(delay), attempts, "");
    }

    /// Messages that were settled since the place was written.
    fn unwritten(&self) -> usize {
        usize::try_from(self.queue.settles() - self.settled_then).unwrap_or(usize::MAX)
    }

    /// False: the partition is another's.
    async fn tick(&mut self) -> bool {
        self.shared.progress.set_lag(self.fence.partition, self.reader.lag());
        self.write_place().await
    }

    /// False: the partition is another's.
    async fn write_place(&mut self) -> bool {
        if self.queue.open() == 0
            && let Some(sequence) = self.reader.caught_up()
        {
            self.queue.end_window(sequence.max(*self.queue.settled()));
        }
        let sequence = *self.queue.settled();
        if sequence == self.written {
            return true;
        }
        let place = Place { log: self.log.clone(), sequence, message: self.reader.message_at(sequence) };
        match self.shared.store.settle_partition(self.consumer(), self.fence, &place).await {
            Ok(true) => {
                (self.written, self.settled_then) = (sequence, self.queue.settles());
                self.reader.settled(self.written).await;
                true
            }
            Ok(false) => false,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the place is not written");
                true
            }
        }
    }

    async fn lost(mut self) -> Ended {
        tracing::warn!(partition = self.fence.partition, "another process has taken the partition over");
        let _ = tokio::time::timeout(LAST_WRITES_MAX, self.abandon()).await;
        self.shared.progress.set_lag(self.fence.partition, None);
        Ended::Lost
    }

    /// Ends what is still under way. This process has survived it.
    async fn abandon(&mut self) {
        self.running.shutdown().await;
        let open = self.shared.open.take_of(&self.under_way);
        if !open.is_empty() {
            self.shared.runtime(&self.tokens.stop, None).end(self.consumer(), open).await;
        }
    }
}

fn unparkable(error: &Error) {
    tracing::warn!(error = error as &dyn std::error::Error, "nothing can be parked, nor taken up again");
}
