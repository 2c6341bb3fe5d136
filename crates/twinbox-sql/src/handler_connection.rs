//! Recognises the connection of a running handler by its address.
//!
//! A handler can begin a nested `sqlx::Transaction` on the connection of its own transaction. The nested
//! transaction does not know the delivery, so publishing with it is refused.
use std::cell::Cell;

tokio::task_local! {
    /// The address that was recorded last, 0 before. It is only compared. The connection stays where it is
    /// until the handler returns.
    static CONNECTION_ADDRESS: Cell<usize>;
}

/// Runs a handler in a scope that remembers the connection of its transaction.
#[doc(hidden)]
pub async fn run_handler<T>(handler: impl Future<Output = T>) -> T {
    CONNECTION_ADDRESS.scope(Cell::new(0), handler).await
}

/// Records the connection of the handler's transaction. Outside a handler it does nothing.
pub(crate) fn record<C>(conn: &C) {
    let _ = CONNECTION_ADDRESS.try_with(|address| address.set(std::ptr::from_ref(conn).addr()));
}

/// Whether this is the connection of the running handler's transaction.
pub(crate) fn is_recorded<C>(conn: &C) -> bool {
    CONNECTION_ADDRESS.try_with(|address| address.get() == std::ptr::from_ref(conn).addr()).unwrap_or(false)
}
