//! The tables are migrated under running builds, and an old build comes back.
use super::shop::{Deployed, Deployment, consumer, publish};
use crate::support::{
    book::Book,
    database::grants,
    stores::{TestDb, World},
    tool::Tool,
    wait::eventually,
};
use sqlx::AssertSqlSafe;
use std::sync::Arc;
use twinbox::Store;

async fn execute<DB: TestDb>(world: &World<DB>, sql: String) {
    let mut conn = world.pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *conn).await.unwrap();
}

async fn an_upgrade_and_back_again<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    let newest = Store::<DB>::NEWEST_SCHEMA;
    publish(&world, 0..10).await;
    // As the release before left them: the newest migration made one table.
    let (table, migrations) = (DB::table_of("bulk_actions"), DB::table_of("migrations"));
    execute(&world, format!("DROP TABLE {table}; DELETE FROM {migrations} WHERE version = {newest}")).await;
    let tool = Tool::of(&world);
    assert!(tool.ends(4, &["status"]).await.contains("run the migrations"));

    let mut book = Book::open(&world, "An upgrade, and back again");
    book.says(&format!("have version {}; this tool has version {newest}", newest - 1)).await;
    book.says("The tables are up to date").await;
    book.says("GRANT").await;
    book.others("run the printed statements, then deploy");
    if DB::MODULE == "postgres" {
        execute(&world, grants()).await;
    }
    let new = consumer(&world, &deployed);
    let manifest = new.manifest().to_json();
    let new = Deployed::start(new);
    eventually(async || (world.effects().await.len() == 10).then_some(())).await;
    book.says("Nothing is wrong").await;
    book.others("if it has to go back");
    std::fs::write(book.folder.path().join("manifest-of-the-old-build.json"), manifest).unwrap();
    book.says("").await;
    new.stop().await;
    publish(&world, 10..20).await;
    book.others("deploy the old build");
    let old = Deployed::start(consumer(&world, &deployed));
    eventually(async || (world.effects().await.len() == 20).then_some(())).await;
    book.says("Nothing is wrong").await;
    book.close();
    old.stop().await;

    // What the entry says of tables that an old build cannot use.
    let beyond = newest + 1;
    let record = format!(
        "INSERT INTO {migrations} (version, name, compatible_from) VALUES ({beyond}, 'next', {beyond})"
    );
    execute(&world, record).await;
    let refused = tool.ends(4, &["status"]).await;
    assert!(refused.contains(&format!("needs a program of version {beyond}")), "{refused}");
}

crate::support::cases::cases! {
    all: [an_upgrade_and_back_again]
}
