//! Differences between databases that users notice.

/// The differences between databases that users notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// A constraint may be checked at the end of its transaction. A dry run checks it before it rolls back,
    /// where the database has a statement for that.
    pub deferred_constraints: bool,
    /// A statement that fails aborts its transaction: nothing of it can be committed, also if the error is
    /// ignored. Elsewhere the statement alone is undone.
    pub errors_abort: bool,
    /// The server refuses COMMIT and ROLLBACK in a handler or an operation. If the refusal is ignored, the
    /// transaction goes on whole. Elsewhere the statement ends the transaction, which is noticed: the attempt
    /// fails.
    pub refuses_commit: bool,
    /// A request is told at once that another request with its key, and with another body, is under way.
    /// Elsewhere it waits for that one, at most for
    /// [`OperationPolicy::wait`](crate::operation::OperationPolicy::wait).
    pub early_mismatch: bool,
}
