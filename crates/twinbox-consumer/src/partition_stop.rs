//! The end of reading a partition.
use tokio_util::sync::CancellationToken;

/// Ends the reading of a partition.
#[derive(Clone, Default)]
pub(crate) struct PartitionStop {
    /// Drain, write the checkpoint, and release the partition.
    pub(crate) release: CancellationToken,
    /// Another process owns the partition: stop at once.
    pub(crate) lost: CancellationToken,
}

impl PartitionStop {
    /// Does work that waits for the database, which may be silent. None: the reading ends first.
    pub(crate) async fn unless_heard<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.lost.cancelled() => None,
            () = self.release.cancelled() => None,
            done = work => Some(done),
        }
    }
}
