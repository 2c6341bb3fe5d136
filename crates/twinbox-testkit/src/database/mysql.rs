//! Databases on a MySQL or MariaDB server.
use super::{Removal, SERVICE, TestDatabase, url_of};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, MySql,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};
use twinbox_sql::Store;
use uuid::Uuid;

/// The environment variable with the URL of a MySQL or MariaDB server on which tests may create and drop
/// databases.
pub const MYSQL_URL: &str = "TWINBOX_MYSQL_URL";

/// Creates a database with migrated tables on the MySQL or MariaDB server of [`MYSQL_URL`].
pub async fn mysql() -> TestDatabase<MySql> {
    let database = empty_mysql().await;
    database.store.migrate().await.expect("an empty database can be migrated");
    database
}

/// Creates a database without tables on the MySQL or MariaDB server of [`MYSQL_URL`].
pub async fn empty_mysql() -> TestDatabase<MySql> {
    let admin = admin_options();
    let name = format!("twinbox_test_{}", Uuid::now_v7().simple());
    run(&admin, &format!("CREATE DATABASE {name}")).await;
    let options = admin.clone().database(&name);
    let url = url_of(&server_url(), &name);
    let pool = MySqlPoolOptions::new().max_connections(20).connect_with(options).await;
    let store = Store::new(pool.expect("a new database accepts connections"), SERVICE);
    let store = store.expect("the service name is valid");
    TestDatabase { store, url, _removal: Removal::on_server(|| drop_database(admin, name)) }
}

fn admin_options() -> MySqlConnectOptions {
    let url = server_url();
    url.parse().unwrap_or_else(|e| panic!("{MYSQL_URL}={url} is not a MySQL URL: {e}"))
}

fn server_url() -> String {
    std::env::var(MYSQL_URL).unwrap_or_else(|_| {
        panic!("{MYSQL_URL} is not set: run `cargo xtask test`, or set it to the URL of a MySQL server")
    })
}

async fn run(admin: &MySqlConnectOptions, sql: &str) {
    let mut conn = admin.connect().await.unwrap_or_else(|e| panic!("cannot connect to {MYSQL_URL}: {e}"));
    let ran = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await;
    ran.unwrap_or_else(|e| panic!("{sql}: {e}"));
}

async fn drop_database(admin: MySqlConnectOptions, name: String) {
    let Ok(mut conn) = admin.connect().await else { return };
    // A connection that nobody polls may hold a lock.
    let others = sqlx::query_scalar::<_, i64>(
        "SELECT CAST(id AS SIGNED)
        FROM /*!80400 performance_schema.processlist */ /*M! information_schema.processlist */
        WHERE db = ?",
    );
    for id in others.bind(&name).fetch_all(&mut conn).await.unwrap_or_default() {
        let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}"))).execute(&mut conn).await;
    }
    let drop = format!("DROP DATABASE IF EXISTS {name}");
    let _ = sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut conn).await;
}
