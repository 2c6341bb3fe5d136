//! Conditions without which a message is not claimed.
use super::Dialect;
use crate::{
    Error, ErrorKind,
    catalog::Catalog,
    statement::{query, scalar},
};
use std::time::Duration;

/// The proof that a process owns a partition, which its writes compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// The number of the partition.
    pub partition: u32,
    /// The number of takeovers of the partition, which tells owners apart.
    pub epoch: i64,
    /// The server run in which the partition was taken. Another run may have forgotten commits.
    pub server_run: i64,
    /// How long the owner may be silent, and its transactions idle.
    pub lease: Duration,
}

impl Fence {
    /// How long a transaction may be idle, in milliseconds: a little longer than the handler may take, so
    /// that its own time-out comes first.
    pub(super) fn idle_ms(self) -> i64 {
        i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX).saturating_add(500)
    }
}

/// A condition of a claim, without which the message is not claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimFence {
    /// The process owns the partition, and keeps it until the transaction ends.
    Partition(Fence),
    /// The database server has not restarted, so that no earlier claim is forgotten.
    ServerRun(i64),
}

impl ClaimFence {
    /// Fails unless the condition holds, for a partition until the transaction ends.
    pub(crate) async fn check<DB: Dialect>(
        self,
        conn: &mut DB::Connection,
        catalog: &Catalog,
        consumer: &str,
    ) -> Result<(), Error> {
        match self {
            Self::Partition(fence) => hold_fence::<DB>(conn, catalog, consumer, fence).await,
            Self::ServerRun(run) => check_server_run::<DB>(conn, catalog, run).await,
        }
    }
}

impl From<Fence> for ClaimFence {
    fn from(fence: Fence) -> Self {
        Self::Partition(fence)
    }
}

/// Makes an open transaction fail unless its process owns the partition until COMMIT.
///
/// # Errors
/// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost): another process owns it, or the server started
/// anew. The database refused or is away.
pub async fn hold_fence<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
    consumer: &str,
    fence: Fence,
) -> Result<(), Error> {
    let share = &catalog.sql.partitions.share_fence;
    if !share.is_absent() {
        let share = query::<DB>(share).bind(consumer.to_owned()).bind(i64::from(fence.partition));
        share.execute(&mut *conn).await?;
    }
    let holds = scalar::<DB, bool>(&catalog.sql.partitions.fence)
        .bind(consumer.to_owned())
        .bind(i64::from(fence.partition))
        .bind(fence.epoch)
        .bind(fence.server_run)
        .bind(fence.idle_ms())
        .fetch_one(conn)
        .await?;
    if holds {
        return Ok(());
    }
    let what = "another process has taken the partition over, or the server started anew";
    Err(Error::new(ErrorKind::LeaseLost, what))
}

/// Fails if the database server has restarted since `run` was read.
///
/// # Errors
/// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost), or the database refused or is away.
pub async fn check_server_run<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
    run: i64,
) -> Result<(), Error> {
    let is_run = scalar::<DB, Option<bool>>(&catalog.sql.setup.is_server_run).bind(run);
    match is_run.fetch_one(conn).await? {
        Some(true) => Ok(()),
        _ => Err(Error::other_server_run()),
    }
}
