//! What the claims of a database are told, and say.
use crate::{
    Dialect,
    micros::{Micros, micros},
    operation::{OperationKey, OperationPolicy},
    text::text,
};
use sqlx::{ColumnIndex, Decode, Row, Type, query::Query};
use std::{borrow::Cow, time::Duration};
use twinbox_core::{Fingerprint, Timestamp};
use uuid::Uuid;

/// What a claim writes.
#[doc(hidden)]
#[derive(Debug)]
pub struct Claim<'a> {
    pub(crate) message_id: Uuid,
    pub(crate) source: Cow<'a, str>,
    pub(crate) event_id: Cow<'a, str>,
    pub(crate) payload_hash: Vec<u8>,
    pub(crate) time: Micros,
}

/// Who takes the key of an operation, and for what.
#[doc(hidden)]
#[derive(Debug)]
pub struct OperationClaim<'a> {
    pub(crate) key: &'a OperationKey,
    pub(crate) slot: &'a [u8; 32],
    /// What those have in common who wait for each other.
    pub(crate) same: &'a Fingerprint,
    pub(crate) fingerprint: &'a Fingerprint,
    /// How the fingerprint was made, and of what.
    pub(crate) compared: &'a str,
    pub(crate) policy: &'a OperationPolicy,
    /// Who holds it beyond the transaction, and for how long.
    pub(crate) holder: Option<(Uuid, Duration)>,
}

impl OperationClaim<'_> {
    /// In the order of the statement.
    pub(super) fn bind<'q, DB: Dialect>(
        &self,
        query: Query<'q, DB, DB::Arguments>,
    ) -> Query<'q, DB, DB::Arguments> {
        let plain = |s: &str| text(s).into_owned();
        query
            .bind(self.slot.to_vec())
            .bind(plain(&self.key.tenant))
            .bind(plain(&self.key.principal))
            .bind(plain(&self.key.scope))
            .bind(if self.policy.keeps_text { plain(&self.key.key) } else { String::new() })
            .bind(self.fingerprint.digest().to_vec())
            .bind(self.compared.to_owned())
            .bind(self.holder.map(|(owner, _)| owner))
            .bind(self.holder.map(|(_, lease)| micros(lease)))
            .bind(micros(self.policy.keep))
    }
}

/// What became of the claim of an operation.
#[doc(hidden)]
#[derive(Debug)]
pub enum OperationClaimed<G> {
    /// The key is this one's, in the transaction.
    Open(OperationBegun, G),
    /// Who asks the same is at it.
    InFlight,
    /// Its row says by whom; without one, another request is at it.
    Taken,
}

/// What the row of an operation says of those who were at it before.
#[doc(hidden)]
#[derive(Debug)]
pub struct OperationBegun {
    /// Counted from 1.
    pub(crate) attempt: i64,
    /// Of those before, so many failed.
    pub(crate) failures: i64,
    pub(crate) recovery_point: Option<String>,
    /// When the key was taken for what it is used for now: another time each time it is used again.
    pub(crate) made_at: Timestamp,
    pub(crate) tokens: Option<String>,
}

impl OperationBegun {
    /// From the column `first` on, in the order of the statement.
    pub(super) fn of<R: Row>(row: &R, first: usize) -> sqlx::Result<Self>
    where
        usize: ColumnIndex<R>,
        for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
        for<'r> Option<String>: Decode<'r, R::Database> + Type<R::Database>,
        for<'r> Micros: Decode<'r, R::Database> + Type<R::Database>,
    {
        Ok(Self {
            attempt: row.try_get(first)?,
            failures: row.try_get(first + 1)?,
            recovery_point: row.try_get(first + 2)?,
            made_at: row.try_get::<Micros, _>(first + 3)?.0,
            tokens: row.try_get(first + 4)?,
        })
    }
}

/// Which messages are new, and the newest among those of the consumer whose claims were deleted.
#[doc(hidden)]
#[derive(Debug)]
pub struct Claims<T> {
    pub(crate) new: Vec<T>,
    pub(crate) mark: Option<Timestamp>,
}
