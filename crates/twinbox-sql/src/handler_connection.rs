//! The connection that a running handler was given.
//!
//! A transaction of sqlx that a handler begins inside its own knows nothing of the delivery. Publishing with
//! it is refused, and this tells that it is the same connection.
use std::cell::Cell;

tokio::task_local! {
    /// The address of the connection while the handler borrows it. It is compared, and nothing else.
    static ADDRESS: Cell<usize>;
}

/// Runs a handler so that [`is_borrowed`] knows its connection.
#[doc(hidden)]
pub async fn run_handler<T>(handler: impl Future<Output = T>) -> T {
    ADDRESS.scope(Cell::new(0), handler).await
}

/// Notes the connection that the handler borrows.
pub(crate) fn lend<C>(conn: &C) {
    let _ = ADDRESS.try_with(|address| address.set(std::ptr::from_ref(conn).addr()));
}

/// Whether a running handler borrows this connection.
pub(crate) fn is_borrowed<C>(conn: &C) -> bool {
    ADDRESS.try_with(|address| address.get() == std::ptr::from_ref(conn).addr()).unwrap_or(false)
}
