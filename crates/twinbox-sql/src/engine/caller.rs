//! The open transaction of a caller, for crates that write rows of their own.
use crate::{Dialect, InTransaction};
use twinbox_core::{message::TraceContext, trace};

/// An open transaction, and what it knows about the delivery or the request that it belongs to.
#[expect(missing_debug_implementations, reason = "holds a connection")]
pub struct Caller<'t, DB: Dialect> {
    /// The connection of the transaction.
    pub conn: &'t mut DB::Connection,
    /// The correlation id that new rows inherit.
    pub correlation_id: Option<String>,
    /// The trace that new rows inherit.
    pub trace: Option<TraceContext>,
    /// Whether the transaction is rolled back in any case.
    pub is_dry_run: bool,
    /// Whether it handles a message again that a replay sent.
    pub is_replay: bool,
}

/// Returns the connection and the context of a transaction. Outside of a handler the trace is that of the
/// current span.
pub fn caller<DB: Dialect>(tx: &mut impl InTransaction<DB>) -> Caller<'_, DB> {
    let (conn, mut scope) = tx.parts();
    if let Some(scope) = scope.as_deref_mut() {
        scope.wakes_readers = true;
    }
    let cause = scope.as_deref().filter(|scope| !scope.is_of_batch).map(|scope| &scope.cause);
    Caller {
        correlation_id: cause.and_then(|cause| cause.correlation.clone()),
        trace: cause.and_then(|cause| cause.trace.clone()).or_else(trace::current),
        // A batch handler gets a message of a replay by itself.
        is_replay: scope.as_deref().is_some_and(|scope| scope.cause.is_replay),
        is_dry_run: scope.is_some_and(|scope| scope.is_dry_run),
        conn,
    }
}
