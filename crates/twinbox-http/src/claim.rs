//! A key that a request has claimed.
use twinbox_sql::{
    Dialect,
    operation::{Operation, OperationLease},
};

/// Holds the key of a request.
pub(crate) enum Claim<DB: Dialect> {
    /// An open transaction holds the key.
    Transaction(Operation<DB>),
    /// A lease holds the key, and no transaction is open.
    Lease(OperationLease<DB>),
    /// A lease holds the key, and the handler has begun its transaction.
    LeaseAndTransaction(OperationLease<DB>, Operation<DB>),
}

impl<DB: Dialect> Claim<DB> {
    fn lease(&self) -> Option<&OperationLease<DB>> {
        match self {
            Self::Transaction(_) => None,
            Self::Lease(lease) | Self::LeaseAndTransaction(lease, _) => Some(lease),
        }
    }

    /// The number of this attempt, from 1.
    pub(crate) fn attempt(&self) -> u32 {
        self.lease().map_or(1, OperationLease::attempt)
    }

    /// How many more attempts may fail. `None` without a limit, and without a lease: only leases count
    /// attempts.
    pub(crate) fn failures_left(&self, attempts_max: Option<u32>) -> Option<u32> {
        Some(attempts_max?.saturating_sub(self.lease()?.failures()))
    }

    /// Rolls the transaction back and returns the lease.
    pub(crate) async fn roll_back(self) -> Option<OperationLease<DB>> {
        let (operation, lease) = match self {
            Self::Transaction(operation) => (operation, None),
            Self::Lease(lease) => return Some(lease),
            Self::LeaseAndTransaction(lease, operation) => (operation, Some(lease)),
        };
        operation.abandon().await;
        lease
    }
}
