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
    /// COMMIT in a handler or an operation commits nothing: the attempt fails, and may be repeated. Elsewhere
    /// what came before the COMMIT stays, and what comes after it is rolled back. This is noticed. The
    /// attempt fails, and the message becomes a dead letter instead of running again; a request with the same
    /// key, or another copy of a webhook, is refused.
    pub refuses_commit: bool,
    /// A request is told at once that another request with its key, and with another body, is under way.
    /// Elsewhere it waits for that one, at most for
    /// [`OperationPolicy::wait`](crate::operation::OperationPolicy::wait).
    pub early_mismatch: bool,
}
