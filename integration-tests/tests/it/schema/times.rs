//! No column holds a time that no program can read.
use crate::support::{
    cases::cases,
    databases::{MySql, Postgres},
    stores::World,
};
use sqlx::{AssertSqlSafe, Row as _};

/// Times of a table of Twinbox, by table and column. The owner of the tables alone writes the migrations.
const ON_POSTGRES: &str = "
    SELECT c.table_name::text, c.column_name::text
    FROM information_schema.columns c
    JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
    WHERE c.table_schema = 'twinbox' AND t.table_type = 'BASE TABLE' AND c.table_name <> 'migrations'
        AND c.udt_name::text IN ('timestamptz', 'timestamp', 'date')
    ORDER BY 1, 2";
const ON_MYSQL: &str = "
    SELECT CAST(c.table_name AS CHAR), CAST(c.column_name AS CHAR)
    FROM information_schema.columns c
    JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
    WHERE c.table_schema = DATABASE() AND t.table_type = 'BASE TABLE' AND c.table_name LIKE 'twinbox\\_%'
        AND c.table_name <> 'twinbox_migrations' AND c.data_type IN ('datetime', 'timestamp', 'date')
    ORDER BY 1, 2";

/// A new column fails this test unless it has the domain of all times.
async fn each_time_on_postgres_is_of_the_calendar() {
    let world = World::<Postgres>::new().await;
    let columns = sqlx::query_as::<_, (String, String)>(ON_POSTGRES).fetch_all(world.pool()).await.unwrap();
    assert!(columns.len() > 50, "{columns:?}");
    let mut taken = Vec::new();
    for (table, column) in columns {
        for time in ["infinity", "-infinity", "10000-01-01 00:00:00+00", "0002-12-31 00:00:00+00 BC"] {
            let insert = format!("INSERT INTO twinbox.{table} ({column}) VALUES ('{time}')");
            let refused = sqlx::raw_sql(AssertSqlSafe(insert)).execute(world.pool()).await.map(drop);
            if !refused.as_ref().is_err_and(|error| error.to_string().contains("point_in_time")) {
                taken.push(format!("{table}.{column} = {time}: {refused:?}"));
            }
        }
    }
    assert!(taken.is_empty(), "make them of the domain point_in_time:\n{}", taken.join("\n"));
}

/// A new column fails this test unless a rule refuses a month 0, a day 0 and a day that the month has not.
async fn each_time_on_mysql_has_a_month_and_a_day() {
    let world = World::<MySql>::new().await;
    let columns = sqlx::query_as::<_, (String, String)>(ON_MYSQL).fetch_all(world.pool()).await.unwrap();
    assert!(columns.len() > 50, "{columns:?}");
    let mut unchecked = Vec::new();
    for (table, column) in columns {
        let show = AssertSqlSafe(format!("SHOW CREATE TABLE {table}"));
        let shown = sqlx::raw_sql(show).fetch_one(world.pool()).await.unwrap();
        // MySQL shows more parentheses than MariaDB.
        let bare = |rule: &str| rule.replace(['(', ')', ' '], "");
        let shown = bare(&shown.get::<String, _>(1).to_lowercase().replace("dayofmonth", "day"));
        let (month, day) = (format!("month(`{column}`)"), format!("day(`{column}`)"));
        let exists = format!("{day} <= coalesce(day(last_day(`{column}`)),0)");
        let some = [format!("{month} * {day} > 0"), format!("{month} > 0 and {day} > 0")];
        if !shown.contains(&bare(&exists)) || !some.iter().any(|rule| shown.contains(&bare(rule))) {
            unchecked.push(format!("{table}.{column} in {shown}"));
        }
    }
    let unchecked = unchecked.join("\n");
    assert!(unchecked.is_empty(), "no CHECK of month and day:\n{unchecked}");
}

cases! {
    postgres: [each_time_on_postgres_is_of_the_calendar]
    mysql: [each_time_on_mysql_has_a_month_and_a_day]
}
