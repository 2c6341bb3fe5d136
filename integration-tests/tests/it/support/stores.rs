//! Databases with a table for effects, and events.
use super::{
    database::{self, TestDatabase},
    databases::{MySql, Postgres},
};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Pool, Sqlite, pool::PoolOptions};
use std::ops::Deref;
use twinbox::{DeliveryOutcome, Dialect, Event, Message, Store, Timestamp, consumer::EventHandler};
use twinbox_testkit::Harness;

/// Returns the text of an error with its causes, each once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A database on which cases run.
pub(crate) trait TestDb: Dialect {
    /// The module in which [`cases`](super::cases) puts the tests of this database.
    const MODULE: &str;
    /// Creates a migrated database.
    async fn fresh() -> TestDatabase<Self>;
    /// Opens the store of a database that another process has created.
    async fn open(url: &str) -> Store<Self>;
    /// Returns the name of a table of Twinbox.
    fn table_of(name: &str) -> String;
    /// Returns SQL of a time some seconds before the one in a column.
    fn earlier(column: &str, seconds: i64) -> String;
    /// Returns SQL of a time, as a column holds it.
    fn time(at: Timestamp) -> String;
    /// Returns SQL of a table with the column `n`: the numbers from 1 to `last`.
    fn numbers(last: usize) -> String;
}

#[cfg(feature = "postgres")]
impl TestDb for Postgres {
    const MODULE: &str = "postgres";

    async fn open(url: &str) -> Store<Self> {
        Store::new(Pool::connect(url).await.unwrap(), database::SERVICE).unwrap()
    }

    async fn fresh() -> TestDatabase<Self> {
        database::postgres().await
    }

    fn table_of(name: &str) -> String {
        format!("twinbox.{name}")
    }

    fn earlier(column: &str, seconds: i64) -> String {
        format!("({column} - interval '{seconds} seconds')")
    }

    fn time(at: Timestamp) -> String {
        format!("'{at}'")
    }

    fn numbers(last: usize) -> String {
        format!("generate_series(1, {last}) numbers (n)")
    }
}

#[cfg(feature = "mysql")]
impl TestDb for MySql {
    const MODULE: &str = "mysql";

    async fn open(url: &str) -> Store<Self> {
        Store::new(Pool::connect(url).await.unwrap(), database::SERVICE).unwrap()
    }

    async fn fresh() -> TestDatabase<Self> {
        database::mysql().await
    }

    fn table_of(name: &str) -> String {
        format!("twinbox_{name}")
    }

    fn earlier(column: &str, seconds: i64) -> String {
        format!("TIMESTAMPADD(SECOND, -({seconds}), {column})")
    }

    fn time(at: Timestamp) -> String {
        format!("TIMESTAMPADD(MICROSECOND, {}, '1970-01-01')", at.as_micros())
    }

    fn numbers(last: usize) -> String {
        // Both products know JSON_TABLE.
        let ones = format!("CONCAT('[0', REPEAT(',0', {}), ']')", last.saturating_sub(1));
        format!("JSON_TABLE({ones}, '$[*]' COLUMNS (n FOR ORDINALITY)) numbers")
    }
}

impl TestDb for Sqlite {
    const MODULE: &str = "sqlite";

    async fn open(path: &str) -> Store<Self> {
        Store::new(twinbox::sqlite::open(path).await.unwrap(), database::SERVICE).unwrap()
    }

    async fn fresh() -> TestDatabase<Self> {
        database::sqlite().await
    }

    fn table_of(name: &str) -> String {
        format!("twinbox_{name}")
    }

    fn earlier(column: &str, seconds: i64) -> String {
        format!("({column} - {})", seconds * 1_000_000)
    }

    fn time(at: Timestamp) -> String {
        at.as_micros().to_string()
    }

    fn numbers(last: usize) -> String {
        format!(
            "(WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {last})
            SELECT n FROM counted) numbers"
        )
    }
}

/// A store with a table `effects (n)` for handlers. It dereferences to the store.
pub(crate) struct World<DB: Dialect>(TestDatabase<DB>);

impl<DB: Dialect> Deref for World<DB> {
    type Target = Store<DB>;

    fn deref(&self) -> &Store<DB> {
        &self.0
    }
}

impl<DB: TestDb> World<DB> {
    pub(crate) async fn new() -> Self {
        let world = Self(DB::fresh().await);
        world.execute("CREATE TABLE effects (n BIGINT NOT NULL UNIQUE)").await;
        world
    }

    /// Returns the URL of the database, or the path of its file.
    pub(crate) fn url(&self) -> &str {
        self.0.url()
    }

    pub(crate) async fn execute(&self, sql: &'static str) {
        let mut conn = self.pool().acquire().await.unwrap();
        sqlx::raw_sql(sql_of::<DB>(sql)).execute(&mut *conn).await.unwrap();
    }

    /// Returns the connections of the owner of the tables.
    pub(crate) fn pool(&self) -> &Pool<DB> {
        self.0.pool()
    }

    pub(crate) fn owner_url(&self) -> &str {
        self.0.owner_url()
    }

    /// Closes the connections of the store.
    pub(crate) async fn close(&self) {
        Store::pool(&self.0).close().await;
    }

    /// Returns the store of the owner of the tables.
    pub(crate) fn owner(&self) -> &Store<DB> {
        self.0.owner()
    }

    /// Opens another connection pool with `connections` open connections.
    pub(crate) async fn twin(&self, connections: u32) -> Pool<DB> {
        let options = (*Store::pool(&self.0).connect_options()).clone();
        let pool = PoolOptions::new().min_connections(connections).max_connections(connections);
        pool.connect_with(options).await.unwrap()
    }

    pub(crate) async fn number(&self, sql: impl Into<String>) -> i64 {
        let mut conn = self.pool().acquire().await.unwrap();
        sqlx::query_scalar::<DB, i64>(sql_of::<DB>(&sql.into())).fetch_one(&mut *conn).await.unwrap()
    }

    /// Returns the number of rows of a table of Twinbox.
    pub(crate) async fn rows(&self, table: &str) -> i64 {
        self.number(format!("SELECT count(*) FROM {}", DB::table_of(table))).await
    }

    pub(crate) async fn effects(&self) -> Vec<i64> {
        let mut conn = self.pool().acquire().await.unwrap();
        let all = sqlx::query_scalar::<DB, i64>("SELECT n FROM effects ORDER BY n");
        all.fetch_all(&mut *conn).await.unwrap()
    }

    /// Returns the numbers of committed claims, effects and messages.
    pub(crate) async fn left_behind(&self) -> (i64, i64, i64) {
        let effects = self.number("SELECT count(*) FROM effects").await;
        (self.rows("inbox").await, effects, self.rows("outbox").await)
    }

    /// Delivers the message to a handler without state, for one attempt.
    pub(crate) async fn deliver<H: EventHandler<DB, ()>>(&self, message: &Message) -> DeliveryOutcome {
        Harness::new(self, ()).deliver::<H>(message).await
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, key = n)]
pub(crate) struct Placed {
    pub(crate) n: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Event)]
#[event(type = "orders.confirmed", version = 1, key = n)]
pub(crate) struct Confirmed {
    pub(crate) n: i64,
}

/// Returns `Placed { n }` as a message with a new id.
pub(crate) fn placed(n: i64) -> Message {
    twinbox::Delivery::of(Placed { n }).unwrap().message().clone()
}

/// Returns SQL for the database, from SQL with the column `key`, which MySQL reserves.
pub(crate) fn sql_of<DB: Dialect>(text: &str) -> AssertSqlSafe<String> {
    if DB::NAME != "MySQL" {
        return AssertSqlSafe(text.to_owned());
    }
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let quoted = words.map(|word| match word.strip_prefix("key") {
        Some(rest) if !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') => {
            format!("`key`{rest}")
        }
        _ => word.to_owned(),
    });
    AssertSqlSafe(quoted.collect())
}

/// The same, with its binds, from SQL with `$1`, `$2` and so on in this order.
pub(crate) fn sql<DB: Dialect>(text: &str) -> AssertSqlSafe<String> {
    let AssertSqlSafe(text) = sql_of::<DB>(text);
    if DB::NAME != "MySQL" {
        return AssertSqlSafe(text);
    }
    let mut parts = text.split('$');
    let first = parts.next().unwrap_or_default().to_owned();
    AssertSqlSafe(parts.fold(first, |sql, part| sql + "?" + &part[1..]))
}

/// Writes the effect `n`. Fails if it exists.
pub(crate) async fn effect<DB: Dialect>(conn: &mut DB::Connection, n: i64) -> sqlx::Result<()> {
    sqlx::query::<DB>(sql::<DB>("INSERT INTO effects (n) VALUES ($1)")).bind(n).execute(conn).await?;
    Ok(())
}

/// Returns whether the attempt failed with an error that contains `words`.
pub(crate) fn failed(outcome: &DeliveryOutcome, words: &str) -> bool {
    matches!(outcome, DeliveryOutcome::Retried { counted: true, error, .. } if error.contains(words))
}
