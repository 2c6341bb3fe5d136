//! The key of an operation.
use crate::text::hex;
use sha2::{Digest as _, Sha256};
use std::{fmt, time::Duration};
use twinbox_core::{FingerprintAlgorithm, id};
use uuid::Uuid;

/// How long the transactions of operations may be idle by default.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);

/// The idempotency key of an operation, with its caller and its scope. Another caller's key, or one for
/// another purpose, is another key.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct OperationKey {
    /// The tenant whose data the operation is about. Empty where there is only one.
    pub tenant: String,
    /// The caller, by a name that stays when credentials change. Empty where it does not matter.
    pub principal: String,
    /// Whether all callers of a tenant share their keys. A caller with the key of another one then gets
    /// [`OperationStart::Mismatch`](super::OperationStart::Mismatch).
    pub is_shared: bool,
    /// The purpose of the key, such as `POST_/v1/payments`.
    pub scope: String,
    /// The text that the caller chose.
    pub key: String,
}

impl OperationKey {
    pub(super) fn parts(&self) -> [&[u8]; 4] {
        let principal = if self.is_shared { "" } else { &self.principal };
        [&self.tenant, principal, &self.scope, &self.key].map(str::as_bytes)
    }

    /// Returns the primary key of the key's row: SHA-256 over the parts with their lengths.
    pub fn slot(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix("slot/1");
        for part in self.parts() {
            hash.update(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// Returns an id for the object that the operation creates at `service`, always the same one for a key.
    /// As a primary key it is a second guard that holds longer than the key is remembered. See
    /// [`insert_or_existing`](crate::transition::insert_or_existing).
    pub fn domain_id(&self, service: &str) -> Uuid {
        let [tenant, principal, scope, key] = self.parts();
        id::operation_row_id([service.as_bytes(), tenant, principal, scope, key])
    }
}

/// Without the text of the key, which may tell who paid for what: the first digits of its digest.
impl fmt::Debug for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = hex(&self.slot()[..4]);
        f.debug_struct("OperationKey")
            .field("scope", &self.scope)
            .field("slot", &slot)
            .finish_non_exhaustive()
    }
}

/// How operations are compared, how long a copy waits, and how long keys are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationPolicy {
    /// How long a running copy of the operation is waited for. Default: 2 s.
    pub wait: Duration,
    /// How long the operation and its result are remembered. Default: 24 h.
    pub keep: Duration,
    /// How long the operation's transaction may be idle between two statements before the database ends it,
    /// and on Postgres and MariaDB how long a statement may take. A process that lost power holds its key for
    /// so long. A smaller bound of the session stays. Default: 60 s.
    pub idle_max: Duration,
    /// How a repeated request is compared with the first one.
    pub algorithm: FingerprintAlgorithm,
    /// How many keys of one principal may be remembered at a time, for all purposes. Default: any number.
    /// Each new key counts them by an index. Keys that are taken at the same moment are not counted.
    pub live_max: Option<u32>,
    /// Whether the text of the key is stored, for operators. Default: yes. Its digest always is.
    pub keeps_text: bool,
    /// Whether the connection of an operation is kept for the next one on Postgres: for about 10 ms without
    /// work and 100 ms in all. Default: yes, because the pool's two pings cost as much as two statements.
    /// Turn it off if hooks of the pool have to run for each operation.
    pub keeps_connection: bool,
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
            keeps_connection: true,
        }
    }
}
