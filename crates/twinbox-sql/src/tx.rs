//! The transactions of handlers, and all that publishing accepts as a transaction.
use crate::{
    Dialect, Error, HandlerResult, OwnedTx,
    catalog::Catalog,
    publish,
    scope::{Cause, Scope},
    statement::raw,
};
use sqlx::{AssertSqlSafe, Transaction};
use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};
use twinbox_core::{Draft, Event, Message, MessageId};

/// The transaction of one delivery, which the handler writes and publishes with.
///
/// It dereferences to the connection: `sqlx::query(…).execute(&mut **tx)`. The runtime owns the transaction
/// and lends it, so a handler cannot commit it, roll it back or swap it.
pub struct Tx<'t, DB: Dialect> {
    conn: &'t mut DB::Connection,
    scope: &'t mut Scope,
}

impl<'t, DB: Dialect> Tx<'t, DB> {
    pub(crate) fn new(conn: &'t mut DB::Connection, scope: &'t mut Scope) -> Self {
        Self { conn, scope }
    }

    /// Publishes an event in this transaction. Its id is derived from the delivery, so a re-run publishes the
    /// same message again and not another one. It inherits correlation and trace.
    ///
    /// # Errors
    /// The event breaks a bound, and nothing was written; or the database refused, and on Postgres the
    /// transaction is lost.
    pub async fn publish<E: Event>(&mut self, event: &E) -> Result<MessageId, Error> {
        self.publish_draft(Draft::of(event)?).await
    }

    /// Publishes a draft: an event with its own id, key, headers or time.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub async fn publish_draft(&mut self, draft: Draft) -> Result<MessageId, Error> {
        let catalog = self.catalog();
        publish::publish::<DB>(self.conn, Some(self.scope), &catalog, draft).await
    }

    /// Runs `f` in a savepoint. An error undoes the work of `f`, published events included, and keeps the
    /// rest of the transaction.
    ///
    /// Do not drop the future half-way (`select!`, `timeout`): the attempt then fails as a whole. sqlx's own
    /// savepoints (`tx.begin()`) work too, but dropped while they begin they roll the whole transaction back,
    /// and nothing can be published by them.
    ///
    /// # Errors
    /// The error of `f`, or the database refused the savepoint.
    pub async fn savepoint<T, F>(&mut self, f: F) -> HandlerResult<T>
    where
        // One error type, so that a closure full of `?` needs no annotation.
        F: AsyncFnOnce(&mut Tx<'_, DB>) -> HandlerResult<T>,
    {
        let nested = self.scope.enter();
        let name = format!("twinbox_{}", nested.depth);
        self.run(format!("SAVEPOINT {name}")).await?;
        let result = f(&mut Tx::new(self.conn, self.scope)).await;
        if let Err(error) = &result {
            self.scope.has_undone_contention |= error.is_contention();
            self.run(format!("ROLLBACK TO SAVEPOINT {name}")).await?;
        }
        self.run(format!("RELEASE SAVEPOINT {name}")).await?;
        self.scope.leave(nested, result.is_ok());
        result
    }

    async fn run(&mut self, sql: String) -> sqlx::Result<()> {
        raw::<DB>(AssertSqlSafe(sql)).for_caller().execute(&mut *self.conn).await?;
        Ok(())
    }

    /// Cancels a message that was published [for later](Draft::not_before), see
    /// [`Outbox::cancel`](crate::Outbox::cancel).
    ///
    /// # Errors
    /// The database refused, and on Postgres the transaction is lost.
    pub async fn cancel(&mut self, id: MessageId) -> Result<bool, Error> {
        publish::cancel::<DB>(self.conn, &self.scope.catalog, id).await
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.scope.catalog.clone()
    }

    /// Returns whether the transaction is rolled back in any case, because a dry run tries the handler. A
    /// handler asks this before an act outside the database.
    pub fn is_dry_run(&self) -> bool {
        self.scope.is_dry_run
    }

    /// Returns the id of the handled message. In an operation it is its
    /// [`domain_id`](crate::operation::OperationKey::domain_id).
    pub fn message_id(&self) -> MessageId {
        self.scope.cause.message
    }
}

/// The transaction of a batch, which the handler writes with. It has no `publish`, because one message of the
/// batch causes an event: `tx.caused_by(&order).publish(&event)`. [`Outbox::publish`](crate::Outbox::publish)
/// refuses it for the same reason.
pub struct BatchTx<'t, DB: Dialect> {
    conn: &'t mut DB::Connection,
    scope: &'t mut Scope,
}

impl<'t, DB: Dialect> BatchTx<'t, DB> {
    pub(crate) fn new(conn: &'t mut DB::Connection, scope: &'t mut Scope) -> Self {
        Self { conn, scope }
    }

    /// Returns whether the transaction is rolled back in any case, see `Tx::is_dry_run`.
    pub fn is_dry_run(&self) -> bool {
        self.scope.is_dry_run
    }

    /// Returns the transaction on behalf of one delivery of the batch, so that published events follow from
    /// it. Published events get the ids that they would get if it were handled alone.
    pub fn caused_by(&mut self, delivery: &impl AsRef<Message>) -> Tx<'_, DB> {
        self.scope.cause = Cause::of(delivery.as_ref());
        self.scope.is_of_batch = false;
        Tx::new(self.conn, self.scope)
    }
}

/// An open transaction of `DB`: [`OwnedTx`], [`sqlx::Transaction`], [`Tx`] or [`BatchTx`]. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an open `{DB}` transaction",
    label = "an event must be published in the transaction that writes what it reports",
    note = "begin one: `let mut tx = store.begin().await?;`, and pass it: `outbox.publish(&mut tx, &event)`",
    note = "inside a handler pass the handler's own `tx`"
)]
pub trait InTransaction<DB: Dialect>: sealed::Parts<DB> + Send {}

pub(crate) mod sealed {
    use crate::{Dialect, scope::Scope};

    pub trait Parts<DB: Dialect> {
        fn parts(&mut self) -> (&mut DB::Connection, Option<&mut Scope>);
    }
}

impl<DB: Dialect> sealed::Parts<DB> for OwnedTx<DB> {
    fn parts(&mut self) -> (&mut DB::Connection, Option<&mut Scope>) {
        (self.connection(), None)
    }
}

impl<DB: Dialect> sealed::Parts<DB> for Transaction<'_, DB> {
    fn parts(&mut self) -> (&mut DB::Connection, Option<&mut Scope>) {
        (self, None)
    }
}

impl<DB: Dialect> sealed::Parts<DB> for Tx<'_, DB> {
    fn parts(&mut self) -> (&mut DB::Connection, Option<&mut Scope>) {
        (self.conn, Some(self.scope))
    }
}

impl<DB: Dialect> sealed::Parts<DB> for BatchTx<'_, DB> {
    fn parts(&mut self) -> (&mut DB::Connection, Option<&mut Scope>) {
        self.scope.is_of_batch = true;
        (self.conn, Some(self.scope))
    }
}

impl<DB: Dialect> InTransaction<DB> for OwnedTx<DB> {}
impl<DB: Dialect> InTransaction<DB> for Transaction<'_, DB> {}
impl<DB: Dialect> InTransaction<DB> for Tx<'_, DB> {}
impl<DB: Dialect> InTransaction<DB> for BatchTx<'_, DB> {}

macro_rules! transaction_view {
    ($Tx:ident) => {
        impl<DB: Dialect> Deref for $Tx<'_, DB> {
            type Target = DB::Connection;

            fn deref(&self) -> &DB::Connection {
                self.conn
            }
        }

        impl<DB: Dialect> DerefMut for $Tx<'_, DB> {
            fn deref_mut(&mut self) -> &mut DB::Connection {
                self.conn
            }
        }

        impl<DB: Dialect> fmt::Debug for $Tx<'_, DB> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($Tx)).field("cause", &self.scope.cause).finish_non_exhaustive()
            }
        }
    };
}
transaction_view!(Tx);
transaction_view!(BatchTx);
