//! The transaction of an operation.
use super::{
    codec::{self, ResponseKey},
    key::OperationKey,
    response::{OperationResponse, ResponseBody},
};
use crate::{
    Dialect, Error, ErrorKind, Tx,
    catalog::Catalog,
    guarded::Guarded,
    row::TextColumns,
    scope::Scope,
    spare_connections::SpareConnections,
    statement::{Query, query},
    text::text,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Release},
};
use twinbox_core::message::TraceContext;

/// The open transaction of an operation, which no other process runs meanwhile. Dropped, it rolls back and
/// the key is free.
#[expect(missing_debug_implementations, reason = "holds an open transaction")]
pub struct Operation<DB: Dialect> {
    tx: Guarded<DB>,
    /// None: it has no key, and runs as often as it is asked for.
    key: Option<ResponseKey>,
    /// Provider, endpoint and id of the webhook whose receipt ends with the commit.
    receipt: Option<Box<[String; 3]>>,
    /// Tells the lease that its transaction is open. Dropped after the transaction.
    last_transaction: Option<LastTransaction>,
    /// Where the connection goes after the commit. None: back to the pool.
    spares: Option<Arc<SpareConnections<DB>>>,
}

/// A lease whose last transaction is open, until this is dropped.
pub(super) struct LastTransaction(pub(super) Arc<AtomicBool>);

impl Drop for LastTransaction {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

impl<DB: Dialect> Operation<DB> {
    pub(crate) fn without_key(tx: Guarded<DB>) -> Self {
        Self { tx, key: None, receipt: None, last_transaction: None, spares: None }
    }

    pub(crate) fn of_webhook(tx: Guarded<DB>, receipt: [String; 3]) -> Self {
        Self { receipt: Some(Box::new(receipt)), ..Self::without_key(tx) }
    }

    pub(super) fn with_key(
        tx: Guarded<DB>,
        key: &OperationKey,
        last_transaction: Option<LastTransaction>,
    ) -> Self {
        Self { key: Some(ResponseKey::of(key)), last_transaction, ..Self::without_key(tx) }
    }

    pub(super) fn keep_connection(self, spares: Option<Arc<SpareConnections<DB>>>) -> Self {
        Self { spares, ..self }
    }

    /// Returns the transaction of the operation. Published events get fresh ids.
    pub fn tx(&mut self) -> Tx<'_, DB> {
        self.tx.tx()
    }

    /// Sets the correlation id and the trace of messages that are published from here on. By default the
    /// correlation id is [`OperationKey::domain_id`].
    pub fn correlate(&mut self, correlation_id: Option<String>, trace: Option<TraceContext>) {
        let cause = &mut self.tx.scope.cause;
        cause.correlation = correlation_id.or_else(|| cause.correlation.take());
        cause.trace = trace.or_else(|| cause.trace.take());
    }

    /// Commits the writes of the transaction together with the response, if the operation has a key.
    ///
    /// # Errors
    /// Nothing is written, and the key is free: the transaction was ended by the handler, aborted by an
    /// error that was ignored, or the database refused. Where a COMMIT of the handler's own [is not
    /// refused](crate::Capabilities::refuses_commit), what came before it stays, and the key is taken.
    /// [`ErrorKind::CommitUnknown`]: ask [`IdempotencyKeys::find`](super::IdempotencyKeys::find).
    pub async fn commit(mut self, response: &OperationResponse) -> Result<(), Error> {
        if let Err(error) = self.store(response).await {
            self.abandon().await;
            return Err(error);
        }
        match self.spares {
            Some(spares) => spares.keep(self.tx.commit_allowed().await?, None),
            None => self.tx.commit().await?,
        }
        Ok(())
    }

    async fn store(&mut self, response: &OperationResponse) -> Result<(), Error> {
        if let Some(receipt) = self.receipt.take() {
            self.end_receipt(*receipt).await?;
        }
        let Some(key) = &self.key else { return self.tx.allow_commit().await };
        let guard = self.tx.allow_response().await?;
        let catalog = self.tx.scope.catalog.clone();
        let (mut body, mut reference, mut codec_headers) = (None, None, None);
        match &response.body {
            ResponseBody::Inline(plain) => {
                let encoded = codec::encode(&catalog, key, response, plain)?;
                (body, codec_headers) = (Some(encoded.0), encoded.1);
            }
            ResponseBody::Reference(name) => reference = Some(text(name).into_owned()),
            ResponseBody::Omitted => {}
        }
        let complete = query::<DB>(&catalog.sql.operations.complete)
            .bind(response.status().to_owned())
            .bind(i64::from(response.code))
            .bind(response.headers.clone())
            .bind(body)
            .bind(response.body.kind().to_owned())
            .bind(reference)
            .bind(codec_headers)
            .bind(key.slot.to_vec())
            .bind(guard);
        if !DB::HAS_RETURNING {
            let stored = complete.execute(self.tx.connection()).await.map_err(Error::of_last_statement)?;
            if DB::rows_affected(&stored) > 0 {
                return Ok(());
            }
            DB::ensure_whole(self.tx.connection()).await?;
            return Err(deleted());
        }
        match complete.fetch_optional(self.tx.connection()).await.map_err(Error::of_last_statement)? {
            // The statement inserted a row: the claimed one is gone.
            Some(row) if row.text("hash_alg")?.is_empty() => Err(deleted()),
            Some(_) => Ok(()),
            None => Err(Error::transaction_ended()),
        }
    }

    async fn end_receipt(&mut self, receipt: [String; 3]) -> Result<(), Error> {
        let catalog = self.tx.scope.catalog.clone();
        let end = receipt.into_iter().fold(query::<DB>(&catalog.sql.webhooks.end), Query::bind);
        end.execute(self.tx.connection()).await?;
        Ok(())
    }

    /// Rolls the writes back and frees the key.
    pub async fn abandon(self) {
        let Self { tx, last_transaction, .. } = self;
        tx.rollback().await;
        drop(last_transaction);
    }
}

fn deleted() -> Error {
    Error::new(ErrorKind::LeaseLost, "the key of the operation was deleted while it ran")
}

/// The scope of an operation. Published events get fresh ids: the same key may be used again when it has
/// expired, and publishes other events then.
pub(super) fn scope(catalog: &Arc<Catalog>, key: &OperationKey) -> Scope {
    Scope::of_operation(catalog.clone(), key.domain_id(&catalog.service))
}
