//! Idempotency keys for vendors, which forget their keys.
use crate::{Error, ErrorKind, dialect::OperationRow};
use std::collections::BTreeMap;
use tokio::sync::Mutex;
use twinbox_core::id;
use uuid::Uuid;

/// Bytes that a row holds of tokens.
pub(super) const BYTES_MAX: usize = 16 * 1024;

/// The tokens that were given out.
pub(super) struct Tokens {
    /// The operation and the time at which its key was taken, from which tokens are derived. A key that is
    /// used again has other tokens.
    operation: Uuid,
    /// In microseconds since 1970, by kind and generation.
    pub(super) given: Mutex<BTreeMap<String, i64>>,
}

impl Tokens {
    pub(super) fn of(row: &OperationRow, domain_id: &Uuid) -> Result<Self, Error> {
        let made_at = row.created_at.as_micros().to_be_bytes();
        let given = row.tokens.as_deref().map(serde_json::from_str).transpose().map_err(|error| {
            let what = "what an operation keeps of its tokens is not what this program writes";
            Error::new(ErrorKind::Configuration, what).with_source(error)
        })?;
        Ok(Self {
            operation: id::derive("operation/1", &[domain_id.as_bytes(), &made_at]),
            given: Mutex::new(given.unwrap_or_default()),
        })
    }

    /// Whether one was given out.
    pub(super) async fn are_given(&self) -> bool {
        !self.given.lock().await.is_empty()
    }

    pub(super) fn token(&self, kind: &str, generation: u32) -> String {
        let parts = [self.operation.as_bytes(), kind.as_bytes(), &generation.to_be_bytes()];
        id::derive("token/1", &parts).to_string()
    }
}
