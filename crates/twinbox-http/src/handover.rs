//! Passes a claim from the layer to the handler's extractors, and back.
use crate::claim::Claim;
use axum::http::{StatusCode, request::Parts};
use std::sync::{
    Arc, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use tokio::sync::{Mutex, OwnedMappedMutexGuard, OwnedMutexGuard, OwnedSemaphorePermit, TryLockError};
use twinbox_core::message::TraceContext;
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    operation::{Operation, OperationLease},
};

/// The response of an extractor on a route without the transaction or lease that it extracts.
pub(crate) type Rejection = (StatusCode, &'static str);

/// The claim of one request, shared by its layer and its handler through the extensions of the request.
pub(crate) struct Handover<DB: Dialect>(Arc<Shared<DB>>);

struct Shared<DB: Dialect> {
    transaction: Slot<OpenTransaction<DB>>,
    lease: Slot<OperationLease<DB>>,
    /// The handler itself, and not an extractor alone, has used the transaction or the lease.
    is_used: AtomicBool,
    /// Of the connection that the handler's transaction under a lease uses.
    permit: std::sync::Mutex<Option<OwnedSemaphorePermit>>,
    has_lost_lease: AtomicBool,
    /// The trace that published messages belong to.
    trace: Option<TraceContext>,
}

pub(crate) struct OpenTransaction<DB: Dialect> {
    pub(crate) operation: Operation<DB>,
    /// The handler has rolled it back, so that it must not commit.
    is_rolled_back: bool,
}

/// A place for a value. One borrower at a time has the value, and gives it back when it is dropped.
struct Slot<T>(Arc<Mutex<Option<T>>>);

/// A value that a handler has.
pub(crate) type Borrowed<T> = OwnedMappedMutexGuard<Option<T>, T>;

impl<T> Slot<T> {
    fn new(value: Option<T>) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    fn borrow_if(&self, may_borrow: impl FnOnce(&T) -> bool) -> Option<Borrowed<T>> {
        let slot = self.0.clone().try_lock_owned().ok()?;
        OwnedMutexGuard::try_map(slot, |slot| slot.as_mut().filter(|value| may_borrow(value))).ok()
    }

    /// Fills the empty slot and borrows its value.
    async fn put_and_borrow(&self, value: T) -> Borrowed<T> {
        let slot = self.0.clone().lock_owned().await;
        OwnedMutexGuard::map(slot, |slot| slot.insert(value))
    }

    /// # Errors
    /// The value is borrowed.
    fn take_if(&self, may_take: impl FnOnce(&mut T) -> bool) -> Result<Option<T>, TryLockError> {
        Ok(self.0.try_lock()?.take_if(may_take))
    }
}

impl<DB: Dialect> Handover<DB> {
    pub(crate) fn new(claim: Claim<DB>, trace: Option<TraceContext>) -> Self {
        let (operation, lease) = match claim {
            Claim::Transaction(operation) => (Some(operation), None),
            Claim::Lease(lease) => (None, Some(lease)),
            Claim::LeaseAndTransaction(lease, operation) => (Some(operation), Some(lease)),
        };
        Self(Arc::new(Shared {
            transaction: Slot::new(operation.map(OpenTransaction::new)),
            lease: Slot::new(lease),
            is_used: AtomicBool::new(false),
            permit: std::sync::Mutex::default(),
            has_lost_lease: AtomicBool::new(false),
            trace,
        }))
    }

    /// # Errors
    /// The route has no layer of this database.
    pub(crate) fn of(parts: &Parts) -> Result<Self, Rejection> {
        parts.extensions.get::<Self>().cloned().ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "the route needs the layer `Idempotency` of this database",
        ))
    }

    pub(crate) fn borrow_transaction(&self) -> Option<Borrowed<OpenTransaction<DB>>> {
        let borrowed = self.0.transaction.borrow_if(|transaction| !transaction.is_rolled_back)?;
        Some(self.correlated(borrowed))
    }

    pub(crate) fn borrow_lease(&self) -> Option<Borrowed<OperationLease<DB>>> {
        self.0.lease.borrow_if(|_| true)
    }

    /// Borrows a transaction that the lease has begun. The permit of its connection is kept until its end.
    pub(crate) async fn borrow_begun(
        &self,
        operation: Operation<DB>,
        permit: OwnedSemaphorePermit,
    ) -> Borrowed<OpenTransaction<DB>> {
        self.keep_permit(Some(permit));
        self.correlated(self.0.transaction.put_and_borrow(OpenTransaction::new(operation)).await)
    }

    fn correlated(&self, mut borrowed: Borrowed<OpenTransaction<DB>>) -> Borrowed<OpenTransaction<DB>> {
        borrowed.operation.correlate(None, self.0.trace.clone());
        borrowed
    }

    /// Rolls a borrowed transaction back. Its slot is empty afterwards.
    pub(crate) async fn roll_back(&self, mut borrowed: Borrowed<OpenTransaction<DB>>) {
        borrowed.is_rolled_back = true;
        drop(borrowed);
        if let Ok(Some(transaction)) = self.0.transaction.take_if(|transaction| transaction.is_rolled_back) {
            transaction.operation.abandon().await;
            self.keep_permit(None);
        }
    }

    fn keep_permit(&self, permit: Option<OwnedSemaphorePermit>) {
        *self.0.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    /// Takes the claim back after the handler has responded. `None` if the handler still has the transaction,
    /// or if neither a transaction nor a lease is left. The rest of the claim is dropped then.
    pub(crate) fn take(&self) -> Option<Claim<DB>> {
        let lease = self.0.lease.take_if(|_| true).ok().flatten();
        let transaction = self.0.transaction.take_if(|_| true).ok()?;
        match (transaction, lease) {
            (Some(transaction), _) if transaction.is_rolled_back => None,
            (Some(transaction), None) => Some(Claim::Transaction(transaction.operation)),
            (Some(transaction), Some(lease)) => {
                Some(Claim::LeaseAndTransaction(lease, transaction.operation))
            }
            (None, lease) => lease.map(Claim::Lease),
        }
    }

    /// As [`take`](Self::take), for a route without leases.
    pub(crate) fn take_transaction(&self) -> Option<Operation<DB>> {
        match self.take()? {
            Claim::Transaction(operation) | Claim::LeaseAndTransaction(_, operation) => Some(operation),
            Claim::Lease(_) => None,
        }
    }

    pub(crate) fn note_use(&self) {
        self.0.is_used.store(true, Relaxed);
    }

    pub(crate) fn is_used(&self) -> bool {
        self.0.is_used.load(Relaxed)
    }

    pub(crate) fn has_lost_lease(&self) -> bool {
        self.0.has_lost_lease.load(Relaxed)
    }

    /// Remembers a lost lease. The layer then sends the new owner's response, even if the handler ignores the
    /// error.
    pub(crate) fn noting_lost_lease<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::LeaseLost) {
            self.0.has_lost_lease.store(true, Relaxed);
        }
        result
    }
}

impl<DB: Dialect> OpenTransaction<DB> {
    fn new(operation: Operation<DB>) -> Self {
        Self { operation, is_rolled_back: false }
    }
}

impl<DB: Dialect> Clone for Handover<DB> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
