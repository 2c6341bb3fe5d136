//! Taking a key.
use super::{
    compare::Comparison,
    digest::RequestDigest,
    handle::IdempotencyKeys,
    key::{OperationKey, OperationPolicy},
    start::OperationStart,
    stored::{StoredKey, find},
    transaction::{Operation, scope},
};
use crate::{
    Dialect, Error, ErrorKind, OwnedTx,
    dialect::{OperationClaim, OperationClaimed, OperationRow},
    guarded::Guarded,
    micros::micros,
    spare_connections::SpareConnections,
    statement::scalar,
    text::text,
};
use std::{sync::Arc, time::Duration};
use twinbox_core::{FingerprintAlgorithm, crash, limits, test_signal};
use uuid::Uuid;

/// The first and the last pause between looks at the holder of a key, twice as long each time: 635 ms
/// together. A server releases the locks of a transaction one by one, and may be interrupted between two of
/// them.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(320));

/// A key that was taken in an open transaction.
pub(super) struct TakenKey<DB: Dialect> {
    pub(super) tx: OwnedTx<DB>,
    pub(super) guard: DB::Guard,
    pub(super) row: OperationRow,
}

/// The holder of a key beyond the transaction, and for how long.
pub(super) type Holder = (Uuid, Duration);

impl<DB: Dialect> IdempotencyKeys<DB> {
    /// Begins an operation, or returns the result of an earlier one with the same key. Waits for a running
    /// copy for at most [`OperationPolicy::wait`].
    ///
    /// # Errors
    /// The database refused or is away, or on SQLite other writers take too long: nothing was done.
    /// [`ErrorKind::Codec`]: there is an earlier result that cannot be decoded, or is not encoded although
    /// the store requires it.
    pub async fn begin(
        &self,
        key: &OperationKey,
        request: &RequestDigest,
        policy: &OperationPolicy,
    ) -> Result<OperationStart<Operation<DB>>, Error> {
        let start = self.take(key, request, policy, None).await?;
        crash::point("operation.after_claim");
        Ok(start.map(|TakenKey { tx, guard, .. }| {
            let tx = Guarded::new(tx, guard, scope(self.engine.catalog(), key));
            let operation = Operation::with_key(tx, key, None);
            operation.keep_connection(self.spare_connections(policy))
        }))
    }

    fn spare_connections(&self, policy: &OperationPolicy) -> Option<Arc<SpareConnections<DB>>> {
        (policy.keeps_connection && !DB::ONE_WRITER).then(|| self.engine.state())
    }

    async fn begin_transaction(&self, policy: &OperationPolicy) -> Result<OwnedTx<DB>, Error> {
        match self.spare_connections(policy) {
            Some(spares) => spares.begin(&self.engine).await,
            None => self.engine.begin_to_claim().await,
        }
    }

    pub(super) async fn take(
        &self,
        key: &OperationKey,
        request: &RequestDigest,
        policy: &OperationPolicy,
        holder: Option<Holder>,
    ) -> Result<OperationStart<TakenKey<DB>>, Error> {
        if key
            .parts()
            .into_iter()
            .chain([key.principal.as_bytes()])
            .any(|part| part.len() > limits::KEY_BYTES_MAX)
        {
            let what = "a key of an operation, its scope, tenant and principal have at most 255 bytes each";
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        let (catalog, slot) = (self.engine.catalog(), key.slot());
        let plain = |s: &str| text(s).into_owned();
        // Copies of a request wait for each other by one algorithm, whatever a deployment compares by. Where
        // all requests with a key wait for each other, none is needed.
        let waits_by =
            if DB::CAPABILITIES.early_mismatch { FingerprintAlgorithm::ExactJson } else { policy.algorithm };
        let mut comparison = Comparison::new(policy.algorithm, request);
        let mut pause = LOOK_AGAIN.0;
        loop {
            let (fingerprint, compared) = comparison.of(request).await;
            let same = request.fingerprint(waits_by).await;
            let claim = OperationClaim {
                slot: &slot,
                tenant: plain(&key.tenant),
                principal: plain(&key.principal),
                scope: plain(&key.scope),
                key: if policy.keeps_text { plain(&key.key) } else { String::new() },
                same: same.digest(),
                request_hash: fingerprint.digest(),
                hash_alg: &compared,
                holder: holder.map(|(owner, lease)| (owner, micros(lease))),
                keep: micros(policy.keep),
                wait: policy.wait,
                idle_max: policy.idle_max,
            };
            let mut tx = self.begin_transaction(policy).await?;
            let is_busy =
                match DB::claim_operation(tx.connection(), catalog, &claim).await.map_err(Error::of_claim) {
                    Ok(OperationClaimed::Open(row, guard)) => {
                        if row.attempt == 1 && self.has_too_many(tx.connection(), key, policy).await? {
                            Guarded::new(tx, guard, scope(catalog, key)).rollback().await;
                            return Ok(OperationStart::TooMany);
                        }
                        return Ok(OperationStart::Open(TakenKey { tx, guard, row }));
                    }
                    Ok(OperationClaimed::Taken) => false,
                    Ok(OperationClaimed::InFlight) => true,
                    Err(error) if error.is_contention() => {
                        tx.rollback().await?;
                        tx = self.begin_transaction(policy).await?;
                        true
                    }
                    Err(error) => return Err(error),
                };
            let stored = find::<DB>(tx.connection(), catalog, &slot).await?;
            tx.rollback().await?;
            let is_same = match &stored {
                Some(stored) if !stored.has_expired => stored.is_of(key, request).await,
                _ => false,
            };
            match stored {
                Some(stored) if stored.has_expired => return Ok(OperationStart::InFlight),
                Some(_) if !is_same => return Ok(OperationStart::Mismatch),
                Some(stored) if stored.is_left_open => return Err(Error::partly_committed()),
                Some(StoredKey { response: Some(response), .. }) => {
                    let response = response.decode(catalog)?;
                    return Ok(OperationStart::Completed(response));
                }
                // An earlier release took it, and it may be free.
                Some(stored) if !is_busy && stored.hash_alg != compared => {
                    comparison = stored.comparison().unwrap_or(comparison);
                }
                Some(_) => return Ok(OperationStart::InFlight),
                None if is_busy => return Ok(OperationStart::InFlight),
                // Another request holds the key and has not committed, or its holder was just releasing it.
                None if pause > LOOK_AGAIN.1 => return Ok(OperationStart::Mismatch),
                None => {
                    test_signal::pass("operation.looks_again");
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
            }
        }
    }

    /// Whether the principal has too many keys, with the one that is being taken.
    async fn has_too_many(
        &self,
        conn: &mut DB::Connection,
        key: &OperationKey,
        policy: &OperationPolicy,
    ) -> Result<bool, Error> {
        let Some(max) = policy.live_max else { return Ok(false) };
        let live = scalar::<DB, i64>(&self.engine.sql().operations.count_live)
            .bind(text(&key.tenant).into_owned())
            .bind(text(&key.principal).into_owned())
            .bind(i64::from(max) + 1);
        Ok(live.fetch_one(conn).await? > i64::from(max))
    }
}
