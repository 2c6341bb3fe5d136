//! Taking a key.
use super::{Begun, Known, Operation, OperationKey, OperationPolicy, compare::Comparison, find, scope};
use crate::{
    Dialect, Error, ErrorKind, OwnedTx, Store,
    dialect::{OperationBegun, OperationClaim, OperationClaimed},
    guarded::Guarded,
    sql::scalar,
    text::text,
};
use std::time::Duration;
use twinbox_core::{Fingerprint, FingerprintAlgorithm, Fingerprinted, crash, limits};
use uuid::Uuid;

/// Between looks at who holds a key, the first time and the last, twice as long each time: 635 ms together. A server gives
/// the locks of a transaction up one by one, and may be interrupted between two of them.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(320));

/// The key is this one's, from the transaction on.
pub(super) struct Taken<DB: Dialect> {
    pub(super) tx: OwnedTx<DB>,
    pub(super) guard: DB::Guard,
    pub(super) begun: OperationBegun,
}

/// Who holds the key beyond the transaction, and for how long.
pub(super) type Holder = (Uuid, Duration);

impl<DB: Dialect> Store<DB> {
    /// Begins an operation, or says what became of it before. Somebody who is at it is waited for, for at most
    /// [`OperationPolicy::wait`].
    ///
    /// # Errors
    /// The database refused or is away, or on SQLite others write for too long: nothing was done.
    pub async fn begin_operation(
        &self,
        key: &OperationKey,
        request: Fingerprinted<'_>,
        policy: &OperationPolicy,
    ) -> Result<Begun<Operation<DB>>, Error> {
        let begun = self.take_operation(key, request, policy, None).await?;
        crash::point("operation.after_claim");
        Ok(begun.map(|Taken { tx, guard, .. }| {
            let tx = Guarded::new(tx, guard, scope(self.statements(), key));
            Operation { tx, slot: Some(key.slot()), entered: None }
        }))
    }

    pub(super) async fn take_operation(
        &self,
        key: &OperationKey,
        request: Fingerprinted<'_>,
        policy: &OperationPolicy,
        holder: Option<Holder>,
    ) -> Result<Begun<Taken<DB>>, Error> {
        if key
            .parts()
            .into_iter()
            .chain([key.principal.as_bytes()])
            .any(|part| part.len() > limits::KEY_BYTES_MAX)
        {
            let what = "a key of an operation, its scope, tenant and principal have at most 255 bytes each";
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        let slot = key.slot();
        // One algorithm for what waits for each other, whatever a deployment compares by.
        let same = Fingerprint::of(FingerprintAlgorithm::ExactJson, request);
        let mut comparison = Comparison::new(policy.algorithm, request.excluded);
        let mut pause = LOOK_AGAIN.0;
        loop {
            let (fingerprint, compared) = comparison.of(request);
            let claim = OperationClaim {
                key,
                slot: &slot,
                same: &same,
                fingerprint: &fingerprint,
                compared: &compared,
                policy,
                holder,
            };
            let mut tx = self.begin().await?;
            let is_busy = match DB::claim_operation(tx.connection(), self.statements(), &claim).await {
                Ok(OperationClaimed::Open(begun, guard)) => {
                    if begun.attempt == 1 && self.has_too_many(tx.connection(), key, policy).await? {
                        Guarded::new(tx, guard, scope(self.statements(), key)).rollback().await;
                        return Ok(Begun::TooMany);
                    }
                    return Ok(Begun::Open(Taken { tx, guard, begun }));
                }
                Ok(OperationClaimed::Taken) => false,
                Ok(OperationClaimed::InFlight) => true,
                Err(error) if error.is_contention() => {
                    tx.rollback().await?;
                    tx = self.begin().await?;
                    true
                }
                Err(error) => return Err(error),
            };
            let known = find::<DB>(tx.connection(), self.statements(), &slot).await?;
            tx.rollback().await?;
            match known {
                Some(known) if known.has_expired => return Ok(Begun::InFlight),
                Some(known) if !known.is_of(key, request) => return Ok(Begun::Mismatch),
                Some(Known { answer: Some(answer), .. }) => {
                    return Ok(Begun::Known(answer.open(self.statements(), &slot)?));
                }
                // Taken by an earlier release, and perhaps free.
                Some(known) if !is_busy && known.compared != compared => {
                    comparison = known.comparison().unwrap_or(comparison);
                }
                Some(_) => return Ok(Begun::InFlight),
                None if is_busy => return Ok(Begun::InFlight),
                // Another request with the key holds it and has not committed, or whoever held it was just giving it up.
                None if pause > LOOK_AGAIN.1 => return Ok(Begun::Mismatch),
                None => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
            }
        }
    }

    /// With the key that is being taken.
    async fn has_too_many(
        &self,
        conn: &mut DB::Connection,
        key: &OperationKey,
        policy: &OperationPolicy,
    ) -> Result<bool, Error> {
        let Some(max) = policy.live_max else { return Ok(false) };
        let live = scalar::<DB, i64>(&self.statements().live_operations)
            .bind(text(&key.tenant).into_owned())
            .bind(text(&key.principal).into_owned())
            .bind(i64::from(max) + 1);
        Ok(live.fetch_one(conn).await? > i64::from(max))
    }
}
