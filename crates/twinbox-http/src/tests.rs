//! Requests through the layers, on SQLite.
mod handlers;
mod metrics;

use sqlx::Sqlite;
use std::path::Path;
use twinbox_sql::{Store, sqlite};

async fn store(folder: &Path) -> Store<Sqlite> {
    let store = Store::new(sqlite::open(folder.join("test.db")).await.unwrap(), "tests").unwrap();
    store.migrate().await.unwrap();
    sqlx::query("CREATE TABLE effects (n INTEGER NOT NULL)").execute(store.pool()).await.unwrap();
    store
}
