//! Which connection a handler works on, for transactions that it begins inside of its own.
use std::cell::Cell;

tokio::task_local! {
    /// Where the connection lies while the handler borrows it. Compared, and nothing else.
    static HANDLED: Cell<usize>;
}

/// Runs a handler. What is published by another view of the transaction that it was given is refused.
#[doc(hidden)]
pub async fn handled<T>(work: impl Future<Output = T>) -> T {
    HANDLED.scope(Cell::new(0), work).await
}

pub(crate) fn begin<C>(conn: &C) {
    let _ = HANDLED.try_with(|handled| handled.set(std::ptr::from_ref(conn).addr()));
}

/// Whether a handler that runs was given this connection.
pub(crate) fn is_handled<C>(conn: &C) -> bool {
    HANDLED.try_with(|handled| handled.get() == std::ptr::from_ref(conn).addr()).unwrap_or(false)
}
