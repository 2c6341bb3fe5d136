//! Both ways to hold a key, on one database.
use crate::support::{
    refunds::{Refunds, STRATEGIES, Strategy},
    stores::TestDb,
};
use integration_tests::refunds::Shop;
use sqlx::AssertSqlSafe;
use std::sync::Arc;
use twinbox::http::Idempotency;

/// Runs a case with each way to hold a key. Both share a database, which takes longer to make than a case
/// takes: it is empty again before the second one.
///
/// The case must have its answers when it ends, so that nothing of it is written later.
pub(super) async fn with_both<DB: TestDb>(
    set: impl Fn(Idempotency<DB>) -> Idempotency<DB>,
    case: impl AsyncFn(&Refunds<DB>, Strategy),
) {
    let [first, second] = STRATEGIES;
    let app = Refunds::<DB>::with(first, &set).await;
    case(&app, first).await;
    let mut tx = app.begin().await.unwrap();
    let of_twinbox = ["outbox", "idempotency_keys"].map(DB::table_of);
    for table in ["refunds".to_owned(), "ledger".to_owned()].into_iter().chain(of_twinbox) {
        let delete = AssertSqlSafe(format!("DELETE FROM {table}"));
        sqlx::raw_sql(delete).execute(&mut *tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let shop = Arc::new(Shop::default());
    let router = Refunds::another(&app.world, second, &set, shop.clone());
    case(&Refunds { shop, router, ..app }, second).await;
}
