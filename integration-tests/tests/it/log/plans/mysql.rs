//! A long log of MySQL: what a look, a page and the purge read, and for whom the purge makes others wait.
use super::*;
use crate::support::wait::in_time;
use crate::support::{
    databases::PROCESSES,
    log::{run_until, settle_until},
    stores::{TestDb as _, World},
};
use sqlx::{MySql, MySqlConnection, MySqlPool, mysql::MySqlPoolOptions};
use std::time::{Duration, Instant};
use twinbox::{Timestamp, log::StartPosition};

/// The settled rows of a log. With `--long` as many as the book promises.
fn rows() -> i64 {
    long::or(1_000_000, 200_000)
}

/// Closed holes, of transactions that committed late.
const CLOSED: i64 = 3_000;
/// Open transactions.
const OPEN: i64 = 300;
/// Ticks of a month, after they were thinned.
const TICKS: i64 = 43_200;

/// A log: a month of settled rows; and behind them new rows, between which transactions are open.
struct LongLog {
    world: World<MySql>,
    /// The last tick of the settled rows.
    settled: i64,
}

impl LongLog {
    async fn new() -> Self {
        let world = World::<MySql>::new().await;
        let (rows, digits) = (rows(), MySql::numbers(1_000));
        let more = MySql::numbers(usize::try_from(rows / 1_000).unwrap()).replace("numbers", "thousands");
        let settled = TICKS;
        for fill in [
            "DROP TRIGGER twinbox_refuse_position".to_owned(),
            format!(
                "INSERT INTO twinbox_outbox (position, type, `key`, id, payload)
                SELECT (thousands.n - 1) * 1000 + numbers.n, 'orders.placed', CONCAT('k', numbers.n), 'x',
                    '{{}}'
                FROM {more} CROSS JOIN {digits}"
            ),
            format!(
                "INSERT INTO twinbox_ticks (id, newest, taken_at)
                SELECT n, n * {rows} DIV {TICKS}, TIMESTAMPADD(MINUTE, n - {TICKS}, UTC_TIMESTAMP(6))
                FROM {}",
                MySql::numbers(usize::try_from(TICKS).unwrap())
            ),
            // Each was open for two ticks. The last of them is late in the last window.
            format!(
                "INSERT INTO twinbox_holes (first, last, opened_by, closed_by, probe_at)
                SELECT n * {rows} DIV {CLOSED} - 1, n * {rows} DIV {CLOSED} - 1, n * {TICKS} DIV {CLOSED} - 1,
                    n * {TICKS} DIV {CLOSED} + 1, UTC_TIMESTAMP(6)
                FROM {}",
                MySql::numbers(usize::try_from(CLOSED).unwrap())
            ),
            format!(
                "INSERT INTO twinbox_outbox (position, type, `key`, id, payload)
                SELECT {rows} + n * 2, 'orders.placed', 'k', 'x', '{{}}' FROM {}",
                MySql::numbers(usize::try_from(OPEN).unwrap())
            ),
            format!("INSERT INTO twinbox_ticks (id, newest) VALUES ({settled} + 1, {rows} + {OPEN} * 2)"),
            format!(
                "INSERT INTO twinbox_holes (first, last, opened_by, probe_at)
                SELECT {rows} + n * 2 - 1, {rows} + n * 2 - 1, {settled} + 1,
                    TIMESTAMPADD(HOUR, 1, UTC_TIMESTAMP(6))
                FROM {}",
                MySql::numbers(usize::try_from(OPEN).unwrap())
            ),
            "ANALYZE TABLE twinbox_outbox, twinbox_ticks, twinbox_holes".to_owned(),
        ] {
            sqlx::raw_sql(AssertSqlSafe(fill)).execute(world.pool()).await.unwrap();
        }
        Self { world, settled }
    }

    /// A store with one connection, whose status is that of all that the store does.
    async fn store(&self) -> (Store<MySql>, MySqlPool) {
        let pool = MySqlPoolOptions::new().max_connections(1).connect(self.world.url()).await.unwrap();
        (Store::new(pool.clone(), database::SERVICE).unwrap(), pool)
    }
}

async fn on(pool: &MySqlPool) -> sqlx::pool::PoolConnection<MySql> {
    pool.acquire().await.unwrap()
}

/// How many rows the statements of this session have read.
pub(super) async fn rows_read(conn: &mut MySqlConnection) -> i64 {
    let read = sqlx::query_as::<_, (String, String)>("SHOW SESSION STATUS LIKE 'Handler_read%'");
    let read = read.fetch_all(conn).await.unwrap();
    read.iter().map(|(_, rows)| rows.parse::<i64>().unwrap()).sum()
}

/// Runs a statement three times. Returns how many rows one run reads, beside those that the question costs,
/// and how many it returns.
async fn cost(pool: &MySqlPool, what: &str, statement: &str, binds: &[i64]) -> (i64, usize) {
    let conn = &mut *on(pool).await;
    let (mut read, mut returned, mut taken) = (0, 0, Duration::MAX);
    for _ in 0..3 {
        let (first, before) = (rows_read(conn).await, rows_read(conn).await);
        let query = sqlx::query(AssertSqlSafe(statement.to_owned()));
        let query = binds.iter().fold(query, |query, bind| query.bind(*bind));
        let began = Instant::now();
        returned = query.fetch_all(&mut *conn).await.unwrap().len();
        taken = taken.min(began.elapsed());
        read = rows_read(conn).await - before - (before - first);
    }
    println!("{what}: {read} rows read, {returned} returned, {taken:?}");
    (read, returned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_of_mysql_is_read_no_further_than_what_is_returned() {
    let log = LongLog::new().await;
    let (store, pool) = log.store().await;
    let (rows, last) = (rows(), log.settled + 1);
    // Each open hole is looked up.
    let (read, _) = cost(&pool, "a look", &plans::newest(&store), &[]).await;
    assert!(read <= 4 * OPEN, "{read}");
    let positions = |p: i64, w: i64, floor: i64, ceiling: i64| {
        [p, p, w, 0, 500, 0, floor, p, ceiling, w, 500, w, w, 0, p, p, w, 0]
    };
    let statement = plans::positions(&store);
    let newest = positions(log.settled, last, rows, rows + OPEN * 2);
    let (read, returned) = cost(&pool, "the page with a late commit", &statement, &newest).await;
    assert_eq!(returned, usize::try_from(OPEN + 1 + OPEN).unwrap());
    assert!(read <= 5 * OPEN, "{read}");
    let old = positions(100, 101, 100 * rows / TICKS, 101 * rows / TICKS);
    let (read, returned) = cost(&pool, "a page of a reader that is far behind", &statement, &old).await;
    assert!(returned >= usize::try_from(rows / TICKS).unwrap(), "{returned}");
    assert!(read <= 2 * (CLOSED + OPEN), "{read}");
}

/// All its messages lie in one hole, and a window has some of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_transaction_of_mysql_that_commits_late_is_not_read_again_for_each_page() {
    const LATE: i64 = 60_000;
    let world = World::<MySql>::new().await;
    let mut late = world.pool().begin().await.unwrap();
    let insert = format!(
        "INSERT INTO twinbox_outbox (type, id, payload) SELECT 'orders.placed', 'late', '{{}}' FROM {}",
        MySql::numbers(usize::try_from(LATE).unwrap())
    );
    sqlx::raw_sql(AssertSqlSafe(insert)).execute(&mut *late).await.unwrap();
    publish(&world, None, &["early"]).await;
    let pool = MySqlPoolOptions::new().max_connections(1).connect(world.url()).await.unwrap();
    let store = Store::new(pool.clone(), database::SERVICE).unwrap();
    // Its one connection is busy for as long as a tick takes.
    let mut reader = open_with(&store, "d", ReaderOptions::new().lease(Duration::from_secs(300))).await;
    settle_until(&mut reader, "early").await;
    late.commit().await.unwrap();
    publish(&world, None, &["end"]).await;
    let before = rows_read(&mut *on(&pool).await).await;
    settle_until(&mut reader, "end").await;
    let read = rows_read(&mut *on(&pool).await).await - before;
    println!("{read} rows read for {LATE}");
    assert!(read <= 15 * LATE, "{read}");
}

/// Of a destination that is far behind: half of the holes were closed after its cursor.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_a_replay_of_mysql_compares_few_messages_with_holes() {
    let log = LongLog::new().await;
    let (store, pool) = log.store().await;
    let counting = Ops::new(&store).counting_statement(&Selection::new());
    let (p, no_destination) = (TICKS / 2, 0);
    let (read, types) = cost(&pool, "a plan of a replay", &counting, &[p, p, 0, no_destination]).await;
    assert_eq!(types, 1);
    assert!(read <= 2 * rows() + 4 * CLOSED, "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_purge_of_a_long_log_of_mysql_reads_what_it_deletes() {
    let log = LongLog::new().await;
    let cursor =
        format!("INSERT INTO twinbox_cursors (destination, p, w) VALUES ('d', {0}, {0})", log.settled);
    sqlx::raw_sql(AssertSqlSafe(cursor)).execute(log.world.pool()).await.unwrap();
    let (store, pool) = log.store().await;
    let (before, began) = (rows_read(&mut *on(&pool).await).await, Instant::now());
    // Messages of more than three weeks are some hundred batches.
    let purged = Log::new(&store).purge(Duration::from_secs(21 * 24 * 3600)).await.unwrap();
    let read = rows_read(&mut *on(&pool).await).await - before;
    let batches = i64::try_from(purged.messages).unwrap() / 1_000 + 1;
    println!(
        "{} messages, {read} rows read, {:?} a batch",
        purged.messages,
        began.elapsed() / batches as u32
    );
    assert!(purged.messages as i64 > rows() / 5, "{purged:?}");
    assert!(read > rows() / 5, "{read}");
    assert!(read <= batches * (5 * 1_000 + 2 * CLOSED) + 3 * TICKS, "{read}");
}

/// While it waits for a row that somebody has locked, with all locks that it takes.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_the_purge_of_mysql() {
    let world = World::<MySql>::new().await;
    for n in 0..20 {
        publish(&world, None, &[&format!("m{n}")]).await;
    }
    let mut reader = open(&world, "d").await;
    settle_until(&mut reader, "m19").await;
    run_until(&world, &mut reader, "d", |row| row.p > 0 && row.p == row.w).await;
    reader.close().await.unwrap();
    let mut held = world.owner().pool().begin().await.unwrap();
    // In the middle: others are deleted by then, and stay locked.
    sqlx::query("SELECT position FROM twinbox_outbox WHERE position = 11 FOR UPDATE")
        .fetch_all(&mut *held)
        .await
        .unwrap();
    let purging = tokio::spawn({
        let store = (*world).clone();
        async move { Log::new(&store).purge(Duration::ZERO).await }
    });
    let waits = format!(
        "SELECT count(*) FROM {} WHERE db = DATABASE() AND info LIKE 'DELETE d%twinbox_outbox%'",
        PROCESSES
    );
    eventually(async || (world.number(&waits).await > 0).then_some(())).await;
    let short = "SET SESSION innodb_lock_wait_timeout = 1";
    let mut conn = world.pool().acquire().await.unwrap();
    sqlx::raw_sql(short).execute(&mut *conn).await.unwrap();
    for act in [
        "INSERT INTO twinbox_outbox (type, `key`, id, payload) VALUES ('orders.placed', 'k', 'x', '{}')",
        "UPDATE twinbox_cursors SET epoch = epoch + 1",
        "INSERT INTO twinbox_holes (first, last, opened_by, probe_at)
        VALUES (1000, 1000, 1, UTC_TIMESTAMP(6))",
        "UPDATE twinbox_holes SET probe_at = UTC_TIMESTAMP(6)",
        "INSERT INTO twinbox_ticks (id, newest) SELECT max(id) + 1, 21 FROM twinbox_ticks",
        "INSERT INTO twinbox_parked_messages (destination, position, type, state, blocks_key, attempts,
            next_attempt_at, first_error, last_error, fingerprint)
        VALUES ('d', 20, 't', 'waiting', true, 1, UTC_TIMESTAMP(6), '', '', '')",
    ] {
        sqlx::raw_sql(act).execute(&mut *conn).await.unwrap_or_else(|error| panic!("{act}: {error}"));
    }
    held.rollback().await.unwrap();
    drop(conn);
    in_time(purging).await.unwrap().unwrap();
    assert!(world.rows("outbox").await <= 3, "it went on, and left what is new and the last one before");
}

/// The purge has read the cursors, and the new one names a tick whose messages it is about to delete.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_begins_in_the_past_waits_for_the_purge_of_mysql() {
    let log = LongLog::new().await;
    let world = &log.world;
    for start in [StartPosition::Beginning, StartPosition::At(Timestamp::from_micros(1))] {
        let mut purge = world.owner().pool().begin().await.unwrap();
        sqlx::query(AssertSqlSafe(plans::lock_first_tick(world))).fetch_all(&mut *purge).await.unwrap();
        let name = format!("{start:?}");
        let options = ReaderOptions::new().start(start);
        let (store, destination) = ((**world).clone(), name.clone());
        let opening = tokio::spawn(async move { open_with(&store, &destination, options).await });
        let waits = format!(
            "SELECT count(*) FROM {PROCESSES} WHERE db = DATABASE() AND info LIKE '%LOCK IN SHARE MODE'"
        );
        eventually(async || (world.number(&waits).await > 0).then_some(())).await;
        let cursors = format!("SELECT count(*) FROM twinbox_cursors WHERE destination = '{name}'");
        assert_eq!(world.number(&cursors).await, 0);
        purge.rollback().await.unwrap();
        in_time(opening).await.unwrap().close().await.unwrap();
    }
}
