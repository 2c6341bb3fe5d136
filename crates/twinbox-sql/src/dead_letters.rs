//! Messages that were given up: those of consumers, and those of destinations. An owner is either.
mod action;
mod bulk_action;
mod filter;
mod fingerprint;
mod id;
mod item;
mod pages;

pub use action::DeadLetterAction;
pub use bulk_action::{BulkAction, BulkActionState};
pub use filter::DeadLetterFilter;
#[doc(hidden)]
pub use fingerprint::{consumer_fingerprint, destination_fingerprint};
pub use id::{DeadLetterId, DeadLetterOwner};
pub use item::{DEAD_LETTERS_MAX, DeadLetter, DeadLetterGroup, LATELY};
#[doc(hidden)]
pub use pages::{Place, find, of_event, page_after, page_before};
