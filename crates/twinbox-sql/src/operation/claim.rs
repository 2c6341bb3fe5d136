//! Taking a key.
use super::{Begun, Known, Operation, OperationKey, OperationPolicy, find, scope};
use crate::{
    Dialect, Error, OwnedTx, Store,
    dialect::{OperationClaim, OperationClaimed},
    guarded::Guarded,
};
use std::time::Duration;
use twinbox_core::{Fingerprint, Fingerprinted, crash};
use uuid::Uuid;

/// The key is this one's, from the transaction on.
pub(super) struct Taken<DB: Dialect> {
    pub(super) tx: OwnedTx<DB>,
    pub(super) claimed: OperationClaimed<DB::Guard>,
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
        Ok(begun.map(|Taken { tx, claimed }| {
            let tx = Guarded::new(tx, claimed.guard, scope(self.statements(), key));
            Operation { tx, slot: Some(key.slot()) }
        }))
    }

    pub(super) async fn take_operation(
        &self,
        key: &OperationKey,
        request: Fingerprinted<'_>,
        policy: &OperationPolicy,
        holder: Option<Holder>,
    ) -> Result<Begun<Taken<DB>>, Error> {
        let (slot, mut algorithm) = (key.slot(), policy.algorithm);
        loop {
            let fingerprint = Fingerprint::of(algorithm, request);
            let claim = OperationClaim { key, slot: &slot, fingerprint: &fingerprint, policy, holder };
            let mut tx = self.begin().await?;
            match DB::claim_operation(tx.connection(), self.statements(), &claim).await {
                Ok(Some(claimed)) => {
                    return Ok(Begun::Open(Taken { tx, claimed }));
                }
                Ok(None) => {}
                Err(error) if error.is_contention() => {
                    tx.rollback().await?;
                    return Ok(Begun::InFlight);
                }
                Err(error) => return Err(error),
            }
            let known = find::<DB>(tx.connection(), self.statements(), &slot).await?;
            tx.rollback().await?;
            // Without a row another request with the key holds it, and has not committed.
            let Some(known) = known.filter(|known| known.is_of(key, request)) else {
                return Ok(Begun::Mismatch);
            };
            match known {
                Known { answer: Some(answer), .. } => return Ok(Begun::Known(answer)),
                // Taken by an earlier release, and perhaps free.
                known if known.algorithm != fingerprint.algorithm().as_str() => {
                    algorithm = known.algorithm().unwrap_or(algorithm);
                }
                _ => return Ok(Begun::InFlight),
            }
        }
    }
}
