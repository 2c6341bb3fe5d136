//! Keys that a client keeps while it calls a vendor, also over a crash.
mod key;
mod once;

use crate::vendor::Applied;
use key::{check, read};
use std::{fmt, time::Duration};
use twinbox_sql::{
    Dialect, Error, InTransaction, Store,
    engine::{Engine, Query, bounded, caller, inserted, micros, query},
};
use uuid::Uuid;

pub use key::{BUSINESS_ID_BYTES_MAX, ClientKey, ClientKeyState};
pub use once::Once;

/// The most bytes of a reference that are kept.
const REFERENCE_BYTES_MAX: usize = 255;

/// Keeps the idempotency keys of a client in its database. Cheap to clone.
///
/// A business action, such as the charge of an order, has one key. It is committed and flushed before the
/// first call, so a process that crashes between two tries goes on with the same key, and the vendor acts
/// once. Another action has another key.
///
/// ```
/// use bytes::Bytes;
/// use http::Request;
/// use twinbox_core::BoxError;
/// use twinbox_effects::{ClientKeys, ReqwestService, client::{Call, Client}};
/// # use twinbox_sql::Dialect;
///
/// # type Result = std::result::Result<(), BoxError>;
/// # async fn charge<DB: Dialect>(keys: &ClientKeys<DB>, stripe: &Client<ReqwestService>) -> Result {
/// let key = keys.begin("charges.create", "order-7").await?;
/// if !key.is_done() {
///     let request = Request::post("https://api.stripe.com/v1/charges").body(Bytes::from("amount=100"))?;
///     let answer = stripe.send(Call::new("charges.create", request).client_key(&key)).await?;
///     keys.finish(&key, &answer.applied).await?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct ClientKeys<DB: Dialect> {
    engine: Engine<DB>,
}

impl<DB: Dialect> ClientKeys<DB> {
    /// Creates a handle to the keys of a store.
    pub fn new(store: &Store<DB>) -> Self {
        Self { engine: store.engine().clone() }
    }

    /// Returns the key of a business action, and makes it if there is none. It is committed.
    ///
    /// `operation`, such as `charges.create`, says what is called; `business_id` says for what. Until
    /// [`finish`](Self::finish), every process gets the same key.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`](twinbox_sql::ErrorKind::Configuration): a name is empty, or longer than
    /// 120 or 255 bytes; or the database refused or is away.
    pub async fn begin(&self, operation: &str, business_id: &str) -> Result<ClientKey, Error> {
        check(operation, business_id)?;
        let mut tx = self.engine.begin_short().await?;
        let begin = query::<DB>(&self.engine.sql().client_keys.begin);
        let key = self.begin_on(&mut tx, begin, operation, business_id).await?;
        tx.commit().await?;
        Ok(key)
    }

    /// Returns the key of a business action in the caller's transaction, beside the rows that describe the
    /// action. Call the vendor after the commit.
    ///
    /// # Errors
    /// As [`begin`](Self::begin). On Postgres the transaction is lost if the database refused.
    pub async fn begin_in(
        &self,
        tx: &mut impl InTransaction<DB>,
        operation: &str,
        business_id: &str,
    ) -> Result<ClientKey, Error> {
        check(operation, business_id)?;
        let begin = query::<DB>(&self.engine.sql().client_keys.begin).for_caller();
        self.begin_on(caller(tx).conn, begin, operation, business_id).await
    }

    async fn begin_on(
        &self,
        conn: &mut DB::Connection,
        begin: Query<'static, DB>,
        operation: &str,
        business_id: &str,
    ) -> Result<ClientKey, Error> {
        let (sql, names) = (&self.engine.sql().client_keys, (operation.to_owned(), business_id.to_owned()));
        let begin = begin.bind(names.0.clone()).bind(names.1.clone()).bind(Uuid::now_v7());
        let is_new = inserted::<DB>(conn, begin).await?;
        let row = query::<DB>(&sql.find).bind(names.0).bind(names.1).fetch_one(conn).await?;
        read::<DB>(&row, operation, business_id, is_new)
    }

    /// Ends a business action that the vendor has done. Later calls get the key as done, with the vendor's
    /// reference, until it is purged.
    ///
    /// # Errors
    /// The database refused or is away: then the key stays, and a repeated call of the vendor is harmless.
    pub async fn finish(&self, key: &ClientKey, applied: &Applied) -> Result<(), Error> {
        let (reference, key) = (reference(applied), key.clone());
        let finish = &self.engine.sql().client_keys.finish;
        let bind = |query: Query<'static, DB>| {
            query.bind(reference).bind(key.operation).bind(key.business_id).bind(key.key)
        };
        self.engine.execute(finish, bind).await.map(|_| ())
    }

    /// Ends a business action in the caller's transaction, beside the rows that say so.
    ///
    /// # Errors
    /// As [`finish`](Self::finish). On Postgres the transaction is lost.
    pub async fn finish_in(
        &self,
        tx: &mut impl InTransaction<DB>,
        key: &ClientKey,
        applied: &Applied,
    ) -> Result<(), Error> {
        let finish = query::<DB>(&self.engine.sql().client_keys.finish).for_caller();
        let finish = finish.bind(reference(applied));
        let finish = finish.bind(key.operation.clone()).bind(key.business_id.clone()).bind(key.key);
        finish.execute(caller(tx).conn).await?;
        Ok(())
    }

    /// Deletes at most `limit` keys of actions that ended so long ago. Returns how many. Keys of actions that
    /// did not end stay: without them a vendor could act again.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge(&self, ended: Duration, limit: u32) -> Result<u64, Error> {
        let purge = &self.engine.sql().client_keys.purge;
        self.engine.execute(purge, |query| query.bind(micros(ended)).bind(i64::from(limit))).await
    }

    /// Moves a key from one state to another, committed. Returns whether it was in the first. What goes back
    /// to `pending` gets another key, so that a caller who is late changes nothing.
    async fn change(&self, key: &ClientKey, from: ClientKeyState, to: ClientKeyState) -> Result<bool, Error> {
        let mut tx = self.engine.begin_short().await?;
        let next_key = if to == ClientKeyState::Pending { Uuid::now_v7() } else { key.key };
        let change = query::<DB>(&self.engine.sql().client_keys.change).bind(to.as_str().to_owned());
        let change = change.bind(next_key).bind(key.operation.clone()).bind(key.business_id.clone());
        let change = change.bind(from.as_str().to_owned()).bind(key.key);
        let is_changed = DB::rows_affected(&change.execute(&mut *tx).await?) > 0;
        tx.commit().await?;
        Ok(is_changed)
    }
}

/// The vendor's reference, as far as it is kept.
fn reference(applied: &Applied) -> Option<String> {
    let reference = bounded(applied.provider_ref.as_deref()?);
    Some(reference[..reference.floor_char_boundary(REFERENCE_BYTES_MAX)].to_owned())
}

impl<DB: Dialect> Clone for ClientKeys<DB> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone() }
    }
}

impl<DB: Dialect> fmt::Debug for ClientKeys<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientKeys").field("service", &self.engine.service()).finish_non_exhaustive()
    }
}
