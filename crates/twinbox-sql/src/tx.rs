//! The transaction a handler works in, and what else counts as one.
use crate::{
    Dialect, Error, ErrorKind, HandlerResult, OwnedTx, outbox,
    scope::{Cause, Scope},
    sql::Statements,
};
use sqlx::{AssertSqlSafe, Transaction};
use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};
use twinbox_core::{Draft, Event, Message, MessageId};

/// The transaction of one delivery.
///
/// It dereferences to the connection: `sqlx::query(…).execute(&mut **tx)`. It borrows from the runtime,
/// which alone owns the transaction, so there is nothing here to commit, roll back or swap.
pub struct Tx<'t, DB: Dialect> {
    conn: &'t mut DB::Connection,
    scope: &'t mut Scope,
}

impl<'t, DB: Dialect> Tx<'t, DB> {
    pub(crate) fn new(conn: &'t mut DB::Connection, scope: &'t mut Scope) -> Self {
        Self { conn, scope }
    }

    /// Publishes with this transaction. The id follows from the delivery, so a re-run publishes the same
    /// message again and not another one; correlation and trace are inherited.
    ///
    /// # Errors
    /// The event breaks a bound, and nothing was written; or the database refused, and on Postgres the
    /// transaction is lost.
    pub async fn publish<E: Event>(&mut self, event: &E) -> Result<MessageId, Error> {
        self.publish_draft(Draft::of(event)?).await
    }

    /// Publishes a draft: [`publish`](Self::publish) with an id, key or headers of one's own.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub async fn publish_draft(&mut self, draft: Draft) -> Result<MessageId, Error> {
        let statements = self.statements();
        outbox::insert::<DB>(self.conn, Some(self.scope), &statements, draft).await
    }

    /// Runs `f` in a savepoint: an error undoes what `f` did, publishes included, and leaves the rest of the
    /// transaction.
    ///
    /// Do not drop the future half-way (`select!`, `timeout`): the attempt then fails as a whole. sqlx's own
    /// savepoints (`tx.begin()`) work too, but dropped while they begin they roll the whole transaction back, and nothing
    /// can be published by them.
    ///
    /// # Errors
    /// What `f` returned, or what the database said to the savepoint.
    pub async fn savepoint<T, F>(&mut self, f: F) -> HandlerResult<T>
    where
        // One error type, so that a closure full of `?` needs no annotation.
        F: AsyncFnOnce(&mut Tx<'_, DB>) -> HandlerResult<T>,
    {
        let nested = self.scope.enter();
        let name = format!("twinbox_{}", nested.depth);
        self.run(format!("SAVEPOINT {name}")).await?;
        let result = f(&mut Tx::new(self.conn, self.scope)).await;
        if result.is_err() {
            self.run(format!("ROLLBACK TO SAVEPOINT {name}")).await?;
        }
        self.run(format!("RELEASE SAVEPOINT {name}")).await?;
        self.scope.leave(nested, result.is_ok());
        result
    }

    async fn run(&mut self, sql: String) -> sqlx::Result<()> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *self.conn).await?;
        Ok(())
    }

    pub(crate) fn statements(&self) -> Arc<Statements> {
        self.scope.statements.clone()
    }

    /// Whether all of this is rolled back whatever comes of it, see `Consumer::dry_run` of the runtime. A handler that
    /// calls what is outside of the database asks before it does.
    pub fn is_dry_run(&self) -> bool {
        self.scope.is_dry_run
    }

    /// The id of the message that is handled; of an operation, its
    /// [`domain_id`](crate::operation::OperationKey::domain_id).
    pub fn message_id(&self) -> MessageId {
        self.scope.cause.message
    }
}

/// The transaction of a batch. It has no `publish` of its own, because an event published here is caused by
/// one message of the batch: `tx.caused_by(&order).publish(&event)`. [`Outbox::publish`](crate::Outbox::publish) refuses
/// it for the same reason.
pub struct BatchTx<'t, DB: Dialect> {
    conn: &'t mut DB::Connection,
    scope: &'t mut Scope,
}

impl<'t, DB: Dialect> BatchTx<'t, DB> {
    pub(crate) fn new(conn: &'t mut DB::Connection, scope: &'t mut Scope) -> Self {
        Self { conn, scope }
    }

    /// See [`Tx::is_dry_run`].
    pub fn is_dry_run(&self) -> bool {
        self.scope.is_dry_run
    }

    /// This transaction, on behalf of one delivery of the batch. Ids come out as if it were handled alone.
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
    note = "begin one and pass it: `let mut tx = store.begin().await?; outbox.publish(&mut tx, &event).await?;`",
    note = "inside a handler pass the handler's own `tx`"
)]
pub trait InTransaction<DB: Dialect>: sealed::Parts<DB> + Send {}

pub(crate) mod sealed {
    use super::*;

    pub trait Parts<DB: Dialect> {
        fn parts(&mut self) -> (&mut DB::Connection, Option<&mut Scope>);
    }

    impl<DB: Dialect> Parts<DB> for OwnedTx<DB> {
        fn parts(&mut self) -> (&mut DB::Connection, Option<&mut Scope>) {
            (self.connection(), None)
        }
    }

    impl<DB: Dialect> Parts<DB> for Transaction<'_, DB> {
        fn parts(&mut self) -> (&mut DB::Connection, Option<&mut Scope>) {
            (self, None)
        }
    }

    impl<DB: Dialect> Parts<DB> for Tx<'_, DB> {
        fn parts(&mut self) -> (&mut DB::Connection, Option<&mut Scope>) {
            (self.conn, Some(self.scope))
        }
    }

    impl<DB: Dialect> Parts<DB> for BatchTx<'_, DB> {
        fn parts(&mut self) -> (&mut DB::Connection, Option<&mut Scope>) {
            self.scope.is_of_batch = true;
            (self.conn, Some(self.scope))
        }
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

pub(crate) fn savepoint_abandoned() -> Error {
    Error::new(
        ErrorKind::SavepointAbandoned,
        "a savepoint was begun and never ended: its future was dropped, or it was leaked",
    )
}
