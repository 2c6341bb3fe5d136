//! Webhooks that come in: the receipt and what follows from it in one transaction.
use crate::{
    Dialect, Error, Store,
    guarded::Guarded,
    micros::micros,
    operation::{IDLE_MAX, Operation},
    scope::Scope,
    sql::query,
    text::{hex, text},
};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use std::{borrow::Cow, time::Duration};
use twinbox_core::id;

/// Longer ids are told apart by their digests.
const ID_BYTES_MAX: usize = 255;

/// What tells a webhook from others, and what it holds.
#[derive(Debug, Clone, Copy)]
pub struct Receipt<'a> {
    /// Who has sent it.
    pub provider: &'a str,
    /// Where to: ids of other endpoints are other ids.
    pub endpoint: &'a str,
    /// The id that its sender has signed. None: the digest of the payload.
    pub id: Option<ReceiptId<'a>>,
    /// The bytes that were signed.
    pub payload: &'a [u8],
    /// Which of the receiver's secrets it was signed with, by their order.
    pub secret: usize,
}

/// An id, and where it was signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum ReceiptId<'a> {
    Header(&'a str),
    Body(&'a str),
}

/// What became of a webhook.
#[expect(missing_debug_implementations, reason = "holds an open transaction")]
pub enum Received<DB: Dialect> {
    /// It is new: write what follows from it, and commit. Dropped, it was not received.
    Open(Operation<DB>),
    /// It came before. Nothing is to be done.
    Duplicate {
        /// What came before under this id had another payload: an alarm.
        payload_differs: bool,
    },
}

impl Receipt<'_> {
    fn id(&self) -> (Cow<'_, str>, &'static str) {
        let digest = |bytes: &[u8]| hex(&Sha256::digest(bytes));
        let short = |id| match text(id) {
            id if id.len() <= ID_BYTES_MAX => id,
            id => digest(id.as_bytes()).into(),
        };
        match self.id {
            Some(ReceiptId::Header(id)) => (short(id), "header"),
            Some(ReceiptId::Body(id)) => (short(id), "body"),
            None => (digest(self.payload).into(), "digest"),
        }
    }
}

impl<DB: Dialect> Store<DB> {
    /// Begins the transaction of a webhook with its receipt, which is kept for `keep`: for longer than its sender tries
    /// again.
    ///
    /// # Errors
    /// The database refused or is away, or another copy is being received for longer than 2 s: nothing was done, and the
    /// sender should try again.
    pub async fn receive(&self, receipt: &Receipt<'_>, keep: Duration) -> Result<Received<DB>, Error> {
        let mut tx = self.begin().await?;
        let (dedup_id, basis) = receipt.id();
        let (provider, endpoint) = (text(receipt.provider).into_owned(), text(receipt.endpoint).into_owned());
        let payload_hash = Sha256::digest(receipt.payload).to_vec();
        let new = query::<DB>(&self.statements().receive)
            .bind(provider.clone())
            .bind(endpoint.clone())
            .bind(dedup_id.clone().into_owned())
            .bind(basis.to_owned())
            .bind(payload_hash.clone())
            .bind(i64::try_from(receipt.secret).unwrap_or(i64::MAX))
            .bind(micros(keep))
            .fetch_optional(tx.connection())
            .await?;
        if new.is_some() {
            let parts = [&*provider, &*endpoint, &*dedup_id].map(str::as_bytes);
            let guard = DB::guard(tx.connection(), self.statements(), IDLE_MAX).await?;
            let scope = Scope::of_operation(self.statements().clone(), id::derive("webhook/1", &parts));
            return Ok(Received::Open(Operation::without_key(Guarded::new(tx, guard, scope))));
        }
        let before = query::<DB>(&self.statements().received)
            .bind(provider)
            .bind(endpoint)
            .bind(dedup_id.into_owned())
            .fetch_optional(tx.connection())
            .await?;
        let before = before.map(|row| row.try_get::<Vec<u8>, _>(0)).transpose()?;
        tx.rollback().await?;
        Ok(Received::Duplicate { payload_differs: before.is_some_and(|before| before != payload_hash) })
    }
}
