//! Transactions that sqlx counts.
use crate::{
    Error,
    statement::{STATEMENT_MAX, in_time},
};
use sqlx::Database;
use sqlx_core::transaction::TransactionManager as _;

/// Refuses a connection without exactly one transaction. None: a connection was swapped in, or a `begin` was
/// dropped half-way inside the handler. More than one: a savepoint was leaked, and sqlx's commit would only
/// release it.
pub(crate) fn exactly_one<DB: Database>(conn: &DB::Connection) -> Result<(), Error> {
    match DB::TransactionManager::get_transaction_depth(conn) {
        0 => Err(Error::transaction_ended()),
        1 => Ok(()),
        _ => Err(Error::savepoint_abandoned()),
    }
}

/// Leaves sqlx's count at one, so that its rollback means the transaction.
pub(super) async fn unwind<DB: Database>(conn: &mut DB::Connection) {
    while DB::TransactionManager::get_transaction_depth(conn) > 1 {
        if in_time(STATEMENT_MAX, DB::TransactionManager::rollback(conn)).await.is_err() {
            return;
        }
    }
}
