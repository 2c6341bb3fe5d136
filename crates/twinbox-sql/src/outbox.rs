//! Publishing events.
use crate::{
    Dialect, Error, InTransaction,
    catalog::Catalog,
    engine::Engine,
    publish::{self, check_cause},
};
use std::{fmt, marker::PhantomData, sync::Arc};
use twinbox_core::{BoxFuture, Draft, Event, MessageId};

/// Publishes events in the transactions of an application. Cheap to clone; needs no running relay.
///
/// A message is published if and only if its transaction commits. The relay and embedded consumers see it
/// after that.
///
/// Order: messages of one key are delivered in the order in which they were published, provided that writers
/// of one key take turns. They do when each locks the row of its aggregate first, as an `UPDATE` does.
/// Without such a row use [`publish_ordered`](Self::publish_ordered).
///
/// With a `sqlx::Transaction` of your own on Postgres: if a statement fails and you ignore its error,
/// `commit()` returns `Ok` and Postgres rolls back, message included. The commit of
/// [`Store::begin`](crate::Store::begin) fails then.
pub struct Outbox<DB: Dialect> {
    catalog: Arc<Catalog>,
    database: PhantomData<fn() -> DB>,
}

impl<DB: Dialect> Outbox<DB> {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Self {
        Self { catalog, database: PhantomData }
    }

    /// Returns the outbox of an engine.
    #[doc(hidden)]
    pub fn of(engine: &Engine<DB>) -> Self {
        Self::new(engine.catalog().clone())
    }

    /// Publishes an event in the caller's transaction. With a handler's transaction it is the same as
    /// [`Tx::publish`](crate::Tx::publish).
    ///
    /// # Errors
    /// The event breaks a bound or the codec refused it, and nothing was written; or the database refused.
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration): a handler published with a
    /// [`BatchTx`](crate::BatchTx), or with a transaction of sqlx that it began inside its own. Nothing was
    /// written, and the error tells what to write.
    ///
    /// # Examples
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use twinbox_sql::{Store, sqlite};
    /// # use twinbox_core::{Draft, Event, Schema, event::DecodeError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::new(sqlite::open(dir.path().join("shop.db")).await?, "shop")?;
    /// # store.migrate().await?;
    /// # sqlx::query("CREATE TABLE orders (id INTEGER, cents INTEGER)").execute(store.pool()).await?;
    /// let mut tx = store.begin().await?;
    /// sqlx::query("INSERT INTO orders VALUES (7, 4200)").execute(&mut *tx).await?;
    /// let order_placed = Draft::raw("orders.placed", 1, r#"{"order_id":7}"#).key("7");
    /// store.outbox().publish_draft(&mut tx, order_placed).await?;
    /// tx.commit().await?; // the order and its event, or neither
    /// # Ok(())
    /// # }
    /// ```
    // Not `async fn`: with an opaque return type a pool in the place of `tx` is three errors, not one.
    pub fn publish<'a, E: Event>(
        &'a self,
        tx: &'a mut impl InTransaction<DB>,
        event: &'a E,
    ) -> BoxFuture<'a, Result<MessageId, Error>> {
        let (conn, scope) = tx.parts();
        Box::pin(async move { publish::publish::<DB>(conn, scope, &self.catalog, Draft::of(event)?).await })
    }

    /// Publishes a draft: an event with its own id, key, headers or correlation, or one for
    /// [later](Draft::not_before).
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn publish_draft<'a>(
        &'a self,
        tx: &'a mut impl InTransaction<DB>,
        draft: Draft,
    ) -> BoxFuture<'a, Result<MessageId, Error>> {
        let (conn, scope) = tx.parts();
        Box::pin(publish::publish::<DB>(conn, scope, &self.catalog, draft))
    }

    /// Publishes an event and locks its key until the transaction ends, for writers that have no row of their
    /// own to lock. Writers of one key take turns from here on.
    ///
    /// # Errors
    /// As [`publish`](Self::publish), or the wait for the lock ran out of the session's `lock_timeout`.
    pub fn publish_ordered<'a, E: Event>(
        &'a self,
        tx: &'a mut impl InTransaction<DB>,
        event: &'a E,
    ) -> BoxFuture<'a, Result<MessageId, Error>> {
        let (conn, scope) = tx.parts();
        Box::pin(async move {
            let draft = Draft::of(event)?;
            check_cause::<DB>(conn, scope.as_deref())?;
            if let Some(key) = &draft.fields.key {
                DB::lock_key(conn, &self.catalog, key).await?;
            }
            publish::publish::<DB>(conn, scope, &self.catalog, draft).await
        })
    }

    /// Publishes many drafts in order, with one statement for each
    /// [`PUBLISH_ALL_MAX`](crate::PUBLISH_ALL_MAX) of them, or for each
    /// [`PUBLISH_ALL_BYTES_MAX`](crate::PUBLISH_ALL_BYTES_MAX) bytes. Drafts for [later](Draft::not_before)
    /// take a statement each.
    ///
    /// # Errors
    /// A draft breaks a bound or the codec refused it, and nothing was written; or the database refused.
    pub fn publish_all<'a>(
        &'a self,
        tx: &'a mut impl InTransaction<DB>,
        drafts: Vec<Draft>,
    ) -> BoxFuture<'a, Result<Vec<MessageId>, Error>> {
        let (conn, scope) = tx.parts();
        Box::pin(publish::publish_all::<DB>(conn, scope, &self.catalog, drafts))
    }

    /// Cancels a message that was published [for later](Draft::not_before), in the caller's transaction.
    /// False: it is in the log, was cancelled before, or never waited. If several were published under one
    /// id, all that wait are cancelled.
    ///
    /// Until the transaction ends the message is neither moved nor lost: after a rollback it waits on.
    ///
    /// # Errors
    /// The database refused.
    pub fn cancel<'a>(
        &'a self,
        tx: &'a mut impl InTransaction<DB>,
        id: MessageId,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        let (conn, _) = tx.parts();
        Box::pin(publish::cancel::<DB>(conn, &self.catalog, id))
    }
}

impl<DB: Dialect> Clone for Outbox<DB> {
    fn clone(&self) -> Self {
        Self { catalog: self.catalog.clone(), database: self.database }
    }
}

impl<DB: Dialect> fmt::Debug for Outbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("service", &self.catalog.service).finish_non_exhaustive()
    }
}
