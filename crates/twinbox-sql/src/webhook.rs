//! Webhooks that come in: the receipt and its effects in one transaction.
use crate::{
    Dialect, Error, Store,
    change::inserted,
    guarded::Guarded,
    micros::micros,
    operation::{IDLE_MAX, Operation},
    scope::Scope,
    statement::query,
    text::{hex, text},
};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use std::{borrow::Cow, time::Duration};
use twinbox_core::id;

/// Longer ids are stored by their digests.
const ID_BYTES_MAX: usize = 255;

/// A webhook that was received and verified.
#[derive(Debug, Clone, Copy)]
pub struct WebhookReceipt<'a> {
    /// The sender.
    pub provider: &'a str,
    /// The endpoint. Ids of other endpoints are other ids.
    pub endpoint: &'a str,
    /// The id that the sender signed. None: the digest of the payload.
    pub id: Option<WebhookId<'a>>,
    /// The bytes that were signed.
    pub payload: &'a [u8],
    /// The number of the receiver's secret that the webhook was signed with.
    pub secret_index: usize,
}

/// The id of a webhook, and where its sender signed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum WebhookId<'a> {
    Header(&'a str),
    Body(&'a str),
}

/// The result of receiving a webhook.
#[expect(missing_debug_implementations, reason = "holds an open transaction")]
pub enum WebhookClaim<DB: Dialect> {
    /// The webhook is new: write its effects, and commit. Dropped, it was not received.
    Open(Operation<DB>),
    /// The webhook was received before: do nothing.
    Duplicate {
        /// The earlier webhook with this id had another payload. Raise an alarm.
        payload_differs: bool,
    },
}

impl WebhookReceipt<'_> {
    fn id(&self) -> (Cow<'_, str>, &'static str) {
        let digest = |bytes: &[u8]| hex(&Sha256::digest(bytes));
        let short = |id| match text(id) {
            id if id.len() <= ID_BYTES_MAX => id,
            id => digest(id.as_bytes()).into(),
        };
        match self.id {
            Some(WebhookId::Header(id)) => (short(id), "header"),
            Some(WebhookId::Body(id)) => (short(id), "body"),
            None => (digest(self.payload).into(), "digest"),
        }
    }
}

impl<DB: Dialect> Store<DB> {
    /// Begins the transaction of a webhook with its receipt, which is remembered for `keep`: longer than its
    /// sender retries. Postgres and MariaDB end a statement of it, and a pause between two, that takes longer
    /// than a minute; MySQL the pause.
    ///
    /// # Errors
    /// The database refused or is away, or another copy is being received for longer than 2 s: nothing was
    /// done, and the sender should try again.
    pub async fn receive_webhook(
        &self,
        receipt: &WebhookReceipt<'_>,
        keep: Duration,
    ) -> Result<WebhookClaim<DB>, Error> {
        self.receive_webhook_within(receipt, keep, IDLE_MAX).await
    }

    /// The same for a handler with a time-out in the place of the minute.
    ///
    /// # Errors
    /// As [`receive_webhook`](Self::receive_webhook).
    pub async fn receive_webhook_within(
        &self,
        receipt: &WebhookReceipt<'_>,
        keep: Duration,
        handler_timeout: Duration,
    ) -> Result<WebhookClaim<DB>, Error> {
        let engine = self.engine();
        let mut tx = engine.begin_to_claim().await?;
        let mut guard = None;
        if DB::GUARDS_FIRST {
            guard = Some(DB::guard(tx.connection(), engine.catalog(), handler_timeout).await?);
        }
        let sql = &engine.sql().webhooks;
        let (dedup_id, basis) = receipt.id();
        let (provider, endpoint) = (text(receipt.provider).into_owned(), text(receipt.endpoint).into_owned());
        let payload_hash = Sha256::digest(receipt.payload).to_vec();
        let is_new = async {
            if !sql.forget_expired.is_absent() {
                query::<DB>(&sql.forget_expired)
                    .bind(provider.clone())
                    .bind(endpoint.clone())
                    .bind(dedup_id.clone().into_owned())
                    .execute(tx.connection())
                    .await?;
            }
            let receive = query::<DB>(&sql.receive)
                .bind(provider.clone())
                .bind(endpoint.clone())
                .bind(dedup_id.clone().into_owned())
                .bind(basis.to_owned())
                .bind(payload_hash.clone())
                .bind(i64::try_from(receipt.secret_index).unwrap_or(i64::MAX))
                .bind(micros(keep));
            inserted::<DB>(tx.connection(), receive).await
        };
        let is_new = match is_new.await {
            Ok(is_new) => is_new,
            Err(error) => {
                let _ = tx.rollback().await;
                return Err(error.of_claim());
            }
        };
        if is_new {
            let guard = match guard {
                Some(guard) => guard,
                None => DB::guard(tx.connection(), engine.catalog(), handler_timeout).await?,
            };
            let parts = [&*provider, &*endpoint, &*dedup_id].map(str::as_bytes);
            let scope = Scope::of_operation(engine.catalog().clone(), id::derive("webhook/1", &parts));
            let tx = Guarded::new(tx, guard, scope);
            if sql.end.is_absent() {
                return Ok(WebhookClaim::Open(Operation::without_key(tx)));
            }
            let receipt = [provider, endpoint, dedup_id.into_owned()];
            return Ok(WebhookClaim::Open(Operation::of_webhook(tx, receipt)));
        }
        let before = query::<DB>(&sql.payload_hash)
            .bind(provider)
            .bind(endpoint)
            .bind(dedup_id.into_owned())
            .fetch_optional(tx.connection())
            .await?;
        tx.rollback().await?;
        let Some(before) = before else { return Ok(WebhookClaim::Duplicate { payload_differs: false }) };
        if before.try_get("is_open")? {
            return Err(Error::partly_committed());
        }
        let payload_differs = before.try_get::<Vec<u8>, _>("payload_hash")? != payload_hash;
        Ok(WebhookClaim::Duplicate { payload_differs })
    }
}
