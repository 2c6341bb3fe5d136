//! Sharing the partitions of a broker's log between processes, by lease.
//!
//! Each process renews one lease for all its partitions and counts the other processes. A process with more
//! than its fair share releases partitions; one with less takes free partitions.
use crate::{
    partition::{Partition, PartitionEnd, release},
    partition_stop::PartitionStop,
    runtime::Runtime,
    status::ConsumerState,
};
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use twinbox_core::{PartitionedLog, SourceError, SourceErrorKind, backoff::Backoff, task_name::TaskName};
use twinbox_sql::{Dialect, Fence, PartitionShare};
use uuid::Uuid;

/// The longest cooldown of a partition.
const COOLDOWN_MAX: Duration = Duration::from_secs(30);
/// How soon a process looks for partitions that it has just released.
const RELEASED_PAUSE: Duration = Duration::from_millis(100);
/// How long the database may take to remove this process from the members.
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// How long a partition that is being taken is waited for when the consumer stops.
const TAKE_MAX: Duration = Duration::from_secs(2);

/// A partition that this process reads or is about to take.
#[derive(Clone, Default)]
struct OwnPartition {
    stop: PartitionStop,
    /// The fence and the time of the takeover.
    taken: Arc<OnceLock<(Fence, Instant)>>,
}

/// Delays the next takeover of a partition that could not be taken or read.
struct Cooldown {
    pause: Duration,
    until: Instant,
}

impl Cooldown {
    fn new(lease: Duration) -> Self {
        Self { pause: lease / 8, until: Instant::now() }
    }

    /// Starts anew, with twice the pause.
    fn restart(&mut self) {
        self.pause = self.pause.saturating_mul(2).min(COOLDOWN_MAX);
        self.until = Instant::now() + self.pause;
    }
}

/// The partitions of one process.
struct Leases<DB: Dialect, S> {
    runtime: Arc<Runtime<DB, S>>,
    log: Arc<dyn PartitionedLog>,
    /// Identifies this process among those that share the partitions.
    member: Uuid,
    partitions: HashMap<u32, OwnPartition>,
    readers: JoinSet<(u32, PartitionEnd)>,
    /// The time of the last renewal that the database confirmed.
    renewed_at: Instant,
    /// Whether the rows of the partitions exist.
    is_prepared: bool,
    cooldowns: HashMap<u32, Cooldown>,
    /// Whether own partitions are being released, and will be free soon.
    is_releasing: bool,
}

/// Reads the fair share of the partitions until `session` is cancelled or the broker fails.
pub(crate) async fn consume<DB: Dialect, S: Send + Sync + 'static>(
    runtime: &Arc<Runtime<DB, S>>,
    log: Box<dyn PartitionedLog>,
    backoff: &mut Backoff,
    session: &CancellationToken,
) -> Result<(), SourceError> {
    let log: Arc<dyn PartitionedLog> = log.into();
    runtime.set_partitioned_log(log.clone());
    let mut leases = Leases {
        runtime: runtime.clone(),
        log,
        member: Uuid::now_v7(),
        partitions: HashMap::new(),
        readers: JoinSet::new(),
        renewed_at: Instant::now(),
        is_prepared: false,
        cooldowns: HashMap::new(),
        is_releasing: false,
    };
    let result = loop {
        if let Err(error) = leases.renew().await {
            break Err(error);
        }
        let pause = if leases.is_releasing { RELEASED_PAUSE } else { runtime.lease / 4 };
        let next = tokio::time::sleep(pause);
        tokio::select! {
            biased;
            () = session.cancelled() => break Ok(()),
            Some(ended) = leases.readers.join_next() => {
                let (partition, end) = ended.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
                if let Err(error) = leases.partition_ended(partition, end) {
                    break Err(error);
                }
            }
            () = next => {
                backoff.reset();
                leases.remove_old_cooldowns();
            }
        }
    };
    leases.close().await;
    result
}

impl<DB: Dialect, S: Send + Sync + 'static> Leases<DB, S> {
    /// Renews the lease, then releases and takes partitions. It fails if the partitions are not set up as the
    /// consumer needs them.
    async fn renew(&mut self) -> Result<(), SourceError> {
        let asked_at = Instant::now();
        match tokio::time::timeout(self.runtime.lease / 2, self.share()).await {
            Ok(Ok(share)) => {
                self.renewed_at = asked_at;
                self.runtime.stats.set_state(ConsumerState::Consuming);
                self.adjust(&share, asked_at);
                return Ok(());
            }
            Ok(Err(error)) if !error.is_transient() && !self.is_prepared => {
                let message = "the partitions of the log cannot be shared";
                return Err(SourceError::new(SourceErrorKind::Misconfigured, message).with_source(error));
            }
            Ok(Err(error)) => {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(error = cause, "the lease on the partitions was not renewed");
            }
            Err(_) => tracing::warn!("the database does not respond, the lease was not renewed"),
        }
        self.runtime.stats.set_state(ConsumerState::DatabaseAway);
        if self.renewed_at.elapsed() >= self.runtime.lease {
            self.partitions.values().for_each(|own| own.stop.lost.cancel());
        }
        Ok(())
    }

    async fn share(&mut self) -> Result<PartitionShare, twinbox_sql::Error> {
        let leases = &self.runtime.partition_leases;
        let count = self.log.partitions();
        if !self.is_prepared {
            leases.create(count, &self.runtime.group.subscription.types).await?;
            self.is_prepared = true;
        }
        leases.share(self.member, count, self.runtime.lease).await
    }

    /// Ends lost partitions, releases those beyond the fair share, and takes those that are missing.
    fn adjust(&mut self, share: &PartitionShare, asked_at: Instant) {
        for own in self.partitions.values() {
            // A partition that was taken after the question cannot be in the answer.
            let taken = own.taken.get().filter(|(_, taken_at)| *taken_at < asked_at);
            if taken.is_some_and(|(fence, _)| !share.owns(fence)) {
                own.stop.lost.cancel();
            }
        }
        self.is_releasing = false;
        // The renewal included partitions that could not be released before, and partitions that were lost to
        // a restart of the server but still name this process.
        for &(partition, epoch) in share.owned.iter().filter(|(p, _)| !self.partitions.contains_key(p)) {
            let fence = Fence { partition, epoch, server_run: share.server_run, lease: self.runtime.lease };
            let runtime = self.runtime.clone();
            self.is_releasing = true;
            tokio::spawn(TaskName::PartitionRelease.of(async move { release(&runtime, fence).await }));
        }
        let mut active = Vec::from_iter(
            self.partitions.iter().filter(|(_, own)| !own.stop.release.is_cancelled()).map(|(p, _)| *p),
        );
        active.sort_unstable();
        for partition in active.iter().skip(share.fair) {
            tracing::debug!(partition, "releasing a partition for another process");
            self.partitions[partition].stop.release.cancel();
        }
        let due = share.fair.saturating_sub(active.len());
        let is_cooling_down = |partition: &u32| {
            self.cooldowns.get(partition).is_some_and(|cooldown| cooldown.until > Instant::now())
        };
        let free = share
            .free
            .iter()
            .filter(|partition| !self.partitions.contains_key(partition) && !is_cooling_down(partition));
        for partition in Vec::from_iter(free.copied().take(due)) {
            let own = OwnPartition::default();
            self.partitions.insert(partition, own.clone());
            let (runtime, log, member) = (self.runtime.clone(), self.log.clone(), self.member);
            self.readers.spawn(
                TaskName::PartitionReader.of(async move {
                    (partition, take_and_read(runtime, &*log, partition, member, own).await)
                }),
            );
        }
    }

    /// Removes a partition that ended. It fails if the error cannot pass, or if no other partition is left:
    /// then the whole log has failed.
    fn partition_ended(&mut self, partition: u32, end: PartitionEnd) -> Result<(), SourceError> {
        let own = self.partitions.remove(&partition);
        let failed = match end {
            PartitionEnd::Failed(error) => Some(error),
            _ if own.is_some_and(|own| own.taken.get().is_none()) => None,
            _ => return Ok(()),
        };
        let cooldown = self.cooldowns.entry(partition);
        cooldown.or_insert_with(|| Cooldown::new(self.runtime.lease)).restart();
        match failed {
            None => Ok(()),
            Some(error) if error.is_transient() && !self.partitions.is_empty() => {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(partition, error = cause, "a partition cannot be read, the others continue");
                Ok(())
            }
            Some(error) => Err(error),
        }
    }

    /// Removes the cooldowns of partitions that are read again.
    fn remove_old_cooldowns(&mut self) {
        self.cooldowns.retain(|partition, cooldown| {
            !self.partitions.contains_key(partition) || cooldown.until.elapsed() < cooldown.pause
        });
    }

    /// Releases all partitions and leaves the members.
    async fn close(mut self) {
        self.partitions.values().for_each(|own| own.stop.release.cancel());
        while self.readers.join_next().await.is_some() {}
        let consumer = self.runtime.consumer();
        let leave = self.runtime.partition_leases.leave(self.member);
        if !tokio::time::timeout(LEAVE_MAX, leave).await.is_ok_and(|left| left.is_ok()) {
            tracing::debug!(consumer, "other processes count this one until its lease ends");
        }
    }
}

/// Takes one partition over and reads it.
async fn take_and_read<DB: Dialect, S: Send + Sync + 'static>(
    runtime: Arc<Runtime<DB, S>>,
    log: &dyn PartitionedLog,
    partition: u32,
    member: Uuid,
    own: OwnPartition,
) -> PartitionEnd {
    let of_taking = runtime.clone();
    let taking = of_taking.partition_leases.take(partition, member, runtime.lease);
    let mut taking = std::pin::pin!(taking);
    let taken = match own.stop.unless_heard(&mut taking).await {
        Some(taken) => Some(taken),
        // A partition that is taken now is released below. Without an answer its lease ends by itself.
        None => tokio::time::timeout(TAKE_MAX, taking).await.ok(),
    };
    let (fence, checkpoint) = match taken {
        Some(Ok(Some(taken))) => taken,
        Some(Ok(None)) | None => return PartitionEnd::Released,
        Some(Err(error)) => {
            let cause = &error as &dyn std::error::Error;
            tracing::warn!(error = cause, partition, "a partition could not be taken");
            return PartitionEnd::Released;
        }
    };
    let _ = own.taken.set((fence, Instant::now()));
    let (consumer, epoch, sequence) = (runtime.consumer(), fence.epoch, checkpoint.sequence);
    tracing::info!(consumer, partition, epoch, sequence, "reading a partition");
    let opened = tokio::select! {
        biased;
        () = own.stop.release.cancelled() => None,
        () = own.stop.lost.cancelled() => return PartitionEnd::Lost,
        opened = log.read(partition, &checkpoint) => Some(opened),
    };
    match opened {
        Some(Ok(reader)) => Partition::new(runtime, fence, reader, own.stop).run().await,
        failed => {
            release(&runtime, fence).await;
            failed.and_then(Result::err).map_or(PartitionEnd::Released, PartitionEnd::Failed)
        }
    }
}
