//! One step of the purge of the log.

/// The messages that one step deletes, at most.
pub const PURGE_BATCH: u32 = 1000;

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purged {
    /// How many messages were deleted.
    pub messages: u64,
    /// The position to go on after. None: nothing more can go.
    pub next: Option<i64>,
}

impl Purged {
    /// Nothing can go.
    pub const NOTHING: Self = Self { messages: 0, next: None };
}
