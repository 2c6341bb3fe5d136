//! Operations that hold their key without a transaction, because they call vendors half-way.
use super::{
    claim::TakenKey,
    digest::RequestDigest,
    handle::IdempotencyKeys,
    key::{OperationKey, OperationPolicy},
    start::OperationStart,
    token::Tokens,
    transaction::{LastTransaction, Operation, scope},
};
use crate::{
    Dialect, Error, ErrorKind,
    engine::Engine,
    guarded::Guarded,
    micros::micros,
    row::small_count,
    statement::{Query, Statement, query},
    text::text,
};
use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire},
        },
    },
    time::Duration,
};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep, sleep_until, timeout},
};
use twinbox_core::{crash, task_name::TaskName};
use uuid::Uuid;

/// The shortest and the longest pause between two looks at a key that another process holds.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));
/// The shortest pause between two renewals, however short a lease is.
const RENEWALS_MIN: Duration = Duration::from_millis(10);
/// How long a lease is renewed: a handler that hangs for longer loses its key.
const HELD_MAX: Duration = Duration::from_secs(15 * 60);

/// A lease on an idempotency key without an open transaction, for operations that call vendors. The lease is
/// renewed while this lives, for 15 minutes at most.
///
/// When this is dropped, or its process has crashed, another process can take the key after the lease has
/// ended: it asks the same and finds the [recovery point](Self::recovery_point). A late write of the process
/// before is refused.
#[expect(missing_debug_implementations, reason = "holds a store")]
pub struct OperationLease<DB: Dialect> {
    pub(super) held: Arc<HeldKey<DB>>,
    key: OperationKey,
    attempt: u32,
    failures: u32,
    recovery_point: Option<String>,
    pub(super) tokens: Tokens,
    idle_max: Duration,
    renewing: tokio::task::AbortHandle,
}

/// A held key, shared with the task that renews it.
pub(super) struct HeldKey<DB: Dialect> {
    pub(super) engine: Engine<DB>,
    pub(super) slot: [u8; 32],
    pub(super) owner: Uuid,
    lease: Duration,
    /// Whether its last transaction is open, which holds the row.
    is_ending: Arc<AtomicBool>,
}

impl<DB: Dialect> IdempotencyKeys<DB> {
    /// Takes a lease on a key and commits that, or returns the result of an earlier operation with the key.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn lease(
        &self,
        key: &OperationKey,
        request: &RequestDigest,
        policy: &OperationPolicy,
        lease: Duration,
    ) -> Result<OperationStart<OperationLease<DB>>, Error> {
        let until = Instant::now() + policy.wait.min(HELD_MAX);
        let mut pause = LOOK_AGAIN.0;
        let owner = Uuid::now_v7();
        loop {
            let wait = until.saturating_duration_since(Instant::now()).min(LOOK_AGAIN.1);
            let looking = OperationPolicy { wait, ..*policy };
            match self.take(key, request, &looking, Some((owner, lease))).await? {
                OperationStart::Open(taken) => {
                    return Ok(OperationStart::Open(self.hold(key, policy, taken, owner, lease).await?));
                }
                OperationStart::Completed(response) => return Ok(OperationStart::Completed(response)),
                OperationStart::Mismatch => return Ok(OperationStart::Mismatch),
                OperationStart::InFlight if Instant::now() + pause < until => {
                    sleep(pause).await;
                    pause = (pause * 2).min(LOOK_AGAIN.1);
                }
                OperationStart::InFlight => return Ok(OperationStart::InFlight),
                OperationStart::TooMany => return Ok(OperationStart::TooMany),
            }
        }
    }

    async fn hold(
        &self,
        key: &OperationKey,
        policy: &OperationPolicy,
        taken: TakenKey<DB>,
        owner: Uuid,
        lease: Duration,
    ) -> Result<OperationLease<DB>, Error> {
        let TakenKey { tx, guard, row } = taken;
        drop(guard);
        let tokens = Tokens::of(&row, &key.domain_id(self.engine.service()))?;
        let engine = self.engine.clone();
        let held = HeldKey { engine, slot: key.slot(), owner, lease, is_ending: Arc::default() };
        let held = Arc::new(held);
        match tx.commit_guarded(true).await {
            // Committed or not: the key is this owner's, or free.
            Err(error) if error.kind() == ErrorKind::CommitUnknown && held.renew().await? => {}
            committed => committed?,
        }
        crash::point("operation.after_hold");
        let renewing = tokio::spawn(TaskName::KeyRenewal.of(held.clone().keep())).abort_handle();
        Ok(OperationLease {
            held,
            key: key.clone(),
            attempt: small_count(row.attempt),
            failures: small_count(row.failures),
            recovery_point: row.recovery_point,
            tokens,
            idle_max: policy.idle_max,
            renewing,
        })
    }
}

impl<DB: Dialect> OperationLease<DB> {
    /// Returns the number of the attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns how many attempts before this one failed or crashed. [Postponed](Self::postpone) and
    /// [forgotten](Self::forget) attempts did neither.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the recovery point that an earlier attempt [saved](Self::save) last.
    pub fn recovery_point(&self) -> Option<&str> {
        self.recovery_point.as_deref()
    }

    /// Returns the idempotency key of the operation.
    pub fn key(&self) -> &OperationKey {
        &self.key
    }

    /// Commits a recovery point for later attempts: what was done outside the database, such as the id of a
    /// charge. From then on the key belongs to this request, even if it fails.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: another process has the key. [`ErrorKind::Conflict`]: the last transaction
    /// is open. Or the database refused or is away.
    pub async fn save(&mut self, point: &str) -> Result<(), Error> {
        let point = text(point).into_owned();
        let held = &self.held;
        held.check_not_ending()?;
        let saved = held.update(&held.engine.sql().operations.save, |save| {
            save.bind(point.clone()).bind(micros(held.lease))
        });
        if !saved.await? {
            return Err(lost());
        }
        self.recovery_point = Some(point);
        crash::point("operation.after_save");
        Ok(())
    }

    /// Waits for a permit for the connection of a handler's last transaction, as long as the pool would.
    #[doc(hidden)]
    pub async fn request_permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.held.check_not_ending()?;
        self.held.engine.request_permit().await
    }

    /// Begins the last transaction of the operation, which commits its writes together with the response.
    /// Until it ends no other process can take the key.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: another process has the key, or had it and has ended the operation.
    /// [`ErrorKind::Conflict`]: an earlier last transaction is open. Or the database refused or is away.
    pub async fn begin(&self) -> Result<Operation<DB>, Error> {
        let HeldKey { engine, slot, owner, .. } = &*self.held;
        let last_transaction = self.held.begin_ending()?;
        let mut tx = engine.begin_for_caller().await?;
        // First, so that no session holds the key that nothing bounds.
        let guard = DB::guard(tx.connection(), engine.catalog(), self.idle_max).await?;
        let enter = query::<DB>(&engine.sql().operations.enter).bind(slot.to_vec()).bind(*owner);
        let entered = enter.execute(tx.connection()).await;
        let tx = Guarded::new(tx, guard, scope(engine.catalog(), &self.key));
        let entered = entered.map_err(|error| Error::from(error).of_claim())?;
        if DB::rows_affected(&entered) != 1 {
            tx.rollback().await;
            return Err(lost());
        }
        Ok(Operation::with_key(tx, &self.key, Some(last_transaction)))
    }

    /// Releases the key after a failure, so that the same request may try again at once. Another request may
    /// not use the key.
    ///
    /// # Errors
    /// The database refused or is away: the key is free when the lease ends.
    pub async fn release(self) -> Result<(), Error> {
        self.give_up(0).await
    }

    /// Releases the key after a fault of something else, such as a database that is away, without counting a
    /// [failure](Self::failures).
    ///
    /// # Errors
    /// The database refused or is away: the key is free when the lease ends, and it counts.
    pub async fn postpone(self) -> Result<(), Error> {
        self.give_up(1).await
    }

    /// Releases the key of an operation that did nothing, so that any request may use it. If an earlier
    /// attempt may have done something, or a [token](Self::token_within) was given out, or a recovery point
    /// saved, this is [`postpone`](Self::postpone).
    ///
    /// # Errors
    /// The database refused or is away: the key is free when the lease ends, for the same request.
    pub async fn forget(self) -> Result<(), Error> {
        let held = &self.held;
        // The statement checks the row too: the answer to a `save` may have been lost.
        let did_nothing = self.recovery_point.is_none() && !self.tokens.are_given().await;
        let forgotten =
            did_nothing && held.update(&held.engine.sql().operations.forget, |forget| forget).await?;
        if forgotten { Ok(()) } else { self.give_up(1).await }
    }

    async fn give_up(&self, uncounted: i64) -> Result<(), Error> {
        let held = &self.held;
        let release = |release: Query<'static, DB>| release.bind(Uuid::now_v7()).bind(uncounted);
        held.update(&held.engine.sql().operations.release, release).await?;
        Ok(())
    }
}

impl<DB: Dialect> Drop for OperationLease<DB> {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl<DB: Dialect> HeldKey<DB> {
    async fn keep(self: Arc<Self>) {
        let until = Instant::now() + HELD_MAX;
        let pause = (self.lease / 3).max(RENEWALS_MIN);
        let mut next = Instant::now();
        while Instant::now() < until {
            next = Instant::now().max(next + pause);
            sleep_until(next).await;
            if self.check_not_ending().is_err() {
                continue;
            }
            // A silent connection must not cost the lease: the next renewal, on another one, comes before its
            // end.
            match timeout((self.lease / 4).max(RENEWALS_MIN), self.renew()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return,
                // Its own last transaction has the row, so it cannot be lost.
                Ok(Err(error)) if error.is_contention() => {}
                Ok(Err(error)) => tracing::warn!(%error, "the key of an operation could not be renewed"),
                Err(_) => tracing::warn!("the key of an operation could not be renewed in time"),
            }
        }
    }

    async fn renew(&self) -> Result<bool, Error> {
        self.update(&self.engine.sql().operations.renew, |renew| renew.bind(micros(self.lease))).await
    }

    /// False: another process has the key. The wait is bounded, because its own last transaction may hold the
    /// row.
    pub(super) async fn update<'q>(
        &self,
        statement: &Statement,
        bind: impl FnOnce(Query<'q, DB>) -> Query<'q, DB> + Send,
    ) -> Result<bool, Error> {
        let bind = |query| bind(query).bind(self.slot.to_vec()).bind(self.owner);
        Ok(self.engine.execute(statement, bind).await? == 1)
    }

    /// Refuses while the last transaction is open, which holds the row.
    pub(super) fn check_not_ending(&self) -> Result<(), Error> {
        match self.is_ending.load(Acquire) {
            false => Ok(()),
            true => Err(is_ending()),
        }
    }

    fn begin_ending(&self) -> Result<LastTransaction, Error> {
        if self.is_ending.swap(true, AcqRel) {
            return Err(is_ending());
        }
        Ok(LastTransaction(self.is_ending.clone()))
    }
}

fn is_ending() -> Error {
    Error::new(
        ErrorKind::Conflict,
        "the last transaction of the operation is open: save, and ask for tokens, before you begin it",
    )
}

pub(super) fn lost() -> Error {
    Error::new(ErrorKind::LeaseLost, "another process has the key of the operation: its lease ran out")
}
