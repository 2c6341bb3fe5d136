//! How many rows and blocks the statements that read the log touch, where naive ones touch all of them. The
//! statements are prepared, as the program prepares them, and planned for their parameters and without.
#[cfg(feature = "mysql")]
mod groups;
#[cfg(feature = "mysql")]
mod mysql;
mod parked;

use crate::support::{
    database::{self, TestDatabase},
    log::{draft, now, open, open_with, publish, row, run, take, text},
    long,
    wait::eventually,
};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _};
use twinbox::{
    Store,
    log::{Log, ReaderOptions, plans},
    ops::{Ops, replays::Selection},
};

/// What one execution touched.
#[derive(Debug, Default)]
struct Cost {
    /// Rows that came out of a table or an index, those that a filter removed included.
    rows: f64,
    blocks: f64,
    indexes: Vec<String>,
    table_scans: Vec<String>,
    plan: String,
}

impl Cost {
    fn add(&mut self, node: &Value) {
        let number = |name: &str| node[name].as_f64().unwrap_or_default();
        if node["Relation Name"].is_string() {
            let removed = number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
            self.rows += (number("Actual Rows") + removed) * number("Actual Loops");
        }
        let node_type = node["Node Type"].as_str().unwrap();
        self.indexes.extend(node["Index Name"].as_str().map(str::to_owned));
        if node_type.ends_with("Seq Scan") {
            self.table_scans.push(node["Relation Name"].to_string());
        }
        self.plan += &format!(
            "\n{} {} rows {} removed {} loops {} blocks {}",
            node_type,
            node["Index Name"],
            number("Actual Rows"),
            number("Rows Removed by Filter"),
            number("Actual Loops"),
            number("Shared Hit Blocks") + number("Shared Read Blocks"),
        );
        for child in node["Plans"].as_array().into_iter().flatten() {
            self.add(child);
        }
    }

    #[track_caller]
    fn assert_at_most(&self, rows: f64, blocks: f64) {
        assert!(self.rows <= rows, "{} rows were read{}", self.rows, self.plan);
        assert!(self.blocks <= blocks, "{} blocks were touched{}", self.blocks, self.plan);
        assert!(self.table_scans.is_empty(), "{:?} are read as a whole{}", self.table_scans, self.plan);
    }
}

async fn explain(conn: &mut PgConnection, mode: &str, statement: &str, binds: &[i64]) -> Cost {
    let values: Vec<_> = binds.iter().map(i64::to_string).collect();
    explain_with(conn, mode, statement, &vec!["bigint"; binds.len()], &values).await
}

async fn explain_with(
    conn: &mut PgConnection,
    mode: &str,
    statement: &str,
    types: &[&str],
    values: &[String],
) -> Cost {
    let (types, values) = match types {
        [] => (String::new(), String::new()),
        _ => (format!("({})", types.join(", ")), format!("({})", values.join(", "))),
    };
    let prepare = format!("SET plan_cache_mode = {mode}; PREPARE looked_at {types} AS {statement}");
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *conn).await.unwrap();
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE looked_at {values}");
    let row = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_one(&mut *conn).await.unwrap();
    sqlx::raw_sql("DEALLOCATE looked_at").execute(conn).await.unwrap();
    let text: String = row.try_get_unchecked(0).unwrap();
    let plan: Value = serde_json::from_str(&text).unwrap();
    let root = &plan[0]["Plan"];
    let blocks = ["Shared Hit Blocks", "Shared Read Blocks"].iter().filter_map(|name| root[name].as_f64());
    let mut cost = Cost { blocks: blocks.sum(), ..Cost::default() };
    cost.add(root);
    cost
}

const MODES: [&str; 2] = ["force_generic_plan", "force_custom_plan"];

/// Without autovacuum. It would make statistics, where a table is to look like one that grew fast. Its
/// snapshots would keep a VACUUM from marking pages as visible to all, and their rows would be looked up.
async fn database() -> TestDatabase<Postgres> {
    let database = database::postgres().await;
    let off = "
        DO $$ DECLARE one regclass;
        BEGIN
            FOR one IN
                SELECT oid FROM pg_class WHERE relnamespace = 'twinbox'::regnamespace AND relkind = 'r'
            LOOP
                EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', one);
            END LOOP;
        END $$";
    run(&database, off).await.unwrap();
    database
}

fn fill(rows: u32) -> String {
    format!(
        "INSERT INTO twinbox.outbox (type, key, id, payload)
        SELECT 'a', 'k' || (n % 1000), 'x', '{{}}' FROM generate_series(1, {rows}) n"
    )
}

/// The run of the server that a page is read in; another one has the same plan.
const NO_RUN: i64 = 0;

/// The newest tick, made if there is something new.
async fn tick(store: &Store<Postgres>) -> i64 {
    let newest = AssertSqlSafe(plans::newest(store));
    sqlx::query_scalar(newest).fetch_one(store.pool()).await.unwrap()
}

async fn bounds(store: &Store<Postgres>, p: i64, w: i64) -> (i64, i64) {
    let bounds = sqlx::query_as(AssertSqlSafe(plans::bounds(store)));
    bounds.bind(p).bind(w).bind(NO_RUN).fetch_one(store.pool()).await.unwrap()
}

/// One message was committed late, many were between (with `--long` a million), a hundred are new.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_reads_what_it_returns() {
    let (database, many) = (database().await, long::or(1_000_000, 200_000));
    let mut late = database.begin().await.unwrap();
    database.outbox().publish_draft(&mut late, draft(None, "late")).await.unwrap();
    run(&database, &fill(many)).await.unwrap();
    let (p, last) = (tick(&database).await, i64::from(many) + 1);
    late.commit().await.unwrap();
    run(&database, &fill(100)).await.unwrap();
    let w = tick(&database).await;
    assert!(w > p);

    let conn = &mut *database.pool().acquire().await.unwrap();
    let (floor, ceiling) = bounds(&database, p, w).await;
    assert_eq!((floor, ceiling), (last, last + 100));
    let (page, bounds) = (plans::page(&database), plans::bounds(&database));
    for statistics in [None, Some("VACUUM ANALYZE twinbox.outbox")] {
        if let Some(statistics) = statistics {
            sqlx::raw_sql(statistics).execute(&mut *conn).await.unwrap();
        }
        for mode in MODES {
            println!("{mode}, {statistics:?}");
            let found = sqlx::query(AssertSqlSafe(page.clone()));
            let found =
                [0, p, w, floor, ceiling, 500, NO_RUN].into_iter().fold(found, sqlx::query::Query::bind);
            assert_eq!(found.fetch_all(&mut *conn).await.unwrap().len(), 101);
            // The first page, the next one, and one in the middle.
            for (after, limit, rows) in [(0, 500, 110.0), (1, 500, 110.0), (1, 7, 20.0)] {
                let cost = explain(conn, mode, &page, &[after, p, w, floor, ceiling, limit, NO_RUN]).await;
                cost.assert_at_most(rows, 60.0);
            }
            // Far behind.
            explain(conn, mode, &page, &[last / 2, 0, w, 0, i64::MAX, 500, NO_RUN])
                .await
                .assert_at_most(510.0, 100.0);

            let cost = explain(conn, mode, &bounds, &[p, w, NO_RUN]).await;
            cost.assert_at_most(110.0, 60.0);
            assert!(cost.indexes.iter().any(|index| index == "outbox_txid_position"), "{}", cost.plan);
        }
    }
    // Late again, and with many messages of one transaction, or with none.
    let mut bulk = database.begin().await.unwrap();
    sqlx::query(AssertSqlSafe(fill(many / 20))).execute(&mut *bulk).await.unwrap();
    let mut silent = database.begin().await.unwrap();
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut *silent).await.unwrap();
    run(&database, &fill(1)).await.unwrap();
    let p = tick(&database).await;
    silent.commit().await.unwrap();
    // No tick is due only because a second has passed.
    run(&database, "UPDATE twinbox.ticks SET taken_at = taken_at + interval '1 hour'").await.unwrap();
    for mode in MODES {
        explain(conn, mode, &plans::newest(&database), &[]).await.assert_at_most(10.0, 40.0);
    }
    assert_eq!(tick(&database).await, p, "nothing is new");
    bulk.commit().await.unwrap();
    let w = tick(&database).await;
    for mode in MODES {
        for after in [last + 100, last + last * 3 / 100] {
            let cost = explain(conn, mode, &page, &[after, p, w, i64::MAX, 0, 500, NO_RUN]).await;
            cost.assert_at_most(510.0, 100.0);
        }
    }
    let mut reader = open(&database, "d").await;
    assert_eq!(text(&take(&mut reader, 1).await[0]), "late");
}

/// It is a function that says which one it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_asks_for_the_run_of_the_server_once() {
    let database = database().await;
    run(&database, &fill(100)).await.unwrap();
    let w = tick(&database).await;
    let mut tx = database.pool().begin().await.unwrap();
    sqlx::raw_sql("SET LOCAL track_functions = 'pl'").execute(&mut *tx).await.unwrap();
    let page = sqlx::query(AssertSqlSafe(plans::page(&database)));
    let page = [0, 0, w, 0, i64::MAX, 500, NO_RUN].into_iter().fold(page, sqlx::query::Query::bind);
    assert_eq!(page.fetch_all(&mut *tx).await.unwrap().len(), 100);
    let calls = sqlx::query_scalar("SELECT sum(calls)::bigint FROM pg_stat_xact_user_functions");
    let calls: i64 = calls.fetch_one(&mut *tx).await.unwrap();
    assert_eq!(calls, 1);
}

/// Somebody's bulk transaction is open for longer than a second. Nothing of it is visible, and its rows are
/// not looked at again and again.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_look_does_not_read_an_open_bulk_transaction() {
    let database = database().await;
    publish(&database, None, &["a"]).await;
    let before = tick(&database).await;
    let mut bulk = database.begin().await.unwrap();
    sqlx::query(AssertSqlSafe(fill(200_000))).execute(&mut *bulk).await.unwrap();
    // A tick is made once a second, with nothing to see. A snapshot ends behind the last transaction that is
    // complete: that of the first tick can still end before the bulk transaction, that of the second cannot.
    let forced =
        eventually(async || Some(tick(&database).await).filter(|newest| *newest == before + 2)).await;

    let conn = &mut *database.pool().acquire().await.unwrap();
    let newest = plans::newest(&database);
    for mode in MODES {
        explain(conn, mode, &newest, &[]).await.assert_at_most(10.0, 40.0);
    }
    assert_eq!(tick(&database).await, forced, "an idle look is no tick");
    bulk.commit().await.unwrap();
    assert!(tick(&database).await > forced);
}

/// A hundred thousand wait, most of them for the same second, and what was moved before them was not
/// vacuumed.
#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_what_waits_is_one_probe() {
    let database = database::postgres().await;
    run(&database, "ALTER TABLE twinbox.delayed_messages SET (autovacuum_enabled = off)").await.unwrap();
    let wait = |rows: u32, from_now: &str| {
        format!(
            "INSERT INTO twinbox.delayed_messages (type, payload, not_before)
            SELECT 'a', '{{}}', now() + interval '{from_now}' FROM generate_series(1, {rows}) n"
        )
    };
    run(&database, &wait(100_000, "1 day")).await.unwrap();
    let conn = &mut *database.pool().acquire().await.unwrap();
    let (next, due) = (plans::delayed_next(&database), plans::move_due(&database));
    for statistics in [None, Some("VACUUM ANALYZE twinbox.delayed_messages")] {
        if let Some(statistics) = statistics {
            sqlx::raw_sql(statistics).execute(&mut *conn).await.unwrap();
        }
        for mode in MODES {
            println!("{mode}, {statistics:?}");
            let cost = explain(conn, mode, &next, &[]).await;
            cost.assert_at_most(1.0, 10.0);
            assert_eq!(cost.indexes, ["delayed_messages_due"], "{}", cost.plan);
            explain(conn, mode, &due, &[500, i64::MAX]).await.assert_at_most(1.0, 20.0);
            run(&database, &wait(20, "-1 day")).await.unwrap();
            let cost = explain(conn, mode, &due, &[10, i64::MAX]).await;
            cost.assert_at_most(50.0, 500.0);
            assert!(cost.indexes.iter().any(|index| index == "delayed_messages_due"), "{}", cost.plan);
            assert_eq!(Log::new(&database).move_due(500).await.unwrap().messages, 10);
        }
    }
}

/// One reader has settled all of many messages, one the first half of them, one none.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_behind_is_told_by_the_first_unsettled_message() {
    let database = database().await;
    // It holds the xmin of every snapshot that follows.
    let mut open = database.begin().await.unwrap();
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut *open).await.unwrap();
    let mut at = vec![0];
    for _ in 0..2 {
        run(&database, &fill(100_000)).await.unwrap();
        at.push(tick(&database).await);
    }
    for (n, p) in at.iter().enumerate() {
        let cursor = format!("INSERT INTO twinbox.cursors (destination, p, w) VALUES ('d{n}', {p}, {p})");
        run(&database, &cursor).await.unwrap();
    }
    run(&database, "UPDATE twinbox.ticks SET taken_at = taken_at - interval '1 hour' WHERE id > 0")
        .await
        .unwrap();
    let conn = &mut *database.pool().acquire().await.unwrap();
    let lagging = plans::lagging(&database);
    for statistics in [None, Some("VACUUM ANALYZE twinbox.outbox")] {
        if let Some(statistics) = statistics {
            sqlx::raw_sql(statistics).execute(&mut *conn).await.unwrap();
        }
        for mode in MODES {
            println!("{mode}, {statistics:?}");
            let found = sqlx::query_scalar::<_, String>(AssertSqlSafe(lagging.clone())).bind(1_000_000_i64);
            assert_eq!(found.fetch_all(&mut *conn).await.unwrap(), ["d0", "d1"]);
            let cost = explain(conn, mode, &lagging, &[1_000_000]).await;
            assert!(cost.rows <= 40.0 && cost.blocks <= 100.0, "{} {}{}", cost.rows, cost.blocks, cost.plan);
            assert!(!cost.table_scans.iter().any(|table| table.contains("outbox")), "{}", cost.plan);
        }
    }
}

/// Of two hundred thousand claims a fifth is old. Only those that go are read.
#[tokio::test(flavor = "multi_thread")]
async fn old_claims_are_found_by_their_age() {
    let database = database::postgres().await;
    let fill = "ALTER TABLE twinbox.inbox DISABLE TRIGGER refuse_commit;
        INSERT INTO twinbox.inbox (consumer, message_id, source, event_id, payload_hash, state, claimed_at)
        SELECT CASE WHEN n % 5 = 0 THEN 'old' ELSE 'other' END, gen_random_uuid(), 's', n::text, '', \
        'processed',
            now() - interval '1 day' + n * interval '1 microsecond'
        FROM generate_series(1, 200000) n";
    sqlx::raw_sql(fill).execute(database.pool()).await.unwrap();
    // As a table has that is old enough to be purged.
    sqlx::raw_sql("VACUUM ANALYZE twinbox.inbox").execute(database.pool()).await.unwrap();
    let conn = &mut *database.pool().acquire().await.unwrap();
    let old = |statement: String| statement.replace("$1", "'old'").replace("$2", "now()");
    let purge = old(plans::purge_claims(&database)).replace("$3", "now()").replace("$4", "1000");
    let mark = plans::purgeable_claims(&database).replace("$1", "'old'").replace("$2", "0");
    let mark = mark.replace("$3", "1000");
    for mode in MODES {
        println!("{mode}");
        let cost = explain(conn, mode, &mark, &[]).await;
        cost.assert_at_most(1_010.0, 1_500.0);
        assert!(cost.indexes.iter().all(|index| index == "inbox_claimed_at"), "{}", cost.plan);
        // One row is read by its age, and once more by its key.
        let cost = explain(conn, mode, &purge, &[]).await;
        assert!(cost.rows <= 3_010.0 && cost.table_scans.is_empty(), "{}{}", cost.rows, cost.plan);
        assert!(cost.indexes.iter().any(|index| index == "inbox_claimed_at"), "{}", cost.plan);
    }
}

/// A plan for what is new reads about what is new, and one for an id about what is beside it. It is never
/// prepared by name, so it is planned for what it is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_a_replay_reads_what_it_is_about() {
    let database = database().await;
    let old =
        fill(200_000).replace("(type,", "(time, type,").replace("SELECT", "SELECT now() - interval '1 day',");
    run(&database, &old).await.unwrap();
    run(&database, &fill(1000).replace("'x'", "'y' || n")).await.unwrap();
    let now_on = ReaderOptions::new().start(twinbox::log::StartPosition::Now);
    open_with(&database, "d", now_on).await.close().await.unwrap();
    let conn = &mut *database.pool().acquire().await.unwrap();
    for statistics in [
        "VACUUM ANALYZE twinbox.outbox",
        "SELECT brin_summarize_new_values('twinbox.outbox_time'), \
            brin_summarize_new_values('twinbox.outbox_id')",
    ] {
        sqlx::raw_sql(statistics).execute(&mut *conn).await.unwrap();
    }
    let row = row(&database, "d").await;
    let cursor = [row.p.to_string(), row.w.to_string(), row.position.to_string(), "'d'".to_owned()];
    let since = twinbox::Timestamp::from_micros(now(&database).await - 3_600_000_000);
    let recent = Selection::new().since(Some(since));
    let one = Selection::new().ids(vec!["y7".to_owned()]);
    for (selection, of, value, selected, rows, index) in [
        (recent, "timestamptz", format!("'{since}'"), 1000, 8_000.0, "outbox_time"),
        (one, "text", "'y7'".to_owned(), 1, 2_000.0, "outbox_id"),
    ] {
        let (types, values) = (["bigint", "bigint", "bigint", "text", of], [&cursor[..], &[value]].concat());
        let counting = Ops::new(&database).counting_statement(&selection);
        let cost = explain_with(conn, "force_custom_plan", &counting, &types, &values).await;
        cost.assert_at_most(rows, 1000.0);
        assert!(cost.indexes.iter().any(|used| used == index), "{}", cost.plan);
        assert_eq!(Ops::new(&database).plan_replay("d", &selection).await.unwrap().selected, selected);
    }
}

/// What `status` asks of a reader that is far behind, and what every relay asks once a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_counted_no_further_than_it_is_told() {
    let database = database().await;
    open(&database, "d").await.close().await.unwrap();
    run(&database, &fill(200_000)).await.unwrap();
    let conn = &mut *database.pool().acquire().await.unwrap();
    sqlx::raw_sql("VACUUM ANALYZE twinbox.outbox").execute(&mut *conn).await.unwrap();
    for mode in MODES {
        let values = ["'d'".to_owned(), twinbox::ops::BACKLOG_MAX.to_string()];
        let backlog = plans::backlog(&database);
        let cost = explain_with(conn, mode, &backlog, &["text", "bigint"], &values).await;
        cost.assert_at_most(10_010.0, 1000.0);
        let cost = explain_with(conn, mode, &plans::replay_next(&database), &["text"], &values[..1]).await;
        assert!(cost.rows <= 1.0 && cost.blocks <= 10.0, "{}", cost.plan);
    }
}
