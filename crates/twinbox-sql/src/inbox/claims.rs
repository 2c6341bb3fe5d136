//! Claiming messages.
use super::{
    attempt::{Attempt, BatchClaim, ClaimTx, Duplicate, InboxClaim, Recorded},
    dead_letter::Redrive,
    handle::Inbox,
};
use crate::{
    Dialect, Error, ErrorKind, OwnedTx,
    dialect::{Claim, ClaimTerms, Claims},
    guarded::Guarded,
    micros::Micros,
    row::{TextColumns, small_count},
    scope::{Cause, Scope},
    spare_connections,
    statement::query,
    text::text,
};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use std::{
    collections::{HashMap, HashSet},
    slice,
};
use twinbox_core::{Message, MessageId, Timestamp};
use uuid::Uuid;

impl<DB: Dialect> Inbox<DB> {
    /// Begins the transaction of a delivery and claims its message. `redelivered`: it may have failed before.
    ///
    /// # Errors
    /// The database refused or is away; or another copy holds the claim for longer than 2 s, which is
    /// contention and passes. [`ErrorKind::Forgotten`]: the message has no claim, and is no newer than one
    /// whose claim was [purged](Self::purge). [`ErrorKind::PartlyCommitted`], on MySQL: an earlier run of the
    /// handler has committed by itself. A [dead letter](Self::dead_letter) takes the place of its claim.
    ///
    /// # Examples
    /// ```
    /// # use twinbox_core::Draft;
    /// # use twinbox_sql::{Store, inbox::InboxClaim, sqlite};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::new(sqlite::open(dir.path().join("shop.db")).await?, "shop")?;
    /// # store.migrate().await?;
    /// # sqlx::query("CREATE TABLE invoices (order_id INTEGER)").execute(store.pool()).await?;
    /// let message = Draft::raw("orders.placed", 1, "{}").id("7").into_message("shop");
    /// let inbox = store.inbox("billing");
    /// match inbox.claim(&message, false).await? {
    ///     InboxClaim::Open(mut attempt) => {
    ///         let mut tx = attempt.tx();
    ///         sqlx::query("INSERT INTO invoices VALUES (7)").execute(&mut *tx).await?;
    ///         attempt.commit().await?; // the claim and the invoice, or neither
    ///     }
    ///     InboxClaim::Duplicate(_) => {} // acknowledge it, run nothing
    /// }
    /// assert!(matches!(inbox.claim(&message, true).await?, InboxClaim::Duplicate(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn claim(&self, message: &Message, redelivered: bool) -> Result<InboxClaim<DB>, Error> {
        self.claim_on(ClaimTerms::default(), message, redelivered).await
    }

    /// Claims a message on terms, such as that the consumer still owns its partition.
    ///
    /// # Errors
    /// As [`claim`](Self::claim), and [`ErrorKind::LeaseLost`]: another process owns the partition, or the
    /// server started anew.
    pub async fn claim_on(
        &self,
        terms: ClaimTerms,
        message: &Message,
        redelivered: bool,
    ) -> Result<InboxClaim<DB>, Error> {
        let claims = slice::from_ref(message);
        match self.begin_claims(terms, claims, redelivered, None).await? {
            ClaimTx::Open(attempt) => Ok(InboxClaim::Open(attempt)),
            ClaimTx::Known(mut tx) => {
                let earlier = self.duplicate(tx.connection(), message).await?;
                tx.rollback().await?;
                Ok(InboxClaim::Duplicate(earlier))
            }
        }
    }

    /// Begins one transaction for many messages and claims the new ones, in the order of their ids.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub async fn claim_batch(
        &self,
        terms: ClaimTerms,
        messages: &[Message],
        redelivered: bool,
    ) -> Result<BatchClaim<DB>, Error> {
        let mut claim = self.begin_claims(terms, messages, redelivered, None).await?;
        let (new, conn) = match &mut claim {
            ClaimTx::Open(attempt) => (attempt.claimed.as_slice(), attempt.tx.connection()),
            ClaimTx::Known(tx) => (&[][..], tx.connection()),
        };
        let mut duplicates = Vec::new();
        for (n, message) in messages.iter().enumerate().filter(|(n, _)| new.binary_search(n).is_err()) {
            let is_own = new.iter().any(|&n| messages[n].message_id() == message.message_id());
            duplicates.push((n, self.find_duplicate(&mut *conn, message, is_own).await?));
        }
        let attempt = match claim {
            ClaimTx::Open(attempt) => Some(attempt),
            ClaimTx::Known(tx) => {
                tx.rollback().await?;
                None
            }
        };
        Ok(BatchClaim { attempt, duplicates })
    }

    /// Claims a message for a [dry run](crate::Tx::is_dry_run), which [ends](Attempt::end_dry_run) with a
    /// rollback. `again`: although it was handled, and as the first attempt.
    ///
    /// Without `again` another delivery of the message waits for it meanwhile, as for any attempt.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub async fn claim_for_dry_run(&self, message: &Message, again: bool) -> Result<InboxClaim<DB>, Error> {
        // No other consumer has claims under this name, and none waits for this one.
        let unused = again.then(|| format!("dry run {}", Uuid::now_v7()));
        let claimer = Self::new(self.engine.clone(), unused.unwrap_or_else(|| self.consumer.clone()));
        let claim = claimer.claim(message, !again).await?;
        let InboxClaim::Open(mut attempt) = claim else { return Ok(claim) };
        attempt.tx.scope.is_dry_run = true;
        self.consumer.clone_into(&mut attempt.tx.scope.consumer);
        Ok(InboxClaim::Open(attempt))
    }

    pub(super) async fn begin_claims(
        &self,
        terms: ClaimTerms,
        messages: &[Message],
        redelivered: bool,
        redrive: Option<&Redrive>,
    ) -> Result<ClaimTx<DB>, Error> {
        // A single writer begins its transaction with the claim, unless there is something to do before.
        let begins_first = terms.fence.is_some() || redrive.is_some();
        let Some(spares) = self.spares.as_ref().filter(|_| !(DB::ONE_WRITER && begins_first)) else {
            let tx = self.engine.begin_to_claim().await?;
            return self.claim_in(tx, terms, messages, redelivered, redrive).await;
        };
        if let Some(begun) = terms.waiting_since.and_then(|since| spares.take_begun(since)) {
            match self.claim_in(begun, terms, messages, redelivered, redrive).await {
                Err(error) if error.is_outage() => spare_connections::note_lost(&error),
                claimed => return claimed,
            }
        }
        self.claim_in(spares.begin(&self.engine).await?, terms, messages, redelivered, redrive).await
    }

    async fn claim_in(
        &self,
        mut tx: OwnedTx<DB>,
        terms: ClaimTerms,
        messages: &[Message],
        redelivered: bool,
        redrive: Option<&Redrive>,
    ) -> Result<ClaimTx<DB>, Error> {
        if let Some(redrive) = redrive
            && !self.take_dead_letter(tx.connection(), redrive).await?
        {
            return Ok(ClaimTx::Known(tx));
        }
        let mut guard = tx.last_guard.take();
        let Claims { new: claimed, purge_mark } =
            match self.insert_claims(&mut tx, terms, messages, &mut guard).await {
                Ok(claims) => claims,
                Err(error) => {
                    // A file that is busy has begun none, and sqlx would count one for ever. What waits in
                    // vain for another copy keeps its connection.
                    if DB::ONE_WRITER || error.is_contention() {
                        let _ = tx.rollback().await;
                    }
                    return Err(error);
                }
            };
        let (Some(mut guard), Some(first)) = (guard, claimed.first()) else {
            return Ok(ClaimTx::Known(tx));
        };
        if let Some(redrive) = redrive {
            DB::end_redrive(&mut guard, self.engine.catalog(), redrive.dead_letter.id);
        }
        let (mut failures, mut recorded, mut failed) = (0, Recorded::default(), HashSet::new());
        if redelivered {
            for &n in &claimed {
                let id = messages[n].message_id();
                if let Some((of_one, role)) = self.read_record(tx.connection(), id).await? {
                    failures = failures.max(of_one);
                    recorded.messages.push(id);
                    recorded.role = role;
                    failed.extend((of_one > 0).then_some(n));
                }
            }
        }
        // A message that failed was not handled, however old it is. One that is to run again may have been.
        let is_wanted_again = |n: usize| {
            redrive.is_some()
                || messages[n].reprocess_target().is_some_and(|(consumer, _)| consumer == self.consumer)
        };
        let may_be_forgotten = |mark: Timestamp| {
            claimed.iter().any(|n| messages[*n].time <= mark && !failed.contains(n) && !is_wanted_again(*n))
        };
        if let Some(mark) = purge_mark.filter(|mark| may_be_forgotten(*mark)) {
            tx.rollback().await?;
            return Err(Error::new(
                ErrorKind::Forgotten,
                format!(
                    "claims of messages up to {mark} were purged: whether this one was handled is unknown"
                ),
            ));
        }
        // In order, so that no two batches wait for each other.
        recorded.messages.sort_unstable();
        let catalog = self.engine.catalog().clone();
        let scope = Scope::new(catalog, &self.consumer, Cause::of(&messages[*first]));
        let tx = Guarded::new(tx, guard, scope);
        Ok(ClaimTx::Open(Attempt { tx, spares: self.spares.clone(), claimed, failures, recorded }))
    }

    /// Inserts the claims in the order of their ids, so that no two batches wait for each other. Returns the
    /// places of the new messages.
    pub(super) async fn insert_claims(
        &self,
        tx: &mut OwnedTx<DB>,
        terms: ClaimTerms,
        messages: &[Message],
        guard: &mut Option<DB::Guard>,
    ) -> Result<Claims<usize>, Error> {
        let mut order: Vec<_> = messages.iter().map(Message::message_id).zip(0..).collect();
        order.sort_unstable();
        order.dedup_by_key(|(id, _)| *id);
        let claim = |&(id, n): &(MessageId, usize)| Claim {
            message_id: id.as_uuid(),
            source: text(&messages[n].source),
            event_id: text(&messages[n].id),
            payload_hash: Sha256::digest(&messages[n].payload).to_vec(),
            time: Micros(messages[n].time),
        };
        let claims: Vec<_> = order.iter().map(claim).collect();
        let catalog = self.engine.catalog();
        let claimed = DB::claim(tx.connection(), catalog, &self.consumer, terms, &claims, guard).await;
        let Claims { new, purge_mark } = claimed.map_err(Error::of_claim)?;
        let places: HashMap<_, _> = order.into_iter().map(|(id, n)| (id.as_uuid(), n)).collect();
        let mut new: Vec<_> = new.iter().filter_map(|id| places.get(id).copied()).collect();
        new.sort_unstable();
        Ok(Claims { new, purge_mark })
    }

    /// Failures on record, and the role of the transaction. None: no record, not of a start either.
    async fn read_record(
        &self,
        conn: &mut DB::Connection,
        id: MessageId,
    ) -> Result<Option<(u32, Option<String>)>, Error> {
        let sql = &self.engine.sql().inbox;
        let query = query::<DB>(&sql.failures).bind(self.consumer.clone()).bind(id.as_uuid());
        let Some(row) = query.fetch_optional(conn).await? else { return Ok(None) };
        let role = if sql.set_role.is_absent() { None } else { row.try_get("role")? };
        Ok(Some((small_count(row.try_get("failures")?), role)))
    }

    pub(super) async fn duplicate(
        &self,
        conn: &mut DB::Connection,
        message: &Message,
    ) -> Result<Duplicate, Error> {
        self.find_duplicate(conn, message, false).await
    }

    /// `is_own`: the claim was made in this transaction.
    async fn find_duplicate(
        &self,
        conn: &mut DB::Connection,
        message: &Message,
        is_own: bool,
    ) -> Result<Duplicate, Error> {
        let row = query::<DB>(&self.engine.sql().inbox.find_claim)
            .bind(self.consumer.clone())
            .bind(message.message_id().as_uuid())
            .fetch_optional(conn)
            .await?;
        let Some(row) = row else {
            return Err(Error::new(ErrorKind::Busy, "the claim was there and is gone: try again"));
        };
        let hash: Vec<u8> = row.try_get("payload_hash")?;
        let payload_differs = hash[..] != Sha256::digest(&message.payload)[..];
        let state = row.text("state")?;
        let is_open = state == "open";
        if is_open && !is_own && !payload_differs {
            return Err(Error::partly_committed());
        }
        Ok(Duplicate { payload_differs, state: if is_open { "processed".to_owned() } else { state } })
    }

    /// Counts a failed attempt and returns the number of failures.
    ///
    /// # Errors
    /// The database refused or is away: nothing is counted, and the attempt is made again.
    pub async fn record_failure(&self, message: &Message, error: &str) -> Result<u32, Error> {
        let id = message.message_id();
        let mut tx = self.engine.begin_short().await?;
        query::<DB>(&self.engine.sql().inbox.record_failure)
            .bind(self.consumer.clone())
            .bind(id.as_uuid())
            .bind(crate::text::bounded(error))
            .execute(tx.connection())
            .await?;
        let record = self.read_record(tx.connection(), id).await?;
        tx.commit().await?;
        Ok(record.map_or(0, |(failures, _)| failures))
    }

    /// Deletes the recorded failures of a message that no handler will get. Deleting none is no error.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn forget_failures(&self, message: &Message) -> Result<(), Error> {
        let delete = &self.engine.sql().inbox.delete_attempts;
        let id = message.message_id().as_uuid();
        self.engine.execute(delete, |query| query.bind(self.consumer.clone()).bind(id)).await?;
        Ok(())
    }
}
