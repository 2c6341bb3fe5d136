//! Pages of a database whose times no program can read.
use super::{filled::filled_with, hostile::pages};
use crate::support::{console::Console, stores::World, tool::Tool, wait::in_time};
use sqlx::{AssertSqlSafe, Postgres};

const TIMES: &str = "
    SELECT table_name::text, column_name::text
    FROM information_schema.columns
    WHERE table_schema = 'twinbox' AND domain_name = 'point_in_time' AND table_name <> 'idempotency_audit'";

/// Puts a time into every column of every row.
async fn set_times(world: &World<Postgres>, time: &str) {
    let columns = sqlx::query_as::<_, (String, String)>(TIMES).fetch_all(world.pool()).await.unwrap();
    assert!(columns.len() > 50, "{columns:?}");
    let update = |(table, column): &(String, String)| format!("UPDATE twinbox.{table} SET {column} = {time}");
    let updates = Vec::from_iter(columns.iter().map(update)).join("; ");
    sqlx::raw_sql(AssertSqlSafe(updates)).execute(world.pool()).await.unwrap();
}

/// The status of each page, by its name.
async fn statuses(tool: &Tool) -> Vec<(&'static str, u16)> {
    let console = Console::start(tool, &["--allow-changes"]).await;
    let mut statuses = Vec::new();
    for (name, path) in pages("plain") {
        let answer = reqwest::get(console.at(&path)).await.unwrap();
        statuses.push((name, answer.status().as_u16()));
        answer.text().await.unwrap();
    }
    console.stop().await;
    statuses
}

async fn pages_answer_as_with_other_times(infinite: &str) {
    let world = filled_with("plain").await;
    let tool = Tool::of(&world);
    set_times(&world, "now()").await;
    let before = statuses(&tool).await;
    let shown = before.iter().filter(|(_, status)| *status == 200).count();
    assert!(shown > 15, "{before:?}");

    world.execute("ALTER DOMAIN twinbox.point_in_time DROP CONSTRAINT point_in_time_check").await;
    set_times(&world, infinite).await;
    let ran = tool.run(&["status"]).await;
    assert!([0, 7].contains(&ran.code) && ran.out.contains("billing.invoice"), "{infinite}: {ran:?}");
    assert_eq!(statuses(&tool).await, before, "{infinite}");
}

/// Somebody took the rule of times away, and every time of every row is infinite.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_and_each_page_show_what_they_can() {
    for infinite in ["'-infinity'", "'infinity'"] {
        in_time(pages_answer_as_with_other_times(infinite)).await;
    }
}
