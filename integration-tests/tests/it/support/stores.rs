//! Databases with a table for effects, and events.
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Pool, Postgres, Sqlite, pool::PoolOptions};
use std::ops::Deref;
use twinbox::{DeliveryOutcome, Dialect, Event, Message, Store, consumer::EventHandler};
use twinbox_testkit::{
    Harness,
    database::{self, TestDatabase},
};

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
}

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
        sqlx::raw_sql(sql).execute(&mut *conn).await.unwrap();
    }

    /// Opens another connection pool with `connections` open connections.
    pub(crate) async fn twin(&self, connections: u32) -> Pool<DB> {
        let options = (*self.pool().connect_options()).clone();
        let pool = PoolOptions::new().min_connections(connections).max_connections(connections);
        pool.connect_with(options).await.unwrap()
    }

    pub(crate) async fn number(&self, sql: impl Into<String>) -> i64 {
        let mut conn = self.pool().acquire().await.unwrap();
        sqlx::query_scalar::<DB, i64>(AssertSqlSafe(sql.into())).fetch_one(&mut *conn).await.unwrap()
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

/// Writes the effect `n`. Fails if it exists.
pub(crate) async fn effect<DB: Dialect>(conn: &mut DB::Connection, n: i64) -> sqlx::Result<()> {
    sqlx::query::<DB>("INSERT INTO effects (n) VALUES ($1)").bind(n).execute(conn).await?;
    Ok(())
}

/// Returns whether the attempt failed with an error that contains `words`.
pub(crate) fn failed(outcome: &DeliveryOutcome, words: &str) -> bool {
    matches!(outcome, DeliveryOutcome::Retried { counted: true, error, .. } if error.contains(words))
}
