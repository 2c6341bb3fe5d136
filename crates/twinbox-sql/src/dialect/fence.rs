//! Conditions without which a message is not claimed.
use super::Dialect;
use crate::{
    Error, ErrorKind,
    catalog::Catalog,
    statement::{query, scalar},
};
use std::time::{Duration, Instant};

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

/// How much longer the server waits than the handler's own time-out, which has to come first.
const MARGIN: Duration = Duration::from_millis(500);

/// How long a statement of a transaction, or a pause between two, may take before the server ends it, in
/// milliseconds. Postgres takes no more, and 0 would mean no limit.
pub(crate) fn session_bound(handler_timeout: Duration) -> i64 {
    let bound = handler_timeout.saturating_add(MARGIN).as_millis();
    i64::from(i32::try_from(bound).unwrap_or(i32::MAX).max(1))
}

/// On which terms messages are claimed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClaimTerms {
    /// Without this condition nothing is claimed.
    pub fence: Option<ClaimFence>,
    /// When the delivery began to wait, see [`Inbox::turn`](crate::Inbox::turn).
    pub waiting_since: Option<Instant>,
    /// How long the handler may take. A statement, or a pause between two, that takes 500 ms longer is ended
    /// by Postgres, as by MySQL the pause and by MariaDB both; whatever became of the process. None: the
    /// session's own bounds count.
    pub handler_timeout: Option<Duration>,
}

impl ClaimTerms {
    /// How long the transaction may do nothing, or one thing. A new owner of the partition waits for it.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) fn handler_timeout(self) -> Option<Duration> {
        match self.fence {
            Some(ClaimFence::Partition(fence)) => {
                Some(self.handler_timeout.map_or(fence.lease, |timeout| timeout.min(fence.lease)))
            }
            Some(ClaimFence::ServerRun(_)) | None => self.handler_timeout,
        }
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

impl From<Fence> for ClaimTerms {
    fn from(fence: Fence) -> Self {
        Self { fence: Some(fence.into()), ..Self::default() }
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
        .bind(session_bound(fence.lease))
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
