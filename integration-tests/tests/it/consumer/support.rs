//! What the tests of the API share: a database with a table for effects, events, and bounded waits.
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Pool, Postgres, Sqlite, pool::PoolOptions};
use std::{ops::Deref, sync::LazyLock, time::Duration};
use tracing::{
    Dispatch, Subscriber,
    subscriber::{DefaultGuard, NoSubscriber},
};
use twinbox::{Dialect, Event, EventHandler, Message, Outcome, Store};
use twinbox_testkit::{
    Harness,
    database::{self, TestDatabase},
};

/// Makes a named test of each case on each database: of `async fn case<DB: TestDb>()` under `both`, of
/// `async fn case()` elsewhere.
macro_rules! cases {
    ($(both: [$($both:ident),* $(,)?])? $(postgres: [$($postgres:ident),* $(,)?])? $(sqlite: [$($sqlite:ident),* $(,)?])?) => {
        mod postgres {
            $($(#[tokio::test] async fn $both() { $crate::consumer::support::soon(super::$both::<sqlx::Postgres>()).await })*)?
            $($(#[tokio::test] async fn $postgres() { $crate::consumer::support::soon(super::$postgres()).await })*)?
        }
        mod sqlite {
            $($(#[tokio::test] async fn $both() { $crate::consumer::support::soon(super::$both::<sqlx::Sqlite>()).await })*)?
            $($(#[tokio::test] async fn $sqlite() { $crate::consumer::support::soon(super::$sqlite()).await })*)?
        }
    };
}
pub(crate) use cases;

/// Longer than anything takes that does not hang, on a machine that is busy with other tests.
const HANGS: Duration = Duration::from_secs(300);

/// Records what this thread logs, on which all tasks of a test run. While there is one subscriber, the thread that gets
/// to a line first decides for all whether it is of interest, and other tests have no subscriber: so there are two.
pub(crate) fn record(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));
    LazyLock::force(&ANOTHER);
    tracing::subscriber::set_default(subscriber)
}

/// No test waits for ever.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS, future).await.expect("it should not take five minutes")
}

/// Waits until the future answers with something. For what no signal tells: rows of another session.
pub(crate) async fn eventually<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    soon(async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// A database that cases run on.
pub(crate) trait TestDb: Dialect {
    /// The module that [`cases`] puts the tests of this database in.
    const MODULE: &str;
    /// A fresh, migrated database.
    async fn fresh() -> TestDatabase<Self>;
    /// The store of a database that another process made.
    async fn open(url: &str) -> Store<Self>;
    /// The name of one of Twinbox's tables.
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

/// A store with a table `effects (n)` for handlers to write to. Dereferences to the store.
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

    /// Where the database is.
    pub(crate) fn url(&self) -> &str {
        self.0.url()
    }

    pub(crate) async fn execute(&self, sql: &'static str) {
        let mut conn = self.pool().acquire().await.unwrap();
        sqlx::raw_sql(sql).execute(&mut *conn).await.unwrap();
    }

    /// Another pool to the same database, of `connections` that are open already.
    pub(crate) async fn twin(&self, connections: u32) -> Pool<DB> {
        let options = (*self.pool().connect_options()).clone();
        let pool = PoolOptions::new().min_connections(connections).max_connections(connections);
        pool.connect_with(options).await.unwrap()
    }

    pub(crate) async fn number(&self, sql: impl Into<String>) -> i64 {
        let mut conn = self.pool().acquire().await.unwrap();
        sqlx::query_scalar::<DB, i64>(AssertSqlSafe(sql.into())).fetch_one(&mut *conn).await.unwrap()
    }

    /// Rows of one of Twinbox's tables.
    pub(crate) async fn rows(&self, table: &str) -> i64 {
        self.number(format!("SELECT count(*) FROM {}", DB::table_of(table))).await
    }

    pub(crate) async fn effects(&self) -> Vec<i64> {
        let mut conn = self.pool().acquire().await.unwrap();
        let all = sqlx::query_scalar::<DB, i64>("SELECT n FROM effects ORDER BY n");
        all.fetch_all(&mut *conn).await.unwrap()
    }

    /// Claims, effects and events that were committed.
    pub(crate) async fn left_behind(&self) -> (i64, i64, i64) {
        let effects = self.number("SELECT count(*) FROM effects").await;
        (self.rows("inbox").await, effects, self.rows("outbox").await)
    }

    /// One attempt at the message by a handler without state.
    pub(crate) async fn deliver<H: EventHandler<DB, ()>>(&self, message: &Message) -> Outcome {
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

/// `Placed { n }` as a message with a fresh id.
pub(crate) fn placed(n: i64) -> Message {
    twinbox::Delivery::of(Placed { n }).unwrap().message().clone()
}

/// Writes `n`, which fails if it is there already.
pub(crate) async fn effect<DB: Dialect>(conn: &mut DB::Connection, n: i64) -> sqlx::Result<()> {
    sqlx::query::<DB>("INSERT INTO effects (n) VALUES ($1)").bind(n).execute(conn).await?;
    Ok(())
}

/// Whether it was a failed attempt that says this.
pub(crate) fn failed(outcome: &Outcome, words: &str) -> bool {
    matches!(outcome, Outcome::Retried { counted: true, error, .. } if error.contains(words))
}
