//! A new, migrated database for each test.
//!
//! A failed setup panics, and the message names what to change.
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, PgConnection, PgPool, Postgres, Sqlite,
    postgres::{PgConnectOptions, PgPoolOptions},
};
#[cfg(feature = "mysql")]
use sqlx::{
    MySql,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};
use std::{fmt, ops::Deref};
use twinbox_sql::{Dialect, Store};
use uuid::Uuid;

/// The environment variable with the URL of a Postgres server on which tests may create and drop databases.
pub const POSTGRES_URL: &str = "TWINBOX_POSTGRES_URL";

/// The environment variable with the URL of a MySQL or MariaDB server on which tests may create and drop
/// databases.
#[cfg(feature = "mysql")]
pub const MYSQL_URL: &str = "TWINBOX_MYSQL_URL";

/// The service name of the stores that tests use.
pub const SERVICE: &str = "test";

/// A store on its own database. It dereferences to the [`Store`]. Dropping it drops the database.
pub struct TestDatabase<DB: Dialect> {
    store: Store<DB>,
    url: String,
    _cleanup: Cleanup,
}

impl<DB: Dialect> TestDatabase<DB> {
    /// Returns the `postgres://` or `mysql://` URL of the database, or the path of its SQLite file.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl<DB: Dialect> Deref for TestDatabase<DB> {
    type Target = Store<DB>;

    fn deref(&self) -> &Store<DB> {
        &self.store
    }
}

impl<DB: Dialect> fmt::Debug for TestDatabase<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDatabase").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Creates a SQLite file with migrated tables.
pub async fn sqlite() -> TestDatabase<Sqlite> {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("twinbox.db");
    let pool = twinbox_sql::sqlite::open(&path).await.expect("a SQLite file can be made");
    let store = Store::new(pool, SERVICE).expect("the service name is valid");
    store.migrate().await.expect("an empty database can be migrated");
    TestDatabase { store, url: path.display().to_string(), _cleanup: Cleanup::Folder { _folder: folder } }
}

/// Creates a Postgres database on the server of [`POSTGRES_URL`], as a copy of a migrated template.
pub async fn postgres() -> TestDatabase<Postgres> {
    let admin = admin_options();
    let template = template(&admin).await;
    let name = format!("twinbox_test_{}", Uuid::now_v7().simple());
    run(&admin, format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
    let options = admin.clone().database(&name);
    let url = options.to_url_lossy().to_string();
    let pool = PgPoolOptions::new().max_connections(20).connect_with(options).await;
    let store = Store::new(pool.expect("a new database accepts connections"), SERVICE);
    let store = store.expect("the service name is valid");
    TestDatabase { store, url, _cleanup: Cleanup::Postgres { admin: Box::new(admin), name } }
}

/// Creates a Postgres database without tables of Twinbox.
pub async fn empty_postgres() -> TestDatabase<Postgres> {
    let database = postgres().await;
    let drop_schema = "DROP SCHEMA twinbox CASCADE";
    sqlx::raw_sql(drop_schema).execute(database.pool()).await.expect("the schema can be dropped");
    database
}

/// Creates a database with migrated tables on the MySQL or MariaDB server of [`MYSQL_URL`].
#[cfg(feature = "mysql")]
pub async fn mysql() -> TestDatabase<MySql> {
    let database = empty_mysql().await;
    database.store.migrate().await.expect("an empty database can be migrated");
    database
}

/// Creates a database without tables on the MySQL or MariaDB server of [`MYSQL_URL`].
#[cfg(feature = "mysql")]
pub async fn empty_mysql() -> TestDatabase<MySql> {
    let admin = mysql_options();
    let name = format!("twinbox_test_{}", Uuid::now_v7().simple());
    mysql_run(&admin, &format!("CREATE DATABASE {name}")).await;
    let options = admin.clone().database(&name);
    let url = options.to_url_lossy().to_string();
    let pool = MySqlPoolOptions::new().max_connections(20).connect_with(options).await;
    let store = Store::new(pool.expect("a new database accepts connections"), SERVICE);
    let store = store.expect("the service name is valid");
    TestDatabase { store, url, _cleanup: Cleanup::MySql { admin: Box::new(admin), name } }
}

#[cfg(feature = "mysql")]
fn mysql_options() -> MySqlConnectOptions {
    let url = std::env::var(MYSQL_URL).unwrap_or_else(|_| {
        panic!("{MYSQL_URL} is not set: run `cargo xtask test`, or set it to the URL of a MySQL server")
    });
    url.parse().unwrap_or_else(|e| panic!("{MYSQL_URL}={url} is not a MySQL URL: {e}"))
}

#[cfg(feature = "mysql")]
async fn mysql_run(admin: &MySqlConnectOptions, sql: &str) {
    let mut conn = admin.connect().await.unwrap_or_else(|e| panic!("cannot connect to {MYSQL_URL}: {e}"));
    let ran = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await;
    ran.unwrap_or_else(|e| panic!("{sql}: {e}"));
}

fn admin_options() -> PgConnectOptions {
    let url = std::env::var(POSTGRES_URL).unwrap_or_else(|_| {
        panic!("{POSTGRES_URL} is not set: run `cargo xtask test`, or set it to the URL of a Postgres server")
    });
    url.parse().unwrap_or_else(|e| panic!("{POSTGRES_URL}={url} is not a Postgres URL: {e}"))
}

/// Returns the name of the migrated template database. The first test creates it.
async fn template(admin: &PgConnectOptions) -> String {
    let unused = PgPool::connect_lazy_with(admin.clone());
    let store = Store::new(unused, SERVICE).expect("the service name is valid");
    let version = twinbox_core::id::derive("testkit/1", &[store.migrations_sql().as_bytes()]).simple();
    let name = format!("twinbox_template_{version}");
    let mut conn = connect(admin).await;
    sqlx::raw_sql("SELECT pg_advisory_lock(hashtextextended('twinbox testkit', 0))")
        .execute(&mut conn)
        .await
        .expect("the server gives locks");
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)")
        .bind(&name)
        .fetch_one(&mut conn)
        .await
        .expect("databases can be listed");
    if !exists {
        let half_made = format!("twinbox_half_{}", Uuid::now_v7().simple());
        run(admin, format!("CREATE DATABASE {half_made}")).await;
        let pool = PgPool::connect_with(admin.clone().database(&half_made)).await;
        let pool = pool.expect("a new database accepts connections");
        let store = Store::new(pool.clone(), SERVICE).expect("the service name is valid");
        store.migrate().await.expect("an empty database can be migrated");
        pool.close().await;
        run(admin, format!("ALTER DATABASE {half_made} RENAME TO {name}")).await;
    }
    name
}

async fn connect(admin: &PgConnectOptions) -> PgConnection {
    admin.connect().await.unwrap_or_else(|e| panic!("cannot connect to the server of {POSTGRES_URL}: {e}"))
}

async fn run(admin: &PgConnectOptions, sql: String) {
    let ran = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut connect(admin).await).await;
    ran.unwrap_or_else(|e| panic!("{sql}: {e}"));
}

enum Cleanup {
    Folder {
        _folder: tempfile::TempDir,
    },
    Postgres {
        admin: Box<PgConnectOptions>,
        name: String,
    },
    #[cfg(feature = "mysql")]
    MySql {
        admin: Box<MySqlConnectOptions>,
        name: String,
    },
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        match self {
            Self::Folder { .. } => {}
            Self::Postgres { admin, name } => {
                let (admin, drop) = (admin.clone(), format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
                in_another_thread(async move {
                    if let Ok(mut conn) = admin.connect().await {
                        let _ = sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut conn).await;
                    }
                });
            }
            #[cfg(feature = "mysql")]
            Self::MySql { admin, name } => {
                let (admin, name) = (admin.clone(), std::mem::take(name));
                in_another_thread(async move {
                    let Ok(mut conn) = admin.connect().await else { return };
                    // A connection that nobody polls may hold a lock.
                    let others = sqlx::query_scalar::<_, i64>(
                        "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = ?",
                    );
                    for id in others.bind(&name).fetch_all(&mut conn).await.unwrap_or_default() {
                        let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}"))).execute(&mut conn).await;
                    }
                    let drop = format!("DROP DATABASE IF EXISTS {name}");
                    let _ = sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut conn).await;
                });
            }
        }
    }
}

/// Runs a clean-up in another thread, because the runtime of the test may be ending. Errors are ignored: a
/// server that is gone has taken the database with it.
fn in_another_thread(clean_up: impl Future<Output = ()> + Send + 'static) {
    let cleaning = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map(|runtime| runtime.block_on(clean_up))
    });
    let _ = cleaning.join();
}
