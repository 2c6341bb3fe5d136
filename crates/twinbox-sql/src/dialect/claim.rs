//! What a dialect is given to claim, and what it found.
use super::Dialect;
use crate::{Error, micros::Micros, row::TextColumns, statement::Query};
use sqlx::Row as _;
use std::{borrow::Cow, time::Duration};
use twinbox_core::Timestamp;
use uuid::Uuid;

/// The columns of a new inbox row.
#[derive(Debug)]
pub struct Claim<'a> {
    /// The id of the message in the inbox.
    pub message_id: Uuid,
    /// The CloudEvents source of the message.
    pub source: Cow<'a, str>,
    /// The CloudEvents id of the message.
    pub event_id: Cow<'a, str>,
    /// SHA-256 of the payload.
    pub payload_hash: Vec<u8>,
    /// The time of the message.
    pub time: Micros,
}

/// The result of claiming several messages in one statement.
#[derive(Debug)]
pub struct Claims<T> {
    /// The new messages.
    pub new: Vec<T>,
    /// The time of the newest message whose claim was purged.
    pub purge_mark: Option<Timestamp>,
}

/// The columns of a new row of an idempotency key, and how long to wait for a running copy.
#[derive(Debug)]
pub struct OperationClaim<'a> {
    /// The primary key of the row.
    pub slot: &'a [u8; 32],
    /// The tenant whose data the request is about.
    pub tenant: String,
    /// The caller, by a name that stays when credentials change.
    pub principal: String,
    /// The purpose of the key, such as `POST_/v1/payments`.
    pub scope: String,
    /// The text of the key. Empty where it is not stored.
    pub key: String,
    /// The digest by which equal requests wait for each other.
    pub same: &'a [u8; 32],
    /// The hash of the request.
    pub request_hash: &'a [u8; 32],
    /// How the hash was made, and of which parts of the request.
    pub hash_alg: &'a str,
    /// The holder of a lease beyond the transaction, and its length in microseconds.
    pub holder: Option<(Uuid, i64)>,
    /// How long the key is remembered, in microseconds.
    pub keep: i64,
    /// How long a copy of the request is waited for.
    pub wait: Duration,
    /// How long the transaction may be idle.
    pub idle_max: Duration,
}

impl OperationClaim<'_> {
    /// Binds the columns in the order of the statement.
    pub(super) fn bind<'q, DB: Dialect>(&self, query: Query<'q, DB>) -> Query<'q, DB> {
        query
            .bind(self.slot.to_vec())
            .bind(self.tenant.clone())
            .bind(self.principal.clone())
            .bind(self.scope.clone())
            .bind(self.key.clone())
            .bind(self.request_hash.to_vec())
            .bind(self.hash_alg.to_owned())
            .bind(self.holder.map(|(owner, _)| owner))
            .bind(self.holder.map(|(_, lease)| lease))
            .bind(self.keep)
    }
}

/// The result of claiming an idempotency key.
#[derive(Debug)]
pub enum OperationClaimed<G> {
    /// The key is claimed by this request, in the open transaction.
    Open(OperationRow, G),
    /// A copy of the request holds the key.
    InFlight,
    /// The key is taken by the operation in its row. Without a row another request is at work.
    Taken,
}

/// The stored state of an idempotency key: its attempts, and the progress of earlier attempts.
#[derive(Debug)]
pub struct OperationRow {
    /// The number of this attempt, from 1.
    pub attempt: i64,
    /// How many earlier attempts failed.
    pub failures: i64,
    /// The last recovery point.
    pub recovery_point: Option<String>,
    /// When the key was taken for its present use: another time with each use.
    pub created_at: Timestamp,
    /// The vendor tokens that were given out, as JSON.
    pub tokens: Option<String>,
}

impl OperationRow {
    pub(super) fn read<DB: Dialect>(row: &DB::Row) -> Result<Self, Error> {
        Ok(Self {
            attempt: row.try_get("attempts")?,
            failures: row.try_get("failures")?,
            recovery_point: row.text_or_null("recovery_point")?,
            created_at: row.try_get::<Micros, _>("created_at")?.0,
            tokens: row.text_or_null("tokens")?,
        })
    }
}
