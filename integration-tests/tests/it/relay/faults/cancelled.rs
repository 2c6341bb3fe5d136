//! Statements that the database gives up.
use super::*;
use crate::support::postgres::store_at;
use std::collections::HashSet;

/// A statement that takes too long, is cancelled, or finds no memory, says nothing about the next.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_takes_too_long_does_not_end_the_relay() {
    let (store, target) = (postgres().await, Target::shared());
    let more = if store.url().contains('?') { '&' } else { '?' };
    let url = format!("{}{more}options[statement_timeout]=100ms", store.url());
    let impatient = store_at(&url).await;
    let running = Running::run(target.quick(&impatient));
    publish(&store, 0..100).await;
    running.published(100).await;
    let mut tx = store.pool().begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE twinbox.outbox, twinbox.cursors").execute(&mut *tx).await.unwrap();
    let waiting = "SELECT DISTINCT query_start::text FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query_start IS NOT NULL";
    let mut begun = HashSet::new();
    eventually(async || {
        begun.extend(sqlx::query_scalar::<_, String>(waiting).fetch_all(store.pool()).await.unwrap());
        (begun.len() >= 5).then_some(())
    })
    .await;
    assert!(!running.task.is_finished());
    tx.rollback().await.unwrap();
    publish(&store, 100..200).await;
    running.published(200).await;
    running.stop().await;
}
