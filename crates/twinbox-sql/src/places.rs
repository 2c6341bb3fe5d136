//! How processes share the partitions of a broker's log, and how far each is settled.
//!
//! A partition is owned by lease, on the time of the database, and every takeover makes a new epoch. A handler's
//! transaction takes the fence of its partition first: it stays the owner's until that transaction ends, or nothing is
//! written. So of two processes that both believe to be the owner only the later one commits.
use crate::{
    Dialect, Error, ErrorKind, Store,
    micros::micros,
    sql::{query, scalar},
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::Place;
use uuid::Uuid;

/// A partition that is owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// Which one.
    pub partition: u32,
    /// Grows with each takeover.
    pub epoch: i64,
    /// The run of the server in which it was taken: what another one holds may have been forgotten since.
    pub run: i64,
    /// For how long its owner may not be heard of, and a transaction of it stand still.
    pub lease: Duration,
}

/// What a process has of the partitions of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Share {
    /// Partitions and epochs that are still its own.
    pub held: Vec<(u32, i64)>,
    /// The run of the server that says so. What was taken in another is to be taken anew.
    pub run: i64,
    /// Partitions that nobody has.
    pub free: Vec<u32>,
    /// How many of them are its due. Those that cannot be shared evenly go to the first processes by id.
    pub fair: usize,
}

/// A condition of a claim: the message is claimed while it holds, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimFence {
    /// The partition is still its owner's, and stays so until the transaction ends.
    Partition(Fence),
    /// The server is in this [run](Store::server_run) still: messages that were handled before are not forgotten.
    Run(i64),
}

impl From<Fence> for ClaimFence {
    fn from(fence: Fence) -> Self {
        Self::Partition(fence)
    }
}

impl Share {
    /// Whether a partition is still its own, and what its owner remembers of it true.
    pub fn holds(&self, fence: &Fence) -> bool {
        self.run == fence.run && self.held.contains(&(fence.partition, fence.epoch))
    }
}

impl<DB: Dialect> Store<DB> {
    /// Renews the lease of a process on all its partitions, and says what there is to share.
    ///
    /// # Errors
    /// The database refused or is away: nothing is renewed, and every lease ends in its time.
    pub async fn share_partitions(
        &self,
        consumer: &str,
        member: Uuid,
        partitions: u32,
        lease: Duration,
    ) -> Result<Share, Error> {
        let (statements, number) = (self.statements(), partition_number);
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        query::<DB>(&statements.members_gone).bind(consumer.to_owned()).execute(tx.connection()).await?;
        query::<DB>(&statements.member_stays)
            .bind(consumer.to_owned())
            .bind(member)
            .bind(micros(lease))
            .bind(micros(lease))
            .execute(tx.connection())
            .await?;
        let members = scalar::<DB, Uuid>(&statements.members).bind(consumer.to_owned());
        let members = members.fetch_all(tx.connection()).await?;
        let held = query::<DB>(&statements.places_renew)
            .bind(micros(lease))
            .bind(consumer.to_owned())
            .bind(member)
            .fetch_all(tx.connection())
            .await?;
        let held = held.iter().map(|row| Ok((number(row.try_get(0)?), row.try_get(1)?)));
        let held = held.collect::<Result<_, Error>>()?;
        let free = query::<DB>(&statements.places_free).bind(consumer.to_owned());
        let free = free.fetch_all(tx.connection()).await?;
        let run = self.run(tx.connection()).await?;
        let free = free.iter().map(|row| Ok(number(row.try_get(0)?))).collect::<Result<Vec<_>, Error>>()?;
        tx.commit().await?;
        let free = free.into_iter().filter(|partition| *partition < partitions).collect();
        Ok(Share { held, run, free, fair: fair_share(partitions, &members, member) })
    }

    /// Makes the rows of the partitions that have none. `types`: what the consumer reads.
    ///
    /// # Errors
    /// The database refused or is away; safe to repeat. [`ErrorKind::Configuration`]: the consumer has read other types so
    /// far, of which its places say nothing.
    pub async fn create_places(
        &self,
        consumer: &str,
        partitions: u32,
        types: &[String],
    ) -> Result<(), Error> {
        let types = types.join(" ");
        let mut tx = self.begin().await?;
        for partition in 0..partitions {
            query::<DB>(&self.statements().place_create)
                .bind(consumer.to_owned())
                .bind(i64::from(partition))
                .bind(types.clone())
                .execute(tx.connection())
                .await?;
        }
        let others = scalar::<DB, String>(&self.statements().places_of_others)
            .bind(consumer.to_owned())
            .bind(types.clone())
            .fetch_optional(tx.connection())
            .await?;
        if let Some(others) = others {
            return Err(Error::new(
                ErrorKind::Configuration,
                format!(
                    "the consumer {consumer:?} keeps its places for the types `{others}`, and is asked for `{types}`: \
                     give the new handlers a consumer of their own, or stop all its processes and delete its rows in \
                     `places`, so that it reads again from the beginning; the inbox knows what was handled"
                ),
            ));
        }
        tx.commit().await
    }

    /// Takes a partition over that nobody has, once no transaction of its last owner is open. None: somebody else did,
    /// or such a transaction stays open for longer than 2 s.
    ///
    /// # Errors
    /// The database refused or is away: it may be taken, and is free again when the lease ends.
    pub async fn take_partition(
        &self,
        consumer: &str,
        partition: u32,
        member: Uuid,
        lease: Duration,
    ) -> Result<Option<(Fence, Place)>, Error> {
        let statements = self.statements();
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        if DB::FENCE_OUT.is_some() {
            let fence =
                query::<DB>(&statements.fence_out).bind(consumer.to_owned()).bind(i64::from(partition));
            if let Err(error) = fence.execute(tx.connection()).await.map_err(Error::from) {
                return if error.is_contention() { Ok(None) } else { Err(error) };
            }
        }
        let taken = query::<DB>(&statements.place_take)
            .bind(member)
            .bind(micros(lease))
            .bind(micros(lease))
            .bind(consumer.to_owned())
            .bind(i64::from(partition))
            .fetch_optional(tx.connection())
            .await?;
        let Some(row) = taken else {
            tx.rollback().await?;
            return Ok(None);
        };
        let sequence = sequence_number(row.try_get(2)?);
        let place = Place { log: row.try_get(1)?, sequence, message: row.try_get(3)? };
        let run = self.run(tx.connection()).await?;
        let fence = Fence { partition, epoch: row.try_get(0)?, run, lease };
        tx.commit().await?;
        Ok(Some((fence, place)))
    }

    /// Writes down up to where all messages of a partition are settled. False: it is another's.
    ///
    /// # Errors
    /// The database refused or is away: the place is where it was, and what lies behind it is delivered again.
    pub async fn settle_partition(&self, consumer: &str, fence: Fence, place: &Place) -> Result<bool, Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let written = query::<DB>(&self.statements().place_settle)
            .bind(place.log.clone())
            .bind(i64::try_from(place.sequence).unwrap_or(i64::MAX))
            .bind(place.message.clone())
            .bind(consumer.to_owned())
            .bind(i64::from(fence.partition))
            .bind(fence.epoch)
            .bind(fence.run)
            .execute(&mut *conn)
            .await?;
        conn.done().await?;
        Ok(DB::rows_affected(&written) == 1)
    }

    /// Ends the lease of one partition, so that another process can take it over at once.
    ///
    /// # Errors
    /// The database refused or is away: the lease ends in its time.
    pub async fn release_partition(&self, consumer: &str, fence: Fence) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&self.statements().place_release)
            .bind(consumer.to_owned())
            .bind(i64::from(fence.partition))
            .bind(fence.epoch)
            .bind(fence.run)
            .execute(&mut *conn)
            .await?;
        conn.done().await
    }

    /// A process shares no longer.
    ///
    /// # Errors
    /// The database refused or is away: it counts until its lease ends.
    pub async fn leave_partitions(&self, consumer: &str, member: Uuid) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&self.statements().member_leaves)
            .bind(consumer.to_owned())
            .bind(member)
            .execute(&mut *conn)
            .await?;
        conn.done().await
    }

    /// The first statement of a transaction that may only commit while the partition is its owner's.
    pub(crate) async fn hold_fence(
        &self,
        conn: &mut DB::Connection,
        consumer: &str,
        fence: Fence,
    ) -> Result<(), Error> {
        // A little longer than the handler may take, so that it hears of its own time-out first.
        let idle = i64::try_from(fence.lease.as_millis()).unwrap_or(i64::MAX).saturating_add(500);
        let holds = scalar::<DB, bool>(&self.statements().fence)
            .bind(consumer.to_owned())
            .bind(i64::from(fence.partition))
            .bind(fence.epoch)
            .bind(fence.run)
            .bind(idle)
            .fetch_one(conn)
            .await?;
        if holds {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::LeaseLost,
            "another process has taken the partition over, or the server started anew",
        ))
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

fn sequence_number(sequence: i64) -> u64 {
    u64::try_from(sequence).unwrap_or(0)
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
