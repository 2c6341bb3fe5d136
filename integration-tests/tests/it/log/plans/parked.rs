//! What a look at parked messages reads.
use super::*;

/// Beside a hundred thousand that are parked for others, which are no concern of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_look_reads_what_is_parked_for_its_owner() {
    let database = database().await;
    let conn = &mut *database.pool().acquire().await.unwrap();
    // For the first owner 10,000 of one key, for another ten of each key.
    for fill in [
        "INSERT INTO twinbox.parked_messages
            (destination, position, key, type, state, blocks_key, attempts, next_attempt_at, first_error, \
            last_error, fingerprint)
        SELECT CASE WHEN n <= 10000 THEN 'd' ELSE 'other' END, n,
            CASE WHEN n <= 10000 THEN 'hot' ELSE 'k' || n % 10000 END,
            't', 'waiting', true, 1, now() + interval '1 hour', 'e', 'e', 'f'
        FROM generate_series(1, 110000) n",
        "INSERT INTO twinbox.parked_deliveries
            (consumer, partition, next_attempt_at, message_id, event_id, source, type, version, key, time,
            content_type, payload)
        SELECT CASE WHEN n <= 10000 THEN 'c' ELSE 'other' END, 0, now() + interval '1 hour', \
        gen_random_uuid(), n,
            's', 't', 1, CASE WHEN n <= 10000 THEN 'hot' ELSE 'k' || n % 10000 END, now(), 'a/b', '{}'
        FROM generate_series(1, 110000) n",
        "VACUUM ANALYZE twinbox.parked_messages, twinbox.parked_deliveries",
    ] {
        sqlx::raw_sql(fill).execute(&mut *conn).await.unwrap();
    }
    let (d, c) = (["'d'".to_owned()], ["'c'".to_owned(), "0".to_owned()]);
    for mode in MODES {
        let heads = plans::parked_heads(&database);
        let cost = explain_with(conn, mode, &heads, &["text"; 3], &[&d[..]; 3].concat()).await;
        cost.assert_at_most(10_010.0, 200.0);
        let heads = plans::deliveries_heads(&database);
        let types = ["text", "bigint"].repeat(3);
        let cost = explain_with(conn, mode, &heads, &types, &[&c[..]; 3].concat()).await;
        cost.assert_at_most(10_010.0, 200.0);
    }
}

/// Twice as many of each kind wait for the consumer as are counted, and five times as many for others.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_consumer_is_counted_no_further_than_it_is_told() {
    let database = database().await;
    let conn = &mut *database.pool().acquire().await.unwrap();
    let counted: u32 = long::or(10_000, 4_000);
    for fill in [
        "ALTER TABLE twinbox.inbox DISABLE TRIGGER refuse_commit",
        "INSERT INTO twinbox.inbox (consumer, message_id, source, event_id, payload_hash, state, claimed_at)
        SELECT CASE WHEN n % 6 = 0 THEN 'c' ELSE 'other' END, gen_random_uuid(), 's', n, '', 'processed',
            now() - n * interval '1 second'
        FROM generate_series(1, 120000) n",
        "INSERT INTO twinbox.dead_letters
            (consumer, message_id, reason, error, fingerprint, attempts, event_id, source, type, version, \
            time, content_type, payload, given_up_at)
        SELECT CASE WHEN n % 6 = 0 THEN 'c' ELSE 'other' END, gen_random_uuid(), 'r', 'e', 'f', 1, n, 's',
            't', 1, now(), 'a/b', '{}', now() - n * interval '1 second'
        FROM generate_series(1, 120000) n",
        "INSERT INTO twinbox.parked_deliveries
            (consumer, partition, next_attempt_at, message_id, event_id, source, type, version, key, time,
            content_type, payload)
        SELECT CASE WHEN n % 6 = 0 THEN 'c' ELSE 'other' END, n % 16, now(), gen_random_uuid(), n, 's', 't',
            1, 'k' || n % 1000, now(), 'a/b', '{}'
        FROM generate_series(1, 120000) n",
        "INSERT INTO twinbox.parked_messages
            (destination, position, type, state, blocks_key, attempts, next_attempt_at, first_error, \
            last_error, fingerprint)
        SELECT CASE WHEN n % 6 = 0 THEN 'consumer:c' ELSE 'other' END, n, 't', 'waiting', false, 1, now(), \
        'e', 'e', 'f'
        FROM generate_series(1, 120000) n",
        "INSERT INTO twinbox.consumers (consumer) SELECT 'c' || n FROM generate_series(1, 1000) n",
        "VACUUM ANALYZE twinbox.inbox, twinbox.dead_letters, twinbox.parked_messages, \
        twinbox.parked_deliveries, twinbox.consumers",
    ] {
        let fill = fill.replace("120000", &(12 * counted).to_string());
        sqlx::raw_sql(AssertSqlSafe(fill)).execute(&mut *conn).await.unwrap();
    }
    let limit = counted.to_string();
    let (name, limit) = (("text", "'c'"), ("bigint", limit.as_str()));
    let binds = [name, name, name, limit, name, limit, name, limit, name];
    let (types, values) = (binds.map(|bind| bind.0), binds.map(|bind| bind.1.to_owned()));
    for mode in MODES {
        let backlog = plans::consumer_backlog(&database);
        let cost = explain_with(conn, mode, &backlog, &types, &values).await;
        cost.assert_at_most(f64::from(3 * counted) + 10.0, 100.0 + f64::from(counted) / 25.0);
    }
}
