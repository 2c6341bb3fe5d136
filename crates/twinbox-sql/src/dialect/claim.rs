//! What the claims of a database are told, and say.
use crate::{
    Dialect,
    micros::Micros,
    operation::{OperationKey, OperationPolicy},
    text::text,
};
use sqlx::query::Query;
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
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 2);
        query
            .bind(self.slot.to_vec())
            .bind(plain(&self.key.tenant))
            .bind(plain(&self.key.principal))
            .bind(plain(&self.key.scope))
            .bind(if self.policy.keeps_text { plain(&self.key.key) } else { String::new() })
            .bind(self.fingerprint.digest().to_vec())
            .bind(self.fingerprint.algorithm().as_str().to_owned())
            .bind(self.holder.map(|(owner, _)| owner))
            .bind(self.holder.map(|(_, lease)| micros(lease)))
            .bind(micros(self.policy.keep))
    }
}

/// What became of the claim of an operation.
#[doc(hidden)]
#[derive(Debug)]
pub enum OperationClaimed<G> {
    /// The key is this one's, in the transaction. Attempts are counted from 1; of those before, so many failed.
    Open { attempt: i64, failures: i64, recovery_point: Option<String>, guard: G },
    /// Who asks the same is at it.
    InFlight,
    /// Its row says by whom; without one, another request is at it.
    Taken,
}

/// Which messages are new, and the newest among those of the consumer whose claims were deleted.
#[doc(hidden)]
#[derive(Debug)]
pub struct Claims<T> {
    pub(crate) new: Vec<T>,
    pub(crate) mark: Option<Timestamp>,
}
