//! One partition of a broker's log: keys beside each other, the messages of one key one after another.
//!
//! What is settled without a gap moves the place. A message that fails for longer than [`IN_PLACE_MAX`] is put aside in
//! the database with those of its key behind it, so that the place goes on and other keys with it.
mod parked;

use crate::{Outcome, ordered::release, shared::Shared, start::given_back};
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use twinbox_core::{Message, MessageId, PartitionReader, Place, Sequenced, SourceError};
use twinbox_sql::{Dialect, Fence};

/// Messages of a partition that are received and not settled.
const WINDOW_MAX: usize = 256;
/// What the owner before may have settled and not written, settled at once, and received.
const REDELIVERED_MAX: usize = 3 * WINDOW_MAX;
/// Bytes of their payloads at which no more are received.
const WINDOW_BYTES: usize = 8 * 1024 * 1024;
/// How long the last writes may take when the partition is let go.
const LAST_WRITES_MAX: Duration = Duration::from_secs(5);
/// How long a message is tried again with its place held, before it is put aside.
const IN_PLACE_MAX: Duration = Duration::from_secs(2);
/// How often the place is written, and what was put aside looked at.
const TICK: Duration = Duration::from_millis(250);
/// Deliveries that are taken up together.
const DUE_MAX: u32 = 64;
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

/// What keeps its messages in order: a key, or nothing but the message itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Lane {
    Key(String),
    Alone(u64),
}

/// A message as it was received.
struct Next {
    sequence: u64,
    message: Message,
    defect: Option<String>,
    /// The owner before may have had it under way.
    redelivered: bool,
}

/// What an attempt is at.
enum Work {
    Received { lane: Lane, next: Next },
    Parked { id: i64, message: Message },
}

impl Work {
    fn message(&self) -> &Message {
        match self {
            Self::Received { next, .. } => &next.message,
            Self::Parked { message, .. } => message,
        }
    }
}

struct Ran {
    work: Work,
    outcome: Outcome,
    /// When it first failed, if it has.
    failing_since: Option<Instant>,
}

pub(crate) struct Partition<DB: Dialect, S> {
    shared: Arc<Shared<DB, S>>,
    fence: Fence,
    reader: Box<dyn PartitionReader>,
    tokens: Tokens,
    /// Received and not below the place: whether it is settled, and its bytes.
    window: BTreeMap<u64, (bool, usize)>,
    bytes: usize,
    place: Place,
    written: u64,
    /// Settled since the place was written.
    unwritten: usize,
    /// Those that wait behind one that is under way.
    lanes: HashMap<Lane, VecDeque<Next>>,
    /// Keys with deliveries that are put aside, or about to be.
    parked: HashSet<Option<String>>,
    to_park: Vec<(u64, Message, Duration)>,
    /// Those put aside that are under way.
    taken_up: HashSet<i64>,
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
        let place = Place { log: reader.log().to_owned(), sequence: reader.began_behind() };
        Self {
            shared,
            fence,
            reader,
            tokens,
            window: BTreeMap::new(),
            bytes: 0,
            written: place.sequence,
            unwritten: 0,
            place,
            lanes: HashMap::new(),
            parked: HashSet::new(),
            to_park: Vec::new(),
            taken_up: HashSet::new(),
            under_way: HashSet::new(),
            running: JoinSet::new(),
            received: 0,
        }
    }

    pub(crate) async fn run(mut self) -> Ended {
        // What is put aside comes before what is read again.
        while let Err(error) = self.look_for_parked().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the database is away");
            tokio::select! {
                () = self.tokens.lost.cancelled() => return Ended::Lost,
                () = self.tokens.stop.cancelled() => {
                    release(&self.shared, self.fence).await;
                    return Ended::Released;
                }
                () = tokio::time::sleep(OUTAGE_DELAY) => {}
            }
        }
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let failed = loop {
            let room =
                if self.bytes < WINDOW_BYTES { WINDOW_MAX.saturating_sub(self.window.len()) } else { 0 };
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
                    self.took(ran.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))).await;
                    if self.unwritten >= WINDOW_MAX && !self.write_place().await {
                        return self.lost().await;
                    }
                }
                received = self.reader.receive(room), if room > 0 => match received {
                    Ok(received) => received.into_iter().for_each(|next| self.accept(next)),
                    Err(error) => break Some(error),
                }
            }
        };
        self.tokens.stop.cancel();
        let drained = async {
            while let Some(ran) = self.running.join_next().await {
                self.took(ran.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))).await;
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

    fn consumer(&self) -> &str {
        &self.shared.group.subscription.consumer
    }

    fn accept(&mut self, Sequenced { sequence, message, defect }: Sequenced) {
        self.received += 1;
        self.bytes += message.payload.len();
        self.window.insert(sequence, (false, message.payload.len()));
        let redelivered = self.fence.epoch > 1 && self.received <= REDELIVERED_MAX;
        let next = Next { sequence, message, defect, redelivered };
        let lane = match next.message.key.clone() {
            Some(key) if self.parked.contains(&Some(key.clone())) => {
                return self.to_park.push((next.sequence, next.message, Duration::ZERO));
            }
            Some(key) => Lane::Key(key),
            None => Lane::Alone(next.sequence),
        };
        match self.lanes.get_mut(&lane) {
            Some(waiting) => waiting.push_back(next),
            None => {
                self.lanes.insert(lane.clone(), VecDeque::new());
                self.start(Work::Received { lane, next }, Duration::ZERO, None);
            }
        }
    }

    fn start(&mut self, work: Work, delay: Duration, failing_since: Option<Instant>) {
        let (shared, stop, fence) = (self.shared.clone(), self.tokens.stop.clone(), self.fence);
        let redelivered = failing_since.is_some()
            || !matches!(work, Work::Received { next: Next { redelivered: false, .. }, .. });
        self.under_way.insert(work.message().message_id());
        let span = shared.span(std::iter::once(work.message()));
        let attempt = async move {
            let stopped = tokio::select! {
                biased;
                () = stop.cancelled() => true,
                () = tokio::time::sleep(delay) => false,
            };
            let defect = if let Work::Received { next, .. } = &work { next.defect.clone() } else { None };
            let outcome = match stopped {
                true => given_back(),
                false => shared.outcome(&stop, Some(fence), work.message(), defect, redelivered).await,
            };
            shared.note(work.message(), &outcome);
            Ran { work, outcome, failing_since }
        };
        self.running.spawn(attempt.instrument(span));
    }

    async fn took(&mut self, Ran { work, outcome, failing_since }: Ran) {
        self.under_way.remove(&work.message().message_id());
        let (delay, counted) = match outcome {
            Outcome::Retried { delay, counted, .. } => (delay, counted),
            Outcome::Unavailable => (OUTAGE_DELAY, false),
            _ => return self.done(work).await,
        };
        if self.tokens.stop.is_cancelled() {
            return;
        }
        let since = failing_since.unwrap_or_else(Instant::now);
        match work {
            Work::Received { lane, next }
                if counted && since.elapsed().saturating_add(delay) > IN_PLACE_MAX =>
            {
                self.park(&lane, next, delay);
            }
            // A failure that is not counted says nothing about the message.
            work @ Work::Received { .. } => {
                self.start(work, delay, counted.then_some(since).or(failing_since))
            }
            Work::Parked { id, .. } => {
                if let Err(error) = self.shared.store.delay_delivery(id, delay).await {
                    tracing::debug!(%error, "a delivery that is put aside is due as before");
                }
                self.taken_up.remove(&id);
            }
        }
    }

    async fn done(&mut self, work: Work) {
        match work {
            Work::Received { lane, next } => {
                self.settle(next.sequence);
                match self.lanes.get_mut(&lane).and_then(VecDeque::pop_front) {
                    Some(next) if !self.tokens.stop.is_cancelled() => {
                        self.start(Work::Received { lane, next }, Duration::ZERO, None);
                    }
                    _ => drop(self.lanes.remove(&lane)),
                }
            }
            Work::Parked { id, .. } => {
                if let Err(error) = self.shared.store.unpark_delivery(id).await {
                    tracing::debug!(%error, "a delivery that is done stays put aside, the inbox will know it");
                }
                self.taken_up.remove(&id);
                self.take_up().await;
            }
        }
    }

    fn settle(&mut self, sequence: u64) {
        if let Some((settled, _)) = self.window.get_mut(&sequence) {
            *settled = true;
        }
        while let Some(first) = self.window.first_entry().filter(|first| first.get().0) {
            self.place.sequence = *first.key();
            self.bytes -= first.remove().1;
            self.unwritten += 1;
        }
    }

    /// False: the partition is another's.
    async fn tick(&mut self) -> bool {
        self.shared.progress.set_lag(self.fence.partition, self.reader.lag());
        self.write_parked().await;
        if !self.parked.is_empty() && !self.tokens.stop.is_cancelled() {
            self.take_up().await;
            if let Err(error) = self.look_for_parked().await {
                tracing::debug!(%error, "keys stay put aside");
            }
        }
        self.write_place().await
    }

    /// False: the partition is another's.
    async fn write_place(&mut self) -> bool {
        if self.place.sequence == self.written {
            return true;
        }
        match self.shared.store.settle_partition(self.consumer(), self.fence, &self.place).await {
            Ok(true) => {
                (self.written, self.unwritten) = (self.place.sequence, 0);
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
