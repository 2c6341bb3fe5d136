//! Migrations, and what a store refuses to work with.
mod bound;
pub(crate) mod grants;
mod guards;
mod times;

use crate::support::{
    cases::cases,
    databases::PROCESSES,
    postgres::store_with,
    stores::{Placed, TestDb, World, chain, sql},
    wait::{eventually, in_time},
};
use sqlx::{AssertSqlSafe, MySql, Postgres, Sqlite, pool::PoolOptions, sqlite::SqliteConnectOptions};
use std::{any::Any, time::Duration};
use twinbox::{
    CancellationToken, Consumer, Delivery, Dialect, ErrorKind, HandlerResult, Store, StoreOptions, Tx,
    consumer::ErrorKind as ConsumerErrorKind, event_handler,
};
use twinbox_testkit::database::{SERVICE, empty_mysql, empty_postgres};

/// How many there are.
pub(crate) const MIGRATIONS: i64 = 8;

/// A database without any tables; gone when this is dropped.
struct Empty {
    url: String,
    _database: Box<dyn Any>,
}

trait EmptyDb: TestDb {
    async fn empty() -> Empty;
}

impl EmptyDb for Postgres {
    async fn empty() -> Empty {
        let database = empty_postgres().await;
        Empty { url: database.url().to_owned(), _database: Box::new(database) }
    }
}

impl EmptyDb for MySql {
    async fn empty() -> Empty {
        let database = empty_mysql().await;
        Empty { url: database.url().to_owned(), _database: Box::new(database) }
    }
}

impl EmptyDb for Sqlite {
    async fn empty() -> Empty {
        let folder = tempfile::tempdir().unwrap();
        let url = folder.path().join("empty.db").display().to_string();
        Empty { url, _database: Box::new(folder) }
    }
}

async fn rows<DB: TestDb>(store: &Store<DB>, table: &str) -> i64 {
    let count = format!("SELECT count(*) FROM {}", DB::table_of(table));
    let mut conn = store.pool().acquire().await.unwrap();
    sqlx::query_scalar::<DB, i64>(AssertSqlSafe(count)).fetch_one(&mut *conn).await.unwrap()
}

async fn publish<DB: Dialect>(store: &Store<DB>, n: i64) {
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish(&mut tx, &Placed { n }).await.unwrap();
    tx.commit().await.unwrap();
}

/// Fault 41
async fn of_five_that_migrate_at_once_one_does_it<DB: EmptyDb>() {
    let empty = DB::empty().await;
    let mut stores = Vec::new();
    for _ in 0..5 {
        stores.push(DB::open(&empty.url).await);
    }
    for migrated in futures::future::join_all(stores.iter().map(Store::migrate)).await {
        migrated.unwrap();
    }
    assert_eq!(rows(&stores[0], "migrations").await, MIGRATIONS);
    assert_eq!(rows(&stores[0], "meta").await, 1);
    publish(&stores[1], 1).await;
    assert_eq!(stores[2].published("orders.placed", 10).await.unwrap().len(), 1);
}

/// Fault 41
async fn a_migration_dropped_half_way_has_done_nothing_or_all<DB: EmptyDb>() {
    let empty = DB::empty().await;
    for n in 0..20 {
        let store = DB::open(&empty.url).await;
        let _ = tokio::time::timeout(Duration::from_millis(n), store.migrate()).await;
    }
    let store = DB::open(&empty.url).await;
    store.migrate().await.unwrap();
    assert_eq!(rows(&store, "migrations").await, MIGRATIONS);
}

/// What a migration makes before it takes its lock.
fn bootstrap_of<DB: Dialect>(store: &Store<DB>) -> AssertSqlSafe<String> {
    let sql = store.migrations_sql();
    AssertSqlSafe(sql.split_once("\n\n-- 1: ").expect("the first migration").0.to_owned())
}

/// Waits until a statement counts something.
async fn counts<DB: TestDb>(store: &Store<DB>, count: &str) {
    eventually(async || {
        let mut conn = store.pool().acquire().await.unwrap();
        let found = sqlx::query_scalar::<DB, i64>(AssertSqlSafe(count)).fetch_one(&mut *conn).await.unwrap();
        (found > 0).then_some(())
    })
    .await;
}

/// As relays that all start with `--migrate` do, however short their sessions wait for a lock. The other one
/// has made the schema and not committed it yet, or it has taken the lock.
async fn a_migration_waits_for_another_one_on_postgres() {
    for has_committed in [false, true] {
        let empty = Postgres::empty().await;
        let first = Postgres::open(&empty.url).await;
        let second = store_with(&empty.url, &[("lock_timeout", "10ms")]).await;
        let mut migrating = first.begin().await.unwrap();
        sqlx::raw_sql(bootstrap_of(&first)).execute(&mut *migrating).await.unwrap();
        if has_committed {
            migrating.commit().await.unwrap();
            migrating = first.begin().await.unwrap();
            let lock = "LOCK TABLE twinbox.migrations IN SHARE ROW EXCLUSIVE MODE";
            sqlx::raw_sql(lock).execute(&mut *migrating).await.unwrap();
        }
        let waits = "SELECT count(*)
            FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'
                AND clock_timestamp() - query_start > interval '1 second'";
        let (migrated, ()) = tokio::join!(second.migrate(), async {
            counts(&first, waits).await;
            migrating.commit().await.unwrap();
        });
        migrated.unwrap();
        assert_eq!(rows(&first, "migrations").await, MIGRATIONS);
    }
}

/// A table of ours is locked for longer than the session would wait. Who gets the connection next waits as
/// long as before.
async fn a_migration_has_waits_of_its_own_on_mysql() {
    let empty = MySql::empty().await;
    let pool = PoolOptions::<MySql>::new().max_connections(1).after_connect(|conn, _| {
        let short = "SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 2, wait_timeout = 999";
        Box::pin(async move { sqlx::raw_sql(short).execute(conn).await.map(drop) })
    });
    let pool = pool.connect(&empty.url).await.unwrap();
    let (store, other) = (Store::new(pool.clone(), SERVICE).unwrap(), MySql::open(&empty.url).await);
    let mut held = other.pool().acquire().await.unwrap();
    sqlx::raw_sql(bootstrap_of(&other)).execute(&mut *held).await.unwrap();
    sqlx::raw_sql("LOCK TABLES twinbox_lock_secret WRITE").execute(&mut *held).await.unwrap();
    let waits = format!(
        "SELECT count(*)
        FROM {PROCESSES}
        WHERE db = DATABASE() AND state = 'Waiting for table metadata lock' AND time >= 3"
    );
    let (migrated, ()) = tokio::join!(store.migrate(), async {
        counts(&other, &waits).await;
        sqlx::raw_sql("UNLOCK TABLES").execute(&mut *held).await.unwrap();
    });
    migrated.unwrap();
    let waits = "SELECT CAST(@@SESSION.lock_wait_timeout AS SIGNED),
            CAST(@@SESSION.innodb_lock_wait_timeout AS SIGNED),
            CAST(@@SESSION.wait_timeout AS SIGNED)";
    assert_eq!(sqlx::query_as::<_, (i64, i64, i64)>(waits).fetch_one(&pool).await.unwrap(), (1, 2, 999));
}

async fn to_migrate_again_changes_nothing<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, 1).await;
    world.migrate().await.unwrap();
    world.check().await.unwrap();
    assert_eq!((world.rows("migrations").await, world.rows("outbox").await), (MIGRATIONS, 1));
}

#[event_handler(consumer = "tests.schema")]
async fn ignore<DB: Dialect>(_: &mut Tx<'_, DB>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

async fn missing_tables_are_told_with_what_to_do<DB: EmptyDb>() {
    let empty = DB::empty().await;
    let store = DB::open(&empty.url).await;
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("run the migrations"), "{error}");
    assert!(!error.is_transient());
    let consumer = Consumer::new(store, ()).handler::<ignore>();
    let error = in_time(consumer.run(CancellationToken::new())).await.unwrap_err();
    assert_eq!(error.kind(), ConsumerErrorKind::Store);
    let error = chain(&error);
    assert!(error.contains("run the migrations"), "{error}");
}

async fn the_tables_of_another_service_are_refused<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let other = Store::new(world.pool().clone(), "billing").unwrap();
    for refused in [other.check().await, other.migrate().await] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongService);
        let says = "these tables belong to the service \"test\" and this process is \"billing\"";
        assert!(error.to_string().starts_with(says), "{error}");
    }
    world.check().await.unwrap();
}

async fn two_services_share_a_database_by_a_namespace_each<DB: EmptyDb>() {
    let empty = DB::empty().await;
    let pool = DB::open(&empty.url).await.pool().clone();
    let store = |service: &str, namespace: &str| {
        Store::with_options(pool.clone(), service, StoreOptions::new().namespace(namespace)).unwrap()
    };
    let longest = "z".repeat(40);
    let stores = [store("shop", "shop_events"), store("it's \"billing\"", "b"), store("third", &longest)];
    for (n, store) in stores.iter().enumerate() {
        store.migrate().await.unwrap();
        store.check().await.unwrap();
        publish(store, n as i64).await;
    }
    for (n, store) in stores.iter().enumerate() {
        let [message] = &store.published("orders.placed", 10).await.unwrap()[..] else { panic!("one each") };
        assert_eq!((message.source.as_str(), message.key.clone()), (store.service(), Some(n.to_string())));
    }
}

/// Nothing that comes from a configuration becomes SQL. Fault 48
async fn bad_names_are_refused_before_any_io<DB: EmptyDb>() {
    let empty = DB::empty().await;
    let pool = DB::open(&empty.url).await.pool().clone();
    let long = "a".repeat(41);
    for bad in ["", "Twinbox", "1a", "_a", "a-b", "a.b", "a b", "a\"; DROP TABLE x; --", "é", "a\0", &long] {
        let error =
            Store::with_options(pool.clone(), "shop", StoreOptions::new().namespace(bad)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration, "{bad:?}");
        assert!(error.to_string().contains("must be a lower-case letter"), "{error}");
    }
    for bad in ["", "a\nb", "a\0b", &"a".repeat(256)] {
        let error = Store::new(pool.clone(), bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration, "{bad:?}");
    }
    Store::new(pool, &"a".repeat(255)).unwrap();
}

async fn record_migration<DB: TestDb>(world: &World<DB>, version: i64, compatible_from: i64) {
    let insert = format!(
        "INSERT INTO {} (version, name, compatible_from) VALUES ($1, 'future', $2)",
        DB::table_of("migrations")
    );
    let query = sqlx::query::<DB>(sql::<DB>(&insert)).bind(version).bind(compatible_from);
    query.execute(&mut *world.pool().acquire().await.unwrap()).await.unwrap();
}

/// So that old processes restart during a rollout. Fault 41
async fn a_newer_schema_is_refused_only_if_it_says_so<DB: TestDb>() {
    let world = World::<DB>::new().await;
    record_migration(&world, MIGRATIONS + 1, 1).await;
    world.check().await.unwrap();
    world.migrate().await.unwrap();
    publish(&world, 1).await;
    assert_eq!(world.rows("migrations").await, MIGRATIONS + 1);

    record_migration(&world, MIGRATIONS + 2, MIGRATIONS + 1).await;
    for refused in [world.check().await, world.migrate().await] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        let says = format!(
            "the tables are at version {}, which needs a program of version {} or newer, and this one is at \
             {MIGRATIONS}",
            MIGRATIONS + 2,
            MIGRATIONS + 1
        );
        assert_eq!(error.to_string(), says);
    }
    assert_eq!(world.rows("migrations").await, MIGRATIONS + 2);
}

/// For those who have tools of their own for it.
async fn the_printed_migrations_make_a_store<DB: EmptyDb>() {
    let empty = DB::empty().await;
    let pool = DB::open(&empty.url).await.pool().clone();
    let options = StoreOptions::new().namespace("printed");
    let store = Store::with_options(pool.clone(), "o'brien", options).unwrap();
    let mut conn = pool.acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(store.migrations_sql())).execute(&mut *conn).await.unwrap();
    drop(conn);
    store.check().await.unwrap();
    publish(&store, 1).await;
    store.migrate().await.unwrap();
    assert_eq!(store.published("orders.placed", 10).await.unwrap()[0].source, "o'brien");
}

async fn what_breaks_the_log_is_refused_on_postgres() {
    let world = World::<Postgres>::new().await;
    world.execute("ALTER TABLE twinbox.outbox ALTER COLUMN position SET CACHE 20").await;
    let error = world.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("SET CACHE 1"), "{error}");
    world.execute("ALTER TABLE twinbox.outbox ALTER COLUMN position SET CACHE 1").await;
    world.check().await.unwrap();

    // As after a restore: the same rows, written by other transactions.
    world.execute("UPDATE twinbox.sentinel SET txid = '7'").await;
    let error = world.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Restored);
    assert!(error.to_string().contains("twinbox destinations rebase"), "{error}");
}

/// It has the parser and the version of Postgres, and a table that no other product has.
async fn another_product_is_refused_before_a_migration_on_postgres() {
    let empty = Postgres::empty().await;
    let store = Postgres::open(&empty.url).await;
    let table = "CREATE SCHEMA sys; CREATE TABLE sys.iam_pg_role_mappings (n int)";
    sqlx::raw_sql(table).execute(store.pool()).await.unwrap();
    let refused = store.migrate().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Configuration);
    assert!(refused.to_string().contains("this server is Aurora DSQL"), "{refused}");
    let made = "SELECT count(*) FROM pg_tables WHERE schemaname = 'twinbox'";
    let made: i64 = sqlx::query_scalar(made).fetch_one(store.pool()).await.unwrap();
    assert_eq!(made, 0);
}

async fn a_journal_that_is_no_wal_is_refused_on_sqlite() {
    let empty = Sqlite::empty().await;
    let options = SqliteConnectOptions::new().filename(&empty.url).create_if_missing(true);
    let options = options.journal_mode(sqlx::sqlite::SqliteJournalMode::Delete);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    let error = Store::new(pool.clone(), SERVICE).unwrap().migrate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(
        error.to_string().contains("`delete` and must be `wal`: open the pool with `sqlite::open`"),
        "{error}"
    );
    pool.close().await;
    Store::new(twinbox::sqlite::open(&empty.url).await.unwrap(), SERVICE).unwrap().check().await.unwrap();
}

cases! {
    all: [
        of_five_that_migrate_at_once_one_does_it,
        a_migration_dropped_half_way_has_done_nothing_or_all,
        to_migrate_again_changes_nothing,
        missing_tables_are_told_with_what_to_do,
        the_tables_of_another_service_are_refused,
        two_services_share_a_database_by_a_namespace_each,
        bad_names_are_refused_before_any_io,
        a_newer_schema_is_refused_only_if_it_says_so,
        the_printed_migrations_make_a_store,
    ]
    postgres: [
        what_breaks_the_log_is_refused_on_postgres,
        another_product_is_refused_before_a_migration_on_postgres,
        a_migration_waits_for_another_one_on_postgres,
    ]
    mysql: [a_migration_has_waits_of_its_own_on_mysql]
    sqlite: [a_journal_that_is_no_wal_is_refused_on_sqlite]
}
