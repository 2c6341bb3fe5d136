//! A server of MySQL whose sessions read quotes, spaces and escapes as the standard does.
use super::execute_each;
use crate::support::{
    database::SERVICE,
    log::{open, publish, settle_until},
};
use sqlx::MySqlPool;
use twinbox::Store;
use twinbox_testkit::servers::{MySqlOptions, MySqlServer};

#[tokio::test]
async fn the_modes_of_the_standard_change_nothing_on_mysql() {
    let modes = "ANSI,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES";
    let server = MySqlServer::start_with(MySqlOptions::default().set("sql_mode", modes)).unwrap();
    let store = Store::new(MySqlPool::connect(&server.url()).await.unwrap(), SERVICE).unwrap();
    store.migrate().await.unwrap();
    let mut conn = store.pool().acquire().await.unwrap();
    let set: String = sqlx::query_scalar("SELECT @@sql_mode").fetch_one(&mut *conn).await.unwrap();
    assert!(set.contains("ANSI_QUOTES") && set.contains("IGNORE_SPACE"), "{set}");
    store.check().await.unwrap();
    publish(&store, None, &["it's", r"a \ b"]).await;
    let mut reader = open(&store, "d").await;
    assert_eq!(settle_until(&mut reader, r"a \ b").await, ["it's", r"a \ b"]);
    execute_each(&mut *conn, &store).await;
}
