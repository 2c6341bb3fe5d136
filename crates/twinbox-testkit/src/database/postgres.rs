//! Databases on a Postgres server.
use super::{Removal, SERVICE, TestDatabase, url_of};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, PgConnection, PgPool, Postgres,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use twinbox_sql::Store;
use uuid::Uuid;

/// The environment variable with the URL of a Postgres server on which tests may create and drop databases.
pub const POSTGRES_URL: &str = "TWINBOX_POSTGRES_URL";

/// Creates a Postgres database on the server of [`POSTGRES_URL`], as a copy of a migrated template.
pub async fn postgres() -> TestDatabase<Postgres> {
    let admin = admin_options();
    let template = template(&admin).await;
    let name = format!("twinbox_test_{}", Uuid::now_v7().simple());
    run(&admin, format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
    let options = admin.clone().database(&name);
    let url = url_of(&server_url(), &name);
    let pool = PgPoolOptions::new().max_connections(20).connect_with(options).await;
    let store = Store::new(pool.expect("a new database accepts connections"), SERVICE);
    let store = store.expect("the service name is valid");
    TestDatabase { store, url, _removal: Removal::on_server(|| drop_database(admin, name)) }
}

/// Creates a Postgres database without tables of Twinbox.
pub async fn empty_postgres() -> TestDatabase<Postgres> {
    let database = postgres().await;
    let drop_schema = "DROP SCHEMA twinbox CASCADE";
    sqlx::raw_sql(drop_schema).execute(database.pool()).await.expect("the schema can be dropped");
    database
}

fn admin_options() -> PgConnectOptions {
    let url = server_url();
    url.parse().unwrap_or_else(|e| panic!("{POSTGRES_URL}={url} is not a Postgres URL: {e}"))
}

fn server_url() -> String {
    std::env::var(POSTGRES_URL).unwrap_or_else(|_| {
        panic!("{POSTGRES_URL} is not set: run `cargo xtask test`, or set it to the URL of a Postgres server")
    })
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
        // Postgres 14 lets everybody create there.
        let revoke = sqlx::raw_sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
        revoke.execute(&pool).await.expect("the owner revokes rights");
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

async fn drop_database(admin: PgConnectOptions, name: String) {
    if let Ok(mut conn) = admin.connect().await {
        let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        let _ = sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut conn).await;
    }
}
