//! Sharing the partitions of a broker's log with other processes.
//!
//! Every process renews one lease for all that it has, and counts who else does. One that has more than an even share
//! lets some go in good order; one that has less takes what nobody has.
use crate::{
    partition::{Ended, Partition, Tokens},
    shared::Shared,
    status::ConsumerState,
};
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, PoisonError},
    time::Duration,
};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use twinbox_core::{PartitionedLog, SourceError, SourceErrorKind, reconnect::Reconnect};
use twinbox_sql::{Dialect, Fence, Share};
use uuid::Uuid;

/// A partition that is run, or about to be.
#[derive(Clone, Default)]
struct Mine {
    tokens: Tokens,
    /// Its fence, and when it was known.
    taken: Arc<OnceLock<(Fence, Instant)>>,
}

struct Sharing<DB: Dialect, S> {
    shared: Arc<Shared<DB, S>>,
    log: Arc<dyn PartitionedLog>,
    member: Uuid,
    partitions: HashMap<u32, Mine>,
    tasks: JoinSet<(u32, Ended)>,
    /// When the lease was last renewed for certain.
    renewed: Instant,
    is_prepared: bool,
    /// Partitions that could not be taken or read, and are left alone for a while.
    resting: HashMap<u32, Rest>,
    /// Partitions are about to be free that were its own.
    releases: bool,
}

/// How long a partition is left alone.
struct Rest {
    pause: Duration,
    until: Instant,
}

/// The longest time that a partition is left alone which cannot be read.
const REST_MAX: Duration = Duration::from_secs(30);

impl Rest {
    fn new(lease: Duration) -> Self {
        Self { pause: lease / 8, until: Instant::now() }
    }

    /// Twice as long as the time before.
    fn lengthen(&mut self) {
        self.pause = self.pause.saturating_mul(2).min(REST_MAX);
        self.until = Instant::now() + self.pause;
    }
}

/// How soon it is looked again for a partition that was just released.
const RELEASED_PAUSE: Duration = Duration::from_millis(100);

/// Runs as many partitions as are due to this process, until the session ends or the broker fails.
pub(crate) async fn consume<DB: Dialect, S: Send + Sync + 'static>(
    shared: &Arc<Shared<DB, S>>,
    log: Box<dyn PartitionedLog>,
    reconnect: &mut Reconnect,
    session: &CancellationToken,
) -> Result<(), SourceError> {
    let log: Arc<dyn PartitionedLog> = log.into();
    *shared.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(log.clone());
    let mut sharing = Sharing {
        shared: shared.clone(),
        log,
        member: Uuid::now_v7(),
        partitions: HashMap::new(),
        tasks: JoinSet::new(),
        renewed: Instant::now(),
        is_prepared: false,
        resting: HashMap::new(),
        releases: false,
    };
    let failed = loop {
        if let Err(error) = sharing.round().await {
            break Some(error);
        }
        let pause = if sharing.releases { RELEASED_PAUSE } else { shared.lease / 4 };
        let next = tokio::time::sleep(pause);
        tokio::select! {
            biased;
            () = session.cancelled() => break None,
            Some(ended) = sharing.tasks.join_next() => {
                let (partition, ended) = ended.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
                if let Some(error) = sharing.ended(partition, ended) {
                    break Some(error);
                }
            }
            () = next => {
                reconnect.reset();
                sharing.recover();
            }
        }
    };
    sharing.close().await;
    failed.map_or(Ok(()), Err)
}

impl<DB: Dialect, S: Send + Sync + 'static> Sharing<DB, S> {
    /// Renews, lets go, and takes. An error: the consumer is asked for something else than it was.
    async fn round(&mut self) -> Result<(), SourceError> {
        let asked = Instant::now();
        match tokio::time::timeout(self.shared.lease / 2, self.share()).await {
            Ok(Ok(share)) => {
                self.renewed = asked;
                self.shared.progress.is(ConsumerState::Consuming);
                self.follow(&share, asked);
            }
            Ok(Err(error)) if !error.is_transient() && !self.is_prepared => {
                return Err(
                    SourceError::new(SourceErrorKind::Misconfigured, error.to_string()).with_source(error)
                );
            }
            failed => {
                self.shared.progress.is(ConsumerState::DatabaseAway);
                match failed {
                    Ok(Err(error)) => tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the lease on the partitions is not renewed"
                    ),
                    _ => tracing::warn!("the database does not answer, the lease is not renewed"),
                }
                if self.renewed.elapsed() >= self.shared.lease {
                    self.partitions.values().for_each(|mine| mine.tokens.lost.cancel());
                }
            }
        }
        Ok(())
    }

    async fn share(&mut self) -> Result<Share, twinbox_sql::Error> {
        let (store, asked) = (&self.shared.store, &self.shared.group.subscription);
        let (consumer, count) = (&asked.consumer, self.log.partitions());
        if !self.is_prepared {
            store.create_places(consumer, count, &asked.types).await?;
            self.is_prepared = true;
        }
        store.share_partitions(consumer, self.member, count, self.shared.lease).await
    }

    fn follow(&mut self, share: &Share, asked: Instant) {
        for mine in self.partitions.values() {
            // One that was taken meanwhile could not be among them.
            let known = mine.taken.get().filter(|(_, known)| *known < asked);
            if known.is_some_and(|(fence, _)| !share.holds(fence)) {
                mine.tokens.lost.cancel();
            }
        }
        self.releases = false;
        // A partition that could not be released was renewed with the rest. One that was lost to another run of the
        // server still has this process as its owner.
        for &(partition, epoch) in share.held.iter().filter(|(p, _)| !self.partitions.contains_key(p)) {
            let (shared, fence) =
                (self.shared.clone(), Fence { partition, epoch, run: share.run, lease: self.shared.lease });
            self.releases = true;
            tokio::spawn(async move { release(&shared, fence).await });
        }
        let mut active = Vec::from_iter(
            self.partitions.iter().filter(|(_, mine)| !mine.tokens.stop.is_cancelled()).map(|(p, _)| *p),
        );
        active.sort_unstable();
        for partition in active.iter().skip(share.fair) {
            tracing::debug!(partition, "letting a partition go to another process");
            self.partitions[partition].tokens.stop.cancel();
        }
        let due = share.fair.saturating_sub(active.len());
        let rests =
            |partition: &u32| self.resting.get(partition).is_some_and(|rest| rest.until > Instant::now());
        let free = share
            .free
            .iter()
            .filter(|partition| !self.partitions.contains_key(partition) && !rests(partition));
        for partition in Vec::from_iter(free.copied().take(due)) {
            let mine = Mine::default();
            self.partitions.insert(partition, mine.clone());
            let (shared, log, member) = (self.shared.clone(), self.log.clone(), self.member);
            self.tasks.spawn(async move { (partition, run(shared, &*log, partition, member, mine).await) });
        }
    }

    /// Takes note of the end of a partition. An error: all of them have failed, and so the log has.
    fn ended(&mut self, partition: u32, ended: Ended) -> Option<SourceError> {
        let mine = self.partitions.remove(&partition);
        let failed = match ended {
            Ended::Failed(error) => Some(error),
            _ if mine.is_some_and(|mine| mine.taken.get().is_none()) => None,
            _ => return None,
        };
        let rest = self.resting.entry(partition).or_insert_with(|| Rest::new(self.shared.lease));
        rest.lengthen();
        let error = failed?;
        if error.is_transient() && !self.partitions.is_empty() {
            let cause = &error as &dyn std::error::Error;
            tracing::warn!(partition, error = cause, "a partition cannot be read, the others go on");
            return None;
        }
        Some(error)
    }

    /// Forgets the failures of partitions that are read again.
    fn recover(&mut self) {
        self.resting.retain(|partition, rest| {
            !self.partitions.contains_key(partition) || rest.until.elapsed() < rest.pause
        });
    }

    async fn close(mut self) {
        self.partitions.values().for_each(|mine| mine.tokens.stop.cancel());
        while self.tasks.join_next().await.is_some() {}
        let consumer = &self.shared.group.subscription.consumer;
        let left = self.shared.store.leave_partitions(consumer, self.member);
        if !tokio::time::timeout(Duration::from_secs(2), left).await.is_ok_and(|left| left.is_ok()) {
            tracing::debug!(consumer, "others count this process until its lease ends");
        }
    }
}

/// Takes one partition over and runs it.
async fn run<DB: Dialect, S: Send + Sync + 'static>(
    shared: Arc<Shared<DB, S>>,
    log: &dyn PartitionedLog,
    partition: u32,
    member: Uuid,
    mine: Mine,
) -> Ended {
    let consumer = shared.group.subscription.consumer.clone();
    let (fence, place) = match shared.store.take_partition(&consumer, partition, member, shared.lease).await {
        Ok(Some(taken)) => taken,
        Ok(None) => return Ended::Released,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                partition,
                "a partition is not taken over"
            );
            return Ended::Released;
        }
    };
    let _ = mine.taken.set((fence, Instant::now()));
    tracing::info!(
        consumer,
        partition,
        epoch = fence.epoch,
        sequence = place.sequence,
        "reading a partition"
    );
    let opened = tokio::select! {
        biased;
        () = mine.tokens.stop.cancelled() => None,
        () = mine.tokens.lost.cancelled() => return Ended::Lost,
        opened = log.read(partition, &place) => Some(opened),
    };
    match opened {
        Some(Ok(reader)) => Partition::new(shared, fence, reader, mine.tokens).run().await,
        failed => {
            release(&shared, fence).await;
            failed.and_then(Result::err).map_or(Ended::Released, Ended::Failed)
        }
    }
}

/// Lets a partition go, so that another process can take it over at once.
pub(crate) async fn release<DB: Dialect, S>(shared: &Shared<DB, S>, fence: Fence) {
    let consumer = &shared.group.subscription.consumer;
    if let Err(error) = shared.store.release_partition(consumer, fence).await {
        tracing::debug!(%error, "a partition is not released, its lease ends in its time");
    }
}
