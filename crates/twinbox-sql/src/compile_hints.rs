//! Methods that a handler's transaction does not have: a call fails to compile, and the error tells what to
//! write.
use crate::{BatchTx, Dialect, Error, Tx};
use twinbox_core::{BoxFuture, MessageId};

#[diagnostic::on_unimplemented(
    message = "a handler does not end its own transaction",
    label = "the runtime commits when the handler returns `Ok`, and rolls back when it returns an error",
    note = "to undo only a part of the work use `tx.savepoint(async |tx| …)`"
)]
pub trait CommitAllowed {}

#[diagnostic::on_unimplemented(
    message = "a batch does not say which delivery caused an event",
    label = "needs the delivery that caused it",
    note = "write `tx.caused_by(&delivery).publish(&event)`"
)]
pub trait SingleCause {}

macro_rules! no_commit {
    ($Tx:ident) => {
        #[doc(hidden)]
        impl<DB: Dialect> $Tx<'_, DB> {
            pub fn commit(&mut self) -> BoxFuture<'_, Result<(), Error>>
            where
                Self: CommitAllowed,
            {
                unreachable!("`CommitAllowed` has no implementation")
            }

            pub fn rollback(&mut self) -> BoxFuture<'_, Result<(), Error>>
            where
                Self: CommitAllowed,
            {
                unreachable!("`CommitAllowed` has no implementation")
            }
        }
    };
}
no_commit!(Tx);
no_commit!(BatchTx);

#[doc(hidden)]
impl<DB: Dialect> BatchTx<'_, DB> {
    pub fn publish<E>(&mut self, _: &E) -> BoxFuture<'_, Result<MessageId, Error>>
    where
        Self: SingleCause,
    {
        unreachable!("`SingleCause` has no implementation")
    }
}
