//! Operations that hold their key without a transaction, because they call others half-way.
use super::{Begun, Operation, OperationKey, OperationPolicy, claim::Taken, scope, token::Tokens};
use crate::{
    Dialect, Error, ErrorKind, Store,
    guarded::Guarded,
    micros::micros,
    sql::{Statement, query},
    text::text,
};
use sqlx::query::Query;
use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    time::Duration,
};
use tokio::time::{Instant, sleep};
use twinbox_core::{Fingerprinted, crash};
use uuid::Uuid;

/// Between two looks at a key that somebody holds.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));
/// Between two renewals, however short a lease is.
const RENEWALS_MIN: Duration = Duration::from_millis(10);
/// However often it is renewed: whoever hangs for longer has lost its key.
const HELD_MAX: Duration = Duration::from_secs(15 * 60);

/// A key that is held, beyond any transaction, until its lease ends. It is renewed while this lives, for 15 minutes at
/// most.
///
/// Dropped, or with its process gone, the key is another's when the lease has ended: that one asks the same and finds
/// the [recovery point](Self::recovery_point). What a process that was thought dead still wants to write is refused.
#[expect(missing_debug_implementations, reason = "holds a store")]
pub struct Lease<DB: Dialect> {
    pub(super) held: Arc<Held<DB>>,
    key: OperationKey,
    attempt: u32,
    failures: u32,
    recovery_point: Option<String>,
    pub(super) tokens: Tokens,
    idle_max: Duration,
    renewing: tokio::task::AbortHandle,
}

pub(super) struct Held<DB: Dialect> {
    pub(super) store: Store<DB>,
    pub(super) slot: [u8; 32],
    pub(super) owner: Uuid,
    lease: Duration,
    /// While its transaction is open, which holds the row.
    entered: Arc<AtomicBool>,
}

/// Until it is dropped, the lease has a transaction.
pub(super) struct Entered(Arc<AtomicBool>);

impl<DB: Dialect> Store<DB> {
    /// Takes the key of an operation for `lease` and commits that, or says what became of the operation before.
    ///
    /// # Errors
    /// As [`begin_operation`](Self::begin_operation).
    pub async fn lease_operation(
        &self,
        key: &OperationKey,
        request: Fingerprinted<'_>,
        policy: &OperationPolicy,
        lease: Duration,
    ) -> Result<Begun<Lease<DB>>, Error> {
        let until = Instant::now() + policy.wait.min(HELD_MAX);
        let mut pause = LOOK_AGAIN.0;
        let owner = Uuid::now_v7();
        loop {
            let wait = until.saturating_duration_since(Instant::now()).min(LOOK_AGAIN.1);
            let looking = OperationPolicy { wait, ..*policy };
            match self.take_operation(key, request, &looking, Some((owner, lease))).await? {
                Begun::Open(taken) => {
                    return Ok(Begun::Open(self.hold(key, policy, taken, owner, lease).await?));
                }
                Begun::Known(answer) => return Ok(Begun::Known(answer)),
                Begun::Mismatch => return Ok(Begun::Mismatch),
                Begun::InFlight if Instant::now() + pause < until => {
                    sleep(pause).await;
                    pause = (pause * 2).min(LOOK_AGAIN.1);
                }
                Begun::InFlight => return Ok(Begun::InFlight),
                Begun::TooMany => return Ok(Begun::TooMany),
            }
        }
    }

    async fn hold(
        &self,
        key: &OperationKey,
        policy: &OperationPolicy,
        taken: Taken<DB>,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Lease<DB>, Error> {
        let Taken { tx, guard, begun } = taken;
        drop(guard);
        let tokens = Tokens::of(&begun, &key.domain_id(self.service()))?;
        let held = Held { store: self.clone(), slot: key.slot(), owner, lease, entered: Arc::default() };
        let held = Arc::new(held);
        match tx.commit_guarded().await {
            // It is committed or not; either way the key is this one's, or free.
            Err(error) if error.kind() == ErrorKind::CommitUnknown && held.renew().await? => {}
            committed => committed?,
        }
        crash::point("operation.after_hold");
        let renewing = tokio::spawn(held.clone().keep()).abort_handle();
        let recovery_point = begun.recovery_point;
        let [attempt, failures] =
            [begun.attempt, begun.failures].map(|n| u32::try_from(n.max(0)).unwrap_or(u32::MAX));
        let (key, idle_max) = (key.clone(), policy.idle_max);
        Ok(Lease { held, key, attempt, failures, recovery_point, tokens, idle_max, renewing })
    }
}

impl<DB: Dialect> Lease<DB> {
    /// Which try this is, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How many tries before this one failed or died. Those that were [postponed](Self::postpone) or
    /// [forgotten](Self::forget) did neither.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// What the last try that came to [`save`](Self::save) has saved.
    pub fn recovery_point(&self) -> Option<&str> {
        self.recovery_point.as_deref()
    }

    /// Whose key it is, and for what.
    pub fn key(&self) -> &OperationKey {
        &self.key
    }

    /// Commits how far it has come, for whoever goes on after this one: say what was done outside, such as the id of a
    /// charge. From then on the key belongs to this request, even if it fails.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: another has the key. [`ErrorKind::Conflict`]: its transaction has begun, and not ended.
    /// Or the database refused or is away.
    pub async fn save(&mut self, point: &str) -> Result<(), Error> {
        let point = text(point).into_owned();
        let held = &self.held;
        held.outside()?;
        let saved = held.update(&held.store.statements().save_operation, |save| {
            save.bind(point.clone()).bind(micros(held.lease))
        });
        if !saved.await? {
            return Err(lost());
        }
        self.recovery_point = Some(point);
        crash::point("operation.after_save");
        Ok(())
    }

    /// Begins the transaction in which the operation ends. Until that ends nobody else can take the key.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: another has the key, or had it and is done. [`ErrorKind::Conflict`]: the transaction
    /// before has not ended. Or the database refused or is away.
    pub async fn begin(&self) -> Result<Operation<DB>, Error> {
        let Held { store, slot, owner, .. } = &*self.held;
        let entered = self.held.enter()?;
        let mut tx = store.begin().await?;
        let entering = query::<DB>(&store.statements().enter_operation).bind(slot.to_vec()).bind(*owner);
        let entering = entering.execute(tx.connection()).await?;
        if DB::rows_affected(&entering) != 1 {
            tx.rollback().await?;
            return Err(lost());
        }
        let guard = DB::guard(tx.connection(), store.statements(), self.idle_max).await?;
        let tx = Guarded::new(tx, guard, scope(store.statements(), &self.key));
        Ok(Operation { tx, slot: Some(*slot), entered: Some(entered) })
    }

    /// Gives up after a failure: whoever asks the same may try at once. Another request may not use the key.
    ///
    /// # Errors
    /// The database refused or is away: the key is free when the lease ends.
    pub async fn release(self) -> Result<(), Error> {
        self.give_up(0).await
    }

    /// As [`release`](Self::release), after what is nobody's fault, such as a database that is away: it counts as no
    /// [failure](Self::failures).
    ///
    /// # Errors
    /// The database refused or is away: the key is free when the lease ends, and it counts.
    pub async fn postpone(self) -> Result<(), Error> {
        self.give_up(1).await
    }

    /// Gives up without having done anything: the key is free for any request. If a try before this one may have done
    /// something, a [token](Self::token_within) was given out, or something was saved, as [`postpone`](Self::postpone).
    ///
    /// # Errors
    /// The database refused or is away: the key is free when the lease ends, for the same request.
    pub async fn forget(self) -> Result<(), Error> {
        let held = &self.held;
        // The row is asked too: an answer to `save` may have been lost.
        let did_nothing = self.recovery_point.is_none() && !self.tokens.are_given().await;
        let forgotten =
            did_nothing && held.update(&held.store.statements().forget_operation, |forget| forget).await?;
        if forgotten { Ok(()) } else { self.give_up(1).await }
    }

    async fn give_up(&self, uncounted: i64) -> Result<(), Error> {
        let held = &self.held;
        let release =
            |release: Query<'static, DB, DB::Arguments>| release.bind(Uuid::now_v7()).bind(uncounted);
        held.update(&held.store.statements().release_operation, release).await?;
        Ok(())
    }
}

impl<DB: Dialect> Drop for Lease<DB> {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl<DB: Dialect> Held<DB> {
    async fn keep(self: Arc<Self>) {
        let until = Instant::now() + HELD_MAX;
        while Instant::now() < until {
            sleep((self.lease / 3).max(RENEWALS_MIN)).await;
            if self.outside().is_err() {
                continue;
            }
            match self.renew().await {
                Ok(true) => {}
                Ok(false) => return,
                // Its own transaction has it, and it cannot be lost then.
                Err(error) if error.is_contention() => {}
                Err(error) => tracing::warn!(%error, "the key of an operation could not be renewed"),
            }
        }
    }

    async fn renew(&self) -> Result<bool, Error> {
        let renewed =
            self.update(&self.store.statements().renew_operation, |renew| renew.bind(micros(self.lease)));
        renewed.await
    }

    /// False: it is not this one's. Bounded, because a transaction of its own may hold the row.
    pub(super) async fn update<'q>(
        &self,
        statement: &Statement,
        bind: impl FnOnce(Query<'q, DB, DB::Arguments>) -> Query<'q, DB, DB::Arguments> + Send,
    ) -> Result<bool, Error> {
        let _permit = self.store.write_permit().await?;
        let mut conn = self.store.connection().await?;
        let update = bind(query::<DB>(statement)).bind(self.slot.to_vec()).bind(self.owner);
        let updated = update.execute(&mut *conn).await?;
        conn.done().await?;
        Ok(DB::rows_affected(&updated) == 1)
    }

    /// # Errors
    /// Its transaction has not ended, and holds the row.
    pub(super) fn outside(&self) -> Result<(), Error> {
        match self.entered.load(Acquire) {
            false => Ok(()),
            true => Err(has_begun()),
        }
    }

    fn enter(&self) -> Result<Entered, Error> {
        if self.entered.swap(true, AcqRel) {
            return Err(has_begun());
        }
        Ok(Entered(self.entered.clone()))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

fn has_begun() -> Error {
    Error::new(
        ErrorKind::Conflict,
        "the transaction in which the operation is to end was begun and is not rolled back: \
         save, and ask for tokens, before you begin it",
    )
}

pub(super) fn lost() -> Error {
    Error::new(ErrorKind::LeaseLost, "another has the key of the operation: its lease ran out")
}
