//! Operations that a caller may repeat: the key, the effect and the response in one transaction.
//!
//! - [`Store::operation`](crate::Store::operation) runs a closure once for a key.
//! - [`IdempotencyKeys::begin`] is the same in parts: an open transaction, or the earlier result.
//! - [`IdempotencyKeys::lease`] holds the key without a transaction, for operations that call vendors
//!   half-way.
//! - [`IdempotencyKeys::unfinished`] lists operations that may have called a vendor, and never ended.
//! - [`IdempotencyKeys::purge`] deletes expired keys.
//! - [`IdempotencyKeys::erase`] blanks the data of a tenant or of one of its principals.
//!
//! Whoever asks again with the same key gets the response that [`Operation::commit`] stored, until the key
//! expires. An operation that is dropped or abandoned leaves its key free.
mod claim;
mod codec;
mod compare;
mod digest;
mod handle;
mod key;
mod lease;
mod maintenance;
mod response;
mod run;
mod start;
mod stored;
mod token;
mod transaction;
mod unfinished;
mod vendor_tokens;

pub use digest::RequestDigest;
pub use handle::IdempotencyKeys;
pub(crate) use key::IDLE_MAX;
pub use key::{OperationKey, OperationPolicy};
pub use lease::OperationLease;
pub use response::{OperationResponse, ResponseBody};
pub use run::{OperationError, OperationOutcome};
pub use start::OperationStart;
pub use transaction::Operation;
pub use unfinished::{UNFINISHED_MAX, UnfinishedOperation};
