//! Operations that may have called a vendor, and never ended.
use super::handle::IdempotencyKeys;
use crate::{
    Dialect, Error,
    micros::Micros,
    row::{TextColumns, count, small_count},
    statement::scalar,
    text::hex,
};
use sqlx::Row as _;
use std::collections::BTreeMap;
use twinbox_core::Timestamp;

/// The most unfinished operations that are counted or listed.
pub const UNFINISHED_MAX: u32 = 10_000;

/// An operation that may have called a vendor and has not ended. No process works on it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnfinishedOperation {
    /// The primary key of the operation's row in hexadecimal digits. Logs have the first 8 of them.
    pub slot: String,
    /// The tenant whose data the operation is about.
    pub tenant: String,
    /// The caller of the operation.
    pub principal: String,
    /// The purpose of the key, such as `POST_/v1/payments`.
    pub scope: String,
    /// The idempotency key, as the caller chose it. Empty if the text of keys is not stored.
    pub key: String,
    /// How often the operation was tried.
    pub attempts: u32,
    /// The last recovery point that the operation saved.
    pub recovery_point: Option<String>,
    /// When tokens for vendors were given out, by kind and generation: `charge/0`.
    pub tokens: BTreeMap<String, Timestamp>,
    /// When the operation was first asked for.
    pub created_at: Timestamp,
    /// When the operation last ran or saved something.
    pub updated_at: Timestamp,
    /// Until when the caller may expect the key to be remembered.
    pub expires_at: Timestamp,
    /// Whether `expires_at` has passed: a repeat by the caller is not to be expected.
    pub has_expired: bool,
}

impl<DB: Dialect> IdempotencyKeys<DB> {
    /// Returns the operations that may have called a vendor and have not ended: they
    /// [saved](super::OperationLease::save) a recovery point, or got a
    /// [token](super::OperationLease::token_within). The oldest ones come first, at most
    /// [`UNFINISHED_MAX`]. Running ones are left out. An operation with a
    /// [final failure](super::OperationResponse::is_failure) of code 500 or above is among them: it was
    /// abandoned half-way.
    ///
    /// Such a key does not expire and is never purged. The same request goes on with it, or gets the failure
    /// again. A person has to look what was done at the vendor, and end it by hand:
    /// [`forget_unfinished`](Self::forget_unfinished).
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn unfinished(&self, limit: u32) -> Result<Vec<UnfinishedOperation>, Error> {
        let limit = i64::from(limit.min(UNFINISHED_MAX));
        let unfinished = &self.engine.sql().operations.unfinished;
        let rows = self.engine.fetch_all(unfinished, |query| query.bind(limit)).await?;
        rows.iter().map(read::<DB>).collect()
    }

    /// Counts the [unfinished](Self::unfinished) operations, up to `UNFINISHED_MAX`.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn count_unfinished(&self) -> Result<u64, Error> {
        let mut conn = self.engine.connection().await?;
        let unfinished = scalar::<DB, i64>(&self.engine.sql().operations.count_unfinished);
        let unfinished = unfinished.bind(i64::from(UNFINISHED_MAX)).fetch_one(&mut *conn).await?;
        conn.done().await?;
        Ok(count(unfinished))
    }

    /// Deletes the key of an unfinished operation, by its [slot](super::OperationKey::slot), so that the next
    /// request begins anew with other tokens. For an operation that did nothing at the vendor, or whose
    /// effect was settled by hand. False: there is none, it has ended, or a process works on it.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn forget_unfinished(&self, slot: &[u8; 32]) -> Result<bool, Error> {
        let delete = &self.engine.sql().operations.delete_unfinished;
        Ok(self.engine.execute(delete, |query| query.bind(slot.to_vec())).await? == 1)
    }
}

fn read<DB: Dialect>(row: &DB::Row) -> Result<UnfinishedOperation, Error> {
    let time = |column| Ok::<_, Error>(row.try_get::<Micros, _>(column)?.0);
    // A row whose tokens another program wrote is listed without them.
    let tokens = row.text_or_null("tokens")?;
    let tokens: BTreeMap<String, i64> =
        tokens.and_then(|tokens| serde_json::from_str(&tokens).ok()).unwrap_or_default();
    Ok(UnfinishedOperation {
        slot: hex(&row.try_get::<Vec<u8>, _>("slot")?),
        tenant: row.text("tenant")?,
        principal: row.text("principal")?,
        scope: row.text("scope")?,
        key: row.text("key")?,
        attempts: small_count(row.try_get("attempts")?),
        recovery_point: row.text_or_null("recovery_point")?,
        tokens: tokens.into_iter().map(|(kind, at)| (kind, Timestamp::from_micros(at))).collect(),
        created_at: time("created_at")?,
        updated_at: time("updated_at")?,
        expires_at: time("expires_at")?,
        has_expired: row.try_get("has_expired")?,
    })
}
