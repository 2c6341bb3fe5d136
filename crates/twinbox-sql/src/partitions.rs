//! How processes share the partitions of a broker's log, and how far each is settled.
//!
//! A process owns a partition by a lease, on the time of the database, and every takeover makes a new epoch.
//! A handler's transaction takes the fence of its partition first: the partition stays its owner's until the
//! transaction ends, or nothing is written. So of two processes that both believe to be the owner only the
//! later one commits.
use crate::{
    Dialect, Error, ErrorKind,
    change::{changed_row, changed_rows},
    dialect::Fence,
    engine::Engine,
    micros::micros,
    row::TextColumns,
    statement::{query, scalar},
    text_column::Text,
};
use sqlx::Row as _;
use std::{fmt, time::Duration};
use twinbox_core::Checkpoint;
use uuid::Uuid;

/// The partitions of a consumer that one process owns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionShare {
    /// The partitions that the process owns, with their epochs.
    pub owned: Vec<(u32, i64)>,
    /// The run of the database server in which the share was read. Partitions that were taken in another are
    /// to be taken anew.
    pub server_run: i64,
    /// The partitions that no process owns.
    pub free: Vec<u32>,
    /// How many partitions the process should own. The first processes by id get one more where
    /// they cannot be shared evenly.
    pub fair: usize,
}

impl PartitionShare {
    /// Returns whether the process still owns a partition, in the same server run.
    pub fn owns(&self, fence: &Fence) -> bool {
        self.server_run == fence.server_run && self.owned.contains(&(fence.partition, fence.epoch))
    }
}

/// The leases on the partitions of a consumer, which its processes share. Cheap to make and to clone.
pub struct PartitionLeases<DB: Dialect> {
    engine: Engine<DB>,
    consumer: String,
}

impl<DB: Dialect> PartitionLeases<DB> {
    pub(crate) fn new(engine: Engine<DB>, consumer: String) -> Self {
        Self { engine, consumer }
    }

    /// Renews the leases of a process on its partitions, and returns its share.
    ///
    /// # Errors
    /// The database refused or is away: nothing is renewed, and every lease ends in its time.
    pub async fn share(
        &self,
        member: Uuid,
        partitions: u32,
        lease: Duration,
    ) -> Result<PartitionShare, Error> {
        let sql = &self.engine.sql().partitions;
        let mut tx = self.engine.begin_short().await?;
        let expired = query::<DB>(&sql.delete_expired_members).bind(self.consumer.clone());
        expired.execute(tx.connection()).await?;
        query::<DB>(&sql.renew_member)
            .bind(self.consumer.clone())
            .bind(member)
            .bind(micros(lease))
            .bind(micros(lease))
            .execute(tx.connection())
            .await?;
        let members = scalar::<DB, Uuid>(&sql.members).bind(self.consumer.clone());
        let members = members.fetch_all(tx.connection()).await?;
        let renew = query::<DB>(&sql.renew).bind(micros(lease)).bind(self.consumer.clone()).bind(member);
        let owned = || query::<DB>(&sql.owned).bind(self.consumer.clone()).bind(member);
        let renewed = changed_rows::<DB>(tx.connection(), renew, owned).await?;
        let owned = renewed
            .iter()
            .map(|row| Ok((partition_number(row.try_get("partition")?), row.try_get("epoch")?)))
            .collect::<Result<_, Error>>()?;
        let free = scalar::<DB, i64>(&sql.free).bind(self.consumer.clone());
        let free = free.fetch_all(tx.connection()).await?;
        let Some(server_run) = self.engine.recorded_server_run(tx.connection()).await? else {
            tx.rollback().await?;
            self.engine.record_server_run().await?;
            return Err(Error::other_server_run());
        };
        tx.commit().await?;
        let free = free.into_iter().map(partition_number).filter(|partition| *partition < partitions);
        let free = free.collect();
        Ok(PartitionShare { owned, server_run, free, fair: fair_share(partitions, &members, member) })
    }

    /// Creates the rows of a consumer's partitions. `types`: what the consumer reads.
    ///
    /// # Errors
    /// The database refused or is away; safe to repeat. [`ErrorKind::Configuration`]: the rows are for other
    /// types.
    pub async fn create(&self, partitions: u32, types: &[String]) -> Result<(), Error> {
        let (sql, consumer) = (&self.engine.sql().partitions, &self.consumer);
        let types = types.join(" ");
        self.engine.record_server_run().await?;
        let mut tx = self.engine.begin().await?;
        for partition in 0..partitions {
            query::<DB>(&sql.create)
                .bind(consumer.clone())
                .bind(i64::from(partition))
                .bind(types.clone())
                .execute(tx.connection())
                .await?;
        }
        let others = scalar::<DB, Text>(&sql.other_types).bind(consumer.clone()).bind(types.clone());
        if let Some(Text(others)) = others.fetch_optional(tx.connection()).await? {
            return Err(Error::new(
                ErrorKind::Configuration,
                format!(
                    "the consumer {consumer:?} keeps its checkpoints for the types `{others}`, and is asked \
                     for `{types}`: give the new handlers a consumer of their own, or stop all its processes \
                     and delete its rows in `partition_leases`, so that it reads again from the beginning; \
                     the inbox knows what was handled"
                ),
            ));
        }
        tx.commit().await
    }

    /// Takes a partition that no process owns, once no transaction of its former owner is open. None: another
    /// process took it, or such a transaction stays open for longer than 2 s.
    ///
    /// # Errors
    /// The database refused or is away: it may be taken, and is free again when the lease ends.
    pub async fn take(
        &self,
        partition: u32,
        member: Uuid,
        lease: Duration,
    ) -> Result<Option<(Fence, Checkpoint)>, Error> {
        let sql = &self.engine.sql().partitions;
        let mut tx = self.engine.begin_short().await?;
        if !sql.wait_for_transactions.is_absent() {
            let wait = query::<DB>(&sql.wait_for_transactions);
            let wait = wait.bind(self.consumer.clone()).bind(i64::from(partition));
            if let Err(error) = wait.execute(tx.connection()).await.map_err(Error::from) {
                let _ = tx.rollback().await;
                return if error.is_contention() { Ok(None) } else { Err(error) };
            }
        }
        let take = query::<DB>(&sql.take)
            .bind(member)
            .bind(micros(lease))
            .bind(micros(lease))
            .bind(self.consumer.clone())
            .bind(i64::from(partition));
        let read = || query::<DB>(&sql.read).bind(self.consumer.clone()).bind(i64::from(partition));
        let taken = changed_row::<DB>(tx.connection(), take, read).await?;
        let Some(row) = taken else {
            tx.rollback().await?;
            return Ok(None);
        };
        let checkpoint = Checkpoint {
            log: row.text("log")?,
            sequence: crate::row::count(row.try_get("sequence")?),
            message: row.text("last_message")?,
        };
        let Some(server_run) = self.engine.recorded_server_run(tx.connection()).await? else {
            tx.rollback().await?;
            return Ok(None);
        };
        let fence = Fence { partition, epoch: row.try_get("epoch")?, server_run, lease };
        tx.commit().await?;
        Ok(Some((fence, checkpoint)))
    }

    /// Records up to which checkpoint a partition is settled. False: another process owns it.
    ///
    /// # Errors
    /// The database refused or is away: the checkpoint stays, and later messages are delivered again.
    pub async fn settle(&self, fence: Fence, checkpoint: &Checkpoint) -> Result<bool, Error> {
        let settled = self.engine.execute(&self.engine.sql().partitions.settle, |query| {
            query
                .bind(checkpoint.log.clone())
                .bind(i64::try_from(checkpoint.sequence).unwrap_or(i64::MAX))
                .bind(checkpoint.message.clone())
                .bind(self.consumer.clone())
                .bind(i64::from(fence.partition))
                .bind(fence.epoch)
                .bind(fence.server_run)
        });
        Ok(settled.await? == 1)
    }

    /// Returns the lease of a partition, so that another process can take it at once.
    ///
    /// # Errors
    /// The database refused or is away: the lease ends in its time.
    pub async fn release(&self, fence: Fence) -> Result<(), Error> {
        let release = &self.engine.sql().partitions.release;
        self.engine
            .execute(release, |query| {
                query
                    .bind(self.consumer.clone())
                    .bind(i64::from(fence.partition))
                    .bind(fence.epoch)
                    .bind(fence.server_run)
            })
            .await?;
        Ok(())
    }

    /// Removes a process from the members that share the partitions.
    ///
    /// # Errors
    /// The database refused or is away: it counts until its lease ends.
    pub async fn leave(&self, member: Uuid) -> Result<(), Error> {
        let delete = &self.engine.sql().partitions.delete_member;
        self.engine.execute(delete, |query| query.bind(self.consumer.clone()).bind(member)).await?;
        Ok(())
    }
}

impl<DB: Dialect> Clone for PartitionLeases<DB> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone(), consumer: self.consumer.clone() }
    }
}

impl<DB: Dialect> fmt::Debug for PartitionLeases<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionLeases").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}

fn fair_share(partitions: u32, members: &[Uuid], member: Uuid) -> usize {
    let partitions = usize::try_from(partitions).unwrap_or(usize::MAX);
    let (each, left) = (partitions / members.len().max(1), partitions % members.len().max(1));
    let place = members.iter().position(|other| *other == member).unwrap_or(members.len());
    each + usize::from(place < left)
}

fn partition_number(partition: i64) -> u32 {
    u32::try_from(partition).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_are_the_whole() {
        for (count, partitions) in [(1, 16), (3, 16), (5, 16), (16, 16), (20, 16), (2, 1), (7, 0)] {
            let members = Vec::from_iter((0..count).map(Uuid::from_u128));
            let shares = members.iter().map(|member| fair_share(partitions, &members, *member));
            let shares = Vec::from_iter(shares);
            assert_eq!(shares.iter().sum::<usize>(), partitions as usize, "{count}: {shares:?}");
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{count}: {shares:?}");
        }
    }
}
