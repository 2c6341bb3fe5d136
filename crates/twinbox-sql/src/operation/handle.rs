//! The handle.
use super::{
    digest::RequestDigest,
    key::{IDLE_MAX, OperationKey},
    response::OperationResponse,
    stored::find,
    transaction::Operation,
};
use crate::{Dialect, Error, engine::Engine, guarded::Guarded, scope::Scope};
use std::{fmt, time::Duration};
use uuid::Uuid;

/// Begins operations under idempotency keys, and lists, purges and erases the keys. Cheap to make and to
/// clone.
pub struct IdempotencyKeys<DB: Dialect> {
    pub(super) engine: Engine<DB>,
}

impl<DB: Dialect> IdempotencyKeys<DB> {
    pub(crate) fn new(engine: Engine<DB>) -> Self {
        Self { engine }
    }

    /// Begins an operation without a key: it runs as often as it is asked for. Postgres and MariaDB end a
    /// statement of it, and a pause between two, that takes longer than a minute; MySQL the pause.
    ///
    /// # Errors
    /// The database refused or is away, or on SQLite other writers take too long.
    pub async fn begin_without_key(&self) -> Result<Operation<DB>, Error> {
        self.begin_without_key_within(IDLE_MAX).await
    }

    /// The same for a handler with a time-out in the place of the minute.
    ///
    /// # Errors
    /// As [`begin_without_key`](Self::begin_without_key).
    pub async fn begin_without_key_within(&self, handler_timeout: Duration) -> Result<Operation<DB>, Error> {
        let catalog = self.engine.catalog();
        let mut tx = self.engine.begin_for_caller().await?;
        let guard = DB::guard(tx.connection(), catalog, handler_timeout).await?;
        let scope = Scope::of_operation(catalog.clone(), Uuid::now_v7());
        Ok(Operation::without_key(Guarded::new(tx, guard, scope)))
    }

    /// Returns the stored response of an operation, if it has ended and was this `request`. After
    /// [`ErrorKind::CommitUnknown`](crate::ErrorKind::CommitUnknown) it tells what happened.
    ///
    /// # Errors
    /// The database refused or is away. [`ErrorKind::Codec`](crate::ErrorKind::Codec): the response is there,
    /// and cannot be decoded, or is not encoded although the store requires it.
    /// [`ErrorKind::PartlyCommitted`](crate::ErrorKind::PartlyCommitted): the operation ran COMMIT itself.
    pub async fn find(
        &self,
        key: &OperationKey,
        request: &RequestDigest,
    ) -> Result<Option<OperationResponse>, Error> {
        let (catalog, slot) = (self.engine.catalog(), key.slot());
        let mut conn = self.engine.connection().await?;
        let stored = find::<DB>(&mut conn, catalog, &slot).await?;
        conn.done().await?;
        let Some(stored) = stored.filter(|stored| !stored.has_expired) else { return Ok(None) };
        if !stored.is_of(key, request).await {
            return Ok(None);
        }
        if stored.is_left_open {
            return Err(Error::partly_committed());
        }
        stored.response.map(|response| response.decode(catalog)).transpose()
    }
}

impl<DB: Dialect> Clone for IdempotencyKeys<DB> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone() }
    }
}

impl<DB: Dialect> fmt::Debug for IdempotencyKeys<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyKeys").field("service", &self.engine.service()).finish_non_exhaustive()
    }
}
