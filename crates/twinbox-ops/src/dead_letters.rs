//! Dead letters of relays and consumers alike: listing, grouping, redriving and discarding them.
//!
//! A dead letter of a consumer is a message with its error, one of a relay a message that its destination
//! refused.
mod acts;
mod filter;
mod id;
mod item;

pub use filter::DeadLetterFilter;
pub use id::DeadLetterId;
pub use item::{DeadLetter, DeadLetterGroup};
