//! Reads of the log that are slow with naive statements.
//!
//! One reads a late commit behind a million rows. The other looks for new messages while a bulk transaction
//! is open.
use crate::{failure::Failure, orders, spread::Spread};
use sqlx::{AssertSqlSafe, PgConnection, Postgres};
use std::time::{Duration, Instant};
use twinbox::{Store, log::plans};
use twinbox_testkit::database;

const ROWS: u32 = 1_000_000;
const RUNS: usize = 51;

pub(crate) async fn run() -> Result<(), Failure> {
    late_committer().await?;
    open_bulk_transaction().await
}

async fn late_committer() -> Result<(), Failure> {
    let store = database::postgres().await;
    let mut late = store.begin().await?;
    store.outbox().publish_draft(&mut late, orders::draft(0)).await?;
    sqlx::raw_sql(AssertSqlSafe(bulk(ROWS))).execute(store.pool()).await?;
    let p = newest(&store).await?;
    late.commit().await?;
    orders::fill(&store, 100).await?;
    let w = newest(&store).await?;
    let (floor, ceiling): (i64, i64) =
        sqlx::query_as(AssertSqlSafe(plans::bounds(&store))).bind(p).bind(w).fetch_one(store.pool()).await?;
    let conn = &mut *store.pool().acquire().await?;
    // The last parameter names no server run. The work is the same.
    let binds = [0, p, w, floor, ceiling, 500, 0];
    let times = time(conn, &plans::page(&store), &binds).await?;
    println!("a page with a late commit behind {ROWS} rows:    {times:.2} ms");
    let times = time(conn, &plans::bounds(&store), &[p, w]).await?;
    println!("the bounds of its window:                       {times:.2} ms");
    Ok(())
}

async fn open_bulk_transaction() -> Result<(), Failure> {
    let store = database::postgres().await;
    orders::fill(&store, 100).await?;
    let mut tx = store.begin().await?;
    sqlx::raw_sql(AssertSqlSafe(bulk(ROWS))).execute(&mut *tx).await?;
    // Readers make a tick once a second.
    for _ in 0..3 {
        newest(&store).await?;
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    newest(&store).await?;
    let conn = &mut *store.pool().acquire().await?;
    let times = time(conn, &plans::newest(&store), &[]).await?;
    println!("an idle look during a bulk transaction of {ROWS} rows: {times:.2} ms");
    Ok(tx.rollback().await?)
}

/// Returns a statement that publishes `rows` messages of about 0.5 KB.
pub(crate) fn bulk(rows: u32) -> String {
    format!(
        "INSERT INTO twinbox.outbox (type, key, payload)
        SELECT '{}', 'o-' || n % 5000, convert_to(repeat('x', 450), 'UTF8')
        FROM generate_series(1, {rows}) n",
        orders::TYPE
    )
}

async fn newest(store: &Store<Postgres>) -> Result<i64, Failure> {
    Ok(sqlx::query_scalar(AssertSqlSafe(plans::newest(store))).fetch_one(store.pool()).await?)
}

/// Returns the milliseconds of each run of the statement, with fetching the rows.
async fn time(conn: &mut PgConnection, statement: &str, binds: &[i64]) -> Result<Spread, Failure> {
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let query = sqlx::query(AssertSqlSafe(statement.to_owned()));
        let started = Instant::now();
        binds.iter().fold(query, |query, bind| query.bind(*bind)).fetch_all(&mut *conn).await?;
        times.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(Spread::of(times))
}
