//! What the groups of dead letters read, and a search for a key.
use super::{mysql::rows_read, *};

/// Two hundred thousand dead letters of a consumer and of a destination, in twenty groups each, beside as
/// many of others.
async fn given_up() -> TestDatabase<Postgres> {
    let database = database().await;
    for fill in [
        "INSERT INTO twinbox.dead_letters
            (consumer, message_id, reason, error, fingerprint, attempts, event_id, source, type, version,
            time, content_type, payload, given_up_at)
        SELECT CASE WHEN n % 2 = 0 THEN 'c' ELSE 'other' END, gen_random_uuid(), 'r', 'e', 'f' || n % 40, 1,
            n, 's', 't', 1, now(), 'a/b', '{}', now() - n * interval '1 second'
        FROM generate_series(1, 400000) n",
        "INSERT INTO twinbox.parked_messages
            (destination, position, type, state, blocks_key, attempts, next_attempt_at, first_error,
            last_error, fingerprint, parked_at)
        SELECT CASE WHEN n % 2 = 0 THEN 'd' ELSE 'other' END, n, 't', 'dead', false, 1, now(), 'e', 'e',
            'f' || n % 40, now() - n * interval '1 second'
        FROM generate_series(1, 400000) n",
        "INSERT INTO twinbox.outbox (type, payload) SELECT 't', '' FROM generate_series(1, 400000)",
        "VACUUM ANALYZE twinbox.dead_letters, twinbox.parked_messages, twinbox.outbox",
    ] {
        sqlx::raw_sql(fill).execute(&mut *database.pool().acquire().await.unwrap()).await.unwrap();
    }
    database
}

/// A step from group to group, the counts of a group, and its newest rows.
#[tokio::test(flavor = "multi_thread")]
async fn groups_of_dead_letters_are_read_no_further_than_they_are_counted() {
    let database = given_up().await;
    let conn = &mut *database.pool().acquire().await.unwrap();
    let (text, number, time) = ("text", "bigint", "timestamptz");
    let (group, limit, since) = ("'f2'", "9000", "now() - interval '10 minutes'");
    for mode in MODES {
        let (step, values) = (plans::next_group(&database), ["'c'", group].map(str::to_owned));
        let step = explain_with(conn, mode, &step, &[text, text], &values).await;
        step.assert_at_most(2.0, 10.0);
        let counted = |owner| {
            [(time, since), (text, owner), (text, group), (text, owner), (text, group), (number, limit)]
        };
        let (types, values) = unzip(&counted("'c'"));
        let counts = explain_with(conn, mode, &plans::group_counts(&database), &types, &values).await;
        // The group's first dead letter is looked up besides the 9,000 newest.
        counts.assert_at_most(9_001.0, 300.0);
        let values = ["'c'", group, "now()", "now()", "9223372036854775807", "51"].map(str::to_owned);
        let newest = plans::group_before(&database);
        let newest =
            explain_with(conn, mode, &newest, &[text, text, time, time, number, number], &values).await;
        newest.assert_at_most(60.0, 120.0);

        let step = plans::next_group_of_destination(&database);
        let step = explain_with(conn, mode, &step, &[text, text], &["'d'", group].map(str::to_owned)).await;
        step.assert_at_most(2.0, 10.0);
        let counts = plans::group_counts_of_destination(&database);
        let (types, values) = unzip(&counted("'d'"));
        explain_with(conn, mode, &counts, &types, &values).await.assert_at_most(9_001.0, 300.0);
        let values = ["'c'", "now()", limit].map(str::to_owned);
        let count = plans::count_of_consumer(&database);
        let count = explain_with(conn, mode, &count, &[text, time, number], &values).await;
        count.assert_at_most(9_000.0, 300.0);
        let values = ["'d'", "now()", limit].map(str::to_owned);
        let count = plans::count_of_destination(&database);
        let count = explain_with(conn, mode, &count, &[text, time, number], &values).await;
        count.assert_at_most(9_000.0, 300.0);
        // Each row of a page costs a look into its table, by the primary key, and one into the log.
        let (own, end, page) = ((text, "'d'"), (number, "9223372036854775807"), (number, "51"));
        for (statement, binds) in [
            (plans::group_before_of_destination(&database), &[own, (text, group), end, page][..]),
            (plans::destination_before(&database), &[own, end, page]),
            (plans::destination_after(&database), &[own, (number, "0"), (time, "now()"), page]),
        ] {
            let (types, values) = unzip(binds);
            let page = explain_with(conn, mode, &statement, &types, &values).await;
            page.assert_at_most(51.0 * 4.0, 51.0 * 8.0 + 20.0);
        }
    }
}

/// The types and the values of binds.
fn unzip<'a>(binds: &[(&'a str, &str)]) -> (Vec<&'a str>, Vec<String>) {
    binds.iter().map(|bind| (bind.0, bind.1.to_owned())).unzip()
}

/// No index has the keys: a page of the log is read backwards, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_for_a_key_reads_a_page_of_the_log() {
    let database = database().await;
    for fill in [
        "INSERT INTO twinbox.outbox (type, key, payload)
         SELECT 't', 'k' || n % 7, '' FROM generate_series(1, 200000) n",
        "VACUUM ANALYZE twinbox.outbox",
    ] {
        sqlx::raw_sql(fill).execute(&mut *database.pool().acquire().await.unwrap()).await.unwrap();
    }
    let conn = &mut *database.pool().acquire().await.unwrap();
    for mode in MODES {
        let values = ["150001", "1000"].map(str::to_owned);
        let end = explain_with(conn, mode, &plans::page_end(&database), &["bigint"; 2], &values).await;
        end.assert_at_most(1_000.0, 40.0);
        let types = ["text", "bigint", "bigint", "bigint"];
        let values = ["'k1'", "149001", "150001", "51"].map(str::to_owned);
        let page =
            explain_with(conn, mode, &plans::messages_of_key_between(&database), &types, &values).await;
        page.assert_at_most(1_000.0, 40.0);
    }
}

/// MySQL counts the rows that it reads. It reads all of an owner unless the index is named.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_read_no_further_on_mysql() {
    let database = database::mysql().await;
    let conn = &mut *database.pool().acquire().await.unwrap();
    let numbers = "
        FROM JSON_TABLE(@tens, '$[*]' COLUMNS (n INT PATH '$')) a
        JOIN JSON_TABLE(@tens, '$[*]' COLUMNS (n INT PATH '$')) b
        JOIN JSON_TABLE(@tens, '$[*]' COLUMNS (n INT PATH '$')) c
        JOIN JSON_TABLE(@tens, '$[*]' COLUMNS (n INT PATH '$')) d";
    let n = "a.n * 1000 + b.n * 100 + c.n * 10 + d.n";
    let parked = format!(
        "INSERT INTO twinbox_parked_messages
            (destination, position, type, state, blocks_key, attempts, next_attempt_at, first_error,
            last_error, fingerprint)
        SELECT 'd', {n}, 't', 'dead', false, 1, UTC_TIMESTAMP(6), 'e', 'e', CONCAT('f', d.n) {numbers}"
    );
    let dead_letters = format!(
        "INSERT INTO twinbox_dead_letters
            (consumer, message_id, reason, error, fingerprint, attempts, event_id, source, type, version,
            time, content_type, payload, given_up_at)
        SELECT 'c', RANDOM_BYTES(16), 'r', 'e', CONCAT('f', d.n), 1, {n}, 's', 't', 1, UTC_TIMESTAMP(6),
            'a/b', '{{}}', '2026-01-01' + INTERVAL {n} SECOND {numbers}"
    );
    for fill in [
        "SET @tens = '[0,1,2,3,4,5,6,7,8,9]'",
        &parked,
        &dead_letters,
        "ANALYZE TABLE twinbox_parked_messages, twinbox_dead_letters",
    ] {
        sqlx::raw_sql(AssertSqlSafe(fill)).execute(&mut *conn).await.unwrap();
    }
    let (middle, end) = (Bind::Text("2026-01-01 01:00:00"), Bind::Text("2027-01-01"));
    let text = |value: &'static str| Bind::Text(value);
    for (statement, binds, at_most) in [
        (plans::next_group(&database), &[text("c"), text("f4")][..], 5),
        (
            plans::group_counts(&database),
            &[middle, text("c"), text("f4"), text("c"), text("f4"), Bind::Number(500)],
            1_100,
        ),
        (
            plans::group_before(&database),
            &[text("c"), text("f4"), middle, middle, Bind::Number(i64::MAX), Bind::Number(51)],
            60,
        ),
        (
            plans::consumer_before(&database),
            &[text("c"), middle, middle, Bind::Number(i64::MAX), Bind::Number(51)],
            60,
        ),
        (
            plans::consumer_after(&database),
            &[text("c"), middle, middle, Bind::Number(0), end, Bind::Number(51)],
            60,
        ),
        (plans::count_of_consumer(&database), &[text("c"), end, Bind::Number(500)], 1_100),
        (plans::count_of_destination(&database), &[text("d"), end, Bind::Number(500)], 1_100),
        (plans::next_destination(&database), &[text("")], 5),
        (plans::next_group_of_destination(&database), &[text("d"), text("f4")], 5),
        (
            plans::group_counts_of_destination(&database),
            &[middle, text("d"), text("f4"), text("d"), text("f4"), Bind::Number(500)],
            1_100,
        ),
        (
            plans::group_before_of_destination(&database),
            &[text("d"), text("f4"), Bind::Number(i64::MAX), Bind::Number(1)],
            30,
        ),
    ] {
        let (first, before) = (rows_read(conn).await, rows_read(conn).await);
        let mut query = sqlx::query(AssertSqlSafe(statement.clone()));
        for bind in binds {
            query = match *bind {
                Bind::Text(text) => query.bind(text),
                Bind::Number(number) => query.bind(number),
            };
        }
        query.fetch_all(&mut *conn).await.unwrap();
        // Without those that the question costs.
        let read = rows_read(conn).await - before - (before - first);
        assert!(read <= at_most, "{read} rows were read: {statement}");
    }
}

/// A value of a statement.
#[derive(Clone, Copy)]
enum Bind {
    Text(&'static str),
    Number(i64),
}
