//! Whether the purges of MySQL make others wait: a DELETE locks what it reads, and at some isolation levels
//! the gaps between the rows.
use super::{super::Repeats as _, counting::with_values, long_tables::LongTables as _};
use crate::support::stores::World;
use sqlx::{AssertSqlSafe, MySql};
use twinbox::Dialect as _;

/// The statements that delete old rows of tables into which others insert. The log has its own test.
const PURGES: [&str; 9] = [
    "client_keys.purge",
    "drift.purge",
    "effects.purge",
    "inbox.purge_claims",
    "inbox.purge_superseded",
    "jobs.purge",
    "operations.purge",
    "retention.retire_parked",
    "webhooks.purge",
];

/// All claims.
const CLAIMS: &str = "'2029-01-01' AS newest_claim, '2029-01-01' AS newest_message";

/// While it is at work, with all its locks.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_purge_of_mysql() {
    let world = World::<MySql>::new().await;
    MySql::fill(&world, true).await;
    let mark = "INSERT INTO twinbox_purge_marks (consumer, time) VALUES ('20260101', '2030-01-01')";
    world.execute(mark).await;
    let (mut purging, mut other) =
        (world.pool().acquire().await.unwrap(), world.pool().acquire().await.unwrap());
    sqlx::raw_sql("SET SESSION innodb_lock_wait_timeout = 1").execute(&mut *other).await.unwrap();
    let named = world.engine().sql().named();
    let unlisted = named.iter().filter(|(name, statement)| {
        let deletes = name.contains("purge") && statement.as_str().trim_start().starts_with("DELETE");
        // A DELETE of a list of rows locks these alone.
        let is_of_list = name.starts_with("holes.") || statement.as_str().ends_with("IN");
        deletes && !is_of_list && !PURGES.contains(&&**name)
    });
    assert_eq!(unlisted.map(|(name, _)| name).collect::<Vec<_>>(), Vec::<&String>::new());
    for (nth, name) in PURGES.into_iter().enumerate() {
        let (_, statement) = named.iter().find(|(known, _)| known == name).expect(name);
        // Its time is not an age.
        let sql = statement.as_str().replace("? AS newest_claim, ? AS newest_message", CLAIMS);
        let begin = if statement.has_bounded_wait() { MySql::BEGIN_SHORT } else { "BEGIN" };
        sqlx::raw_sql(begin).execute(&mut *purging).await.unwrap();
        // It is idle while others insert.
        sqlx::raw_sql("SET SESSION wait_timeout = 60").execute(&mut *purging).await.unwrap();
        let binds = MySql::prepare(&mut purging, &sql).await.unwrap();
        let purged = with_values(&sql, binds).execute(&mut *purging).await.unwrap();
        assert!(purged.rows_affected() > 0, "{name} found nothing");
        for insert in MySql::inserts("UTC_TIMESTAMP(6)") {
            let insert = format!("{insert} FROM (SELECT {} AS n) numbers", 1_000_000 + nth);
            let inserted = sqlx::raw_sql(AssertSqlSafe(insert.clone())).execute(&mut *other).await;
            inserted.unwrap_or_else(|error| panic!("{name} {error}: {insert}"));
        }
        sqlx::raw_sql("ROLLBACK").execute(&mut *purging).await.unwrap();
    }
}
