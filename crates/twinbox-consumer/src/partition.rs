//! One partition of a broker's log: keys beside each other, the messages of one key one after another.
//!
//! What is settled without a gap moves the place. A message that fails for longer than [`IN_PLACE_MAX`] is put aside in
//! the database with those of its key behind it, so that the place goes on and other keys with it.
use crate::{Outcome, ordered::release, start::given_back, worker::Shared};
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
const WINDOW_MAX: usize = 1024;
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

/// What an attempt is at.
enum Work {
    Received { lane: Lane, next: Sequenced },
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
    /// Received and not below the place: whether it is settled.
    window: BTreeMap<u64, bool>,
    place: Place,
    written: u64,
    /// Those that wait behind one that is under way.
    lanes: HashMap<Lane, VecDeque<Sequenced>>,
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
            written: place.sequence,
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
            let room = WINDOW_MAX.saturating_sub(self.window.len());
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
        self.abandon().await;
        let is_mine = self.tick().await;
        if is_mine {
            release(&self.shared, self.fence).await;
        }
        match failed {
            Some(error) => Ended::Failed(error),
            None if is_mine => Ended::Released,
            None => Ended::Lost,
        }
    }

    fn consumer(&self) -> &str {
        &self.shared.group.subscription.consumer
    }

    fn accept(&mut self, next: Sequenced) {
        self.received += 1;
        self.window.insert(next.sequence, false);
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
        // The owner before may have had as many under way.
        let taken_over = fence.epoch > 1 && self.received <= WINDOW_MAX;
        let redelivered = taken_over || failing_since.is_some() || matches!(work, Work::Parked { .. });
        self.under_way.insert(work.message().message_id());
        let span = shared.span(work.message());
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
            Ran { work, outcome, failing_since }
        };
        self.running.spawn(attempt.instrument(span));
    }

    async fn took(&mut self, Ran { work, outcome, failing_since }: Ran) {
        self.under_way.remove(&work.message().message_id());
        self.shared.note(work.message(), &outcome);
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
            Work::Received { lane, next } if counted && since.elapsed() + delay > IN_PLACE_MAX => {
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
        if let Some(settled) = self.window.get_mut(&sequence) {
            *settled = true;
        }
        while let Some(first) = self.window.first_entry().filter(|first| *first.get()) {
            self.place.sequence = *first.key();
            first.remove();
        }
    }

    /// Puts a message aside, and all that wait behind it.
    fn park(&mut self, lane: &Lane, first: Sequenced, delay: Duration) {
        tracing::info!(
            message_id = %first.message.message_id(),
            partition = self.fence.partition,
            "the message keeps failing: it is put aside, and others go on"
        );
        self.parked.insert(first.message.key.clone());
        self.to_park.push((first.sequence, first.message, delay));
        let waiting = self.lanes.remove(lane).unwrap_or_default();
        self.to_park.extend(waiting.into_iter().map(|next| (next.sequence, next.message, Duration::ZERO)));
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

    async fn write_parked(&mut self) {
        if self.to_park.is_empty() {
            return;
        }
        let deliveries = self.to_park.iter().map(|(_, message, delay)| (message.clone(), *delay));
        let deliveries = Vec::from_iter(deliveries);
        let written = self.shared.store.park_deliveries(self.consumer(), self.fence, &deliveries).await;
        match written {
            Ok(()) => std::mem::take(&mut self.to_park).iter().for_each(|(at, ..)| self.settle(*at)),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "nothing can be put aside");
            }
        }
    }

    /// Starts what is put aside and due.
    async fn take_up(&mut self) {
        if self.tokens.stop.is_cancelled() {
            return;
        }
        let due = self.shared.store.due_deliveries(self.consumer(), self.fence.partition, DUE_MAX).await;
        for parked in due.unwrap_or_default() {
            if self.taken_up.insert(parked.id) {
                let work = Work::Parked { id: parked.id, message: parked.message };
                self.start(work, Duration::ZERO, None);
            }
        }
    }

    async fn look_for_parked(&mut self) -> Result<(), twinbox_sql::Error> {
        let found = self.shared.store.parked_delivery_keys(self.consumer(), self.fence.partition).await?;
        self.parked = found;
        self.parked.extend(self.to_park.iter().map(|(_, message, _)| message.key.clone()));
        Ok(())
    }

    /// False: the partition is another's.
    async fn write_place(&mut self) -> bool {
        if self.place.sequence == self.written {
            return true;
        }
        match self.shared.store.settle_partition(self.consumer(), self.fence, &self.place).await {
            Ok(true) => {
                self.written = self.place.sequence;
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
        self.abandon().await;
        Ended::Lost
    }

    /// Ends what is still under way. This process has survived it.
    async fn abandon(&mut self) {
        self.shared.progress.set_lag(self.fence.partition, None);
        self.running.shutdown().await;
        let open = self.shared.open.take_of(&self.under_way);
        if !open.is_empty() {
            self.shared.runtime(&self.tokens.stop, None).end(self.consumer(), open).await;
        }
    }
}
