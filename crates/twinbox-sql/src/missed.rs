//! Methods that a handler's transaction does not have, so that the compiler can say what to write instead.
use crate::{BatchTx, Dialect, Error, Tx};
use twinbox_core::{BoxFuture, MessageId};

#[diagnostic::on_unimplemented(
    message = "a handler does not end its own transaction",
    label = "the runtime commits when the handler returns `Ok`, and rolls back when it returns an error",
    note = "to undo only a part of the work use `tx.savepoint(async |tx| …)`"
)]
pub trait EndedByItsHolder {}

#[diagnostic::on_unimplemented(
    message = "a batch does not say which delivery caused an event",
    label = "needs the delivery that caused it",
    note = "write `tx.caused_by(&delivery).publish(&event)`"
)]
pub trait HasOneCause {}

macro_rules! missed {
    ($Tx:ident) => {
        #[doc(hidden)]
        impl<DB: Dialect> $Tx<'_, DB> {
            pub fn commit(&mut self) -> BoxFuture<'_, Result<(), Error>>
            where
                Self: EndedByItsHolder,
            {
                unreachable!("no transaction of a handler is `EndedByItsHolder`")
            }

            pub fn rollback(&mut self) -> BoxFuture<'_, Result<(), Error>>
            where
                Self: EndedByItsHolder,
            {
                unreachable!("no transaction of a handler is `EndedByItsHolder`")
            }
        }
    };
}
missed!(Tx);
missed!(BatchTx);

#[doc(hidden)]
impl<DB: Dialect> BatchTx<'_, DB> {
    pub fn publish<E>(&mut self, _: &E) -> BoxFuture<'_, Result<MessageId, Error>>
    where
        Self: HasOneCause,
    {
        unreachable!("no batch `HasOneCause`")
    }
}
