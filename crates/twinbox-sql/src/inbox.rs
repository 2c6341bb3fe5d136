//! Claims, attempts and dead letters of consumers.
//!
//! [`Store::claim`] begins the transaction of a delivery with the claim as its first statement; what the
//! handler writes commits together with it or not at all. Failures are counted in a table of their own,
//! because an inbox row that a failed attempt left behind would make the retry a duplicate.
mod dead_letters;
mod dry;
mod purge;
mod redrive;
mod superseded;

pub use dead_letters::{DeadLetter, DeadReason};
pub use redrive::{REDRIVE_ATTEMPTS, Redriven};
pub use superseded::Superseded;

use crate::{
    BatchTx, ClaimFence, Dialect, Error, ErrorKind, OwnedTx, Store, Tx,
    dialect::{Claim, Claims},
    guarded::Guarded,
    handled,
    micros::Micros,
    scope::{Cause, Scope},
    sql::query,
    text::{bounded, text},
};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use std::collections::{HashMap, HashSet};
use twinbox_core::{Message, MessageId, Timestamp};

/// What became of a claim.
#[expect(missing_debug_implementations, reason = "holds an open transaction")]
pub enum Claimed<DB: Dialect> {
    /// The claim is made: run the handler.
    Open(Attempt<DB>),
    /// It was claimed and committed before: acknowledge, run nothing.
    Duplicate(Duplicate),
}

/// What became of the claims of a batch.
#[expect(missing_debug_implementations, reason = "holds an open transaction")]
pub struct ClaimedBatch<DB: Dialect> {
    /// With the claims of those that are new. None: all are duplicates.
    pub attempt: Option<Attempt<DB>>,
    /// The others, by their place in the batch.
    pub duplicates: Vec<(usize, Duplicate)>,
}

/// An earlier claim of the same message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Duplicate {
    /// The earlier message had another payload: two different messages share an id. An alarm.
    pub payload_differs: bool,
    /// `processed`, `rejected` or `dead`.
    pub state: String,
}

/// The open transaction of one attempt. Dropped, it rolls back, the claim included.
#[expect(missing_debug_implementations, reason = "holds an open transaction")]
pub struct Attempt<DB: Dialect> {
    tx: Guarded<DB>,
    claimed: Vec<usize>,
    failures: u32,
    /// Those of which failures or starts are on record, which end with this attempt.
    recorded: Vec<MessageId>,
}

impl<DB: Dialect> Attempt<DB> {
    /// Which attempt this is, counted from 1, by the failures on record.
    pub fn number(&self) -> u32 {
        self.failures.saturating_add(1)
    }

    /// Which of the messages of a batch are claimed; the others are duplicates.
    pub fn claimed(&self) -> &[usize] {
        &self.claimed
    }

    /// The transaction as a handler gets it.
    pub fn tx(&mut self) -> Tx<'_, DB> {
        handled::begin(self.tx.connection());
        self.tx.tx()
    }

    /// The transaction as a handler of batches gets it.
    pub fn batch_tx(&mut self) -> BatchTx<'_, DB> {
        handled::begin(self.tx.connection());
        self.tx.batch_tx()
    }

    /// Commits the claim and everything the handler wrote.
    ///
    /// # Errors
    /// The handler ended the transaction, ignored an error that lost it, or left a savepoint open: all is
    /// rolled back. [`ErrorKind::CommitUnknown`]: the claim will tell whether it committed.
    pub async fn commit(mut self) -> Result<(), Error> {
        if let Err(error) = self.prepare_commit().await {
            self.rollback().await;
            return Err(error);
        }
        self.tx.commit().await
    }

    async fn prepare_commit(&mut self) -> Result<(), Error> {
        self.tx.allow_commit().await?;
        let statements = self.tx.scope.statements.clone();
        // Not with the claim: while a handler hangs in its transaction, its failure is put on record.
        for id in &self.recorded {
            query::<DB>(&statements.forget_failures)
                .bind(self.tx.scope.consumer.clone())
                .bind(id.as_uuid())
                .execute(self.tx.connection())
                .await?;
        }
        Ok(())
    }

    /// Whether the database still answers in this transaction, be it with a refusal.
    pub async fn answers(&mut self) -> bool {
        self.tx.answers().await
    }

    /// Rolls back the claim and everything the handler wrote. Errors are left to the database, which rolls
    /// back what it loses the connection of. A statement that is still running has to end first: after 5 s
    /// that goes on in the background, with its connection.
    pub async fn rollback(self) {
        self.tx.rollback().await;
    }
}

/// A transaction that has tried to claim.
enum Begun<DB: Dialect> {
    Open(Attempt<DB>),
    /// All were claimed before, and nothing is written.
    Known(OwnedTx<DB>),
}

impl<DB: Dialect> Store<DB> {
    /// Begins a delivery's transaction and claims its message. `redelivered`: it may have failed before.
    ///
    /// # Errors
    /// The database refused or is away; or another copy holds the claim for longer than 2 s, which is
    /// contention and passes. [`ErrorKind::Forgotten`]: the message has no claim, and is no newer than one whose claim
    /// was [deleted](Self::purge_inbox).
    pub async fn claim(
        &self,
        consumer: &str,
        message: &Message,
        redelivered: bool,
    ) -> Result<Claimed<DB>, Error> {
        self.claim_behind(None, consumer, message, redelivered).await
    }

    /// The same behind a fence, if there is one.
    ///
    /// # Errors
    /// As [`claim`](Self::claim), and [`ErrorKind::LeaseLost`]: the partition is another's, or the server started
    /// anew.
    pub async fn claim_behind(
        &self,
        fence: Option<ClaimFence>,
        consumer: &str,
        message: &Message,
        redelivered: bool,
    ) -> Result<Claimed<DB>, Error> {
        let messages = std::slice::from_ref(message);
        let begun = self.begin_claims(fence, consumer, messages, redelivered, None).await?;
        self.claimed(consumer, message, begun).await
    }

    async fn claimed(
        &self,
        consumer: &str,
        message: &Message,
        begun: Begun<DB>,
    ) -> Result<Claimed<DB>, Error> {
        match begun {
            Begun::Open(attempt) => Ok(Claimed::Open(attempt)),
            Begun::Known(mut tx) => {
                let earlier = self.duplicate(tx.connection(), consumer, message).await?;
                tx.rollback().await?;
                Ok(Claimed::Duplicate(earlier))
            }
        }
    }

    /// Begins one transaction for many messages and claims those that are new, in the order of their ids.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub async fn claim_batch(
        &self,
        consumer: &str,
        messages: &[Message],
        redelivered: bool,
    ) -> Result<ClaimedBatch<DB>, Error> {
        let mut begun = self.begin_claims(None, consumer, messages, redelivered, None).await?;
        let (new, conn) = match &mut begun {
            Begun::Open(attempt) => (attempt.claimed.as_slice(), attempt.tx.connection()),
            Begun::Known(tx) => (&[][..], tx.connection()),
        };
        let mut duplicates = Vec::new();
        for (n, message) in messages.iter().enumerate().filter(|(n, _)| new.binary_search(n).is_err()) {
            duplicates.push((n, self.duplicate(&mut *conn, consumer, message).await?));
        }
        let attempt = match begun {
            Begun::Open(attempt) => Some(attempt),
            Begun::Known(tx) => {
                tx.rollback().await?;
                None
            }
        };
        Ok(ClaimedBatch { attempt, duplicates })
    }

    async fn begin_claims(
        &self,
        fence: Option<ClaimFence>,
        consumer: &str,
        messages: &[Message],
        redelivered: bool,
        letter: Option<&Redriven>,
    ) -> Result<Begun<DB>, Error> {
        let mut tx = self.begin().await?;
        match fence {
            Some(ClaimFence::Partition(fence)) => self.hold_fence(tx.connection(), consumer, fence).await?,
            Some(ClaimFence::Run(run)) => self.check_run(tx.connection(), run).await?,
            None => {}
        }
        if let Some(letter) = letter
            && !self.unbury(tx.connection(), consumer, letter).await?
        {
            return Ok(Begun::Known(tx));
        }
        let mut guard = None;
        let Claims { new: claimed, mark } =
            self.insert_claims(&mut tx, consumer, messages, &mut guard).await?;
        let (Some(guard), Some(first)) = (guard, claimed.first()) else {
            return Ok(Begun::Known(tx));
        };
        let (mut failures, mut recorded, mut failed) = (0, Vec::new(), HashSet::new());
        if redelivered {
            for &n in &claimed {
                let id = messages[n].message_id();
                if let Some(of_one) = self.read_failures(tx.connection(), consumer, id).await? {
                    failures = failures.max(of_one);
                    recorded.push(id);
                    failed.extend((of_one > 0).then_some(n));
                }
            }
        }
        // What has failed was not handled, however old it is; and what is to run again may have been.
        let asked = |n: usize| {
            letter.is_some() || messages[n].reprocess().is_some_and(|(for_whom, _)| for_whom == consumer)
        };
        let may_be_forgotten = |mark: Timestamp| {
            claimed.iter().any(|n| messages[*n].time <= mark && !failed.contains(n) && !asked(*n))
        };
        if let Some(mark) = mark.filter(|mark| may_be_forgotten(*mark)) {
            tx.rollback().await?;
            return Err(Error::new(
                ErrorKind::Forgotten,
                format!(
                    "claims of messages up to {mark} were deleted, so nobody can tell whether it was handled"
                ),
            ));
        }
        // So that no two batches wait for each other.
        recorded.sort_unstable();
        let scope = Scope::new(self.statements().clone(), consumer, Cause::of(&messages[*first]));
        let tx = Guarded::new(tx, guard, scope);
        Ok(Begun::Open(Attempt { tx, claimed, failures, recorded }))
    }

    /// Answers with the places of the messages that are new. In the order of their ids, so that no two
    /// batches wait for each other.
    async fn insert_claims(
        &self,
        tx: &mut OwnedTx<DB>,
        consumer: &str,
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
        let Claims { new, mark } =
            DB::claim(tx.connection(), self.statements(), consumer, &claims, guard).await?;
        let places: HashMap<_, _> = order.into_iter().map(|(id, n)| (id.as_uuid(), n)).collect();
        let mut new: Vec<_> = new.iter().filter_map(|id| places.get(id).copied()).collect();
        new.sort_unstable();
        Ok(Claims { new, mark })
    }

    /// None: nothing is on record, no start either.
    async fn read_failures(
        &self,
        conn: &mut DB::Connection,
        consumer: &str,
        id: MessageId,
    ) -> Result<Option<u32>, Error> {
        let row = query::<DB>(&self.statements().failures)
            .bind(consumer.to_owned())
            .bind(id.as_uuid())
            .fetch_optional(conn)
            .await?;
        let failures = row.map(|row| row.try_get::<i64, _>(0)).transpose()?;
        Ok(failures.map(|failures| u32::try_from(failures).unwrap_or(u32::MAX)))
    }

    async fn duplicate(
        &self,
        conn: &mut DB::Connection,
        consumer: &str,
        message: &Message,
    ) -> Result<Duplicate, Error> {
        let row = query::<DB>(&self.statements().claimed)
            .bind(consumer.to_owned())
            .bind(message.message_id().as_uuid())
            .fetch_optional(conn)
            .await?;
        let Some(row) = row else {
            return Err(Error::new(ErrorKind::Busy, "the claim was there and is gone: try again"));
        };
        let hash: Vec<u8> = row.try_get(0)?;
        let payload_differs = hash[..] != Sha256::digest(&message.payload)[..];
        Ok(Duplicate { payload_differs, state: row.try_get(1)? })
    }

    /// Counts a failed attempt and answers with how many there are now.
    ///
    /// # Errors
    /// The database refused or is away: nothing is counted, and the attempt is made again.
    pub async fn record_failure(&self, consumer: &str, message: &Message, error: &str) -> Result<u32, Error> {
        let id = message.message_id();
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        query::<DB>(&self.statements().record_failure)
            .bind(consumer.to_owned())
            .bind(id.as_uuid())
            .bind(bounded(error))
            .execute(tx.connection())
            .await?;
        let failures = self.read_failures(tx.connection(), consumer, id).await?;
        tx.commit().await?;
        Ok(failures.unwrap_or(0))
    }
}
