//! Operations that somebody may ask for twice: the key, the effect and the answer in one transaction.
//!
//! | | |
//! |---|---|
//! | [`Store::operation`] | runs a closure once for a key, and answers with what it returned ever after |
//! | [`Store::begin_operation`] | the same in parts: an open transaction, or what became of the operation before |
//! | [`Store::lease_operation`] | for what has to call others half-way: the key is held without a transaction |
//! | [`Store::unfinished_operations`] | what has called somebody, or may have, and never ended |
//! | [`Store::purge_operations`] | deletes what nobody needs to remember |
//! | [`Store::erase_operations`] | blanks what is kept of a tenant or of one of its principals |
//!
//! What [`Operation::commit`] stores is what everybody gets who asks again with the same key, until it expires. An
//! operation that is dropped or given up leaves its key free.
mod claim;
mod codec;
mod compare;
mod erase;
mod lease;
mod purge;
mod run;
pub(crate) mod statements;
mod token;
mod unfinished;

pub use lease::Lease;
pub use run::{OperationError, Outcome};
pub use unfinished::{UNFINISHED_MAX, Unfinished};

use crate::{
    Dialect, Error, ErrorKind, Store, Tx,
    error::sqlstate,
    guarded::Guarded,
    scope::Scope,
    sql::Statements,
    sql::query,
    text::{hex, text},
};
use compare::Comparison;
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use std::{fmt, sync::Arc, time::Duration};
use twinbox_core::{FingerprintAlgorithm, Fingerprinted, id};
use uuid::Uuid;

/// Whose key it is, and for what: keys of others and of other operations are other keys.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct OperationKey {
    /// Whose data it is about. Empty where there is only one tenant.
    pub tenant: String,
    /// The caller, by a name that stays when credentials change. Empty where it does not matter.
    pub principal: String,
    /// All of a tenant share their keys. Whoever uses the key of another then gets [`Begun::Mismatch`].
    pub is_shared: bool,
    /// What for, such as `POST_/v1/payments`.
    pub scope: String,
    /// What the caller chose.
    pub key: String,
}

impl OperationKey {
    fn parts(&self) -> [&[u8]; 4] {
        let principal = if self.is_shared { "" } else { &self.principal };
        [&self.tenant, principal, &self.scope, &self.key].map(str::as_bytes)
    }

    /// SHA-256 over the length-prefixed parts: what the key is stored under.
    pub fn slot(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix("slot/1");
        for part in self.parts() {
            hash.update(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// The id for what the operation makes at `service`, as [`id::domain`] derives it: as a primary key it is a second
    /// guard, which holds longer than the key is remembered. See [`insert_or_existing`](crate::insert_or_existing).
    pub fn domain_id(&self, service: &str) -> Uuid {
        let [tenant, principal, scope, key] = self.parts();
        id::domain([service.as_bytes(), tenant, principal, scope, key])
    }
}

/// For how long the transactions of operations stand still at most, unless somebody says otherwise.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);

/// Without the key, which may tell who paid for what: the first digits of its digest.
impl fmt::Debug for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = hex(&self.slot()[..4]);
        f.debug_struct("OperationKey")
            .field("scope", &self.scope)
            .field("slot", &slot)
            .finish_non_exhaustive()
    }
}

/// How an operation is compared, waited for and remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationPolicy {
    /// For how long somebody who is at it is waited for. Default: 2 s.
    pub wait: Duration,
    /// For how long it is remembered. Default: 24 h.
    pub keep: Duration,
    /// For how long its transaction may stand still between two statements, before Postgres ends it: whoever lost power
    /// holds its key for so long. Default: 60 s.
    pub idle_max: Duration,
    /// How requests are compared.
    pub algorithm: FingerprintAlgorithm,
    /// How many keys of one principal may be remembered at a time, whatever they are for. Default: any number. They are
    /// counted, by an index, for each new key; what is done at the same moment is not counted.
    pub live_max: Option<u32>,
    /// Whether the text of the key is kept, for operators. Default: it is. Its digest is, in any case.
    pub keeps_text: bool,
}

impl Default for OperationPolicy {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(2),
            keep: Duration::from_secs(24 * 3600),
            idle_max: IDLE_MAX,
            algorithm: FingerprintAlgorithm::default(),
            live_max: None,
            keeps_text: true,
        }
    }
}

/// What an operation ended with, as it is stored and given out again, byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The status of HTTP, or a code of one's own.
    pub code: u16,
    /// Headers, or what else goes with the body.
    pub headers: Vec<u8>,
    /// The body.
    pub body: AnswerBody,
    /// It is a failure that is final, and nothing else was written.
    pub failed: bool,
}

/// The body of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerBody {
    /// As it was.
    Inline(Vec<u8>),
    /// Too large: it can be made again from what has this name.
    Reference(String),
    /// Too large, and gone.
    Omitted,
}

impl Default for AnswerBody {
    fn default() -> Self {
        Self::Inline(Vec::new())
    }
}

impl AnswerBody {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Inline(_) => "inline",
            Self::Reference(_) => "ref",
            Self::Omitted => "omitted",
        }
    }
}

/// What became of an operation that was asked for.
#[derive(Debug)]
pub enum Begun<T> {
    /// Nobody has done it: do it.
    Open(T),
    /// It was done before.
    Known(Answer),
    /// The key was used for another request, or is about to be.
    Mismatch,
    /// Somebody is doing it, for longer than was to be waited for.
    InFlight,
    /// The principal has as many keys as it may have.
    TooMany,
}

impl<T> Begun<T> {
    /// With something else for who may do it.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Begun<U> {
        match self {
            Self::Open(open) => Begun::Open(map(open)),
            Self::Known(answer) => Begun::Known(answer),
            Self::Mismatch => Begun::Mismatch,
            Self::InFlight => Begun::InFlight,
            Self::TooMany => Begun::TooMany,
        }
    }
}

/// An operation that nobody else does until it ends, and its transaction. Dropped, it rolls back and the key is free.
#[expect(missing_debug_implementations, reason = "holds an open transaction")]
pub struct Operation<DB: Dialect> {
    tx: Guarded<DB>,
    /// None: it has no key, and happens as often as it is asked for.
    slot: Option<[u8; 32]>,
    /// The lease that waits for it to end. Dropped after the transaction.
    entered: Option<lease::Entered>,
}

impl<DB: Dialect> Operation<DB> {
    pub(crate) fn without_key(tx: Guarded<DB>) -> Self {
        Self { tx, slot: None, entered: None }
    }

    /// The transaction. What is published in it has fresh ids.
    pub fn tx(&mut self) -> Tx<'_, DB> {
        self.tx.tx()
    }

    /// What messages published from here on carry: by default the correlation id is
    /// [`OperationKey::domain_id`].
    pub fn correlate(&mut self, correlation_id: Option<String>, traceparent: Option<String>) {
        let cause = &mut self.tx.scope.cause;
        cause.correlation = correlation_id.or_else(|| cause.correlation.take());
        cause.traceparent = traceparent.or_else(|| cause.traceparent.take());
    }

    /// Commits what was written in the transaction, and the answer, if it has a key.
    ///
    /// # Errors
    /// Nothing is written, and the key is free: the transaction was ended by another, lost to an error that was
    /// ignored, or the database refused. [`ErrorKind::CommitUnknown`]: ask [`Store::find_operation`].
    pub async fn commit(mut self, answer: &Answer) -> Result<(), Error> {
        if let Err(error) = self.store(answer).await {
            self.abandon().await;
            return Err(error);
        }
        self.tx.commit().await
    }

    async fn store(&mut self, answer: &Answer) -> Result<(), Error> {
        let Some(slot) = self.slot else { return self.tx.allow_commit().await };
        let guard = self.tx.allow_answer().await?;
        let statements = self.tx.scope.statements.clone();
        let (mut body, mut reference, mut codec_headers) = (None, None, None);
        match &answer.body {
            AnswerBody::Inline(plain) => {
                let encoded = codec::encode(&statements.codecs, &slot, plain)?;
                (body, codec_headers) = (Some(encoded.0), encoded.1);
            }
            AnswerBody::Reference(name) => reference = Some(text(name).into_owned()),
            AnswerBody::Omitted => {}
        }
        let stored = query::<DB>(&statements.answer_operation)
            .bind(if answer.failed { "failed" } else { "complete" }.to_owned())
            .bind(i64::from(answer.code))
            .bind(answer.headers.clone())
            .bind(body)
            .bind(answer.body.kind().to_owned())
            .bind(reference)
            .bind(codec_headers)
            .bind(slot.to_vec())
            .bind(guard)
            .fetch_optional(self.tx.connection())
            .await;
        match stored {
            // Of a row that this made: the one that was claimed is gone.
            Ok(Some(row)) if row.try_get::<String, _>(0)?.is_empty() => {
                Err(Error::new(ErrorKind::LeaseLost, "the key of the operation was deleted while it ran"))
            }
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(crate::dialect::transaction_ended()),
            Err(error) if sqlstate(&error).as_deref() == Some("25P02") => {
                Err(crate::dialect::transaction_aborted())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Rolls back: nothing is written, and the key is free.
    pub async fn abandon(self) {
        let Self { tx, entered, .. } = self;
        tx.rollback().await;
        drop(entered);
    }
}

impl<DB: Dialect> Store<DB> {
    /// Begins an operation that nobody has given a key: it happens as often as it is asked for.
    ///
    /// # Errors
    /// The database refused or is away, or on SQLite others write for too long.
    pub async fn begin_without_key(&self) -> Result<Operation<DB>, Error> {
        let mut tx = self.begin().await?;
        let guard = DB::guard(tx.connection(), self.statements(), IDLE_MAX).await?;
        let scope = Scope::of_operation(self.statements().clone(), Uuid::now_v7());
        Ok(Operation::without_key(Guarded::new(tx, guard, scope)))
    }

    /// What an operation ended with, if it did and if it was this `request`. After [`ErrorKind::CommitUnknown`] it tells
    /// what happened.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn find_operation(
        &self,
        key: &OperationKey,
        request: Fingerprinted<'_>,
    ) -> Result<Option<Answer>, Error> {
        let mut conn = self.connection().await?;
        let known = find::<DB>(&mut conn, self.statements(), &key.slot()).await?;
        conn.done().await?;
        let known = known.filter(|known| !known.has_expired && known.is_of(key, request));
        known
            .and_then(|known| known.answer)
            .map(|answer| answer.open(self.statements(), &key.slot()))
            .transpose()
    }
}

/// A row.
struct Known {
    compared: String,
    hash: Vec<u8>,
    principal: String,
    has_expired: bool,
    /// None: somebody is at it, or was.
    answer: Option<Kept>,
}

/// An answer as it is kept.
struct Kept {
    answer: Answer,
    codec_headers: Option<String>,
}

impl Kept {
    fn open(self, statements: &Statements, slot: &[u8; 32]) -> Result<Answer, Error> {
        let Self { mut answer, codec_headers } = self;
        if let AnswerBody::Inline(body) = &mut answer.body {
            *body = codec::decode(&statements.codecs, slot, std::mem::take(body), codec_headers)?;
        }
        Ok(answer)
    }
}

impl Known {
    /// That of an earlier release counts, so that a deployment makes nobody's retry a mismatch.
    fn comparison(&self) -> Option<Comparison<'static>> {
        Comparison::stored(&self.compared)
    }

    fn is_of(&self, key: &OperationKey, what: Fingerprinted<'_>) -> bool {
        let asked = self.comparison().map(|comparison| comparison.of(what));
        // Of a key that is not shared the slot tells the principal, whose name may be erased.
        let is_erased = self.principal.is_empty() && !key.is_shared;
        (is_erased || text(&key.principal) == self.principal)
            && asked.is_some_and(|(asked, compared)| {
                compared == self.compared && asked.digest()[..] == self.hash[..]
            })
    }
}

async fn find<DB: Dialect>(
    conn: &mut DB::Connection,
    statements: &Arc<Statements>,
    slot: &[u8; 32],
) -> Result<Option<Known>, Error> {
    let row = query::<DB>(&statements.find_operation).bind(slot.to_vec()).fetch_optional(conn).await?;
    let Some(row) = row else { return Ok(None) };
    let (status, kind): (String, String) = (row.try_get(3)?, row.try_get(7)?);
    let body = match &*kind {
        "inline" => AnswerBody::Inline(row.try_get::<Option<_>, _>(6)?.unwrap_or_default()),
        "ref" => AnswerBody::Reference(row.try_get::<Option<_>, _>(8)?.unwrap_or_default()),
        _ => AnswerBody::Omitted,
    };
    let (code, codec_headers): (Option<i64>, _) = (row.try_get(4)?, row.try_get(9)?);
    let answer = Answer {
        code: code.and_then(|code| u16::try_from(code).ok()).unwrap_or_default(),
        headers: row.try_get::<Option<_>, _>(5)?.unwrap_or_default(),
        body,
        failed: status == "failed",
    };
    Ok(Some(Known {
        hash: row.try_get(0)?,
        compared: row.try_get(1)?,
        principal: row.try_get(2)?,
        has_expired: row.try_get(10)?,
        answer: (status != "pending").then_some(Kept { answer, codec_headers }),
    }))
}

/// What is published in the transaction of an operation has fresh ids: the same key may be used again when it has
/// expired, and what is published then is not what was published before.
fn scope(statements: &Arc<Statements>, key: &OperationKey) -> Scope {
    Scope::of_operation(statements.clone(), key.domain_id(&statements.service))
}
