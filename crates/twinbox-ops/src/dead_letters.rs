//! Dead letters of relays and consumers alike: listing, grouping, redriving and discarding them.
//!
//! A dead letter of a consumer is a message with its error, one of a relay a message that its destination
//! refused.
mod acts;
mod bulk;
mod groups;
mod pages;

pub use bulk::BulkPlan;
pub use groups::GROUPS_MAX;
pub use pages::{DEAD_LETTERS_SCANNED_MAX, DeadLetterPage, DeadLetterPlace};
pub use twinbox_sql::dead_letters::{
    BulkAction, BulkActionState, DEAD_LETTERS_MAX, DeadLetter, DeadLetterAction, DeadLetterFilter,
    DeadLetterGroup, DeadLetterId, DeadLetterOwner, LATELY,
};
