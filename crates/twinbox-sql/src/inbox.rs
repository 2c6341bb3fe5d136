//! Claims, attempts and dead letters of consumers.
//!
//! [`Inbox::claim`] begins the transaction of a delivery with the claim as its first statement. The handler's
//! writes commit together with the claim, or not at all. Failures are counted in a table of their own: an
//! inbox row that a failed attempt left behind would make the retry a duplicate.
mod attempt;
mod claims;
mod control;
mod dead_letter;
mod dead_letters;
mod handle;
mod purge;
mod redrives;
mod starts;
mod supersede;

pub use crate::dialect::{ClaimFence, ClaimTerms};
pub use attempt::{Attempt, BatchClaim, Duplicate, InboxClaim};
pub use control::HEARTBEAT;
pub use dead_letter::{DeadReason, Redrive, StoredDeadLetter};
pub use handle::Inbox;
pub use redrives::REDRIVE_ATTEMPTS;
pub use supersede::Superseding;
